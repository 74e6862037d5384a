"""docs/bench.md: the tables of a run, and how they came about. Every number comes from its data."""

from __future__ import annotations

from typing import Any

from studies.bench import aa, truth

SHARE_BAND = (0.93, 0.97)


def text(data: dict[str, Any]) -> str:
    """The whole page, in Markdown."""
    return "\n\n".join([_head(data), _truth(data["truth"]), _aa(data["aa"]), _methods(data)]) + "\n"


def table(columns: list[str], rows: list[list[str]], right: int) -> str:
    """A Markdown table whose last `right` columns are numbers, aligned to the right."""
    marks = ["---"] * (len(columns) - right) + ["---:"] * right
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [columns, marks, *rows])


def _head(data: dict[str, Any]) -> str:
    cpu = data["machine"]["hardware"]["cpu"]
    virtual = ", a virtual machine" if cpu.get("virtual") else ""
    warnings = ["**A smoke run: every path once, figures worth nothing.**"] if data["smoke"] else []
    if data["anyway"]:
        warnings.append("**Measured while the machine may have been busy (BENCH_ANYWAY=1).**")
    return "\n\n".join(
        [
            "# The measuring core against its peers",
            "Written by `make bench` from [bench.json](bench.json), the data of one run: not edited by hand.",
            *warnings,
            f"{cpu['model']}, {cpu['usable_cores']} cores{virtual}; {data['started_utc']} to {data['ended_utc']}; "
            f"commit {data['machine']['study']['commit']}. "
            f"The study's core saw a disturbance beside {aa.flagged(data['aa']):.1%} of its samples.",
        ]
    )


def _truth(raw: dict[str, Any]) -> str:
    low, high = truth.BAND
    rows, outcomes = [], []
    for seen in truth.verdicts(raw):
        outcome = truth.against_band(seen.low, seen.high)
        outcomes.append(outcome.partition(":")[0])
        rate = f"{seen.peer_rate / 1e9:,.1f} G{seen.unit}"
        rows.append([seen.label, outcome, rate, f"{seen.ratio:.3f}", f"{seen.low:.3f}–{seen.high:.3f}"])
    tally = ", ".join(f"{outcomes.count(word)} {word}" for word in ("met", "undecided", "missed"))
    peers = "; ".join(f"{name}: {what}" for name, what in raw["peers"].items())
    return "\n\n".join(
        [
            "## Truth: the core's rate over that of a bare loop",
            f"Of {len(outcomes)} points: {tally}. Met: the whole interval lies within {low:g}–{high:g}; missed: the "
            "whole interval lies outside; undecided: neither.",
            table(["point", f"target {low:g}–{high:g}", "bare loop", "ratio", "95% interval"], rows, 3),
            f"Peers: {peers}.{_left_out(raw['left_out'])}",
        ]
    )


def _left_out(reasons: dict[str, str]) -> str:
    return "".join(f" Left out: {label} ({reason})." for label, reason in reasons.items())


def _aa(raw: dict[str, Any]) -> str:
    (low, high), runs = SHARE_BAND, len(raw["runs"])
    rows = []
    for found in (aa.row(raw, method) for method in aa.NAMES):
        seen = found.coverage
        rows.append(
            [
                aa.NAMES[found.method],
                aa.share_against_band(seen, SHARE_BAND) if found.method == aa.STUDY else "",
                f"{seen.pairs}" + (f" ({seen.unknown} without)" if seen.unknown else ""),
                f"{seen.share:.1%}",
                f"{seen.low:.0%}–{seen.high:.0%}",
                f"±{seen.half:.2%}",
                f"{seen.factor:.1f}",
                f"{found.seconds:,.1f} s",
                f"{found.honest_s:,.1f} s",
            ]
        )
    columns = ["method", f"target {low:.0%}–{high:.0%}", "intervals", "contain 1", "binomial 95%",
               "median half-width", "scale for 95%", "one run", "until ±1%"]  # fmt: skip
    return "\n\n".join(
        [
            "## Honesty of intervals: an A/A study",
            f"{len(raw['points'])} points, {runs} whole runs by each method, in turns; {runs * (runs - 1) // 2} pairs "
            "of runs at each point. Nothing changed between runs, so 95% of the 95% intervals of their ratios should "
            f"contain 1.{_left_out(raw['left_out'])}",
            table(columns, rows, 7),
        ]
    )


def _methods(data: dict[str, Any]) -> str:
    preset = data["preset"]
    return METHODS.format(rounds=preset["rounds"], point_s=preset["point_s"], preset=preset["name"])


METHODS = """## Method

**Truth.** At each point the core measures as it does in a study (`experiments.worker`, the `{preset}` preset's limits),
and a bare loop in another process does the same work under a clock of its own (`studies/bench/bare.py`,
`studies/bench/stream.c`). Both take their medians over {point_s:g} s, warm-up included. They measure one after the
other, the first one alternates, and each repetition has a fresh pair of processes; the interval of the ratio is over
repetitions, moderated within a library as in the report. Operands come from the same allocators in both, since pages
and alignment decide rates; products go through as many pairs of operands in turn as the study's do, so that caches help
neither. The compiled triad uses vectors as wide as the study's kernel. "In L2": half of a second-level cache for each
thread; "in memory": eight times the last-level cache.

**A/A.** Both methods take turns within each run and time the same callables on the same data, with the same threads.
*This study*: {rounds} rounds with the `{preset}` preset's limits, a process per experiment and round; estimates and the
interval of the ratio by `report.statistics`. *torch.utils.benchmark*: `Timer.blocked_autorange` at its defaults, in one
process; the median's standard error is 1.25 × IQR / 1.349 / √n, as for normal data. Intervals are on the log scale. The
binomial interval takes pairs as independent; pairs of runs share runs, so it is somewhat too narrow. "Scale for 95%":
the factor by which all intervals of a method would have to be wider for 95% of them to contain 1. "One run": median
wall time of a point, with start and checks. "Until ±1%": wall time until the interval, scaled for 95%, is that narrow,
where whole runs are repeated and averaged."""
