"""Choose the points to measure in further rounds: those behind undecided cases, and anchors in a new session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import contract.looks
from contract.errors import StudyError
from contract.looks import KEY
from contract.node_pack import parse_round_file
from contract.sample_table import load_samples
from experiments.jobs import JOB_S, Job, Plan, Point, point_key

# Number of anchors per experiment and device.
ANCHORS = 5
# Time without measuring after which a new session begins.
APART = timedelta(hours=1)
# Number of rounds of a session that measures anchors alone. Those of session 2 have the numbers 21 and 22.
SESSION_ROUNDS = 2

Key = tuple[Any, ...]


@dataclass(frozen=True)
class MeasuredRounds:
    """Facts from a node's finished rounds.

    paces: ratio of running time to predicted time in the plan's own rounds, by job name. further_s: running time of
    further rounds before the looks. ended: end of the last round; None without rounds. sound: the points measured
    without a failure.
    """

    paces: Mapping[str, float]
    further_s: float
    ended: datetime | None
    sound: frozenset[Key]

    def session_begins(self, now: datetime) -> bool:
        """Tell if a round that starts now begins another session."""
        return self.ended is not None and now - self.ended >= APART


def read_measured_rounds(folder: Path, plan: Plan) -> MeasuredRounds:
    """Read a node's rounds. plan: the plan without further rounds. Raises StudyError if a file cannot be read."""
    ran_s: dict[str, float] = {}
    further_s, ended, sound = 0.0, [], set()
    for path in sorted(folder.glob("[!.]*.parquet")):
        if (place := parse_round_file(path.name)) is None:
            continue
        samples, about = load_samples(path)
        seconds = float(about["wall_s"]) - float(about.get("stood_s", 0.0))
        ended.append(datetime.strptime(about["ended_utc"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC))
        if place[2] > plan.rounds:
            further_s += seconds
        elif place[3] == 1:
            name = path.name.rsplit(".", 2)[0]
            ran_s[name] = ran_s.get(name, 0.0) + seconds
        rows = samples.select([*KEY, "status"]).to_pylist()
        sound |= {tuple(row[name] for name in KEY) for row in rows if row["status"] == "ok"}
    predicted = {job.name: sum(job.seconds(number) for number in range(1, plan.rounds + 1)) for job in plan.jobs}
    paces = {name: seconds / predicted[name] for name, seconds in ran_s.items() if predicted.get(name)}
    return MeasuredRounds(paces, further_s, max(ended, default=None), frozenset(sound))


class PlannedPoints:
    """Points that a plan measures, by key, with their predicted times."""

    def __init__(self, plan: Plan, measured: MeasuredRounds) -> None:
        self._measured = measured
        self._points: dict[Key, tuple[Job, Point]] = {
            point_key(job, point): (job, point) for job in plan.jobs for point in job.points if not point.left_out
        }

    def keys(self, points: Iterable[Mapping[str, Any]]) -> list[Key]:
        """Return the keys of those points that the plan measures, without duplicates."""
        keys = dict.fromkeys(tuple(point[name] for name in KEY) for point in points)
        return [key for key in keys if key in self._points]

    def round_s(self, keys: Iterable[Key]) -> float:
        """Predict the running time of one round of these points: their predicted times, times the jobs' paces."""
        by_job: dict[str, tuple[Job, list[Point]]] = {}
        for job, point in map(self._points.__getitem__, dict.fromkeys(keys)):
            by_job.setdefault(job.name, (job, []))[1].append(replace(point, rounds=1))
        return sum(
            JOB_S + self._measured.paces.get(name, 1.0) * replace(job, points=tuple(points)).seconds(1)
            for name, (job, points) in by_job.items()
        )

    def anchors(self, beside: Sequence[Key] | None = None) -> list[Key]:
        """Return anchors: up to ANCHORS points of each job that were measured without a failure.

        They are spread evenly over the job's points, sorted by predicted time. beside: take only jobs with these
        points, and none of these points.
        """
        jobs = None if beside is None else {key[:2] for key in beside}
        by_job: dict[Key, list[Key]] = {}
        for key in self._points:
            if key in self._measured.sound and (jobs is None or key[:2] in jobs) and key not in (beside or ()):
                by_job.setdefault(key[:2], []).append(key)
        anchors: list[Key] = []
        for keys in by_job.values():
            keys.sort(key=lambda key: self._points[key][1].predicted_s)
            number = min(ANCHORS, len(keys))
            anchors += [keys[(2 * at + 1) * len(keys) // (2 * number)] for at in range(number)]
        return anchors


def look_rounds(
    plan: Plan,
    measured: MeasuredRounds,
    cases: Sequence[Mapping[str, Any]],
    look: int,
    minutes: float,
    now: datetime,
) -> tuple[dict[str, Any], str]:
    """Choose the points to measure before a look; return the further rounds, and a sentence that announces them.

    A case is measured with all of its points or not at all. Cases are taken in their order while the time suffices for
    all rounds up to the last look. If the rounds begin a session, anchors are measured beside the points.

    plan: the plan without further rounds. cases: as from `contract.looks.read_open_cases`. look: number of rounds.
    minutes: time limit for the further rounds of all looks. Raises StudyError if the plan has no such look.
    """
    looks = contract.looks.look_rounds(plan.rounds)
    if look not in looks[1:]:
        raise StudyError(f"--look {look}: a plan with {plan.rounds} rounds has the looks {looks[1:]}")
    before, planned = looks[looks.index(look) - 1], PlannedPoints(plan, measured)
    left_s, begins = 60 * minutes - measured.further_s, measured.session_begins(now)
    points: list[Key] = []
    anchors: list[Key] = []
    number = 0
    for case in cases:
        trial = list(dict.fromkeys([*points, *planned.keys(case["points"])]))
        beside = planned.anchors(trial) if begins else []
        if len(trial) == len(points) or (looks[-1] - before) * planned.round_s([*trial, *beside]) <= left_s:
            points, anchors, number = trial, beside, number + 1
    rounds = list(range(before + 1, look + 1)) if points else []
    took = len(rounds) * planned.round_s([*points, *anchors]) / 60
    limit = f"limit for all looks: {minutes:g} min"
    text = (
        f"rounds {rounds[0]} to {look}: {_counted(points, anchors)}, behind {number:,} of {len(cases):,} undecided "
        f"cases, about {took:.1f} min ({limit})"
        if points
        else f"no round before the look after {look} rounds: of {len(cases):,} undecided cases none fits ({limit})"
    )
    return _document(rounds, points, anchors, look), text


def session_rounds(plan: Plan, measured: MeasuredRounds, session: int) -> tuple[dict[str, Any], str]:
    """Choose the anchors of a session; return its further rounds, and a sentence that announces them.

    plan: the plan without further rounds.
    """
    planned = PlannedPoints(plan, measured)
    anchors, first = planned.anchors(), 10 * session + 1
    rounds = list(range(first, first + SESSION_ROUNDS))
    took = len(rounds) * planned.round_s(anchors) / 60
    text = f"session {session}: {len(anchors):,} points again, in {len(rounds)} rounds, about {took:.1f} min"
    return _document(rounds, [], anchors, None), text


def _counted(points: Sequence[Key], anchors: Sequence[Key]) -> str:
    return f"{len(points):,} points" + (f" and {len(anchors):,} anchors" if anchors else "")


def _document(rounds: Sequence[int], points: Sequence[Key], anchors: Sequence[Key], look: int | None) -> dict[str, Any]:
    """Return further rounds, as `contract.looks.read_further_rounds` reads them."""
    listed = [[dict(zip(KEY, key, strict=True)) for key in keys] for keys in (points, anchors)]
    return {"rounds": list(rounds), "points": listed[0], "anchors": listed[1], "look": look}
