"""Rates of the measuring core over those of a bare loop with its own clock, point by point.

A repetition is a fresh pair of processes; at each point they measure one after the other. The first one alternates from
point to point and from repetition to repetition (A B, B A).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from contract.errors import StudyError
from experiments import environment
from experiments.kernels.compile import vector_bytes
from report import statistics
from studies.bench import bare
from studies.bench.points import Case

ROOT = Path(__file__).parents[2]
BAND = (0.98, 1.02)
LEVEL = 0.95


class Child:
    """A process that answers one JSON object a line, as experiments.worker does."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment.clean(),
            cwd=ROOT,
            encoding="utf-8",
            errors="replace",
        )

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """The answer to an order. Raises StudyError if the process has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise StudyError(f"bench: {self._module} died over {order}: its message stands above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()


def measure(cases: Sequence[Case], policy: dict[str, Any], repetitions: int) -> dict[str, Any]:
    """{peers, points: [{group, label, unit, project, peer}], left_out}: rates per second, one per repetition.

    policy: {target, budget_s, max_samples} of a point.
    """
    rates: dict[str, list[tuple[float, float]]] = {case.label: [] for case in cases}
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        library, how = bare.compiled(Path(folder), vector_bytes())
        for repetition in range(repetitions):
            tell(f"truth, repetition {repetition + 1} of {repetitions}")
            with Child("experiments.worker") as project, Child("studies.bench.bare") as peer:
                for index, case in enumerate(cases):
                    order = {"experiment": case.experiment, "device": "cpu", "params": case.params, "policy": policy}
                    asked = {**order, "library": library, "seconds": policy["budget_s"]}
                    turns = [lambda order=order: _rate(project.ask(order)), lambda asked=asked: peer.ask(asked)]
                    first = (index + repetition) % 2
                    told = {place: turns[place]() for place in (first, 1 - first)}
                    refused = [told[place]["reason"] for place in (0, 1) if "reason" in told[place]]
                    if refused:
                        left_out[case.label] = refused[0]
                    else:
                        rates[case.label].append((told[0]["rate"], told[1]["rate"]))
    # One repetition has no spread.
    left_out |= {label: "measured once" for label in rates.keys() - left_out.keys() if len(rates[label]) < 2}
    points = [
        {
            "group": case.group,
            "label": case.label,
            "unit": "B/s" if case.group == "triad" else "FLOP/s",
            "project": [mine for mine, _ in rates[case.label]],
            "peer": [theirs for _, theirs in rates[case.label]],
        }
        for case in cases
        if case.label not in left_out
    ]
    products = {"gemm OpenBLAS": "numpy.matmul", "gemm MKL": "torch.mm", "gemm oneDNN": "_linear_pointwise of torch"}
    return {"peers": {"triad": how, **products}, "points": points, "left_out": left_out}


def _rate(answer: dict[str, Any]) -> dict[str, Any]:
    """{rate: FLOP or bytes per second} of the core's answer; {reason} where it measured nothing."""
    if answer["status"] != "ok":
        return {"reason": answer["reason"]}
    values = next(series["values"] for series in answer["parts"][0]["series"] if series["metric"] == "time")
    return {"rate": float(answer["flop"] or answer["bytes"]) / median(values)}


@dataclass(frozen=True)
class Verdict:
    """A point's ratio of the project's rate to the peer's, with its 95% interval."""

    label: str
    group: str
    unit: str
    peer_rate: float
    ratio: float
    low: float
    high: float


def verdicts(raw: dict[str, Any]) -> list[Verdict]:
    """Ratios over the repetitions, as the report makes intervals: on the log scale, moderated within a group."""
    found = []
    for group in dict.fromkeys(entry["group"] for entry in raw["points"]):
        entries = [entry for entry in raw["points"] if entry["group"] == group]
        told = statistics.on_log_scale(
            [[a / b for a, b in zip(entry["project"], entry["peer"], strict=True)] for entry in entries]
        )
        half = statistics.half_width(told.se, told.df, LEVEL)
        ends = told.estimate * np.exp(-half), told.estimate * np.exp(half)
        for entry, middle, low, high in zip(entries, told.estimate, *ends, strict=True):
            found.append(
                Verdict(
                    entry["label"], group, entry["unit"], median(entry["peer"]), float(middle), float(low), float(high)
                )
            )
    return found


def against_band(low: float, high: float, band: tuple[float, float] = BAND) -> str:
    """An interval against a target band: "met" (all inside), "missed: …" (all outside) or "undecided: …"."""
    if band[0] <= low and high <= band[1]:
        return "met"
    if high < band[0] or low > band[1]:
        return f"missed: {'below' if high < band[0] else 'above'} {band[0]:g}–{band[1]:g}"
    return f"undecided: the interval reaches out of {band[0]:g}–{band[1]:g}"


def tell(line: str) -> None:
    """Print progress to standard error."""
    print(f"bench: {line}", file=sys.stderr, flush=True)
