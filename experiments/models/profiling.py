"""Profiles from torch's profiler that are rejected if accelerator kernels were lost.

Kineto, the library behind the profiler, registers its clock anew for every session. In later sessions, the first kernel
records therefore carry times from another clock and are dropped, and each session drops more records than the one
before (pytorch#192021). On AMD GPUs, Kineto may record no kernels at all (kineto#1338).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from contract import running_time
from experiments.devices import Device
from experiments.workload import Dtype, ProfileError, Unsupported

# Dummy kernels to launch when each session starts, because Kineto may lose the first kernels.
HEAD_KERNELS = 100
# Pause in seconds before and after MARK, the name of an event between the dummy kernels and the profiled call. The
# pause is longer than the difference between the host's and the device's clocks.
GAP_S = 5e-3
MARK = "head of the profile ends"
# Fewest calls per profile, by device kind. On an accelerator, lost kernels show only if at least two equal calls are
# compared.
FEWEST_CALLS = {"cpu": 1, "gpu": 2}


def device_activity(device: Device) -> Any:
    """Return the profiler activity for a device. Raises Unsupported if there is none."""
    activity = getattr(ProfilerActivity, device.name.partition(":")[0].upper(), None)
    if activity is None:
        raise Unsupported(f"torch's profiler does not see {device.name}")
    return activity


def is_kernel(event: Any) -> bool:
    """Return True if the event is a kernel, copy or fill on an accelerator.

    Return False for events on the host, and for profiler ranges, which would count the kernels' time again.
    """
    return event.device_type != DeviceType.CPU and not event.is_user_annotation


def call_count(call: Callable[[], object], device: Device, usual: int, slow_s: float) -> int:
    """Time one call and return the number of calls to profile.

    This number is `usual`, or the device's number in FEWEST_CALLS if the call takes more than `slow_s` seconds.
    """
    begun = running_time.now()
    call()
    device.synchronise()
    return FEWEST_CALLS[device.kind] if running_time.now() - begun > slow_s else usual


def record_events(call: Callable[[], object], device: Device) -> list[Any]:
    """Profile a call, and return its events on the host and the device, ordered by start time.

    Raises Unsupported if the profiler does not support the device, ProfileError if it lost all dummy kernels, because
    then it may have lost the call's kernels too.
    """
    activity = device_activity(device)
    if activity is ProfilerActivity.CPU:
        with profile(activities=[activity]) as session:
            call()
        return list(session.events())
    with profile(activities=[ProfilerActivity.CPU, activity]) as session:
        number = device.random_normal((1,), Dtype.FLOAT32)
        for _ in range(HEAD_KERNELS):
            number.add_(1)
        device.synchronise()
        time.sleep(GAP_S)
        with record_function(MARK):
            pass
        time.sleep(GAP_S)
        call()
        device.synchronise()
    return events_after_mark(session.events(), device.name)


def events_after_mark(events: Iterable[Any], device: str) -> list[Any]:
    """Return the events that began after the mark, which follows the dummy kernels in `record_events`.

    Raises ProfileError if all dummy kernels are lost, because then kernels after the mark may be lost too.
    """
    recorded = list(events)
    if not any(map(is_kernel, recorded)):
        raise ProfileError(f"the profiler recorded no kernel of {device}")
    marks = [event.time_range.end for event in recorded if event.name == MARK and event.device_type == DeviceType.CPU]
    if not marks:
        raise ProfileError("the profiler lost its own mark")
    later = [event for event in recorded if event.time_range.start >= marks[0]]
    if sum(map(is_kernel, later)) == sum(map(is_kernel, recorded)):
        raise ProfileError(f"the profiler lost all {HEAD_KERNELS} kernels before the mark, and perhaps some after it")
    return later


def require_all_kernels(kernels: Sequence[str], calls: int) -> None:
    """Raise ProfileError if the number of kernels with the same name is not a multiple of `calls`.

    Equal calls launch equal kernels, so another number shows that the profiler lost kernels.
    """
    if not kernels:
        raise ProfileError("the profiler recorded no kernel after the mark")
    for name, count in Counter(kernels).items():
        if count % calls:
            raise ProfileError(
                f"the profiler lost kernels: it recorded {len(kernels)} in {calls} equal calls, {count} of them "
                f"{name[:80]}"
            )
