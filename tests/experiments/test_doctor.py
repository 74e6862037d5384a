"""The doctor's checks distinguish healthy machines from machines that distort results.

The kernel files, and the answers of libraries and drivers, are simulated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pynvml
import pytest

from contract.errors import StudyError
from contract.node import write_node
from experiments import doctor, hardware
from experiments.cli import main
from experiments.counters import Totals
from experiments.doctor import cuda_checks, library_checks, machine_checks, plan_checks
from experiments.doctor.finding import Finding, Level, format_findings, note, ok, warning
from experiments.doctor.machine_checks import Watched
from tests.experiments.conftest import Tree
from tests.experiments.nvml_standin import FakeNvml
from tests.experiments.test_node import RECORD

CPUS = "sys/devices/system/cpu"
FREQUENCY = f"{CPUS}/cpu0/cpufreq"
CLOCK = "sys/devices/system/clocksource/clocksource0"
HEAT = {"sys/class/hwmon/hwmon0/name": "coretemp", "sys/class/hwmon/hwmon0/temp1_crit": "100000"}


def finding_level(finding: Finding | None) -> str:
    return finding.level.value if finding else "left out"


# Each entry is a check, the kernel files that it reads, and the level of the finding.
FILES: list[tuple[Callable[[Path], Finding | None], dict[str, str], str]] = [
    *((check, {}, "left out") for check in (
        machine_checks.governor, machine_checks.boost, machine_checks.clock_source,
    )),
    *((machine_checks.governor,
       {f"{FREQUENCY}/scaling_governor": governor, f"{FREQUENCY}/scaling_driver": driver}, level)
      for governor, driver, level in (
          ("performance", "acpi-cpufreq", "ok"), ("powersave", "intel_pstate", "note"),
          ("powersave", "acpi-cpufreq", "warning"), ("ondemand", "acpi-cpufreq", "warning"),
      )),
    *((machine_checks.boost, {f"{CPUS}/{name}": value}, level) for name, value, level in (
        ("intel_pstate/no_turbo", "0", "ok"), ("intel_pstate/no_turbo", "1", "note"),
        ("cpufreq/boost", "1", "ok"), ("cpufreq/boost", "0", "note"),
    )),
    (machine_checks.numa, {"sys/devices/system/node/node0/cpulist": "0"}, "ok"),
    (machine_checks.numa, {f"sys/devices/system/node/node{n}/cpulist": "0" for n in range(2)}, "note"),
    (machine_checks.clock_source, {f"{CLOCK}/current_clocksource": "tsc"}, "ok"),
    (machine_checks.clock_source,
     {f"{CLOCK}/current_clocksource": "hpet", f"{CLOCK}/available_clocksource": "tsc hpet"},
     "warning"),
    (machine_checks.clock_source, {f"{CLOCK}/current_clocksource": "acpi_pm"}, "warning"),
    *((machine_checks.quota, {
        "proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.stat": "nr_periods 100\nnr_throttled 12",
        "sys/fs/cgroup/cpu.max": granted,
      }, level) for granted, level in (("250000 100000", "warning"), ("max 100000", "ok"))),
    *((lambda root, allowed=allowed: machine_checks.isolated_cpus(root, allowed), {f"{CPUS}/isolated": words}, level)
      for words, allowed, level in (
          ("", {0, 1}, "ok"), ("2-3", {0, 1}, "note"), ("2-3", {0, 1, 2, 3}, "warning"), ("0-3,5", {4}, "note"),
      )),
    *((machine_checks.heat, {
        **HEAT, "sys/class/hwmon/hwmon0/temp1_input": f"{degrees}000",
        f"{CPUS}/cpu0/thermal_throttle/package_throttle_count": f"{times}",
      }, level) for degrees, times, level in ((61, 0, "ok"), (61, 7, "note"), (97, 0, "warning"))),
]  # fmt: skip


@pytest.mark.parametrize(("check", "files", "expected"), FILES)
def test_kernel_files_give_the_expected_finding(
    tree: Tree, check: Callable[[Path], Finding | None], files: dict[str, str], expected: str
) -> None:
    finding = check(tree(files))
    assert finding_level(finding) == expected
    assert finding is None or finding.level is not Level.WARNING or finding.mend


@pytest.mark.parametrize(("granted", "cores"), [(30_000, "0"), (250_000, "0-1"), (360_000, "0-3")])
def test_quota_finding_advises_whole_cores(
    tree: Tree, granted: int, cores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = {f"{CPUS}/cpu{cpu}/topology/thread_siblings_list": str(cpu) for cpu in range(8)}
    group = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": f"{granted} 100000"}
    monkeypatch.setattr(machine_checks, "allowed_cpus", lambda: frozenset(range(8)))
    finding = machine_checks.quota(tree({**group, **topology}))
    assert finding is not None and f"--cpuset-cpus={cores}," in finding.mend


def watch_one_second(busy: float, stolen: float = 0.0, **busiest: float) -> Watched:
    return Watched(Totals(0.0), Totals(1.0, busy_s=busy, stolen_s=stolen), list(busiest.items()))


def test_load_and_steal_are_shares_of_all_cores() -> None:
    assert watch_one_second(1.0, stolen=0.5).shares(4) == pytest.approx((0.25, 0.125))
    assert watch_one_second(0.0).shares(4) == (0, 0)


GIB = 2.0**30


FINDINGS: dict[str, list[Finding | None]] = {
    "left out": [machine_checks.battery(None, ""), machine_checks.virtualization(None)],
    "ok": [
        machine_checks.load(watch_one_second(0.01), 8),
        machine_checks.available_memory(6 * GIB, 8 * GIB, 0.0),
        machine_checks.available_memory(6 * GIB, 8 * GIB, None),
        machine_checks.available_memory(6 * GIB, 8 * GIB, 0.0, machine=64 * GIB),
        machine_checks.battery(True, "balanced"),
        machine_checks.disk_space(20 * GIB, "results"),
        machine_checks.affinity({0, 1}, 2),
        machine_checks.virtualization(False),
        machine_checks.processor_facts([]),
        library_checks.variables([]),
        library_checks.onednn(True),
        library_checks.numba(""),
        library_checks.vulkan(True, True),
        library_checks.vulkan(False, False),
        machine_checks.loopback(""),
    ],
    "note": [
        machine_checks.load(watch_one_second(0.4, updater=0.4), 8),
        machine_checks.affinity({0}, 2),
        machine_checks.virtualization(True),
        machine_checks.processor_facts(["sockets", "caches"]),
        library_checks.variables(["OPENBLAS_CORETYPE"]),
        library_checks.vulkan(False, True),
    ],
    "warning": [
        machine_checks.load(watch_one_second(2.5, yes=1.0, python=1.4), 8),
        machine_checks.available_memory(1 * GIB, 8 * GIB, 0.0),
        machine_checks.load(watch_one_second(0.9, yes=0.9), 64),  # a point with all threads needs every core
        machine_checks.available_memory(6 * GIB, 8 * GIB, 0.12),
        machine_checks.battery(False, ""),
        machine_checks.battery(True, "low-power"),
        machine_checks.disk_space(0.1 * GIB, "results"),
        library_checks.onednn(False),
        machine_checks.loopback("network is unreachable"),
    ],
}


@pytest.mark.parametrize(
    ("finding", "expected"), [(finding, level) for level in FINDINGS for finding in FINDINGS[level]]
)
def test_machine_and_library_checks_give_the_expected_level(finding: Finding | None, expected: str) -> None:
    assert finding_level(finding) == expected


def test_steal_level_depends_on_current_and_earlier_steal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks.psutil, "cpu_times", lambda: SimpleNamespace(steal=1.0))
    for before, now, expected in ((0.0, 0.0, "ok"), (0.0, 0.4, "warning"), (0.02, 0.0, "note")):
        monkeypatch.setattr(machine_checks, "_steal_since_start", lambda before=before: before)
        assert finding_level(machine_checks.steal(watch_one_second(0.0, stolen=now), 4)) == expected
    monkeypatch.setattr(machine_checks.psutil, "cpu_times", lambda: SimpleNamespace(idle=1.0))
    assert machine_checks.steal(watch_one_second(0.0), 4) is None


BUILT = cuda_checks.Torch("2.13.0", "13.0", None, sees=True)
PLAIN = cuda_checks.Torch("2.13.0+cpu", None, None, sees=False)
NOWHERE = Path("/nonexistent")


def examine_gpus(
    *cards: dict[str, Any], torch: cuda_checks.Torch = BUILT, device: str | None = None, **more: Any
) -> dict[str, Finding]:
    findings = cuda_checks.examine(NOWHERE, device, FakeNvml(*cards, **more), torch)
    assert len({finding.name for finding in findings}) == len(findings)
    return {finding.name: finding for finding in findings}


@pytest.mark.parametrize(
    ("answers", "name", "expected", "words"),
    [
        ({}, "persistence", "ok", ""),
        ({"PersistenceMode": 0}, "persistence", "note", "sudo nvidia-smi -i 0 -pm 1"),
        ({"ApplicationsClock": 1200, "DefaultApplicationsClock": 1980}, "clocks", "warning", "-rac"),
        ({"PowerManagementLimit": 350_000}, "power limit", "warning", "sudo nvidia-smi -i 0 -pl 700"),
        ({"CurrentClocksThrottleReasons": pynvml.nvmlClocksThrottleReasonSwPowerCap}, "throttling", "note",
         "which is normal"),
        ({"CurrentClocksThrottleReasons": pynvml.nvmlClocksThrottleReasonSwThermalSlowdown}, "throttling", "warning",
         "heat, 41 °C"),
        ({"ComputeRunningProcesses": [SimpleNamespace(pid=7)]}, "other processes", "warning", "1 (other-7)"),
        ({"UtilizationRates": SimpleNamespace(gpu=40, memory=0)}, "other processes", "warning", "40% busy"),
        ({"MemoryInfo": SimpleNamespace(used=60 * 2**30, total=2**37)}, "other processes", "warning",
         "60.0 of 128 GiB"),
        ({"ComputeMode": pynvml.NVML_COMPUTEMODE_PROHIBITED}, "compute mode", "warning", "-c DEFAULT"),
        ({"MigMode": [1, 0]}, "MIG", "warning", "-mig 0"),
        ({"CurrPcieLinkWidth": 8}, "link", "warning", "it could be x16"),
        ({"CurrPcieLinkGeneration": 1}, "link", "note", "it could be PCIe 5"),
    ],
)  # fmt: skip
def test_gpu_state_that_distorts_results_gives_exactly_one_finding(
    answers: dict[str, Any], name: str, expected: str, words: str
) -> None:
    findings = examine_gpus(answers)
    finding = findings.pop(f"GPU {name}")
    assert finding.level.value == expected
    assert words in f"{finding.seen} {finding.why} {finding.mend}"
    assert {other.level for other in findings.values() if other.name != "CuPy"} == {Level.OK}


def test_findings_name_their_gpu_and_can_be_limited_to_one() -> None:
    both = examine_gpus({"Index": 0}, {"Index": 1, "PersistenceMode": 0})
    assert both["GPU 0 persistence"].level is Level.OK
    assert both["GPU 1 persistence"].mend == "sudo nvidia-smi -i 1 -pm 1"
    second = examine_gpus({"Index": 0}, {"Index": 1}, device="cuda:1")
    assert "GPU 1 MIG" in second and "GPU 0 MIG" not in second
    assert "no cuda:5" in examine_gpus({}, device="cuda:5")["GPU"].seen


def test_torch_builds_and_drivers_that_cannot_use_the_gpu_are_reported(
    monkeypatch: pytest.MonkeyPatch, tree: Tree
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "whl/cu130" in examine_gpus({}, torch=PLAIN)["CUDA"].mend
    assert "whl/cu126" in examine_gpus({"CudaComputeCapability": (6, 0)}, torch=PLAIN)["CUDA"].mend
    assert "whl/cu118" in examine_gpus({}, cuda=11040)["CUDA"].mend
    assert "supports up to CUDA 12.8" in examine_gpus({}, cuda=12080)["CUDA"].seen
    blind = cuda_checks.Torch("2.13.0", "13.0", None, sees=False)
    assert (
        finding_level(examine_gpus({}, torch=blind)["CUDA"]) == "warning"
        and "prints the reason" in examine_gpus({}, torch=blind)["CUDA"].mend
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert finding_level(examine_gpus({})["CUDA"]) == "ok"
    assert examine_gpus({}, torch=blind)["CUDA"].mend == "unset CUDA_VISIBLE_DEVICES"
    silent = FakeNvml(broken=True)
    assert [finding.level for finding in cuda_checks.examine(NOWHERE, None, silent, PLAIN)] == [Level.OK]
    on_bus = {"sys/bus/pci/devices/0/vendor": "0x10de", "sys/bus/pci/devices/0/class": "0x030200"}
    (card,) = cuda_checks.examine(tree(on_bus), None, silent, PLAIN)
    assert (card.level, "modprobe nvidia" in card.mend) == (Level.WARNING, True)


def test_torch_that_fails_to_load_fails_only_its_own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = "torch cannot be loaded (libcudart.so.13: cannot open shared object file): install it again"
    for module in (library_checks, cuda_checks):
        monkeypatch.setattr(module, "load_torch", lambda: (None, refusal))
    findings = {finding.name: finding for finding in library_checks.examine()}
    assert (findings["torch"].level, findings["torch"].seen) == (Level.WARNING, refusal)
    assert "Numba" in findings
    names = {finding.name for finding in cuda_checks.examine(NOWHERE, None, FakeNvml({}))}
    assert {"driver", "GPU MIG"} <= names
    assert "CUDA" not in names


def test_warnings_come_first_and_set_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StudyError, match="--device gpu: not a device"):
        main(["doctor", "--device", "gpu"])
    findings = [ok("disk", "20 GiB free"), note("SMT", "on", "Two threads may share a core.")]
    bad = warning("load", "others take 31% of all cores", "They take cores. " * 20, "sudo stop " + "them " * 30)
    report = format_findings([*findings, bad], 80)
    assert report.index("load") < report.index("SMT") < report.index("disk")
    assert all(len(line) <= 80 for line in report.splitlines() if ">" not in line), "except commands"
    for code in (0, 1):
        monkeypatch.setattr(doctor, "examine", lambda device, code=code: [*findings, *[bad] * code])
        assert main(["doctor", "--json"]) == code
        document = json.loads(capsys.readouterr().out)
        assert document["warnings"] == code
    assert document["findings"][0] == {"name": "disk", "level": "ok", "seen": "20 GiB free", "why": "", "mend": ""}


def test_examination_does_not_change_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "WATCH_S", 0.2)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    before = dict(os.environ)
    findings = {finding.name: finding for finding in doctor.examine("cpu")}
    assert dict(os.environ) == before
    assert "OPENBLAS_CORETYPE" in findings["variables"].seen
    assert {"load", "memory", "disk", "processor"} <= findings.keys()
    assert not any(name.startswith("GPU") for name in findings)
    for finding in findings.values():
        assert finding.seen
        assert finding.why or finding.level is Level.OK
        assert finding.mend or finding.level is not Level.WARNING


@pytest.mark.parametrize(
    ("taken", "expected", "seen"),
    [
        ((110.0, 90.0), "ok", "as planned, 0.8 to 1.25 times: 2 of 2 experiments"),
        (
            (110.0, 200.0), "note",
            "longer than planned: training on cuda:0 (2.00 times); as planned, 0.8 to 1.25 times: 1 of 2 experiments",
        ),
        (
            (50.0, 200.0), "note",
            "longer than planned: training on cuda:0 (2.00 times); shorter than planned: gemm on cpu (0.50 times); "
            "as planned, 0.8 to 1.25 times: 0 of 2 experiments",
        ),
    ],
)  # fmt: skip
def test_predictions_are_compared_with_earlier_measurements(
    tmp_path: Path, taken: tuple[float, float], expected: str, seen: str
) -> None:
    assert plan_checks.predictions(tmp_path) is None
    kind = hardware.machine_kind()
    jobs = {
        name: {"predicted_s": [50.0, 50.0], "left_out": {}, "wall_s": [seconds / 2] * 2}
        for name, seconds in zip(("gemm.cpu", "training.cuda-0"), taken, strict=True)
    }
    for name, more in (("other", {"kind": f"{kind}-other"}), ("earlier", {}), ("this", {"jobs": jobs})):
        record = {**RECORD, "kind": kind, "instance": "", "ended_utc": f"2026-01-0{3 if more else 2}T00:00:00Z", **more}
        write_node(tmp_path / "nodes" / name / "node.json", {**record, "id": record["kind"]})
    finding = plan_checks.predictions(tmp_path)
    assert finding_level(finding) == expected
    assert finding is not None
    assert finding.seen == seen


def test_numba_that_fails_to_load_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_checks.importlib, "import_module", lambda _: 1 / 0)
    (finding,) = [finding for finding in library_checks.examine() if finding.name == "Numba"]
    assert finding.level is Level.WARNING and "division by zero" in finding.seen


def test_busiest_processes_have_their_share_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    def list_processes(seconds: float) -> list[Any]:
        spent = {2: ("build", SimpleNamespace(user=2 * seconds, system=seconds)), 3: ("hidden", None)}
        return [SimpleNamespace(pid=pid, info={"name": name, "cpu_times": used}) for pid, (name, used) in spent.items()]

    lists = iter([list_processes(5.0), list_processes(6.0)])
    monkeypatch.setattr(machine_checks.psutil, "process_iter", lambda _: next(lists))
    monkeypatch.setattr(machine_checks.counters, "read_totals", Mock(side_effect=[Totals(10.0), Totals(14.0)]))
    # User and system time rise from 10 and 5 s to 12 and 6 s within 4 s, so the process uses 0.75 of a core.
    assert machine_checks.watch_others(0.0).busiest == [("build", 0.75)]


def test_memory_stall_is_a_share_of_the_watched_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = machine_checks.watch_others(0.0)
    before, after = (
        replace(sample.before, time_s=time_s, stalled_s=stalled_s) for time_s, stalled_s in ((1.0, 4.0), (3.0, 4.5))
    )
    monkeypatch.setattr(machine_checks, "watch_others", lambda _: Watched(before, after, []))
    shares: list[float | None] = []
    monkeypatch.setattr(
        machine_checks, "available_memory", lambda _free, _total, stalled, _machine: shares.append(stalled)
    )
    machine_checks.examine(NOWHERE, Path())
    assert shares == [0.25]
