"""Profiles by torch's profiler that are whole: an accelerator's kernels are added up only if none of them was lost.

Kineto registers its clock anew for every session. Records of the first kernels of a later session then carry times of
another clock and are dropped, more of them with every session (pytorch#192021). On AMD's GPUs it may record none at all
(kineto#1338).
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

# Kernels that each session on an accelerator begins with, for Kineto to lose.
HEAD_KERNELS = 100
# Seconds between these kernels and the mark, and between the mark and the call: the clocks of host and device differ.
GAP_S = 5e-3
MARK = "head of the profile ends"
# Equal calls that a profile holds at the least: those of an accelerator are compared.
FEWEST_CALLS = {"cpu": 1, "gpu": 2}


def activity(device: Device) -> Any:
    """The profiler's name for a device's kernels. Raises Unsupported where it does not know such devices."""
    found = getattr(ProfilerActivity, device.name.partition(":")[0].upper(), None)
    if found is None:
        raise Unsupported(f"torch's profiler does not see {device.name}")
    return found


def is_kernel(event: Any) -> bool:
    """True for a kernel, copy or fill on an accelerator; operators and ranges with a name hold kernels' times again."""
    return event.device_type != DeviceType.CPU and not event.is_user_annotation


def number_of_calls(call: Callable[[], object], device: Device, usual: int, slow_s: float) -> int:
    """Calls to look at: the usual number, or the fewest where one call, which is made, takes more than `slow_s`."""
    begun = running_time.now()
    call()
    device.synchronise()
    return FEWEST_CALLS[device.kind] if running_time.now() - begun > slow_s else usual


def record(call: Callable[[], object], device: Device) -> list[Any]:
    """The events of a call under the profiler, on host and device, in the order in which they began.

    Raises Unsupported where the profiler does not know the device, ProfileError where it lost the head's kernels.
    """
    own = activity(device)
    if own is ProfilerActivity.CPU:
        with profile(activities=[own]) as seen:
            call()
        return list(seen.events())
    with profile(activities=[ProfilerActivity.CPU, own]) as seen:
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
    return after_mark(seen.events(), device.name)


def after_mark(events: Iterable[Any], device: str) -> list[Any]:
    """The events that began after the mark. Raises ProfileError if all kernels of the head are lost."""
    every = list(events)
    if not any(map(is_kernel, every)):
        raise ProfileError(f"the profiler recorded no kernel of {device}")
    marked = [one.time_range.end for one in every if one.name == MARK and one.device_type == DeviceType.CPU]
    if not marked:
        raise ProfileError("the profiler lost its own mark")
    kept = [one for one in every if one.time_range.start >= marked[0]]
    if sum(map(is_kernel, kept)) == sum(map(is_kernel, every)):
        raise ProfileError(f"the profiler lost all {HEAD_KERNELS} kernels before the mark, and perhaps some after it")
    return kept


def check_whole(kernels: Sequence[str], calls: int) -> None:
    """Raise ProfileError unless each of `calls` equal calls launched the same kernels, given the names of all."""
    if not kernels:
        raise ProfileError("the profiler recorded no kernel after the mark")
    for name, count in Counter(kernels).items():
        if count % calls:
            raise ProfileError(
                f"the profiler lost kernels: it recorded {len(kernels)} in {calls} equal calls, {count} of them "
                f"{name[:80]}"
            )
