"""A stand-in for pynvml: GPUs whose answers a test gives, where there is no GPU."""

from __future__ import annotations

from typing import Any

import pynvml

# A card as it should be; a question without an answer here is one that the driver does not support.
CALM: dict[str, Any] = {
    "Name": "NVIDIA H200",
    "PersistenceMode": 1,
    "EccMode": [1, 1],
    "PowerManagementLimit": 700_000,
    "PowerManagementDefaultLimit": 700_000,
    "PowerUsage": 80_000,
    "Temperature": 41,
    "ClockInfo": 1980,
    "CurrentClocksThrottleReasons": 1,  # idle
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


class Library:
    """What the study asks of pynvml, answered from dictionaries, one a card."""

    NVMLError = pynvml.NVMLError

    def __init__(self, *cards: dict[str, Any], cuda: int = 13000, broken: bool = False) -> None:
        self._cards = [{**CALM, **card} for card in cards]
        self._cuda, self._broken = cuda, broken

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's own name
        if self._broken:
            raise self.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self._cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:  # noqa: N802
        if index >= len(self._cards):
            raise self.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self._cards[index]

    def nvmlDeviceGetHandleByUUID(self, identity: str) -> dict[str, Any]:  # noqa: N802
        for card in self._cards:
            if card.get("UUID") == identity:
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
            return handle[key]

        return answer
