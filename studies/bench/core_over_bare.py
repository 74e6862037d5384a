"""Rates from the measuring core divided by rates from a bare loop, for each point.

Each repetition starts one process for the core and one for the bare loop. The two processes measure each point one
after the other. The process that measures first alternates from point to point and from repetition to repetition.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from experiments.children import Child
from experiments.kernels.llvm_compile import vector_bytes
from report import statistics
from studies.bench import bare_loops
from studies.bench.bench_points import Case

BAND = (0.98, 1.02)
LEVEL = 0.95
PRODUCTS = {"gemm OpenBLAS": "numpy.matmul", "gemm MKL": "torch.mm", "gemm oneDNN": "_linear_pointwise of torch"}


def start_child(module: str) -> Child:
    """Start a process that runs a module and answers orders."""
    return Child(module, [sys.executable, "-u", "-m", module])


def measure(cases: Sequence[Case], policy: dict[str, Any], repetitions: int) -> dict[str, Any]:
    """Measure the points with the core and with bare loops.

    policy: dict with the fields of `experiments.timing.Policy`, for each point; bare loops use only budget_s. Returns a
    dict with the keys peers (description of each group's bare loop), points, and left_out (reasons by label). Each
    point is a dict {group, label, unit, project, peer}. project and peer are lists with a rate per second for each
    repetition, from the core and from the bare loop. Raises ChildError.
    """
    rates: dict[str, list[list[float]]] = {case.label: [] for case in cases}
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        library, how = bare_loops.compile_triad(Path(folder), vector_bytes())
        for repetition in range(repetitions):
            print_progress(f"truth, repetition {repetition + 1} of {repetitions}")
            both = [start_child("experiments.worker"), start_child("studies.bench.bare_loops")]
            for index, case in enumerate(cases):
                order = {"experiment": case.experiment, "device": "cpu", "params": case.params, "policy": policy}
                answers: list[dict[str, Any]] = [{}, {}]
                first = (index + repetition) % 2
                for turn in (first, 1 - first):
                    both[turn].send({**order, "library": library, "seconds": policy["budget_s"]} if turn else order)
                    answers[turn] = both[turn].answer(None)
                answers[0] = _rate_from_answer(answers[0])
                if refused := [answer["reason"] for answer in answers if "reason" in answer]:
                    left_out[case.label] = refused[0]
                else:
                    rates[case.label].append([answer["rate"] for answer in answers])
            for process in both:
                process.stop()
    # It takes two or more repetitions to estimate a spread.
    left_out |= {label: "measured once" for label in rates.keys() - left_out.keys() if len(rates[label]) < 2}
    points = [
        {
            "group": case.group,
            "label": case.label,
            "unit": "B/s" if case.group == "triad" else "FLOP/s",
            **dict(zip(("project", "peer"), map(list, zip(*rates[case.label], strict=True)), strict=True)),
        }
        for case in cases
        if case.label not in left_out
    ]
    return {"peers": {"triad": how, **PRODUCTS}, "points": points, "left_out": left_out}


def _rate_from_answer(answer: dict[str, Any]) -> dict[str, Any]:
    """Convert the core's answer to {rate: FLOP or bytes per second}, or to {reason: text} if it has no measurement."""
    if answer["status"] != "ok":
        return {"reason": answer["reason"]}
    values = next(series["values"] for series in answer["parts"][0]["series"] if series["metric"] == "time")
    return {"rate": float(answer["flop"] or answer["bytes"]) / median(values)}


def point_ratios(raw: dict[str, Any]) -> pd.DataFrame:
    """Return a table with a row for each point: its `label`, `unit`, `rate`, `ratio`, `low` and `high`.

    rate: the bare loop's median rate. ratio: ratio of the core's rate to the bare loop's rate. low, high: interval for
    the ratio, computed on the log scale from the spread between repetitions. Each point's variance is shrunk towards
    the other variances in its group, as in the report (see `report.statistics`).
    """
    table = pd.DataFrame(raw["points"])
    group, _ = pd.factorize(table["group"])
    ratios = table["project"].map(np.array) / table["peer"].map(np.array)
    result = statistics.estimate_on_log_scale(ratios.tolist(), group)
    half = statistics.half_width(result.se, result.df, LEVEL)
    ends = {
        "ratio": result.estimate,
        "low": result.estimate * np.exp(-half),
        "high": result.estimate * np.exp(half),
    }
    return table.assign(rate=table["peer"].map(median), **ends).iloc[np.argsort(group, kind="stable")]


def band_outcome(low: float, high: float, band: tuple[float, float] = BAND) -> str:
    """Compare an interval with a target range.

    Returns "met" if the interval is inside, "missed: …" if it is outside, and "undecided: …" if it is partly inside.
    """
    if band[0] <= low and high <= band[1]:
        return "met"
    if high < band[0] or low > band[1]:
        return f"missed: {'below' if high < band[0] else 'above'} {band[0]:g}–{band[1]:g}"
    return f"undecided: the interval reaches out of {band[0]:g}–{band[1]:g}"


def print_progress(line: str) -> None:
    """Print progress to standard error."""
    print(f"bench: {line}", file=sys.stderr, flush=True)
