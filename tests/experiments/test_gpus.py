"""A machine's kind names its GPUs, and a machine whose GPU fails is not mistaken for another machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import StudyError
from contract.node import NODE_SCHEMA, node_id, read_node, write_node
from contract.schema import check_document
from experiments import counters, driver_errors, fingerprint, gpus, hardware, nvml
from experiments.cli import main
from experiments.devices import accelerator, rocm
from experiments.doctor import cuda_checks
from tests.experiments.conftest import Tree
from tests.experiments.nvml_standin import FakeNvml
from tests.experiments.test_doctor import BUILT, NOWHERE, PLAIN
from tests.experiments.test_node import RECORD
from tests.experiments.torch_standin import ARC, H100, MI300X, P100, Torch, install

CARD: dict[str, Any] = {"Name": H100.name, "MaxClockInfo": 1980}
LOST = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
UNKNOWN = pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
MISMATCH = pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
NONE = FakeNvml(broken=True)
GB10 = SimpleNamespace(name="NVIDIA GB10", total_memory=128 * 10**9, major=12, minor=1, multi_processor_count=48)

Machine = Callable[..., str]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a function that simulates a machine with a given NVML and torch, and returns the machine's kind."""

    def play(library: FakeNvml, torch: Torch | None = None) -> str:
        monkeypatch.setattr(nvml, "load_pynvml", lambda: library)
        install(monkeypatch, torch or Torch())
        return hardware.machine_kind()

    return play


def test_kind_names_all_gpus(machine: Machine) -> None:
    no_gpu, one_gpu = machine(NONE), machine(FakeNvml(CARD))
    assert machine(FakeNvml(CARD), Torch(H100, cuda="13.0")) == one_gpu, "NVML's GPU is not counted twice"
    assert machine(NONE, Torch(H100, cuda="13.0")) == one_gpu, "torch reports the same name"
    kinds = {
        no_gpu, one_gpu,
        machine(NONE, Torch(MI300X, hip="7.0")), machine(NONE, Torch(MI300X, MI300X, hip="7.0")),
        machine(NONE, Torch(ARC, xpu="20250301")), machine(FakeNvml(CARD), Torch(MI300X, hip="7.0")),
        machine(NONE, Torch(SimpleNamespace(**vars(H100) | {"name": "Apple M3"}), mps=True)),
    }  # fmt: skip
    assert len(kinds) == 7
    for kind in kinds:
        check_document(kind, NODE_SCHEMA["properties"]["kind"], "kind")


@pytest.mark.parametrize(
    "torch",
    [
        Torch(MI300X, hip="7.0"),
        Torch(MI300X, hip="7.0", architectures=["gfx90a"]),
        Torch(MI300X, hip="7.0", allocation_error=RuntimeError("HIP error: lost")),
    ],
)
def test_kind_names_unusable_gpus_too(machine: Machine, torch: Torch) -> None:
    assert machine(NONE, torch) == machine(NONE, Torch(MI300X, hip="7.0"))


def test_mig_slices_differ_in_kind_by_size(machine: Machine) -> None:
    with_mig = FakeNvml(CARD | {"MigMode": [1, 1]})
    slices = [SimpleNamespace(**vars(H100) | {"name": f"{H100.name} MIG {size}"}) for size in ("1g.10gb", "7g.80gb")]
    kinds = {machine(with_mig, Torch(part, cuda="13.0")) for part in slices}
    assert len(kinds) == 2 and machine(FakeNvml(CARD)) not in kinds


def test_torch_names_a_gpu_without_a_name_from_nvml(machine: Machine) -> None:
    machine(FakeNvml(CARD, {"Name": UNKNOWN}), Torch(H100, P100, cuda="13.0"))
    assert [card["name"] for card in gpus.list_gpus()] == [H100.name, P100.name]


