"""Machine state before and during samples: flags, clocks, energy, and GPU counters read during work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import namedtuple
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contract.sample_flags import FLAGS, Flag, format_flags, parse_sample_flags, worst_flags
from experiments import counters, machine_state
from experiments.counters import Totals, Values
from experiments.machine_state import (
    GPU_WINDOW_S,
    WINDOW_S,
    Reading,
    Watch,
    clock_flags,
    compare_totals,
    crowding_flags,
)
from tests.experiments.conftest import Tree
from tests.experiments.nvml_standin import FakeNvml

CALM = Totals(time_s=0.0, stalled_s=0.0)


def flags_of_one_second(**rises: float) -> list[str]:
    """Return the flags for one second on four cores in which the fields of `Totals` rise by `rises`."""
    return [str(flag) for flag in compare_totals(CALM, replace(CALM, time_s=1.0, **rises), cores=4)[1]]


@pytest.mark.parametrize(
    ("rises", "flags"),
    [
        ({"busy_s": 3.24, "own_s": 2.0}, ["busy: 31% other load"]),
        ({"busy_s": 2.3, "own_s": 2.0}, []),
        ({"stolen_s": 1.24}, ["steal: 31%"]),
        ({"stolen_s": 0.04}, []),
        ({"queued_s": 0.12}, ["queued: waited for a core 12% of the time"]),
        ({"periods": 3.0, "quota_hits": 2.0}, ["throttled: cgroup quota in 67% of its periods"]),
        ({"periods": 3.0}, []),
        ({"heat_throttles": 1.0}, ["throttled: heat"]),
        ({"stops": 1.0}, ["stopped: by a signal, and went on"]),
        ({"stalled_s": 0.12}, ["memory: stalled 12% of the time"]),
        ({"stalled_s": 0.01}, []),
        ({"pages": 1200.0}, ["memory: 1,200 pages a second from or to the disk"]),
        ({"pages": 100.0}, []),
        ({"busy_s": 4.0, "stolen_s": 1.0}, ["busy: 100% other load", "steal: 25%"]),
    ],
)
def test_window_flags_have_their_figure(rises: dict[str, float], flags: list[str]) -> None:
    assert flags_of_one_second(**rises) == flags


@given(st.builds(Totals, *[st.floats(0, 1e6)] * 5, st.none() | st.floats(0, 1e6), *[st.floats(0, 1e6)] * 4))
def test_any_counters_give_valid_shares_and_readable_flags(later: Totals) -> None:
    now = Totals(**{**asdict(later), "time_s": CALM.time_s + 0.25 + later.time_s})
    values, flags = compare_totals(CALM, now, cores=4)
    assert all(value is not None and value >= 0 for value in values.values())
    assert parse_sample_flags(format_flags(flags)) == flags


class SimulatedMachine:
    """Machine whose clock and counters advance only when a test moves them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.totals, self.megahertz = CALM, 0.0
        self.watts: float | None = None
        self.counted: float | None = None
        monkeypatch.setattr(machine_state, "time", SimpleNamespace(perf_counter=lambda: self.totals.time_s))
        monkeypatch.setattr(machine_state.os, "cpu_count", lambda: 4)
        monkeypatch.setattr(counters, "read_totals", lambda _: self.totals)
        monkeypatch.setattr(
            counters, "cpu_counters", lambda _: counters.Counters(self._values, joules=lambda: self.counted)
        )

    def _values(self) -> Values:
        return {"clock_mhz": self.megahertz or None, "power_w": self.watts}

    def advance(self, seconds: float, other_cores: float = 0.0, megahertz: float = 0.0) -> None:
        busy = self.totals.busy_s + other_cores * seconds
        self.totals = replace(self.totals, time_s=self.totals.time_s + seconds, busy_s=busy, allowed_busy_s=busy)
        self.megahertz = megahertz

    def draw_power(self, watch: Watch, seconds: float, watts: float) -> None:
        """Draw `watts` for `seconds`, and read the state once per window."""
        self.watts = watts
        for _ in range(round(seconds / WINDOW_S)):
            self.advance(WINDOW_S)
            self.counted = None if self.counted is None else self.counted + watts * WINDOW_S
            watch.read()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimulatedMachine:
    return SimulatedMachine(monkeypatch)


