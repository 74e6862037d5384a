"""docs/bench.md: the tables of a run, and how they came about. Every number comes from its data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from contract.files import write_text
from studies.bench import aa, truth
from studies.bench.intervals import against_band, share_against_band

SHARE_BAND = (0.93, 0.97)


def write(out: Path, data: dict[str, Any]) -> None:
    """Write bench.md into the folder `out`. Raises OSError."""
    write_text(out / "bench.md", text(data))


def text(data: dict[str, Any]) -> str:
    """The whole page, in Markdown."""
    sections = [_head(data), _truth(data), *_aa(data), _cost(data), _duty(data), _methods(data)]
    return "\n\n".join(sections) + "\n"


def table(columns: list[str], rows: list[list[str]], right: int) -> str:
    """A Markdown table whose last `right` columns are numbers, aligned to the right."""
    marks = ["---"] * (len(columns) - right) + ["---:"] * right
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [columns, marks, *rows])


def _head(data: dict[str, Any]) -> str:
    cpu = data["machine"]["hardware"]["cpu"]
    virtual = ", a virtual machine" if cpu.get("virtual") else ""
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    warnings = []
    if data["smoke"]:
        warnings.append("**A smoke run: every path once, figures worth nothing.**")
    if data["anyway"]:
        warnings.append(
            "**Measured without asking whether the machine was idle (BENCH_ANYWAY=1): figures may be worth nothing.**"
        )
    return "\n\n".join(
        [
            "# The measuring core against its peers",
            "Written by `make bench` from [bench.json](bench.json), the data of one run: not edited by hand.",
            *warnings,
            f"{cpu['model']}, {cpu['usable_cores']} cores{virtual}; {data['started_utc']} to {data['ended_utc']}; "
            f"commit {data['machine']['study']['commit']}; {versions}. "
            f"The study's core saw a disturbance beside {aa.flagged(data['aa']):.1%} of its samples.",
            "![Left: share of intervals that contain 1 against their width, by method. "
            "Right: the core's rate over that of a bare loop, by point.](bench.svg)",
        ]
    )


def _truth(data: dict[str, Any]) -> str:
    raw = data["truth"]
    low, high = truth.BAND
    rows, outcomes = [], []
    for seen in truth.verdicts(raw):
        outcome = against_band(seen.low, seen.high, truth.BAND)
        outcomes.append(outcome.partition(":")[0])
        rate = f"{seen.peer_rate / 1e9:,.1f} G{seen.unit}"
        rows.append([seen.label, outcome, rate, f"{seen.ratio:.3f}", f"{seen.low:.3f}–{seen.high:.3f}"])
    tally = ", ".join(f"{outcomes.count(word)} {word}" for word in ("met", "undecided", "missed"))
    peers = "; ".join(f"{name}: {what}" for name, what in raw["peers"].items())
    points = table(["point", f"target {low:g}–{high:g}", "bare loop", "ratio", "95% interval"], rows, 3)
    return "\n\n".join(
        [
            "## Truth: the core's rate over that of a bare loop",
            f"Of {len(outcomes)} points: {tally}. Met: the whole interval lies within {low:g}–{high:g}; missed: the "
            "whole interval lies outside; undecided: neither.",
            points,
            f"Peers: {peers}.{_left_out(raw['left_out'])}",
        ]
    )


def _left_out(reasons: dict[str, str]) -> str:
    return "".join(f" Left out: {label} ({reason})." for label, reason in reasons.items())


def _percent(value: float, digits: int = 0) -> str:
    return f"{value:.{digits}%}" if math.isfinite(value) else "–"


def _aa(data: dict[str, Any]) -> list[str]:
    raw = data["aa"]
    low, high = SHARE_BAND
    told = (
        f"{len(raw['runs'])} whole runs by each method, in turns; {_pairs(len(raw['runs']))} pairs of runs at each "
        "point. Nothing changed between runs, so 95% of the 95% intervals of their ratios should contain 1."
    )
    sets = [(raw["points"], f"All points ({len(raw['points'])})"), (raw["cheap"], "The points that pyperf measured")]
    sections = ["## Honesty of intervals: an A/A study\n\n" + told + _left_out(raw["left_out"])]
    for labels, title in sets:
        rows = []
        for found in aa.rows(raw, labels):
            seen = found.coverage
            verdict = share_against_band(seen, SHARE_BAND) if found.method == aa.STUDY else ""
            without = f" ({seen.unknown} without)" if seen.unknown else ""
            rows.append(
                [
                    aa.NAMES[found.method],
                    verdict,
                    f"{seen.pairs}{without}",
                    _percent(seen.share, 1),
                    f"{seen.low:.0%}–{seen.high:.0%}",
                    "±" + _percent(seen.half, 2),
                    f"{seen.factor:.1f}",
                ]
            )
        columns = ["method", f"target {low:.0%}–{high:.0%}", "intervals", "contain 1", "binomial 95%",
                   "median half-width", "scale for 95%"]  # fmt: skip
        sections.append(f"### {title}\n\n{table(columns, rows, 5)}")
    return sections


def _pairs(runs: int) -> int:
    return runs * (runs - 1) // 2


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 100 else f"{value:,.1f} s"


def _cost(data: dict[str, Any]) -> str:
    rows = [
        [aa.NAMES[row.method], _seconds(row.seconds_a_point), _seconds(row.nominal_s), _seconds(row.honest_s)]
        for row in aa.rows(data["aa"], data["aa"]["cheap"])
    ]
    columns = ["method", "one run", "its own ±1%", "±1% at equal coverage"]
    return "\n\n".join(
        [
            "## Cost: wall time for a point within ±1%",
            "Medians over the points that every method measured, and over runs; starting processes, building data "
            "and checking results included.",
            table(columns, rows, 3),
        ]
    )


def _duty(data: dict[str, Any]) -> str:
    rows = [[aa.NAMES[row.method], _percent(row.duty)] for row in aa.rows(data["aa"], data["aa"]["cheap"])]
    return "\n\n".join(
        [
            "## Duty: share of the wall time spent measuring",
            "On the same points. The rest is starting processes, building data, and for this study checking results.",
            table(["method", "measuring"], rows, 1),
        ]
    )


def _methods(data: dict[str, Any]) -> str:
    preset = data["preset"]
    return METHODS.format(
        rounds=preset["rounds"], point_s=preset["point_s"], preset=preset["name"], target=aa.TARGET_HALF_WIDTH
    )


METHODS = """## How this was done