@pytest.mark.parametrize(
    ("version", "loads"),
    [
        ("cuda = None\nhip = None", False),
        ("cuda = '13.0'\nhip = None", False),  # CUDA sees no GPU, because libcuda does not load
        ("cuda = None\nhip = '7.0'", True),
        ("cuda = None\nxpu = '2025'", True),
        ("nonsense", True),
    ],
)
def test_torch_is_loaded_only_if_it_may_see_a_gpu(
    version: str, loads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "version.py").write_text(version)
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(gpus.importlib.util, "find_spec", lambda _: spec)
    monkeypatch.setattr(gpus, "_CUDA", "libnot-there.so.1")
    assert gpus._torch_may_see_more(nvml_suffices=False) is loads


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes the record for the currently played machine."""

    def write(**more: Any) -> Path:
        path, kind = tmp_path / "node.json", hardware.machine_kind()
        facts = {"cpu": hardware.cpu(), "memory_bytes": 1, "gpus": gpus.list_gpus()}
        names = {"kind": kind, "instance": "0a1b2c", "id": node_id(kind, "0a1b2c")}
        write_node(path, {**RECORD, **names, "hardware": facts, **more})
        return path

    return write


TWO = FakeNvml(CARD, CARD)
AMD = Torch(MI300X, hip="7.0")


@pytest.mark.parametrize(
    ("library", "torch", "message"),
    [
        pytest.param(FakeNvml(refuses=UNKNOWN), Torch(), r"NVML does not answer \(Unknown Error\)", id="daemon-reload"),
        pytest.param(FakeNvml(refuses=MISMATCH), Torch(), r"version mismatch.*(reboot|restart)", id="driver updated"),
        pytest.param(FakeNvml(count=UNKNOWN), Torch(), r"NVML does not answer \(Unknown Error\)", id="no count"),
        pytest.param(NONE, Torch(H100, H100, cuda="13.0"), "NVML does not answer", id="torch still sees them"),
        pytest.param(FakeNvml(CARD, {"Handle": LOST}), Torch(), r"NVML does not report its name \(GPU is lost\).*xid",
                     id="one fell off the bus"),
        pytest.param(FakeNvml(CARD, {"Name": UNKNOWN}), Torch(), "does not report its name", id="one has no name"),
    ],
)  # fmt: skip
def test_gpu_lost_during_a_study_does_not_change_the_machine(
    library: FakeNvml, torch: Torch, message: str, machine: Machine, record: Callable[..., Path], tmp_path: Path
) -> None:
    kind = machine(TWO, Torch(H100, H100, cuda="13.0"))
    path = record()
    machine(library, torch)
    assert hardware.identity(path) == (kind, "0a1b2c")
    run = ["run", "gemm", "--out", str(tmp_path / "x.parquet"), "--node"]
    for words in (run, ["check", "--node"], ["probe", "--out"]):
        with pytest.raises(StudyError, match=message) as caught:
            main([*words, str(path)])
        assert H100.name in str(caught.value)
        assert "this machine is" not in str(caught.value)
        assert "folder of its own" not in str(caught.value)
    machine(TWO)
    assert main(["check", "--node", str(path)]) == 0


def test_lost_gpu_without_nvml_does_not_change_the_machine(
    machine: Machine, record: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocm, "_DRIVER", Path("/nonexistent"))
    kind = machine(NONE, AMD)
    path = record()
    machine(NONE, Torch(hip="7.0"))
    assert hardware.identity(path)[0] == kind
    with pytest.raises(StudyError, match=r"torch does not see it: .*ROCm: the driver is not loaded"):
        main(["check", "--node", str(path)])


@pytest.mark.parametrize(
    "now", [FakeNvml(CARD), FakeNvml(CARD, CARD, CARD), FakeNvml(CARD, {**CARD, "Name": "NVIDIA L4"})]
)
def test_changed_working_gpus_are_another_machine(now: FakeNvml, machine: Machine, record: Callable[..., Path]) -> None:
    kind = machine(TWO)
    path = record()
    other = machine(now)
    assert other != kind
    assert hardware.identity(path)[0] == other
    with pytest.raises(StudyError, match=f"describes {kind}, this machine is {other} and has (no )?NVIDIA"):
        main(["check", "--node", str(path)])


def test_gpu_that_did_not_answer_at_recording_is_named(machine: Machine, record: Callable[..., Path]) -> None:
    machine(FakeNvml(refuses=UNKNOWN))
    path = record()
    written = read_node(path)
    write_node(path, {**written, "hardware": {**written["hardware"], "nvml": nvml.status()}})
    machine(FakeNvml(CARD))
    with pytest.raises(StudyError, match=rf"has {H100.name}, .*\(NVML did not answer then: Unknown Error\)"):
        main(["check", "--node", str(path)])


def test_facts_unknown_at_recording_do_not_contradict(machine: Machine, record: Callable[..., Path]) -> None:
    machine(FakeNvml(CARD, {"Name": UNKNOWN}))
    path = record()
    machine(TWO)
    assert main(["check", "--node", str(path)]) == 0
    # In records from earlier versions, the machine's kind names only NVIDIA GPUs, and other GPUs appear only in
    # `devices`. Such a record keeps this kind, although the machine's kind would now name its AMD GPU too.
    machine(NONE)
    path = record(devices=[*RECORD["devices"], {"id": "cuda:0", "kind": "gpu", "name": MI300X.name}])
    kind = hardware.machine_kind()
    assert machine(NONE, AMD) != kind
    assert hardware.identity(path)[0] == kind


def test_processor_with_facts_unknown_now_is_the_same(
    machine: Machine, record: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = machine(NONE)
    path, facts = record(), hardware.cpu()
    fewer_facts = {key: value for key, value in facts.items() if key not in ("family", "simd")} | {
        "unknown": ["family", "simd"]
    }
    monkeypatch.setattr(hardware, "cpu", lambda: fewer_facts)
    assert hardware.machine_kind() != kind
    assert hardware.identity(path)[0] == kind


def test_torch_reports_gpu_memory_if_nvml_does_not(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """NVML does not report the memory of a GPU that shares the machine's memory, as in a DGX Spark."""
    unified = FakeNvml({"Name": GB10.name, **dict.fromkeys(
        ("MemoryInfo", "PowerManagementLimit"), pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED))})  # fmt: skip
    machine(unified, Torch(GB10, cuda="13.0"))
    (card,) = fingerprint._add_memory(gpus.list_gpus(), [accelerator_entry()])
    assert (card["memory_bytes"], card["unanswered"].get("memory_bytes")) == (GB10.total_memory, None)
    assert main(["list"]) == main(["check"]) == 0
    assert GB10.name in capsys.readouterr().out
    refused = {"nvml": "Driver/library version mismatch", "gpus": []}
    assert "load the modules again" in fingerprint.unknown_gpu_facts({"hardware": refused, "devices": []})[0]
    record = {"hardware": {"gpus": [card]}, "devices": [{"id": "cuda:0", "unwatched": "a slice of a GPU"}]}
    card_fact, slice_fact = fingerprint.unknown_gpu_facts(record)
    assert card_fact.startswith("NVIDIA GB10: not reported by NVML: power_limit_w (Not Supported)")
    assert slice_fact.startswith("cuda:0: MIG cut the GPU: power, energy and use are the whole card's")


