"""Measuring core: warm up, then sample until the median's 95% interval is narrow enough.

Sampling ends earlier if more samples hardly narrow the interval, or at a limit for time or samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from contract import running_time
from contract.sample_flags import Flag
from experiments.clock_readings import LEAST_ATTEMPTS, Timer, call_s
from experiments.devices.base import Device, do_nothing
from experiments.machine_state import Reading
from experiments.workload import Workload

# Maximum clock overhead, as a share of a sample's time.
OVERHEAD_SHARE = 1e-3
# With at least 6 values, the smallest and the largest enclose the median with 95% confidence, since 2 * 0.5^6 < 5%.
MIN_SAMPLES = 6
# Warm-up ends when the latest calls are faster than the calls before them by at most this share.
STILL_FALLING = 0.01
# Samples span at least this share of the budget, to catch disturbances longer than a few short calls.
LEAST_SHARE = 0.5
# Share of the budget that max_samples samples of a lasting workload would take. The share exceeds 1, so that the budget
# ends the measurement before max_samples does, even if calls in a row are faster than the single call timed first.
LASTING_SHARE = 1.5
# Stop if doubling the samples narrows the interval by less than this share (with independent noise, it narrows by 29%).
PLATEAU_GAIN = 0.10
# Maximum number of samples per point that are repeated because the process was suspended during the sample.
MOST_REPEATS = 3


@dataclass(frozen=True)
class Policy:
    """When to stop measuring a point.

    target: relative half-width of the median's 95% interval at which to stop.
    budget_s: running time in seconds for warm-up and samples, per point and round.
    max_samples: maximum samples per point and round.
    """

    target: float
    budget_s: float
    max_samples: int = 100


@dataclass
class Measurement:
    """Samples of one point in one round.

    samples: seconds per call, by phase; the phase '' is the whole call.
    calls: number of calls per sample.
    total_calls: number of all calls since sampling began, also in dropped samples.
    warmup_s, timed_s: seconds before sampling began, and since then. They exclude the time during which the process was
        suspended, unless it was suspended during a sample that is kept.
    stood_s: seconds during which the process was suspended.
    """

    samples: dict[str, list[float]] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    calls: int = 1
    total_calls: int = 0
    stop_reason: str = ""
    warmup_s: float = 0.0
    timed_s: float = 0.0
    stood_s: float = 0.0


def half_width(values: list[float]) -> float:
    """Return the relative half-width of the median's 95% interval, by order statistics; inf for fewer than 6 values.

    Source: Hoefler & Belli, Scientific Benchmarking of Parallel Computing Systems (SC15),
    rule for nonparametric intervals of the median.
    """
    n = len(values)
    if n < MIN_SAMPLES:
        return math.inf
    ordered = sorted(values)
    low = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2))
    high = min(n - 1, math.ceil((n + 1.96 * math.sqrt(n)) / 2))
    middle = median(ordered)
    return (ordered[high] - ordered[low]) / 2 / middle if middle > 0 else math.inf


def calls_per_sample(one_call_s: float, overhead_s: float, policy: Policy, share: float = LEAST_SHARE) -> int:
    """Return the number of calls per sample.

    The number is large enough to make the clock's overhead small, and to let `max_samples` samples take `share` of the
    budget.
    """
    long_enough = max(overhead_s / OVERHEAD_SHARE, share * policy.budget_s / policy.max_samples)
    return max(1, math.ceil(long_enough / max(one_call_s, 1e-9)))


def measure(
    work: Workload,
    device: Device,
    policy: Policy,
    read_state: Callable[..., Reading],
    now: Callable[[], float] = running_time.now,
    look: Callable[[], object] = do_nothing,
    stood_s: Callable[[], float] = running_time.paused_s,
) -> Measurement:
    """Measure one point on `device` within `policy`. Raises the workload's errors, and NoTimeError.

    read_state: called after each sample, with the flags for that sample; returns the machine's state.
    now: returns the time in seconds, without the time during which the process was suspended.
    look: called once per sample, while the device works if possible (see `Device.time`).
    stood_s: returns the seconds during which the process has been suspended so far.
    Unusable readings are dropped. A sample during which the process was suspended is repeated, but at most MOST_REPEATS
    samples per point are repeated.
    """
    names = [name for name, _ in work.phases] or [""]
    begun, stood = now(), stood_s()
    timer = Timer(work, device)
    # A lasting workload gets no warm-up before sampling, since its warm-up is part of the measurement.
    share, warm_up = (LASTING_SHARE, 0.0) if work.lasting else (LEAST_SHARE, 1 / 3)
    one_s = call_s(timer, policy.budget_s / 10, policy.budget_s, now)
    calls = calls_per_sample(one_s, device.overhead_s, policy, share)
    settled_s = _warm_up(timer, calls, begun + policy.budget_s * warm_up, now)
    # Calls in a row can be much faster than the single call timed first. Then a sample needs more calls, so that
    # max_samples does not end the measurement early.
    calls = max(calls, calls_per_sample(settled_s, device.overhead_s, policy, share))
    if work.single:
        calls = 1
    result = Measurement(samples={name: [] for name in names}, calls=calls, warmup_s=now() - begun)
    totals: list[float] = []
    widths: dict[int, float] = {}
    started, next_check = now(), MIN_SAMPLES
    # read, unreadable: number of readings, and of unusable readings, up to the last sample.
    # attempts: number of unusable readings since the last sample. repeats: number of repeated samples so far.
    read, unreadable, attempts, repeats = 0, 0, 0, 0
    # Take at least one sample, even if warm-up used the budget.
    while True:
        due = started + LEAST_SHARE * policy.budget_s * len(totals) / policy.max_samples
        while work.single and now() < due:
            device.time(work, 1)
            result.total_calls += 1
        before = stood_s()
        parts = timer.take(calls, look)
        result.total_calls += calls
        paused = stood_s() - before
        if parts is not None and paused and repeats < MOST_REPEATS:
            repeats += 1
            continue
        if parts is None:
            attempts += 1
            if attempts < LEAST_ATTEMPTS or (now() - begun <= policy.budget_s and attempts < policy.max_samples):
                continue
            if not totals:
                raise timer.failure()
            result.stop_reason = "budget"
            break
        flags = []
        if timer.unreadable > unreadable:
            missing, total = timer.unreadable - unreadable, timer.readings - read
            flags.append(Flag("unreadable", f"{missing} of {total} readings of the clock were no time"))
        read, unreadable, attempts = timer.readings, timer.unreadable, 0
        totals.append(sum(parts))
        for name, part in zip(names, parts, strict=True):
            result.samples[name].append(part)
        result.readings.append(read_state(*flags))
        # If the process was suspended during this sample, the sample's time includes the pause but `now` does not: add
        # the pause to the timed seconds.
        result.timed_s += paused
        if len(totals) == next_check:
            widths[next_check] = half_width(totals)
            if not work.lasting and not work.single and now() - started >= LEAST_SHARE * policy.budget_s:
                result.stop_reason = _stop_reason(widths, next_check, policy.target)
            if result.stop_reason:
                break
            next_check += max(1, next_check // 4)
        if len(totals) >= policy.max_samples:
            result.stop_reason = "samples"
            break
        if now() - begun + (0.0 if paused else totals[-1] * calls) > policy.budget_s:
            result.stop_reason = "budget"
            break
    result.timed_s += now() - started
    result.stood_s = stood_s() - stood
    if work.phases:
        result.samples = {"": totals, **result.samples}
    return result


def _warm_up(timer: Timer, calls: int, until: float, now: Callable[[], float]) -> float:
    """Call the workload until its time per call stops falling, or until the time `until`.

    Returns the last seconds per call; inf if no reading was usable.
    """
    times: list[float] = []
    while now() < until:
        if (parts := timer.take(calls)) is not None:
            times.append(sum(parts))
        if len(times) >= 6 and median(times[-3:]) >= median(times[-6:-3]) * (1 - STILL_FALLING):
            break
    return median(times[-3:]) if times else math.inf


def _stop_reason(widths: dict[int, float], n: int, target: float) -> str:
    """Return the reason to stop after `n` samples: 'converged', 'plateau', or '' to continue.

    widths: the `half_width` after each number of samples at which it was computed.
    """
    if widths[n] <= target:
        return "converged"
    earlier = [count for count in widths if count <= n // 2 and widths[count] < math.inf]
    if n >= 4 * MIN_SAMPLES and earlier and widths[n] > widths[max(earlier)] * (1 - PLATEAU_GAIN):
        return "plateau"
    return ""
