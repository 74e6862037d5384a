"""`preflight`: the first minutes on a machine that is paid for by the minute. It keeps no sample.

First torch's profiler is checked. Then one point of every kind that a plan measures is measured briefly, and its rate
is compared with what the GPU is rated for. What fails here would fail in the study, where nobody sees it for long.
"""

from __future__ import annotations

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

# Seconds of samples for a point, and how many at most.
BUDGET_S, SAMPLES = 0.15, 8
# Set-up that a plan counts for a point is believed up to here: `sustained` lasts for minutes, but not now.
PREDICTED_S = 15.0
# Below this many seconds no other point is begun.
LEAST_S = 1.0
# The check of the profiler takes so many seconds at least, torch's start included.
PROFILER_S = 10.0
# Of the time, the check of the profiler has this share, and the last share is for profiles.
PROFILER_SHARE, PROFILES_SHARE = 0.2, 0.1
# Words of an outcome without an error that somebody can mend.
MENDABLE = ("is not installed", "cannot be captured")
# Errors of reading an answer of another shape than a measuring process writes.
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError)
# A GPU at full work is held by its own power limit: no fault of the machine.
USUAL = Flag("throttled", "power limit")


@dataclass(frozen=True)
class Line:
    """One line of the table. verdict: ok, note, unsupported, left out; look, slow, fast, which need a look."""

    verdict: str
    what: str
    seen: str
    expected: str = ""
    seconds: float | None = None

    @property
    def needs_a_look(self) -> bool:
        """True if something has to be done, or understood, before the study is run."""
        return self.verdict in ("look", "slow", "fast")

    def row(self, width: int) -> str:
        """The line with its second column of this width; verdicts that need a look are in capitals."""
        took = f"{self.seconds:.1f} s" if self.seconds is not None else ""
        expected = f" (expected {self.expected})" if self.expected else ""
        verdict = self.verdict.upper() if self.needs_a_look else self.verdict
        return f"{verdict:11}  {self.what:{width}}  {took:>6}  {self.seen}{expected}"


def _print(line: str) -> None:
    """Print a line at once, also into a pipe, so that a cut run has printed it."""
    print(line, flush=True)


