"""The state of the machine beside each sample: others' load, steal, clock, temperature, power."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

# Others' share of all cores, and the hypervisor's, above which a sample is flagged.
BUSY_SHARE = 0.10
STEAL_SHARE = 0.02
# The kernel counts CPU time in ticks of 10 ms: shorter windows say nothing.
WINDOW_S = 0.25
_CPUFREQ = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
_RAPL = Path("/sys/class/powercap/intel-rapl:0/energy_uj")


@dataclass(frozen=True)
class Reading:
    """What was seen around one sample; None where no counter exists."""

    elapsed_s: float
    clock_mhz: float | None
    temperature_c: float | None
    power_w: float | None
    other_load: float | None
    steal: float | None
    flags: str


class Watch:
    """Reads the node's and one device's counters, at most every WINDOW_S seconds."""

    def __init__(self, device: str) -> None:
        self._begun = time.perf_counter()
        self._process = psutil.Process()
        self._counters = _cpu_counters() if device == "cpu" else _gpu_counters(int(device.partition(":")[2] or 0))
        self._ticks = self._read_ticks()
        self._last: dict[str, float | None] = {"other_load": None, "steal": None}
        self._flags: list[str] = []

    def read(self) -> Reading:
        """The state of the window that this moment falls into."""
        if time.perf_counter() - self._ticks[0] >= WINDOW_S:
            self._refresh()
        get = self._last.get
        return Reading(
            elapsed_s=time.perf_counter() - self._begun,
            clock_mhz=get("clock_mhz"),
            temperature_c=get("temperature_c"),
            power_w=get("power_w"),
            other_load=get("other_load"),
            steal=get("steal"),
            flags=" ".join(self._flags),
        )

    def _refresh(self) -> None:
        before, self._ticks = self._ticks, self._read_ticks()
        seconds, busy, own, stolen = (now - then for now, then in zip(self._ticks, before, strict=True))
        all_cores = seconds * (os.cpu_count() or 1)
        # Ticks are rounded: a difference of them may come out slightly negative.
        other, steal = max(0.0, busy - own) / all_cores, max(0.0, stolen) / all_cores
        counters = self._counters()
        throttled = bool(counters.pop("throttled", None))
        self._last = {"other_load": other, "steal": steal, **counters}
        seen = {"busy": other > BUSY_SHARE, "steal": steal > STEAL_SHARE, "throttled": throttled}
        self._flags = [flag for flag, set_ in seen.items() if set_]

    def _read_ticks(self) -> tuple[float, float, float, float]:
        """Now, and seconds of CPU time so far: of everybody, of this process, stolen."""
        node, own = psutil.cpu_times(), self._process.cpu_times()
        stolen = getattr(node, "steal", 0.0)
        # On Linux user and nice contain the guests' time already.
        idle = node.idle + sum(getattr(node, name, 0.0) for name in ("iowait", "guest", "guest_nice"))
        return time.perf_counter(), sum(node) - idle - stolen, own.user + own.system, stolen


def _cpu_counters() -> Callable[[], dict[str, float | None]]:
    """Clock, temperature and power of the first socket, where the system lets us read them."""
    energy: list[tuple[float, float]] = []

    def power() -> float | None:
        """Mean power since the last reading, by RAPL's energy counter."""
        with contextlib.suppress(OSError, ValueError):
            energy.append((time.perf_counter(), int(_RAPL.read_text()) * 1e-6))
        if len(energy) < 2:
            return None
        (then, joules), (now, more) = energy[-2:]
        del energy[:-1]
        # The counter wraps around every few minutes to hours.
        return (more - joules) / (now - then) if more > joules else None

    def read() -> dict[str, float | None]:
        counters: dict[str, float | None] = {"power_w": power()}
        # Only a governor's file is a reading: /proc/cpuinfo in a virtual machine shows the nominal clock.
        with contextlib.suppress(OSError, ValueError):
            counters["clock_mhz"] = int(_CPUFREQ.read_text()) / 1000
        sensors: dict[str, Any] = getattr(psutil, "sensors_temperatures", dict)()
        for chip in ("coretemp", "k10temp", "zenpower", "cpu_thermal"):
            if sensors.get(chip):
                counters["temperature_c"] = float(sensors[chip][0].current)
        return counters

    return read


def _gpu_counters(index: int) -> Callable[[], dict[str, float | None]]:
    """SM clock, temperature, power and throttling by NVML; nothing where it does not answer."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handle: Any = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError:
        return dict
    # Not the reasons that slow nobody down: idle, and clocks that somebody set.
    harmless = (
        pynvml.nvmlClocksThrottleReasonGpuIdle
        | pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting
        | pynvml.nvmlClocksThrottleReasonNone
    )
    asks: dict[str, Callable[[], float]] = {
        "clock_mhz": lambda: float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
        "temperature_c": lambda: float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
        "power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "throttled": lambda: float(bool(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & ~harmless)),
    }

    def read() -> dict[str, float | None]:
        counters: dict[str, float | None] = {}
        for key, ask in asks.items():
            with contextlib.suppress(pynvml.NVMLError):
                counters[key] = ask()
        return counters

    return read
