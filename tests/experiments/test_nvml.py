"""NVML's answers as people met them, and any other: each GPU is recorded as far as it tells of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.node import NODE_SCHEMA
from contract.schema import check
from experiments import counters, nvml
from experiments.doctor import cuda
from tests.experiments.nvml_standin import Library
from tests.experiments.test_doctor import BUILT, NOWHERE

GPUS = NODE_SCHEMA["properties"]["hardware"]["properties"]["gpus"]
FIELDS = ["memory_bytes", "power_limit_w", "max_sm_clock_mhz", "max_memory_clock_mhz", "pcie_generation", "pcie_width"]
NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def error(name: str) -> Exception:
    return pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{name}"))  # type: ignore[no-any-return]


def memory(mebibytes: int) -> SimpleNamespace:
    return SimpleNamespace(total=mebibytes << 20, used=1 << 20)


def unsupported(*questions: str) -> dict[str, Any]:
    return dict.fromkeys(questions, NOT_SUPPORTED)


@dataclass
class Report:
    """A GPU as in a public report: its answers, and the fields of its record that stay unknown, with the reason."""

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
    Report("a laptop without a limit to set: Dreaming-Codes/nvidia_oc#22",
           {"Name": "NVIDIA GeForce RTX 4080 Laptop GPU", "PowerManagementLimit": NOT_SUPPORTED},
           {"power_limit_w": N_A}),
    Report("a server: wookayin/gpustat#138, whose library lacks functions",
           {"Name": b"Tesla V100-SXM2-32GB", "MemoryInfo": memory(32_510), "MigMode": error("FUNCTION_NOT_FOUND"),
            "ComputeRunningProcesses": error("FUNCTION_NOT_FOUND")},
           known={"name": "Tesla V100-SXM2-32GB"}),
    Report("WSL2: dask/distributed#5567, NVIDIA/cudf#9955",
           {"Name": "NVIDIA GeForce RTX 3070", "UtilizationRates": NOT_SUPPORTED, "MigMode": NOT_SUPPORTED,
            "ComputeRunningProcesses": error("UNKNOWN")}),
    Report("WSL2 with driver 555: wookayin/gpustat#170, gpuopenanalytics/pynvml#53",
           {"Name": UnicodeDecodeError("utf-8", b"\xf8", 0, 1, "invalid start byte")},
           {"name": "'utf-8' codec can't decode byte 0xf8 in position 0: invalid start byte"}),
    Report("half a Tesla K80 with driver 390: NVIDIA/nvidia-docker#809",
           {"Name": "Tesla K80", "MemoryInfo": memory(11_441), "MigMode": AttributeError("nvmlDeviceGetMigMode")}),
    Report("an old card of which little is known: NVIDIA/nvidia-docker#206",
           {"Name": "GeForce GTX 690",
            **unsupported("PowerManagementLimit", "PowerUsage", "MaxClockInfo", "ClockInfo", "MigMode")},
           {"power_limit_w": N_A, "max_sm_clock_mhz": N_A, "max_memory_clock_mhz": N_A}),
    Report("a vGPU: NVIDIA/TensorRT-LLM#1861",
           {"Name": "GRID A100D-40C", **unsupported(
               "MaxClockInfo", "MaxPcieLinkGeneration", "MaxPcieLinkWidth", "PowerManagementLimit", "Temperature")},
           {name: N_A for name in FIELDS if name != "memory_bytes"}),
    Report("a Jetson whose NVML knows little: XuehaiPan/nvitop#168",
           {"Name": "Orin (nvgpu)", **unsupported(
               "MemoryInfo", "MaxClockInfo", "MaxPcieLinkGeneration", "MaxPcieLinkWidth", "PowerManagementLimit")},
           dict.fromkeys(FIELDS, N_A)),
    Report("a GPU that fell off the bus: rossumai/nvgpu#6, NVIDIA/open-gpu-kernel-modules#387",
           {"Handle": error("GPU_IS_LOST")}, {"handle": "GPU is lost"}, {"name": nvml.placeholder_name()}),
    Report("a GPU without its power cable: NVML API reference",
           {"Handle": error("INSUFFICIENT_POWER")}, {"handle": "Insufficient External Power"}),
]  # fmt: skip
ANSWERS = {"MaxClockInfo": 1980, "Name": "NVIDIA H100 80GB HBM3"}


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.source.split(":")[0])
def test_a_gpu_of_a_public_report_is_recorded_as_far_as_it_tells(report: Report) -> None:
    library = Library(ANSWERS | report.answers, ANSWERS)
    one, other = nvml.gpus(library)
    check([one, other], GPUS, "gpus")
    assert one.get("unanswered", {}) == report.unanswered
    assert "unanswered" not in other, "a GPU's trouble is its own"
    if "handle" not in report.unanswered:
        assert {*FIELDS} - one.keys() == report.unanswered.keys() - {"name"}
    assert one | report.known == one
    named = report.answers.get("Name")
    assert one["name"] == (named if isinstance(named, str) else report.known.get("name", nvml.placeholder_name()))
    findings = {finding.name for finding in cuda.examine(NOWHERE, None, library, BUILT)}
    assert {"driver", "GPU 1 MIG"} <= findings


# Wrong answers that a library may give.
ODD = st.sampled_from(
    [*map(error, ("NOT_SUPPORTED", "UNKNOWN", "GPU_IS_LOST", "NO_PERMISSION", "FUNCTION_NOT_FOUND", "TIMEOUT")),
     AttributeError("old"), OSError("cannot open"), UnicodeDecodeError("utf-8", b"\xf8", 0, 1, "invalid start byte"),
     None, b"", b"\xff\xfe", "", "a\x1b[2Jb", "\u202e", "x" * 1000, 0, -1, 2**32 - 1, 2**64, float("nan"), float("inf"),
     True, (), [], {}, object()]
)  # fmt: skip
QUESTIONS = ["Handle", "Name", "MemoryInfo", "PowerManagementLimit", "MaxClockInfo", "MaxPcieLinkGeneration",
             "MaxPcieLinkWidth", "MigMode", "ClockInfo", "Temperature", "UtilizationRates", "PowerUsage",
             "TotalEnergyConsumption", "FieldValues", "ComputeRunningProcesses", "CurrentClocksThrottleReasons",
             "EccMode", "PersistenceMode", "ComputeMode", "CurrPcieLinkWidth", "Index"]  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(QUESTIONS), ODD), min_size=1, max_size=3), st.booleans(), ODD)
def test_any_answers_of_any_gpus_give_a_record_that_conforms(
    cards: list[dict[str, Any]], count_is_odd: bool, count: Any
) -> None:
    library = Library(*cards, {}, count=count if count_is_odd else None)
    found = nvml.gpus(library)
    check(found, GPUS, "gpus")
    if not count_is_odd:
        assert len(found) == len(cards) + 1
        assert found[-1]["memory_bytes"] == 2**37, "the last one is in order"
    cuda.examine(NOWHERE, None, library, BUILT)
    seen = counters.gpu_counters("cuda:0", library)
    assert all(value is None or value >= 0 for value in [*seen.values().values(), seen.joules()])
    seen.flags()


@pytest.mark.parametrize("count", [-1, 10**6, "3", None, error("UNKNOWN"), NOT_SUPPORTED])
def test_a_number_of_gpus_that_makes_no_sense_is_told(monkeypatch: pytest.MonkeyPatch, count: Any) -> None:
    library = Library({}, count=0)
    library._count = count
    monkeypatch.setattr(nvml, "module", lambda: library)
    assert nvml.gpus() == []
    assert nvml.refusal() == nvml.status() != ""