def test_all_samples_in_a_window_get_its_state(machine: SimulatedMachine) -> None:
    watch = Watch("cpu")
    watch.begin()
    readings = []
    for _ in range(3):
        machine.advance(WINDOW_S / 2, other_cores=2)
        readings.append(watch.read())
    machine.advance(WINDOW_S, other_cores=0)
    calm = watch.read()
    assert [reading.flags for reading in readings[:2]] == ["busy: 50% other load"] * 2
    assert readings[0].other_load == pytest.approx(0.5)
    # The third sample was the first of a window in which the machine was mostly idle.
    assert readings[2].other_load == calm.other_load == pytest.approx(0.5 / 3)


def test_clock_is_compared_only_within_a_point(machine: SimulatedMachine) -> None:
    watch, flags = Watch("cpu"), []
    assert clock_flags(0, 3000) == []
    for point in ((3000, 2900, 2400), (2400, 2400)):
        watch.begin()
        for megahertz in point:
            machine.advance(WINDOW_S, megahertz=megahertz)
            flags.append(watch.read().flags)
    assert flags == ["", "", "clock: 20% below the highest seen", "", ""]


def test_state_before_a_point_affects_only_its_first_sample(machine: SimulatedMachine) -> None:
    watch, flags = Watch("cpu"), []
    machine.advance(2.0, other_cores=2)
    watch.begin()
    machine.advance(WINDOW_S / 10)
    assert watch.read().other_load == pytest.approx(0.5), "a point shorter than a window has the state before it"
    for other_cores in (0, 0, 2):
        if other_cores:
            machine.advance(2.0, other_cores)
            watch.begin()
        machine.advance(WINDOW_S)
        flags.append(watch.read().flags)
    assert flags == ["", "", "busy: 50% other load"]


def measure_energy(
    machine: SimulatedMachine, counted: float | None, *draws: tuple[float, float], after: float | None = None
) -> Any:
    """Return the joules during `draws` and half a window after them, and the method that measured the joules.

    Return None if the joules are unknown.

    counted: the energy counter's value at the start, or None for a machine without a counter
    draws: pairs of seconds and watts
    after: replaces the value that the counter reached by the end; a negative number removes the counter
    """
    machine.counted = counted
    watch = Watch("cpu")
    machine.draw_power(watch, 1.0, watts=40)
    start = watch.energy()
    for seconds, watts in draws:
        machine.draw_power(watch, seconds, watts)
    machine.advance(WINDOW_S / 2)
    machine.counted = machine.counted if after is None else None if after < 0 else after
    energy = watch.energy_since(start)
    return energy and (round(energy.joules, 6), energy.method)


def test_energy_comes_from_the_counter_or_else_from_power(machine: SimulatedMachine) -> None:
    assert measure_energy(machine, 1e6, (2.0, 100)) == (200, "energy")
    # The power in the unfinished window is assumed to equal the power in the last whole window.
    summed = 2 * 100 + 200 + WINDOW_S / 2 * 200
    assert measure_energy(machine, None, (2.0, 100), (1.0, 200)) == (summed, "energy_from_power")
    assert measure_energy(machine, 0.0, (1.0, 100), after=-1) == (100 + WINDOW_S / 2 * 100, "energy_from_power")
    assert measure_energy(machine, 1e6, (1.0, 100), after=3.0) is None, "a counter that was reset"
    machine.watts = None
    watch = Watch("cpu")
    start = watch.energy()
    machine.advance(5.0)
    watch.read()
    assert watch.energy_since(start) is None, "neither counter nor power"


def test_flags_merge_to_the_worst_per_name() -> None:
    pairs = [("steal", "3%"), ("busy", "9% other load"), ("steal", "12%"), ("throttled", "heat")]
    flags = [Flag(*pair) for pair in (*pairs, ("throttled", "power limit"), ("throttled", "heat"))]
    assert format_flags(worst_flags(flags)) == "busy: 9% other load; steal: 12%; throttled: heat and power limit"


WORDS = st.from_regex(r"[a-z0-9][a-z0-9 %,.:]*[a-z0-9%]", fullmatch=True)


