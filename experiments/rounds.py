"""Measure one round: each point once on a device, in random order."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from tqdm import tqdm

from contract import running_time
from contract.errors import StudyError
from contract.node import parse_left_out
from experiments.jobs import Job, Point
from experiments.machine_state import Reading
from experiments.outcome_summary import count_statuses, disturbed_text, highest_rate
from experiments.worker_processes import COMMAND, Workers, unreadable_answer


@dataclass
class Round:
    """One round for a job, with the results so far.

    meanwhile: called while a measuring process starts. attempt: 1, or more if the points are measured again.
    """

    job: Job
    number: int
    seed: int
    log: Path | None = None
    command: Sequence[str] = COMMAND
    meanwhile: Callable[[], object] = lambda: None
    attempt: int = 1
    rows: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    warmup_s: float = 0.0
    timed_s: float = 0.0
    stood_s: float = 0.0
    workers: int = 0
    environments: list[dict[str, str]] = field(default_factory=list)

    def run(self) -> None:
        """Measure all points.

        Budgets do not count the time during which the round is suspended, so no point is skipped because of a pause.
        """
        points, answers = shuffle_points(self.job.round_points(self.number), self.seed), list[dict[str, Any]]()
        workers = Workers(self.command, self.log, self.meanwhile)
        title = f"{self.job.experiment} on {self.job.device}, round {self.number}"
        title += f", attempt {self.attempt}" if self.attempt > 1 else ""

        # Disable tqdm's monitor thread, which would wake up during samples.
        tqdm.monitor_interval = 0
        with running_time.RunningTime(waits_for=workers.are_stopped) as clock:
            started = clock.now()
            try:
                # Some terminals report a size of 0 by 0. In this case, get_terminal_size returns a default size.
                size = shutil.get_terminal_size()
                with tqdm(
                    total=len(points),
                    desc=title,
                    unit="point",
                    disable=not sys.stderr.isatty(),
                    mininterval=0,
                    ncols=size.columns - 1,
                    nrows=size.lines,
                ) as bar:
                    for point in points:
                        answers.append(self._measure_point(point, workers, clock.now() - started))
                        bar.update()
                    # Profile after all timings, since the profiler slows later timings in a process on a GPU.
                    waiting = [
                        (point, answer) for point, answer in zip(points, answers, strict=True) if "profile" in answer
                    ]
                    bar.total = len(points) + len(waiting)
                    for point, answer in waiting:
                        answer["profiled"] = self._profile_point(
                            point, answer["profile"], workers, clock.now() - started
                        )
                        bar.update()
            finally:
                self.workers = workers.stop()
                self.environments = workers.environments
                took, self.stood_s = clock.now() - started, clock.lost_s()
        for point, answer in zip(points, answers, strict=True):
            self._add_answer(point, answer)
        if not sys.stderr.isatty():
            counted = f"{len(points)} point" + "s" * (len(points) != 1)
            stood = f", and {self.stood_s:.0f} s of standing still" if self.stood_s else ""
            noise = disturbed_text(self.rows_by_point())
            print(
                f"{title}: {counted} in {took:.0f} s{stood} "
                f"({count_statuses(self.outcomes)}{highest_rate(self.rows)}{noise})",
                file=sys.stderr,
            )

    def _measure_point(self, point: Point, workers: Workers, spent_s: float) -> dict[str, Any]:
        """Measure a point; return the answer, or a status and a reason if there is no answer.

        spent_s: seconds since the round began.
        """
        if point.left_out:
            return dict(zip(("status", "reason"), parse_left_out(point.left_out), strict=True))
        return self._send_order(point, self.job.order(point), workers, spent_s)

    def _profile_point(
        self, point: Point, units: dict[str, str], workers: Workers, spent_s: float
    ) -> list[dict[str, Any]]:
        """Profile a point; return each metric with a value or an outcome. spent_s: seconds since the round began."""
        answer = self._send_order(point, {**self.job.order(point), "profile": True}, workers, spent_s)
        try:
            if "profiled" in answer:
                self.timed_s += answer["profiled_s"]
                return [dict(metric) for metric in answer["profiled"]]
        except (LookupError, TypeError, ValueError) as fault:
            answer = unreadable_answer(fault)
        lack = {key: answer.get(key, "failed") for key in ("status", "reason")}
        return [{"metric": metric, "unit": unit, **lack} for metric, unit in units.items()]

    def _send_order(self, point: Point, order: dict[str, Any], workers: Workers, spent_s: float) -> dict[str, Any]:
        """Send an order; return the answer, or a status and a reason if the round's time is up or the process fails."""
        if spent_s > self.job.round_s:
            return {"status": "skipped", "reason": f"budget: this round's {self.job.round_s:g} s are used up"}
        try:
            return workers.get_worker(self.job.device, point.environment).measure(order, self.job.limit_s(point))
        except Exception as fault:
            return unreadable_answer(fault)

    def rows_by_point(self) -> list[list[dict[str, Any]]]:
        """Group the rows so far by point."""
        keys = ("backend", "dtype", "threads", "params")
        return [list(rows) for _, rows in groupby(self.rows, key=lambda row: [row[key] for key in keys])]

    def _add_answer(self, point: Point, answer: dict[str, Any]) -> None:
        """Add an answer's rows; an unreadable answer fails only its own point."""
        rows, outcomes = len(self.rows), len(self.outcomes)
        try:
            self._add_rows(point, answer)
        except Exception as fault:
            del self.rows[rows:], self.outcomes[outcomes:]
            self._add_rows(point, unreadable_answer(fault))

    def _add_rows(self, point: Point, answer: dict[str, Any]) -> None:
        self.outcomes.append(answer["status"])
        base: dict[str, Any] = {
            "round": self.number,
            "attempt": self.attempt,
            "experiment": self.job.experiment,
            "device": self.job.device,
            **point.columns,
            "metric": "time",
            "sample": 0,
            "unit": "s",
            "calls": 0,
            "status": answer["status"],
            "reason": "" if answer["status"] == "ok" else answer["reason"],
            "stop_reason": "",
            "flags": "",
            "origin": "measured",
        }
        if "parts" not in answer:
            self.rows.append(base)
            return
        base |= {key: answer[key] for key in ("error", "tolerance", "flop", "bytes")}
        self.timed_s += answer.get("observed_s", 0.0)
        for part in answer["parts"]:
            self._add_part(part, base)
        for metric, (values, unit) in answer["observed"].items():
            for index, value in enumerate(values if isinstance(values, list) else [values]):
                row = {"metric": metric, "unit": unit, "sample": index, "value": value, "calls": 1}
                self.rows.append(base | row | {"flags": answer.get("observed_flags", "")})
        for metric in answer.get("profiled", []):
            self.rows.append(base | ({"calls": 1} if "value" in metric else {}) | metric)

    def _add_part(self, part: dict[str, Any], base: dict[str, Any]) -> None:
        if part["status"] != "ok":
            self.rows.append(base | {key: part[key] for key in ("metric", "status", "reason")})
            return
        base = base | {key: part[key] for key in ("flop", "bytes", "calls", "stop_reason")}
        self.warmup_s += part["warmup_s"]
        self.timed_s += part["timed_s"]
        for series in part["series"]:
            for index, (value, reading) in enumerate(zip(series["values"], part["readings"], strict=True)):
                self.rows.append(
                    base
                    | reading
                    | {"metric": series["metric"], "unit": series["unit"], "sample": index, "value": value}
                )
        if part["energy"]:
            self.rows.append(base | part["energy"])