**Truth.** At each point the core measures as it does in a study (`experiments.worker`, the `{preset}` preset's limits),
and a bare loop in another process does the same work under a clock of its own (`studies/bench/bare.py`,
`studies/bench/stream.c`): the triad compiled from C, products by calling the BLAS directly. Both take their medians
over {point_s:g} s, warm-up included. They measure one after the other, who begins alternates, and each repetition has a
fresh pair of processes; the interval of the ratio is over repetitions, moderated within a library as in the report.
Operands come from the same allocators in both, since pages and alignment decide rates; products go through as many
pairs of operands in turn as the study's do, so that caches help neither. The compiled triad uses vectors as wide as the
study's kernel, and is repeated until threads' start no longer shows. "In L2": half of a second-level cache for
each thread; "in memory": eight times the last-level cache.

**A/A.** The methods take turns within each run, so that all see the same drift of the machine. All time the same
callables on the same data (`studies/bench/points.py`), with the same threads.

- *This study*: {rounds} rounds with the `{preset}` preset's limits, a process per experiment and round, the peers
  between the rounds; estimates and the interval of the ratio by `report.statistics`, points of an experiment moderating
  each other.
- *pyperf*, at its defaults: mean and standard deviation over all its values, Student's t as in its `compare_to`
  (Welch's). *Over processes*: the same data, with its processes' means as the unit. It starts some twenty processes a
  point, so it measures only the points whose process starts fast.
- *torch.utils.benchmark*, `Timer` at its defaults: median and interquartile range over its blocks in one process; the
  median's standard error is 1.25 × IQR / 1.349 / √n, as for normal data. One block has no interval.
- *pytest-benchmark*, at its defaults: mean and standard deviation over its rounds in one process, Welch's t.

Intervals are on the log scale. The binomial interval takes pairs as independent; pairs of runs share runs, so it is
somewhat too narrow. "Scale for 95%" is the factor by which all of a method's intervals would have to be wider for 95%
of them to contain 1.

**Cost.** A method that repeats whole runs and averages them narrows its interval with the root of their number, so
seconds to ±1% are the seconds of one run times (half-width / 1%)², and at least one run. "Its own" takes the half-width
of one run's time as the method reports it; "at equal coverage" that half-width times the scale for 95%, which is what
a reader who believes the interval needs.

**Duty.** Seconds inside timed calls and warm-up over wall time: for the study as its rounds record them, for pyperf
from its loops and values, for the others from their timed blocks alone: their calibration is not recorded."""
