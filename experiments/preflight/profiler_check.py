"""Check that torch's profiler does not slow later steps, and records every kernel.

Kineto leaves CUPTI attached after a session, which slows launches (pytorch#144455), unless the environment prevents it
(`worker_environment.device_variables`). Later sessions may lose their first kernels (pytorch#192021). Because of either
bug, a GPU looks idle. `python -m experiments.preflight.profiler_check DEVICE` runs the check and prints JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.child_processes import end_with_parent
from contract.errors import StudyError
from experiments import worker_environment
from experiments.children import answer_sender
from experiments.devices import Device, open_device
from experiments.workload import Unsupported

# Prefix for the reason if torch has no profiler for the device.
UNSUPPORTED = "unsupported: "
SESSIONS, STEPS, PAUSE_S = 5, 4, 0.5
# TIMED_S: minimum seconds per timing. UNTIMED: number of warm-up steps before each timing.
# REPEATS: number of timings before the first profiler session.
TIMED_S, UNTIMED, REPEATS = 0.3, 5, 3
# Largest accepted `ProfilerTimes.slowdown`.
SLOWER = 0.05


@dataclass(frozen=True)
class ProfilerTimes:
    """Times per step without and after profiler sessions, and the number of records in each session.

    before_s: seconds per step in each timing before the first session.
    after_s: seconds per step after each session.
    records: number of records in each session, which profiles STEPS steps. On a GPU, the records are kernels, copies
        and fills; on a CPU, they are operators.
    """

    before_s: Sequence[float]
    after_s: Sequence[float]
    records: Sequence[int]

    @property
    def slowdown(self) -> float:
        """Median step time after sessions, divided by the slowest step time before them, minus 1; at least 0."""
        return max(0.0, statistics.median(self.after_s) / max(self.before_s) - 1)

    @property
    def lost_sessions(self) -> int:
        """Number of sessions that lost records.

        A session lost records if another session has more, or if its number of records is not a multiple of STEPS.
        """
        return sum(count < max(self.records) or count % STEPS != 0 for count in self.records)

    @property
    def in_order(self) -> bool:
        """True if the profiler does not slow later steps, no session lost records, and the sessions have records."""
        return self.slowdown <= SLOWER and not self.lost_sessions and max(self.records) > 0

    @property
    def summary(self) -> str:
        """A line with the step times before and after sessions, and the number of sessions that lost records."""
        times = f"a step takes {statistics.median(self.before_s) * 1e3:.3f} ms before profiles, "
        times += f"{statistics.median(self.after_s) * 1e3:.3f} ms after them"
        if self.slowdown > SLOWER:
            times += f" ({self.slowdown:.0%} slower)"
        if not max(self.records):
            return f"{times}; no session recorded a kernel"
        counts = (
            f"{self.lost_sessions} of {len(self.records)} sessions lost some"
            if self.lost_sessions
            else "all sessions complete"
        )
        return f"{times}; {max(self.records)} records a session, {counts}"


def time_profiler(device: Device) -> ProfilerTimes:
    """Time a small model's steps before and after profiler sessions, and count each session's records.

    Raises Unsupported if torch has no profiler for the device.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    from experiments.models import profiling

    activity = profiling.device_activity(device)
    device.set_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)]).to(device.name)
    optimizer, data = torch.optim.Adam(model.parameters()), torch.randn(32, 64, device=device.name)

    def step() -> None:
        model(data).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def step_s() -> float:
        for _ in range(UNTIMED):
            step()
        device.synchronise()
        started, steps = time.perf_counter(), 0
        while time.perf_counter() - started < TIMED_S:
            step()
            steps += 1
        device.synchronise()
        return (time.perf_counter() - started) / steps

    before, after, records = [step_s() for _ in range(REPEATS)], [], []
    for _ in range(SESSIONS):
        with profile(activities=list({ProfilerActivity.CPU, activity})) as session:
            for _ in range(STEPS):
                step()
            device.synchronise()
        apart = activity is not ProfilerActivity.CPU
        counted = (
            event
            for event in session.key_averages()
            if profiling.is_kernel(event) == apart and not event.is_user_annotation
        )
        records.append(sum(int(event.count) for event in counted))
        after.append(step_s())
        time.sleep(PAUSE_S)
    return ProfilerTimes(before, after, records)


def run_for_json(
    words: Sequence[str], read: Callable[[Any], Any], variables: Mapping[str, str], limit_s: float | None = None
) -> Any:
    """Run a process, parse its last output line as JSON, and return the result of `read` for this JSON.

    words: the command line. variables: environment variables to add to `worker_environment.clean_environment`.
    limit_s: the timeout. Raises StudyError with the last line on stderr if the process prints no readable JSON.
    """
    try:
        ended = subprocess.run(
            words,
            env={**worker_environment.clean_environment(), **variables},
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StudyError(f"no answer within {limit_s:.0f} s") from None
    try:
        return read(json.loads(ended.stdout.splitlines()[-1]))
    except (ValueError, TypeError, IndexError):
        complaint = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = complaint[-1].removeprefix("error: ") if complaint else f"exit code {ended.returncode}"
        raise StudyError(reason) from None


def check_profiler(device: str, limit_s: float, command: Sequence[str] = ()) -> tuple[ProfilerTimes | None, str]:
    """Run `time_profiler` for at most `limit_s` seconds, in a process with a measuring process's environment.

    command: the command line without the device; empty for the default.
    Returns the times, or None if `time_profiler` failed, and a line to print with the result or the reason.
    """
    words = [*(command or (sys.executable, "-m", "experiments.preflight.profiler_check")), device]
    try:
        times: ProfilerTimes = run_for_json(
            words, lambda answer: ProfilerTimes(**answer), worker_environment.device_variables(device), limit_s
        )
    except StudyError as failure:
        reason = str(failure)
        return None, reason if reason.startswith(UNSUPPORTED) else f"not checked: {reason}"
    return times, times.summary


def main() -> int:
    """Check the device named on the command line."""
    end_with_parent()
    answer = answer_sender()
    try:
        times: Any = time_profiler(open_device(sys.argv[1]))
    except StudyError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.exit_code
    except Unsupported as lack:
        print(f"{UNSUPPORTED}{lack}", file=sys.stderr)
        return 1
    answer(vars(times))
    return 0


if __name__ == "__main__":
    sys.exit(main())
