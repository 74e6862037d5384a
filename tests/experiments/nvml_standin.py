"""Stand-in for pynvml that answers as a test specifies, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pynvml

# Answers from a healthy GPU. For a query without an answer, the stand-in says that the driver does not support it.
HEALTHY_GPU: dict[str, Any] = {
    "Name": "NVIDIA H200",
    "PersistenceMode": 1,
    "EccMode": [1, 1],
    "PowerManagementLimit": 700_000,
    "PowerManagementDefaultLimit": 700_000,
    "PowerUsage": 80_000,
    "Temperature": 41,
    "ClockInfo": 1980,
    "ApplicationsClock": 1590,
    "CurrentClocksThrottleReasons": 1,  # the GPU is idle
    "ComputeRunningProcesses": [],
    "GraphicsRunningProcesses": [],
    "ComputeMode": 0,
    "MigMode": [0, 0],
    "CurrPcieLinkGeneration": 5,
    "MaxPcieLinkGeneration": 5,
    "CurrPcieLinkWidth": 16,
    "MaxPcieLinkWidth": 16,
    "UtilizationRates": type("Utilization", (), {"gpu": 0, "memory": 0}),
    "MemoryInfo": type("Memory", (), {"used": 2**29, "total": 2**37}),
}


class FakeNvml:
    """Stand-in for pynvml with a dictionary of answers for each GPU. If an answer is an exception, it is raised.

    The answer for the key "Handle", if present, is returned when a test requests the GPU's handle.

    slices: the dictionaries for MIG slices, which have no index
    refuses: the exception that nvmlInit raises
    count: the number of GPUs that NVML reports
    """

    NVMLError = pynvml.NVMLError

    def __init__(
        self,
        *cards: dict[str, Any],
        cuda: int = 13000,
        broken: bool = False,
        refuses: Exception | None = None,
        count: Any = None,
        slices: Sequence[dict[str, Any]] = (),
    ) -> None:
        self._cards = [{**HEALTHY_GPU, **card} for card in cards]
        self._slices = [{**HEALTHY_GPU, **card} for card in slices]
        self._cuda, self._count = cuda, len(cards) if count is None else count
        self._refuses = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND) if broken else refuses

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's name
        if self._refuses:
            raise self._refuses

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return answer_or_raise(self._count)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:  # noqa: N802
        if index >= len(self._cards):
            raise self.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return answer_or_raise(self._cards[index].get("Handle", self._cards[index]))

    def nvmlDeviceGetHandleByUUID(self, identity: str) -> dict[str, Any]:  # noqa: N802
        return self._find_card("UUID", identity)

    def nvmlDeviceGetHandleByPciBusId(self, place: str) -> dict[str, Any]:  # noqa: N802
        return self._find_card("BusId", place)

    def _find_card(self, key: str, value: str) -> dict[str, Any]:
        for card in [*self._cards, *self._slices]:
            if card.get(key) == value:
                return card
        raise self.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.1"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return self._cuda

    def nvmlSystemGetProcessName(self, pid: int) -> str:  # noqa: N802
        return f"/usr/bin/other-{pid}"

    def __getattr__(self, name: str) -> Any:
        key = name.removeprefix("nvmlDeviceGet")
        if key == name:
            return getattr(pynvml, name)

        def answer(handle: dict[str, Any], *_: Any) -> Any:
            if key not in handle:
                raise self.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return answer_or_raise(handle[key])

        return answer


def answer_or_raise(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer
