"""`preflight`: a short trial before a study on a rented machine. `preflight` stores no samples.

It first checks torch's profiler. It then sorts the plan's points (combinations of an experiment's parameters) into
kinds, briefly measures one point per kind, and compares the point's rate with a range that is derived from the GPU's
rated peaks. A failure that `preflight` finds would also occur in the study, but would be noticed much later there.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.sample_flags import Flag, parse_sample_flags, worst_flags
from experiments.jobs import Plan, read_plan
from experiments.preflight import profiler_check, rate_ranges
from experiments.preflight.point_kinds import Kind, breadth_first, count_by_job
from experiments.worker_processes import COMMAND, Worker, Workers, unreadable_answer

# BUDGET_S: seconds for warm-up and samples per point. SAMPLES: the maximum number of samples per point.
BUDGET_S, SAMPLES = 0.15, 8
# Maximum number of predicted seconds to include in a point's timeout. For `sustained`, the plan predicts minutes, but
# `preflight` measures each point only briefly.
PREDICTED_S = 15.0
# Start no further point if fewer seconds than this are left.
LEAST_S = 1.0
# Leave out the profiler check if fewer seconds than this are available. The check must load torch first.
PROFILER_S = 10.0
# PROFILER_SHARE: the profiler check may take at most this share of the time limit.
# PROFILES_SHARE: this share of the time limit is kept free for the points' profiles, which are taken last.
PROFILER_SHARE, PROFILES_SHARE = 0.2, 0.1
# If the reason for an "unsupported" outcome contains one of these texts, the user can fix the problem.
MENDABLE = ("is not installed", "cannot be captured")
# Exceptions that occur when an answer does not have the expected structure.
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError)
# This flag is normal for a GPU at full load.
USUAL = Flag("throttled", "power limit")


@dataclass(frozen=True)
class Line:
    """A line in the printed table.

    verdict: ok, note, unsupported or left out if the user need not act; look, slow or fast if the user should check
    the line. what: the point or check. seen: the result. expected: the expected range, if one is known.
    """

    verdict: str
    what: str
    seen: str
    expected: str = ""
    seconds: float | None = None

    @property
    def needs_a_look(self) -> bool:
        """True if the user should check something before the study."""
        return self.verdict in ("look", "slow", "fast")

    def row(self, width: int) -> str:
        """Format the line; the verdict is in capitals if `needs_a_look`. width: the second column's characters."""
        took = f"{self.seconds:.1f} s" if self.seconds is not None else ""
        expected = f" (expected {self.expected})" if self.expected else ""
        verdict = self.verdict.upper() if self.needs_a_look else self.verdict
        return f"{verdict:11}  {self.what:{width}}  {took:>6}  {self.seen}{expected}"


def _print(line: str) -> None:
    """Print a line and flush the output, so that the line is not lost if the run is interrupted."""
    print(line, flush=True)