@given(st.lists(st.builds(Flag, st.sampled_from(sorted(FLAGS)), WORDS), max_size=6))
def test_flags_survive_formatting_and_parsing(flags: list[Flag]) -> None:
    assert parse_sample_flags(format_flags(flags)) == flags
    assert parse_sample_flags("busy steal") == [Flag("busy"), Flag("steal")], "as in the first edition"
    with pytest.raises(ValueError, match="no flag 'buzy'"):
        parse_sample_flags("buzy: 3%")


def pressure_file(microseconds: int) -> str:
    return f"some avg10=0.00 avg60=0.00 avg300=0.00 total={microseconds}\nfull avg10=0.00 total=7"


@pytest.mark.parametrize(
    ("files", "quota", "periods"),
    [
        ({"proc/self/cgroup": "0::/user/study", "sys/fs/cgroup/cpu.stat": "usage_usec 1",
          "sys/fs/cgroup/user/cpu.stat": "nr_periods 10\nnr_throttled 3",
          "sys/fs/cgroup/user/study/cpu.stat": "nr_periods 4\nnr_throttled 1"}, None, (14, 4)),
        ({"proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/",
          "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 8\nnr_throttled 2\nthrottled_time 5",
          "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
          "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000"}, 0.5, (8, 2)),
    ],
    ids=["every level", "an older one inside a container"],
)  # fmt: skip
def test_quotas_are_read_from_cgroups(
    tree: Tree, files: dict[str, str], quota: float | None, periods: tuple[int, int]
) -> None:
    root = tree(files)
    assert (counters.cpu_quota(root), counters.quota_periods(root)) == (quota, periods)


def test_pressure_comes_from_the_own_cgroup_if_counted(tree: Tree, tmp_path: Path) -> None:
    assert counters.pressure("memory", tmp_path / "nothing") is None
    root = tree({"proc/pressure/memory": pressure_file(3_000_000)})
    assert counters.pressure("memory", root) == 3.0
    files = {
        "proc/self/cgroup": "0::/a\n",
        "sys/fs/cgroup/a/cpu.stat": "",
        "sys/fs/cgroup/a/memory.pressure": pressure_file(50),
    }
    counters.cgroup_folders.cache_clear()
    assert counters.pressure("memory", tree(files)) == pytest.approx(50e-6)


