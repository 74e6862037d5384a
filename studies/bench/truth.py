"""Does the measuring path report what the work does? Each point against a bare loop with its own clock.

A repetition is a fresh pair of processes; at each point they measure one after the other, and who begins
alternates from point to point and from repetition to repetition (A B, B A).
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
from experiments import environment, hardware
from report import statistics
from studies.bench import bare
from studies.bench.aa import tell
from studies.bench.intervals import LEVEL
from studies.bench.methods import ROOT, Limits
from studies.bench.points import cache_footprint, memory_footprint

BAND = (0.98, 1.02)
LIBRARIES = {"numpy": "OpenBLAS", "torch": "MKL", "onednn": "oneDNN"}


@dataclass(frozen=True)
class Point:
    """A point of the comparison: the project's experiment, and what the peer is told."""

    group: str
    label: str
    experiment: str
    params: dict[str, Any]
    peer: dict[str, Any]


def points(stream_library: str) -> list[Point]:
    """Triads in a cache and in memory, products of 1000 and 2048 by each library; on one thread and on all."""
    found = []
    every = sorted({1, hardware.usable_cores()})
    for threads in every:
        for where, footprint in (("in L2", cache_footprint(threads)), ("in memory", memory_footprint())):
            label = f"triad {where}, {_threads(threads)}"
            params = {"op": "triad", "footprint": footprint, "dtype": "float64", "backend": "llvm", "threads": threads}
            peer = {"kind": "triad", "library": stream_library, "footprint": footprint, "threads": threads}
            found.append(Point("triad", label, "bandwidth", params, peer))
    for library, name in LIBRARIES.items():
        for dtype in ("float32", "float64")[: 1 if library == "onednn" else 2]:
            for n in (1000, 2048):
                for threads in every:
                    params = {"m": n, "n": n, "k": n, "dtype": dtype, "backend": library, "threads": threads}
                    peer = {"kind": "gemm", "library": library, "n": n, "dtype": dtype, "threads": threads}
                    found.append(
                        Point(f"gemm {name}", f"{name} {dtype} {n}, {_threads(threads)}", "gemm", params, peer)
                    )
    return found


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


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


def measure(limits: Limits, repetitions: int, chosen: Sequence[str] = ()) -> dict[str, Any]:
    """{peers, points: [{group, label, unit, project, peer}], left_out}: rates per second, one per repetition.

    chosen: labels; all points without it.
    """
    with tempfile.TemporaryDirectory() as folder:
        library, how = bare.compiled(Path(folder), _vector_bytes())
        every = [point for point in points(library) if not chosen or point.label in chosen]
        rates: dict[str, tuple[list[float], list[float]]] = {point.label: ([], []) for point in every}
        refusals: dict[str, str] = {}
        for repetition in range(repetitions):
            tell(f"truth, repetition {repetition + 1} of {repetitions}")
            with Child("experiments.worker") as project, Child("studies.bench.bare") as peer:
                for index, point in enumerate(every):
                    pair = _pair(point, project, peer, limits, peer_first=bool((index + repetition) % 2))
                    if isinstance(pair, str):
                        refusals[point.label] = pair
                        continue
                    for kept, rate in zip(rates[point.label], pair, strict=True):
                        kept.append(rate)
    # One repetition has no spread.
    left_out = {point.label: refusals.get(point.label, "once") for point in every if len(rates[point.label][0]) < 2}
    entries = [
        {
            "group": point.group,
            "label": point.label,
            "unit": "B/s" if point.group == "triad" else "FLOP/s",
            "project": rates[point.label][0],
            "peer": rates[point.label][1],
        }
        for point in every
        if point.label not in left_out
    ]
    return {"peers": {"triad": how, **_product_peers()}, "points": entries, "left_out": left_out}


def _vector_bytes() -> int:
    from experiments.kernels.compile import vector_bytes

    return vector_bytes()


def _product_peers() -> dict[str, str]:
    """What the peer's products call."""
    mkl = "MKL's ?gemm_ by ctypes" if bare.mkl_symbol() is not None else "torch.mm in a bare loop"
    return {
        "gemm OpenBLAS": "cblas_?gemm by ctypes",
        "gemm MKL": mkl,
        "gemm oneDNN": "torch.ops.mkldnn._linear_pointwise in a bare loop",
    }


def _pair(point: Point, project: Child, peer: Child, limits: Limits, peer_first: bool) -> tuple[float, float] | str:
    """(project's rate, peer's rate), measured one after the other; or why there is none."""

    def by_project() -> float | str:
        policy = {"target": limits.target, "budget_s": limits.point_s, "max_samples": limits.max_samples}
        order = {"experiment": point.experiment, "device": "cpu", "params": point.params, "policy": policy}
        answer = project.ask(order)
        if answer["status"] != "ok":
            return f"the project: {answer['reason']}"
        values = next(series["values"] for series in answer["parts"][0]["series"] if series["metric"] == "time")
        return float(answer["flop"] or answer["bytes"]) / median(values)

    def by_peer() -> float | str:
        answer = peer.ask({**point.peer, "seconds": limits.point_s})
        return f"the peer: {answer['reason']}" if "reason" in answer else float(answer["rate"])

    turns = [by_peer, by_project] if peer_first else [by_project, by_peer]
    found = [turn() for turn in turns]
    refusals = [rate for rate in found if isinstance(rate, str)]
    if refusals:
        return refusals[0]
    first, second = (float(rate) for rate in found)
    return (second, first) if peer_first else (first, second)


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