def shuffle_points(points: Sequence[Point], seed: int) -> list[Point]:
    """Shuffle the points, but keep a network's points together, so that the network is exported only once.

    This order also reduces the effect of slow drift on comparisons between runtimes on the same network.
    """
    random_order = random.Random(seed)
    by_network: dict[Any, list[Point]] = {}
    for point in points:
        by_network.setdefault(dict(point.params).get("model"), []).append(point)
    blocks = [random_order.sample(block, len(block)) for block in by_network.values()]
    random_order.shuffle(blocks)
    return [point for block in blocks for point in block]


def samples_table(measured: Round, node: str, run: str) -> Any:
    """Return the round's samples as a valid table; a point with an invalid row becomes a failed point."""
    import pandas as pd

    from contract.sample_table import SAMPLES, validate

    def make_frame(rows: list[dict[str, Any]]) -> Any:
        columns = list(SAMPLES.columns)
        frame = pd.DataFrame([{**row, "node": node, "run": run} for row in rows], columns=columns)
        return validate(frame.astype({name: str(SAMPLES.columns[name].dtype) for name in columns}), "samples")

    try:
        return make_frame(measured.rows)
    except (StudyError, ValueError, TypeError):
        return make_frame([row for rows in measured.rows_by_point() for row in _valid_rows(rows, make_frame)])


def _valid_rows(
    rows: list[dict[str, Any]], make_frame: Callable[[list[dict[str, Any]]], object]
) -> list[dict[str, Any]]:
    """Return a point's rows if they are valid, else a single row with the status "failed" and the reason."""
    try:
        make_frame(rows)
    except (StudyError, ValueError, TypeError) as fault:
        nothing = dict.fromkeys(("value", "error", "tolerance", "flop", "bytes"))
        outcome = {"metric": "time", "unit": "s", "sample": 0, "calls": 0, "stop_reason": "", "flags": ""}
        identity = {key: rows[0][key] for key in rows[0] if key not in vars(Reading(0.0))}
        return [{**identity, **nothing, **outcome, "status": "failed", "reason": f"its samples were refused: {fault}"}]
    return rows


def round_seed(base: int, experiment: str, device: str, number: int, attempt: int = 1) -> int:
    """Derive the seed for a round's order from the study's seed, experiment, device, round and attempt."""
    suffix = f"-{attempt}" if attempt > 1 else ""
    return random.Random(f"{base}/{experiment}/{device}/{number}{suffix}").getrandbits(32)