@dataclass
class Preflight:
    """The points to try, the minutes for them, and the lines so far.

    gpus: name and bytes of memory of each device that is not a CPU. checked: devices whose profiler is checked.
    command: of a measuring process; profiling: of the profiler's check. say: is given each line, by default to print.
    absent: a line for each device that should be here, and is not.
    begun: by time.monotonic, from when on the minutes count.
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
        """Try everything that there is time for; True if something was tried, and nothing needs a look."""
        workers = Workers(self.command, self.log, lambda: None)
        rules = rate_ranges.read_rules()
        kinds = {
            device: breadth_first([job for job in self.plan.jobs if job.device == device], rules)
            for device in sorted(
                dict.fromkeys(job.device for job in self.plan.jobs), key=lambda device: device not in self.gpus
            )
        }
        self._width = max((len(kind.title) for of_device in kinds.values() for kind in of_device), default=0)
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
                tried, left_here = self._measure_kinds(todo, workers, peaks)
            finally:
                # A process has one device: the next device has others.
                workers.stop()
            measured, left = measured + tried, left + left_here
        self._conclude(measured, left)
        return not any(line.needs_a_look for line in self.lines) and (measured > 0 or not left)

    def _measure_kinds(
        self, todo: list[Kind], workers: Workers, peaks: rate_ranges.Peaks | None
    ) -> tuple[int, list[Kind]]:
        """Measure a device's kinds while there is time: how many were, and those left out."""
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
                # Other points that may hang wait until all others have been tried.
                todo.sort(key=lambda one: one.job.experiment == kind.job.experiment)
        # As in a round: the profiler slows what is timed after it.
        while profiles and self._remaining_s() >= LEAST_S:
            self._add_line(self._profile_kind(profiles.pop(0), workers))
        if profiles:
            self.say(f"profiles of {len(profiles)} points were left out: the minutes were over")
        return measured, todo

    def _remaining_s(self) -> float:
        return self.begun + 60 * self.minutes - time.monotonic()

    def _add_line(self, line: Line) -> None:
        self.lines.append(line)
        self.say(line.row(self._width))

    def _check_profiler(self, device: str) -> None:
        what = f"profiler on {device}"
        limit = min(self._remaining_s(), PROFILER_SHARE * 60 * self.minutes / len(self.checked))
        if limit < PROFILER_S:
            self._add_line(Line("left out", what, f"it takes {PROFILER_S:.0f} s: give more --minutes"))
            return
        seen, words = profiler_check.check_profiler(device, limit, self.profiling)
        bad = seen is None or not seen.in_order
        verdict = "ok" if not bad else "look" if device in self.gpus else "note"
        if words.startswith(profiler_check.UNSUPPORTED):
            verdict, words = "unsupported", words.removeprefix(profiler_check.UNSUPPORTED)
        self._add_line(Line(verdict, what, words))

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
        what = f"profile of {kind.title}"
        try:
            return _profile_line(what, answer, seconds)
        except UNREADABLE as fault:
            return _profile_line(what, unreadable_answer(fault), seconds)

    def _send_order(self, kind: Kind, worker: Worker, order: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """A measuring process's answer, and the seconds until it came, without those until the process was ready."""
        # Torch may take long from a cold disk, once.
        answer = {"ready": True} if worker.is_alive else worker.start(order, self._remaining_s())
        begun = time.monotonic()
        if "ready" in answer:
            briefly = replace(kind.point, point_s=BUDGET_S, predicted_s=min(kind.point.predicted_s, PREDICTED_S))
            answer = worker.measure(order, min(self._remaining_s(), kind.job.limit_s(briefly)))
        if answer.get("status") == "timeout" and self._remaining_s() < LEAST_S:
            answer = {"status": "skipped", "reason": "the minutes were over before it answered", "over": True}
        return answer, time.monotonic() - begun

    def _conclude(self, measured: int, left: Sequence[Kind]) -> None:
        if left:
            counts = ", ".join(f"{name} {count}" for name, count in count_by_job(left).items())
            self.say(f"left out, for {self.minutes:g} minutes were over: {counts}")
        bad = sum(line.needs_a_look for line in self.lines)
        tried = f"{measured} kind{'s' * (measured != 1)} of points tried"
        said = f"{bad} to look at, in capitals above; tracebacks are in {self.log}" if bad else "nothing to look at"
        if left and not measured:
            said = "give more --minutes"
        self.say(f"{tried}, {len(left)} left out; {said}")


def make_preflight(
    preset: str, plan: Path | None, device: str | None, minutes: float, log: Path, begun: float
) -> Preflight:
    """The points to try on this machine: of a plan, else of a preset, on one device or on all, GPUs first.

    begun: by time.monotonic, from when on the minutes count. Raises StudyError for a device that is not there, or that
    the plan does not measure.
    """
    from experiments import hardware
    from experiments.plan import full_plan
    from experiments.sweep import preset_path, read_preset

    described, reasons = _list_devices()
    known = [str(one["id"]) for one in described]
    if device and device not in known:
        why = "".join(f" {reason}." for reason in reasons)
        raise StudyError(f"no device {device!r} on this machine. Devices: {', '.join(known)}.{why}")
    names = [device] if device else known
    made = (
        read_plan(plan)
        if plan
        else full_plan(read_preset(preset), str(preset_path(preset)), described, hardware.usable_cores())
    )
    jobs = tuple(job for job in made.jobs if job.device in names)
    if not jobs:
        raise StudyError(f"{plan or preset}: measures nothing on {', '.join(names)}")
    gpus = {one["id"]: (one["name"], one.get("memory_bytes")) for one in described if one["kind"] != "cpu"}
    # A CPU's profiles lose nothing, and slow nothing: they are checked where there is nothing else.
    checked = [name for name in names if name in gpus] or names
    absent = () if device else _absent_devices(made, known, reasons)
    return Preflight(replace(made, jobs=jobs), gpus, minutes, log, checked, absent=absent, begun=begun)


def _absent_devices(plan: Plan, known: Sequence[str], reasons: Sequence[str]) -> list[Line]:
    """A line for each device that a plan measures and this machine lacks, and one where it shows no GPU at all."""
    lacking = sorted({job.device for job in plan.jobs} - set(known))
    lines = [Line("look", device, "the plan measures it, and it is not on this machine") for device in lacking]
    if any(name != "cpu" for name in known):
        return lines
    why = "; ".join(reasons)
    return [*lines, Line("look", "no GPU found", f"{why} (`doctor` says more; --device cpu tries the CPU alone)")]


def _list_devices() -> tuple[list[dict[str, Any]], list[str]]:
    """Entries of a node record for this machine's devices, and why others are left out. Raises StudyError.

    Asked in a process of its own: one that has looked at a GPU through torch may count as another user of it.
    """
    program = (
        "import json; from experiments.devices import detect; found, left_out = detect(); "
        "print(json.dumps([[device.describe() for device in found], left_out]))"
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
    """The order for a measuring process. A call is told to be short, so that no point is skipped for its budget."""
    job = replace(kind.job, target=0.5, max_samples=SAMPLES)
    return job.order(replace(kind.point, call_s=1e-5, point_s=BUDGET_S))


def judge(kind: Kind, answer: Mapping[str, Any], peaks: rate_ranges.Peaks | None, seconds: float) -> Line:
    """The line for a point's answer: its outcome, else how its rate lies to what is expected."""
    what = kind.title
    if answer["status"] != "ok":
        return Line(_verdict(answer), what, answer["reason"], seconds=seconds)
    parts = answer.get("parts", [])
    lacking = [part for part in parts if part["status"] != "ok"]
    lacking += [metric for metric in answer.get("profiled", []) if "value" not in metric]
    said = "".join(f"; {part['metric']}: {part['reason']}" for part in lacking)
    flags = _worst_flags(parts)
    usual = {USUAL.name, "clock"} if USUAL in flags else set()
    said += "".join(f"; {flag}" + " (usual at full work)" * (flag.name in usual) for flag in flags)
    value = rate_ranges.speed(answer, kind.rule)
    seen = (str(value) if value else "no number") + said
    worst_part = next((part for part in lacking if _verdict(part) == "look"), None)
    limits = peaks.limits(kind.rule, str(dict(kind.point.params).get("dtype"))) if peaks and kind.rule else None
    if value is None or kind.rule is None or limits is None or value.unit != kind.rule.unit:
        return Line("look" if worst_part or value is None else "ok", what, seen, seconds=seconds)
    least, most = (rate_ranges.format_quantity(limit, value.unit).split(" ") for limit in limits)
    expected = " ".join([least[0], *(least[1:] if least[1:] != most[1:] else ()), "to", *most])
    lower, higher = ("fast", "slow") if value.unit == "s" else ("slow", "fast")
    verdict = lower if value.value < limits[0] else higher if value.value > limits[1] else "ok"
    return Line("look" if worst_part and verdict == "ok" else verdict, what, seen, expected, seconds)


def _profile_line(what: str, answer: Mapping[str, Any], seconds: float) -> Line:
    """The line for a point's profile: its first numbers, else which it lacks."""
    metrics = answer.get("profiled", [])
    lacking = [f"{metric['metric']}: {metric['reason']}" for metric in metrics if "value" not in metric]
    if answer["status"] != "ok" or lacking:
        verdict = "look" if lacking else _verdict(answer)
        return Line(verdict, what, "; ".join(lacking) or answer["reason"], seconds=seconds)
    seen = ", ".join(
        f"{metric['metric']} {rate_ranges.format_quantity(metric['value'], metric['unit'])}" for metric in metrics[:2]
    )
    return Line("ok", what, seen, seconds=seconds)


def _verdict(outcome: Mapping[str, Any]) -> str:
    """The verdict for an outcome that is not ok: an unsupported point is no fault, unless a package can mend it."""
    if outcome["status"] == "unsupported":
        return "look" if any(words in outcome["reason"] for words in MENDABLE) else "unsupported"
    return "left out" if outcome["status"] == "skipped" else "look"


def _worst_flags(parts: Sequence[Mapping[str, Any]]) -> list[Flag]:
    """Disturbances of a point, the worst of each kind."""
    texts = {reading["flags"] for part in parts for reading in part.get("readings", ()) if reading.get("flags")}
    return worst_flags([flag for text in texts for flag in parse_sample_flags(text)])


def _worker_of_kind(kind: Kind, workers: Workers) -> Worker:
    """The measuring process for a point's environment, as in a round."""
    return workers.get_worker(kind.job.device, kind.point.environment)