def test_clock_and_temperature_come_from_kernel_files(tree: Tree) -> None:
    root = tree(
        {
            **{f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_cur_freq": f"{2000000 + n}\n" for n in range(2)},
            "sys/class/hwmon/hwmon0/name": "nvme\n",
            "sys/class/hwmon/hwmon1/name": "k10temp\n",
            "sys/class/hwmon/hwmon1/temp1_input": "61500\n",
        }
    )
    values = counters.cpu_counters(SimpleNamespace(cpu_num=lambda: 1), root).values()  # type: ignore[arg-type]
    assert values == {"clock_mhz": 2000.001, "temperature_c": 61.5, "power_w": None}


def test_energy_covers_all_sockets_and_nothing_twice(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zones = {"0": ("package-0", 5), "0:0": ("core", 3), "1": ("package-1", 2), "2": ("psys", 9)}
    files, process = {}, SimpleNamespace(cpu_num=lambda: 0)
    for zone, (name, energy) in zones.items():
        files[f"sys/class/powercap/intel-rapl:{zone}/name"] = f"{name}\n"
        files[f"sys/class/powercap/intel-rapl:{zone}/energy_uj"] = f"{energy}000000\n"
    assert counters.cpu_counters(process, tmp_path).joules() is None  # type: ignore[arg-type]
    two_sockets = counters.cpu_counters(process, tree(files))  # type: ignore[arg-type]
    assert two_sockets.joules() == pytest.approx(7.0)
    clock = iter([0.0, 2.0])
    monkeypatch.setattr(counters, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert two_sockets.values()["power_w"] is None
    (tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj").write_text("5000000\n")
    assert two_sockets.values()["power_w"] == pytest.approx(1.5), "3 J in 2 s"
    # Unprivileged users cannot read some counters, and then the sum is unknown.
    (tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj").unlink()
    assert two_sockets.joules() is None


def test_gpu_counters_and_flags_come_from_nvml() -> None:
    answers = {
        "CurrentClocksThrottleReasons": (
            pynvml.nvmlClocksThrottleReasonSwPowerCap | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
        ),
        "ComputeRunningProcesses": [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=1)],
        "TotalEnergyConsumption": 2500,
        "UtilizationRates": SimpleNamespace(gpu=97, memory=3),
    }
    gpu = counters.gpu_counters("cuda:0", FakeNvml(answers))
    assert gpu.values() == {
        "clock_mhz": 1980.0,
        "memory_clock_mhz": 1980.0,
        "temperature_c": 41.0,
        "power_w": 80.0,
        "utilisation": 0.97,
    }
    flags = ["throttled: power limit", "throttled: heat (hardware slowdown)", "busy: 1 other on the GPU"]
    assert [str(flag) for flag in gpu.flags()] == flags
    assert gpu.joules() == 2.5
    # In a container, this process may have another id for NVML, so the only process on a GPU is taken for this process.
    calm = counters.gpu_counters("cuda:0", FakeNvml({"ComputeRunningProcesses": [SimpleNamespace(pid=1)]}))
    assert (list(calm.flags()), calm.joules()) == ([], None)
    silent = counters.gpu_counters("cuda:0", FakeNvml(broken=True))
    assert (silent.values(), list(silent.flags()), silent.joules()) == ({}, [], None)


def first_gpu_counters(monkeypatch: pytest.MonkeyPatch, library: FakeNvml, **properties: Any) -> counters.Counters:
    """Return the counters for torch's first GPU, to which torch gives these properties."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    answers = {"is_available": True, "device_count": 1, "get_device_properties": SimpleNamespace(**properties)}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    return counters.gpu_counters("cuda:0", library)


PLACE = {"pci_domain_id": 0, "pci_bus_id": 0x4F, "pci_device_id": 0}


@pytest.mark.parametrize(
    ("properties", "watts"),
    [
        pytest.param({"uuid": "b"}, 300.0, id="by UUID"),
        pytest.param({"uuid": "GPU-b"}, 300.0, id="by UUID with its prefix"),
        pytest.param(PLACE, 300.0, id="by its place on the bus"),
        pytest.param({"uuid": "unknown"}, None, id="unknown"),
        pytest.param({"uuid": ""}, None, id="no UUID"),
        pytest.param({}, None, id="torch tells none"),
        pytest.param({**PLACE, "pci_bus_id": 0x50}, None, id="another place"),
    ],
)
def test_gpu_is_watched_by_its_identity_and_not_by_its_index(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, Any], watts: float | None
) -> None:
    other = {"UUID": "GPU-a", "TotalEnergyConsumption": 7, "CurrentClocksThrottleReasons": 4}
    card = {"UUID": "GPU-b", "BusId": "00000000:4f:00.0", "PowerUsage": 300_000}
    gpu = first_gpu_counters(monkeypatch, FakeNvml(other, card), **properties)
    assert gpu.values().get("power_w") == watts
    assert (gpu.joules(), list(gpu.flags())) == (None, [])
    assert watts or gpu.values() == {}


@pytest.mark.parametrize("uuid", ["s", "a"])
def test_mig_slice_does_not_get_the_whole_gpus_energy(monkeypatch: pytest.MonkeyPatch, uuid: str) -> None:
    """Only values that all slices share are read.

    uuid: the UUID that torch reports: s for the slice, a for its GPU.
    """
    counted = {"TotalEnergyConsumption": 9000, "ComputeRunningProcesses": [SimpleNamespace(pid=1)] * 3}
    card, part = {"UUID": "GPU-a", "MigMode": [1, 1], **counted}, {"UUID": "MIG-s", **counted}
    del part["TotalEnergyConsumption"]
    gpu = first_gpu_counters(monkeypatch, FakeNvml({"UUID": "GPU-other"}, card, slices=[part]), uuid=uuid)
    values = gpu.values()
    assert (values["power_w"], values["utilisation"], gpu.joules(), list(gpu.flags())) == (None, None, None, [])
    assert (values["clock_mhz"], values["temperature_c"]) == (1980.0, 41.0)


BOOSTED, AT_REST = 1980.0, 345.0


class SimulatedGpu:
    """Host and GPU with one clock, which advances when the GPU works, the host waits, or counters are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.idle_from_s = 0.0, 0.0
        self.flags: list[Flag] = []
        monkeypatch.setattr(machine_state, "time", SimpleNamespace(perf_counter=lambda: self.now_s))
        monkeypatch.setattr(counters, "read_totals", lambda _: self._totals())
        gpu = counters.Counters(self._values, lambda: self.flags, lambda: None)
        monkeypatch.setattr(counters, "gpu_counters", lambda device: gpu)

    def _totals(self) -> Totals:
        self.now_s += 0.5e-3
        return Totals(time_s=self.now_s, stalled_s=0.0)

    def _values(self) -> Values:
        """Return the clock after 8 ms, because NVML calls take milliseconds."""
        clock = BOOSTED if self.now_s < self.idle_from_s else AT_REST
        self.now_s += 8e-3
        return {"clock_mhz": clock}

    def sample(self, watch: Watch, seconds: float) -> Reading:
        """Work for `seconds`; read the GPU meanwhile and the sample's state at the end."""
        self.idle_from_s = self.now_s + seconds
        watch.look()
        self.now_s = max(self.now_s, self.idle_from_s)
        return watch.read()


@pytest.fixture
def simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> SimulatedGpu:
    return SimulatedGpu(monkeypatch)


def test_samples_get_their_windows_state_read_during_gpu_work(simulated_gpu: SimulatedGpu) -> None:
    watch = Watch("cuda:0")
    watch.begin()  # the GPU is idle
    early = [simulated_gpu.sample(watch, WINDOW_S / 3) for _ in range(3)]
    assert {reading.clock_mhz for reading in early} == {BOOSTED}
    simulated_gpu.flags = [Flag("throttled", "power limit")]
    late = [simulated_gpu.sample(watch, WINDOW_S) for _ in range(2)]
    # The first late sample still belongs to the window of the early samples, so its flag applies to them too.
    assert [reading.flags for reading in (*early, *late)] == ["throttled: power limit"] * 5
    simulated_gpu.flags = []
    after = [simulated_gpu.sample(watch, GPU_WINDOW_S / 2) for _ in range(3)]
    assert [reading.flags for reading in (late[0], *late[1:], *after)] == ["throttled: power limit", "", "", "", ""]


def power_field(milliwatts: int, status: int) -> Any:
    """Return NVML's answer for the field of instant power, with this value and status."""
    fields = (pynvml.c_nvmlFieldValue_t * 1)()
    fields[0].fieldId, fields[0].nvmlReturn = pynvml.NVML_FI_DEV_POWER_INSTANT, status
    fields[0].valueType, fields[0].value.uiVal = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, milliwatts
    return fields


@pytest.mark.parametrize(
    ("library", "watts"),
    [
        pytest.param(FakeNvml({"FieldValues": power_field(650_000, 0)}), 650.0, id="as it is now"),
        pytest.param(FakeNvml({"FieldValues": power_field(0, 3)}), 80.0, id="the driver has no such field"),
        pytest.param(FakeNvml({}), 80.0, id="the driver has no fields"),
    ],
)
def test_power_is_instantaneous_if_the_driver_has_it(library: FakeNvml, watts: float) -> None:
    assert counters.gpu_counters("cuda:0", library).values()["power_w"] == watts


@pytest.mark.parametrize(
    ("cpus", "cores", "threads", "others", "flag"),
    [
        (2, 2, 2, 1.0, "crowded: others had 1.0 cores, so that 2 threads shared 1.0 free cores"),
        (2, 2, 2, 0.2, ""),
        (2, 2, 1, 1.0, ""),
        (2, 2, 1, 1.9, "crowded: others had 1.9 cores, so that 1 thread had 0.1 free cores"),
        # One neighbour uses less than 1% of the cores, but takes half a core from a thread.
        (64, 64, 64, 0.5, "crowded: others had 0.5 cores, so that 64 threads shared 63.5 free cores"),
        (64, 64, 63, 0.5, ""),
        # A neighbour on a core's other hardware thread slows that core too.
        (16, 8, 8, 1.0, "crowded: others had 1.0 cores, so that 8 threads shared 7.0 free cores"),
        (16, 8, 7, 1.0, ""),
        (4, 4, 0, 4.0, ""),
    ],
)
def test_points_are_flagged_only_if_a_thread_lacks_a_core(
    cpus: int, cores: int, threads: int, others: float, flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_state.topology, "allowed_cpus", lambda: frozenset(range(cpus)))
    monkeypatch.setattr(machine_state.processor, "usable_cores", lambda allowed: cores)
    now = replace(CALM, time_s=0.5, allowed_busy_s=(others + threads) / 2, own_s=threads / 2)
    assert format_flags(crowding_flags(CALM, now, threads)) == flag
    assert [str(parsed) for parsed in parse_sample_flags(flag)] == [flag][: len(flag)]


def test_busy_time_is_counted_on_allowed_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    times = SimpleNamespace(user=3.0, system=1.0, idle=90.0, iowait=5.0, steal=2.0)
    each = [counters.psutil._ntuples.scputimes(*([float(cpu + 1), 0.0, 0.0, 50.0] + [0.0] * 6)) for cpu in range(4)]
    monkeypatch.setattr(counters.psutil, "cpu_times", lambda percpu=False: each if percpu else times)
    monkeypatch.setattr(counters.topology, "online_cpus", lambda: frozenset({0, 1, 4, 5}))
    monkeypatch.setattr(counters.topology, "allowed_cpus", lambda: frozenset({1, 5}))
    assert counters._allowed_busy_s(99.0) == 2.0 + 4.0
    monkeypatch.setattr(counters.topology, "allowed_cpus", lambda: frozenset({0, 1, 4, 5}))
    assert counters._allowed_busy_s(99.0) == 99.0


@pytest.mark.parametrize("children_by_psutil", [True, False])
def test_own_cpu_time_includes_child_processes(monkeypatch: pytest.MonkeyPatch, children_by_psutil: bool) -> None:
    own = psutil.Process()
    if not children_by_psutil:  # as on macOS
        real = own.cpu_times
        monkeypatch.setattr(own, "cpu_times", lambda: (*real()[:2], 0.0, 0.0))
    before = counters._own_cpu_s(own)
    subprocess.run([sys.executable, "-c", "end = __import__('time').process_time\nwhile end() < 0.3: pass"], check=True)
    assert counters._own_cpu_s(own) - before >= 0.25


def test_mac_gives_totals_without_the_counters_that_it_lacks(monkeypatch: pytest.MonkeyPatch, tree: Tree) -> None:
    """psutil's fields on macOS: no steal, no iowait, pages of 16 kiB; no affinity and no kernel files."""
    times = namedtuple("times", "user nice system idle")
    swap = namedtuple("swap", "total used free percent sin sout")
    spent = [times(10.0, 0.0, 5.0, 85.0), times(12.0, 0.0, 5.5, 87.5)]
    # More pages than this process's own page faults.
    moved = [swap(0, 0, 0, 0.0, pages << 14, 0) for pages in (1_000_000, 1_001_200)]
    monkeypatch.setattr(counters, "_PAGE", 1 << 14)
    monkeypatch.setattr(counters.psutil, "cpu_times", lambda percpu=False: spent[0])
    monkeypatch.setattr(counters.psutil, "swap_memory", lambda: moved[0])
    monkeypatch.setattr(counters, "pressure", lambda kind: None)
    monkeypatch.setattr(counters, "quota_periods", lambda: (0.0, 0.0))
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    before = counters.read_totals(psutil.Process())
    spent.pop(0), moved.pop(0)
    now = replace(counters.read_totals(psutil.Process()), time_s=before.time_s + 1, own_s=before.own_s)
    values, flags = compare_totals(before, now, cores=4)
    assert values == {"other_load": pytest.approx(2.5 / 4), "steal": None}
    assert [flag.name for flag in flags] == ["busy", "memory"]
    assert "1,200 pages" in str(flags[1])
    assert counters.cpu_counters(SimpleNamespace(), tree({})).values() == dict.fromkeys(
        ("clock_mhz", "temperature_c", "power_w")
    )