def accelerator_entry() -> dict[str, Any]:
    from experiments.devices.cuda import CudaDevice

    return CudaDevice("cuda:0").describe()


class UnreadableProperties:
    """GPU properties that torch fails to read."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("CUDA error: unspecified launch failure")


def test_gpu_without_readable_properties_is_listed(machine: Machine) -> None:
    assert "2x-nvidia-gpu" in machine(NONE, Torch(UnreadableProperties(), UnreadableProperties(), cuda="13.0"))
    assert main(["list"]) == 0
    torch = Torch(cuda="13.0")
    torch.device_count = lambda: 1 / 0  # type: ignore[assignment, return-value]
    torch.is_available = lambda: True  # type: ignore[method-assign]
    assert "gpu" not in machine(NONE, torch)
    (line,) = accelerator.Accelerator.__subclasses__()[0].detect()[1]
    assert "division by zero" in line


CONTAINER = {".dockerenv": ""}


@pytest.mark.parametrize(
    ("message", "files", "mend"),
    [
        ("NVML Shared Library Not Found", {}, "install NVIDIA's driver"),
        ("NVML Shared Library Not Found", CONTAINER, "docker run --gpus all"),
        ("NVML Shared Library Not Found", {"proc/1/cgroup": "0::/kubepods/pod7"}, "--gpus all"),
        ("NVML Shared Library Not Found", {**CONTAINER, "dev/nvidia0": ""}, "DRIVER_CAPABILITIES=compute,utility"),
        ("NVML Shared Library Not Found", {"dev/dxg": ""}, "in Windows"),
        ("Driver Not Loaded", {}, "sudo modprobe nvidia"),
        ("Driver/library version mismatch", {}, "restart the machine, or load the modules again"),
        ("RM has detected an NVML/RM version mismatch.", CONTAINER, "restart the host"),
        ("error 803: system has unsupported display driver / cuda driver combination", {}, "restart the machine"),
        ("Unknown Error", {}, "restart the machine"),
        ("Unknown Error", CONTAINER, "start the container again"),
        ("GPU is lost", {}, "xid"),
        ("Insufficient Permissions", {}, "usermod -aG"),
        ("Insufficient External Power", {}, "power cables"),
        ("Function Not Found", {}, "update NVIDIA's driver"),
        ("something of tomorrow", {}, "restart the machine"),
        ("something of tomorrow", CONTAINER, "start the container again"),
    ],
)
def test_advice_fits_the_cause_and_the_environment(message: str, files: dict[str, str], mend: str, tree: Tree) -> None:
    assert mend in driver_errors.advice(message, tree(files))


@pytest.mark.parametrize(
    ("refuses", "files", "torch", "level", "mend"),
    [
        ("LIBRARY_NOT_FOUND", CONTAINER, PLAIN, "note", "--gpus all"),
        ("LIBRARY_NOT_FOUND", CONTAINER, BUILT, "note", "--gpus all"),
        ("LIB_RM_VERSION_MISMATCH", {}, PLAIN, "warning", "load the modules again"),
        ("UNKNOWN", CONTAINER, PLAIN, "warning", "start the container again"),
    ],
)
def test_doctor_advises_on_the_cause(
    refuses: str, files: dict[str, str], torch: cuda_checks.Torch, level: str, mend: str, tree: Tree
) -> None:
    refusal = pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{refuses}"))
    (finding,) = cuda_checks.examine(tree(files), None, FakeNvml(refuses=refusal), torch)
    assert (finding.level.value, mend in finding.mend) == (level, True)


def test_missing_required_gpu_is_reported_with_advice(machine: Machine) -> None:
    machine(FakeNvml(refuses=MISMATCH))
    record = {**RECORD, "hardware": {**RECORD["hardware"], "nvml": nvml.status()}}
    with pytest.raises(StudyError, match=r"version mismatch.*For an NVIDIA GPU, .*load the modules again") as caught:
        fingerprint.require_device(record, "gpu")
    assert "\n" not in str(caught.value)


def test_doctor_identifies_gpus_by_uuid(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    flawed, healthy = {"UUID": "GPU-a", "Index": 0, "PersistenceMode": 0}, {"UUID": "GPU-b", "Index": 1}
    library = FakeNvml(flawed, healthy, {"Handle": LOST})

    def examine(device: str | None, uuid: str) -> dict[str, Any]:
        machine(library, Torch(SimpleNamespace(**vars(H100), uuid=uuid), cuda="13.0"))
        return {finding.name: finding for finding in cuda_checks.examine(Path("/nonexistent"), device, library, BUILT)}

    assert "GPU 0 MIG" not in examine("cuda:0", "b")
    assert "GPU 1 MIG" in examine("cuda:0", "b")
    unknown = examine("cuda:0", "c")
    assert not any("MIG" in name for name in unknown)
    assert "clock, power, temperature" in unknown["samples"].why
    every = examine(None, "b")
    assert "xid" in every["GPU 2"].mend
    assert "GPU 1 MIG" in every


GPUS = NODE_SCHEMA["properties"]["hardware"]["properties"]["gpus"]
FIELDS = ["memory_bytes", "power_limit_w", "max_sm_clock_mhz", "max_memory_clock_mhz", "pcie_generation", "pcie_width"]
NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def nvml_error(name: str) -> Exception:
    return pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{name}"))  # type: ignore[no-any-return]


@dataclass
class Report:
    """GPU from a public report.

    answers: NVML's answers in the report
    unanswered: fields that the GPU's record must lack, with the reason for each
    known: fields that the record must have, with their values
    """

    source: str
    answers: dict[str, Any]
    unanswered: dict[str, str] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)


N_A = "Not Supported"
REPORTS = [
    Report("DGX Spark: XuehaiPan/nvitop#208, kubernetes-sigs/dra-driver-nvidia-gpu#1073",
           {"Name": "NVIDIA GB10", "MemoryInfo": NOT_SUPPORTED, "PowerManagementLimit": NOT_SUPPORTED,
            "PowerUsage": 11_170, "Temperature": 35},
           {"memory_bytes": N_A, "power_limit_w": N_A}),
    Report("a slice of an A100: XuehaiPan/nvitop#5, NVIDIA/go-nvml#57",
           {"Name": "NVIDIA A100-SXM4-40GB", "MigMode": [1, 1], "UtilizationRates": NOT_SUPPORTED,
            "MemoryInfo": SimpleNamespace(total=42_505_273_344, used=14_987_362_304)},
           known={"mig": True, "memory_bytes": 42_505_273_344}),
    Report("a server: wookayin/gpustat#138, whose library lacks functions",
           {"Name": b"Tesla V100-SXM2-32GB", "MigMode": nvml_error("FUNCTION_NOT_FOUND"),
            "ComputeRunningProcesses": nvml_error("FUNCTION_NOT_FOUND")},
           known={"name": "Tesla V100-SXM2-32GB"}),
    Report("WSL2: dask/distributed#5567, NVIDIA/cudf#9955",
           {"Name": "NVIDIA GeForce RTX 3070", "UtilizationRates": NOT_SUPPORTED, "MigMode": NOT_SUPPORTED,
            "ComputeRunningProcesses": nvml_error("UNKNOWN")}),
    Report("WSL2 with driver 555: wookayin/gpustat#170, gpuopenanalytics/pynvml#53",
           {"Name": UnicodeDecodeError("utf-8", b"\xf8", 0, 1, "invalid start byte")},
           {"name": "'utf-8' codec can't decode byte 0xf8 in position 0: invalid start byte"}),
    Report("a Jetson whose NVML knows little: XuehaiPan/nvitop#168",
           {"Name": "Orin (nvgpu)", **dict.fromkeys(
               ("MemoryInfo", "MaxClockInfo", "MaxPcieLinkGeneration", "MaxPcieLinkWidth", "PowerManagementLimit"),
               NOT_SUPPORTED)},
           dict.fromkeys(FIELDS, N_A)),
    Report("a GPU that fell off the bus: rossumai/nvgpu#6, NVIDIA/open-gpu-kernel-modules#387",
           {"Handle": nvml_error("GPU_IS_LOST")}, {"handle": "GPU is lost"}, {"name": nvml.placeholder_name()}),
]  # fmt: skip
ANSWERS = {"MaxClockInfo": 1980, "Name": "NVIDIA H100 80GB HBM3"}


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.source.split(":")[0])
def test_reported_gpus_are_recorded_with_unknown_fields(report: Report) -> None:
    library = FakeNvml(ANSWERS | report.answers, ANSWERS)
    gpu, other = nvml.nvidia_gpus(library)
    check_document([gpu, other], GPUS, "gpus")
    unanswered = gpu.get("unanswered", {})
    assert {name: why for name, why in unanswered.items() if name not in nvml.SETTINGS} == report.unanswered
    assert ("handle" in unanswered) or {*nvml.SETTINGS} == {*nvml.SETTINGS} & (gpu.keys() | unanswered.keys())
    assert "unanswered" not in other, "a GPU's errors affect only that GPU"
    if "handle" not in report.unanswered:
        assert {*FIELDS} - gpu.keys() == report.unanswered.keys() - {"name"}
    assert gpu | report.known == gpu
    name = report.answers.get("Name")
    assert gpu["name"] == (name if isinstance(name, str) else report.known.get("name", nvml.placeholder_name()))
    findings = {finding.name for finding in cuda_checks.examine(NOWHERE, None, library, BUILT)}
    assert {"driver", "GPU 1 MIG"} <= findings


def test_settings_of_a_gpu_are_recorded() -> None:
    answers = {"PersistenceMode": 0, "MigMode": NOT_SUPPORTED, "CurrPcieLinkGeneration": 1, "EccMode": [0, 1],
               "PowerManagementLimit": 350_000, "ApplicationsClock": 1410}  # fmt: skip
    (gpu,) = nvml.nvidia_gpus(FakeNvml(ANSWERS | answers))
    assert {name: gpu[name] for name in nvml.SETTINGS if name in gpu} == {
        "driver": "580.1", "driver_cuda": "13.0", "default_power_limit_w": 700, "persistence": False, "ecc": False,
        "current_pcie_generation": 1, "current_pcie_width": 16, "application_sm_clock_mhz": 1410,
        "application_memory_clock_mhz": 1410,
    }  # fmt: skip
    assert (gpu["power_limit_w"], gpu["pcie_generation"]) == (350, 5)
    assert gpu["unanswered"] == {"mig": N_A}
    record = {"hardware": {"gpus": [gpu], "nvml": "driver 580.1, 1 GPU(s)"}, "devices": []}
    assert fingerprint.unknown_gpu_facts(record) == [], "a GPU without a setting is no trouble"


# Answers that may be wrong: errors from NVML, and values with an unexpected type or size.
ODD = st.sampled_from(
    [*map(nvml_error, ("NOT_SUPPORTED", "UNKNOWN", "GPU_IS_LOST", "NO_PERMISSION", "FUNCTION_NOT_FOUND", "TIMEOUT")),
     AttributeError("old"), OSError("cannot open"), UnicodeDecodeError("utf-8", b"\xf8", 0, 1, "invalid start byte"),
     None, b"", b"\xff\xfe", "", "a\x1b[2Jb", "\u202e", "x" * 1000, 0, -1, 2**32 - 1, 2**64, float("nan"), float("inf"),
     True, (), [], {}, object()]
)  # fmt: skip
QUESTIONS = ["Handle", "Name", "MemoryInfo", "PowerManagementLimit", "MaxClockInfo", "MaxPcieLinkGeneration",
             "MaxPcieLinkWidth", "MigMode", "ClockInfo", "Temperature", "UtilizationRates", "PowerUsage",
             "TotalEnergyConsumption", "FieldValues", "ComputeRunningProcesses", "CurrentClocksThrottleReasons",
             "EccMode", "PersistenceMode", "ComputeMode", "CurrPcieLinkWidth", "CurrPcieLinkGeneration", "Index",
             "PowerManagementDefaultLimit", "ApplicationsClock"]  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(QUESTIONS), ODD), min_size=1, max_size=3), st.booleans(), ODD)
def test_any_nvml_answers_give_a_valid_record(cards: list[dict[str, Any]], count_is_odd: bool, count: Any) -> None:
    library = FakeNvml(*cards, {}, count=count if count_is_odd else None)
    recorded = nvml.nvidia_gpus(library)
    check_document(recorded, GPUS, "gpus")
    if not count_is_odd:
        assert len(recorded) == len(cards) + 1
        assert recorded[-1]["memory_bytes"] == 2**37, "the last GPU is healthy"
    cuda_checks.examine(NOWHERE, None, library, BUILT)
    gpu = counters.gpu_counters("cuda:0", library)
    assert all(value is None or value >= 0 for value in [*gpu.values().values(), gpu.joules()])
    gpu.flags()


@pytest.mark.parametrize("count", [-1, 10**6, "3", None, nvml_error("UNKNOWN"), NOT_SUPPORTED])
def test_invalid_gpu_count_is_reported(monkeypatch: pytest.MonkeyPatch, count: Any) -> None:
    library = FakeNvml({}, count=0)
    library._count = count
    monkeypatch.setattr(nvml, "load_pynvml", lambda: library)
    assert nvml.nvidia_gpus() == []
    assert nvml.refusal() == nvml.status() != ""