@dataclass
class Preflight:
    """A trial: its points, its time limit, and the table's lines so far.

    gpus: (name, memory in bytes) of each GPU, by torch's device name.
    minutes: the time limit.
    log: the file for the measuring processes' error output.
    checked: the devices on which to check the profiler.
    say: called with each formatted line; prints the line by default.
    command: the command line for a measuring process.
    profiling: the command line for the profiler check; empty for the default.
    absent: lines about the planned devices that this machine lacks.
    begun: the start of the time limit, as a reading of time.monotonic.
    """

    plan: Plan
    gpus: Mapping[str, tuple[str, float | None]]
    minutes: float
    log: Path
    checked: Sequence[str] = ()
    say: Callable[[str], object] = _print
    command: Sequence[str] = COMMAND
    profiling: Sequence[str] = ()
    absent: Sequence[Line] = ()
    begun: float = field(default_factory=time.monotonic)
    lines: list[Line] = field(default_factory=list)

    def run(self) -> bool:
        """Try points until the time is over.

        Returns False if a line needs a look, or if the time was over before any point was tried; otherwise True.
        """
        workers = Workers(self.command, self.log, lambda: None)
        rules = rate_ranges.read_rules()
        kinds = {
            device: breadth_first([job for job in self.plan.jobs if job.device == device], rules)
            for device in sorted(
                dict.fromkeys(job.device for job in self.plan.jobs), key=lambda device: device not in self.gpus
            )
        }
        self._width = max((len(kind.title) for device_kinds in kinds.values() for kind in device_kinds), default=0)
        for line in self.absent:
            self._add_line(line)
        for device in self.checked:
            self._check_profiler(device)
        left: list[Kind] = []
        measured = 0
        for device, todo in kinds.items():
            peaks = rate_ranges.rated_peaks(*self.gpus[device]) if device in self.gpus else None
            self.say(_heading(device, self.gpus.get(device), peaks))
            try:
                count, left_here = self._measure_kinds(todo, workers, peaks)
            finally:
                # A measuring process can measure only one device: stop this device's processes before the next device.
                workers.stop()
            measured, left = measured + count, left + left_here
        self._conclude(measured, left)
        return not any(line.needs_a_look for line in self.lines) and (measured > 0 or not left)

    def _measure_kinds(
        self, todo: list[Kind], workers: Workers, peaks: rate_ranges.Peaks | None
    ) -> tuple[int, list[Kind]]:
        """Measure a device's kinds while time is left; return the number of measured kinds, and the other kinds."""
        profiles: list[Kind] = []
        measured = 0
        while todo and self._remaining_s() >= max(LEAST_S, PROFILES_SHARE * 60 * self.minutes * bool(profiles)):
            kind = todo.pop(0)
            answer, line = self._measure_kind(kind, workers, peaks)
            self._add_line(line)
            if answer.get("over"):
                todo.insert(0, kind)
                break
            measured += 1
            profiles += [kind] * ("profile" in answer)
            if answer["status"] == "timeout":
                # The experiment's other points may hang too, so move them to the end.
                todo.sort(key=lambda waiting: waiting.job.experiment == kind.job.experiment)
        # Take the profiles after all timings, as the study does, since the profiler slows later timings.
        while profiles and self._remaining_s() >= LEAST_S:
            self._add_line(self._profile_kind(profiles.pop(0), workers))
        if profiles:
            self.say(f"profiles for {len(profiles)} points were left out: no time left")
        return measured, todo

    def _remaining_s(self) -> float:
        return self.begun + 60 * self.minutes - time.monotonic()

    def _add_line(self, line: Line) -> None:
        self.lines.append(line)
        self.say(line.row(self._width))

    def _check_profiler(self, device: str) -> None:
        title = f"profiler on {device}"
        limit = min(self._remaining_s(), PROFILER_SHARE * 60 * self.minutes / len(self.checked))
        if limit < PROFILER_S:
            self._add_line(Line("left out", title, f"it takes {PROFILER_S:.0f} s: increase --minutes"))
            return
        times, words = profiler_check.check_profiler(device, limit, self.profiling)
        bad = times is None or not times.in_order
        verdict = "ok" if not bad else "look" if device in self.gpus else "note"
        if words.startswith(profiler_check.UNSUPPORTED):
            verdict, words = "unsupported", words.removeprefix(profiler_check.UNSUPPORTED)
        self._add_line(Line(verdict, title, words))

    def _measure_kind(
        self, kind: Kind, workers: Workers, peaks: rate_ranges.Peaks | None
    ) -> tuple[dict[str, Any], Line]:
        answer, seconds = self._send_order(kind, _worker_of_kind(kind, workers), _make_order(kind))
        try:
            return answer, judge(kind, answer, peaks, seconds)
        except UNREADABLE as fault:
            answer = unreadable_answer(fault)
            return answer, judge(kind, answer, peaks, seconds)

    def _profile_kind(self, kind: Kind, workers: Workers) -> Line:
        answer, seconds = self._send_order(kind, _worker_of_kind(kind, workers), {**_make_order(kind), "profile": True})
        title = f"profile of {kind.title}"
        try:
            return _profile_line(title, answer, seconds)
        except UNREADABLE as fault:
            return _profile_line(title, unreadable_answer(fault), seconds)

    def _send_order(self, kind: Kind, worker: Worker, order: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """Start the process if necessary, and send an order; return the answer, and the seconds without the start."""
        # Start the process before timing, since torch may load slowly from a cold disk.
        answer = {"ready": True} if worker.is_alive else worker.start(order, self._remaining_s())
        started = time.monotonic()
        if "ready" in answer:
            briefly = replace(kind.point, point_s=BUDGET_S, predicted_s=min(kind.point.predicted_s, PREDICTED_S))
            answer = worker.measure(order, min(self._remaining_s(), kind.job.limit_s(briefly)))
        if answer.get("status") == "timeout" and self._remaining_s() < LEAST_S:
            answer = {"status": "skipped", "reason": "no time was left before it answered", "over": True}
        return answer, time.monotonic() - started

    def _conclude(self, measured: int, left: Sequence[Kind]) -> None:
        if left:
            counts = ", ".join(f"{name} {count}" for name, count in count_by_job(left).items())
            self.say(f"left out because the {self.minutes:g} minutes were over: {counts}")
        bad = sum(line.needs_a_look for line in self.lines)
        summary = f"{measured} kind{'s' * (measured != 1)} of points tried"
        advice = f"{bad} to look at, in capitals above; tracebacks are in {self.log}" if bad else "nothing to look at"
        if left and not measured:
            advice = "increase --minutes"
        self.say(f"{summary}, {len(left)} left out; {advice}")


def make_preflight(
    preset: str, plan: Path | None, device: str | None, minutes: float, log: Path, begun: float
) -> Preflight:
    """Prepare a trial of a plan's points, or of a preset's points if `plan` is None.

    device: the only device to try; None for all devices. begun: the start of the time limit, as a reading of
    time.monotonic. Raises StudyError if this machine lacks the device, or the plan does not measure it.
    """
    from experiments import hardware
    from experiments.plan import full_plan
    from experiments.sweep import preset_path, read_preset

    described, reasons = _list_devices()
    known = [str(entry["id"]) for entry in described]
    if device and device not in known:
        why = "".join(f" {reason}." for reason in reasons)
        raise StudyError(f"no device {device!r} on this machine. Devices: {', '.join(known)}.{why}")
    names = [device] if device else known
    planned = (
        read_plan(plan)
        if plan
        else full_plan(read_preset(preset), str(preset_path(preset)), described, hardware.usable_cores())
    )
    jobs = tuple(job for job in planned.jobs if job.device in names)
    if not jobs:
        raise StudyError(f"{plan or preset}: measures nothing on {', '.join(names)}")
    gpus = {entry["id"]: (entry["name"], entry.get("memory_bytes")) for entry in described if entry["kind"] != "cpu"}
    # If there is a GPU, skip the profiler check on the CPU, since CPU profiles do not have the GPU profiler's problems.
    checked = [name for name in names if name in gpus] or names
    absent = () if device else _absent_devices(planned, known, reasons)
    return Preflight(replace(planned, jobs=jobs), gpus, minutes, log, checked, absent=absent, begun=begun)


def _absent_devices(plan: Plan, known: Sequence[str], reasons: Sequence[str]) -> list[Line]:
    """Return a line for each planned device that this machine lacks, and for each unusable GPU or library.

    known: the devices on this machine. reasons: for each unusable device, the reason.
    """
    lacking = sorted({job.device for job in plan.jobs} - set(known))
    lines = [Line("look", device, "the plan measures it, but this machine does not have it") for device in lacking]
    if any(name != "cpu" for name in known):
        named = [reason.partition(": ") for reason in reasons if re.match(r"[a-z]+:\d+: |CuPy: ", reason)]
        return lines + [Line("look", name, why) for name, _, why in named]
    why = "; ".join(reasons)
    return [*lines, Line("look", "no GPU found", f"{why} (`doctor` says more; --device cpu tries the CPU alone)")]


def _list_devices() -> tuple[list[dict[str, Any]], list[str]]:
    """Return this machine's devices as node record entries, and the reason for each unusable device.

    A child process queries the devices, since a process that has queried a GPU through torch may be counted as another
    program on that GPU later. Raises StudyError if the child process fails.
    """
    program = (
        "import json; from experiments.devices import detect; "
        "from experiments.kernels.cuda_compile import installed_cupy_fault as fault; found, left_out = detect(); "
        "print(json.dumps([[device.describe() for device in found], left_out + fault()]))"
    )
    try:
        devices, reasons = profiler_check.run_for_json([sys.executable, "-c", program], lambda answer: answer, {})
    except StudyError as refusal:
        raise StudyError(f"the devices cannot be listed: {refusal}") from None
    return devices, reasons


def _heading(device: str, gpu: tuple[str, float | None] | None, peaks: rate_ranges.Peaks | None) -> str:
    if gpu is None:
        return f"{device}: no ranges are known for a CPU"
    if peaks is None:
        return f"{device}, {gpu[0]}: no ranges are known for this GPU"
    return f"{device}, {gpu[0]}: ranges are shares of rated peaks ({peaks.source}), derived"


def _make_order(kind: Kind) -> dict[str, Any]:
    """Return the order to measure a kind's point briefly.

    The order claims that a call is very short: otherwise, the measuring process might predict that a call exceeds the
    small budget, and skip the point.
    """
    job = replace(kind.job, target=0.5, max_samples=SAMPLES)
    return job.order(replace(kind.point, call_s=1e-5, point_s=BUDGET_S))


def judge(kind: Kind, answer: Mapping[str, Any], peaks: rate_ranges.Peaks | None, seconds: float) -> Line:
    """Return the line for a point's answer: its outcome, or its rate compared with the expected range."""
    title = kind.title
    if answer["status"] != "ok":
        return Line(_verdict(answer), title, answer["reason"], seconds=seconds)
    parts = answer.get("parts", [])
    lacking = [part for part in parts if part["status"] != "ok"]
    lacking += [metric for metric in answer.get("profiled", []) if "value" not in metric]
    remarks = "".join(f"; {part['metric']}: {part['reason']}" for part in lacking)
    flags = _worst_flags(parts)
    usual = {USUAL.name, "clock"} if USUAL in flags else set()
    remarks += "".join(f"; {flag}" + " (usual at full load)" * (flag.name in usual) for flag in flags)
    value = rate_ranges.speed(answer, kind.rule)
    observation = (str(value) if value else "no value") + remarks
    worst_part = next((part for part in lacking if _verdict(part) == "look"), None)
    limits = peaks.limits(kind.rule, str(dict(kind.point.params).get("dtype"))) if peaks and kind.rule else None
    if value is None or kind.rule is None or limits is None or value.unit != kind.rule.unit:
        return Line("look" if worst_part or value is None else "ok", title, observation, seconds=seconds)
    least, most = (rate_ranges.format_quantity(limit, value.unit).split(" ") for limit in limits)
    expected = " ".join([least[0], *(least[1:] if least[1:] != most[1:] else ()), "to", *most])
    lower, higher = ("fast", "slow") if value.unit == "s" else ("slow", "fast")
    verdict = lower if value.value < limits[0] else higher if value.value > limits[1] else "ok"
    return Line("look" if worst_part and verdict == "ok" else verdict, title, observation, expected, seconds)


def _profile_line(title: str, answer: Mapping[str, Any], seconds: float) -> Line:
    """Return the line for a point's profile: the first two metrics, or the reason for each missing metric."""
    metrics = answer.get("profiled", [])
    lacking = [f"{metric['metric']}: {metric['reason']}" for metric in metrics if "value" not in metric]
    if answer["status"] != "ok" or lacking:
        verdict = "look" if lacking else _verdict(answer)
        return Line(verdict, title, "; ".join(lacking) or answer["reason"], seconds=seconds)
    observation = ", ".join(
        f"{metric['metric']} {rate_ranges.format_quantity(metric['value'], metric['unit'])}" for metric in metrics[:2]
    )
    return Line("ok", title, observation, seconds=seconds)


def _verdict(outcome: Mapping[str, Any]) -> str:
    """Return the verdict for an outcome that is not ok.

    An "unsupported" outcome gets the verdict "look" only if the user can fix its cause.
    """
    if outcome["status"] == "unsupported":
        return "look" if any(words in outcome["reason"] for words in MENDABLE) else "unsupported"
    return "left out" if outcome["status"] == "skipped" else "look"


def _worst_flags(parts: Sequence[Mapping[str, Any]]) -> list[Flag]:
    texts = {reading["flags"] for part in parts for reading in part.get("readings", ()) if reading.get("flags")}
    return worst_flags([flag for text in texts for flag in parse_sample_flags(text)])


def _worker_of_kind(kind: Kind, workers: Workers) -> Worker:
    return workers.get_worker(kind.job.device, kind.point.environment)
