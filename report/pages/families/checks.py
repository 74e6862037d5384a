"""Checks on the study's own measurements: repeated runs, other programs, derived times and simulated verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from contract.files import read_checked_json
from report import PACKAGE, ROOT
from report.data import disturbances
from report.data.summary import POINT
from report.formatting import (
    capitalize,
    format_count,
    format_number,
    join_words,
    range_words,
    threshold_text,
    two_digits,
)
from report.judging.shares import clopper_pearson
from report.outcomes import DECIDED
from report.pages.chart_rows import alt_text, as_percent
from report.pages.charts import Chart, bar_chart, estimate_chart
from report.pages.disturbed_results import repeat_sentence
from report.pages.exhibit_types import Exhibit, Family, Table, format_estimate, records
from report.pages.figure_data import Evidence
from report.pages.session_spread import session_exhibit
from report.pages.simulated_checks import repetition_coverage, simulated_exhibits
from report.pages.verdict_words import BARS, NOTHING
from report.quantities.whole_runs import CHECK, STEP_CHECK, Coverage, parts_coverage, predicted_over_measured

# Experiments whose results are mostly counted or exact, so that they repeat whatever the intervals are.
NUMERIC = ("equivalence", "numerics")
# Most bars in a row of a chart, so that the chart fits on a page.
MOST_BARS = 4
Record = dict[str, Any]


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show repeated runs, other programs, derived times, sessions, simulations, and disturbed or missing results."""
    calibration = read_table("calibration")
    yield from _repeated_exhibit(evidence, read_table("repeat"), calibration)
    yield from _second_program_exhibit(evidence)
    yield from _derived_exhibit(evidence)
    yield from session_exhibit(evidence)
    yield from simulated_exhibits(calibration, evidence.names)
    yield from _disturbed_exhibit(evidence)
    yield from _lacking_exhibit(evidence)


def read_table(name: str) -> Any:
    """Read a table from data/; return None if the file does not exist. Raises StudyError if it violates its schema."""
    return read_checked_json(ROOT / "data" / f"{name}.json", PACKAGE / "schemas" / f"{name}.schema.json")


def _repeated_exhibit(evidence: Evidence, table: Any, calibration: Any) -> Iterable[Exhibit]:
    """Show for each experiment how far a second run's results lie from the first run's.

    calibration: simulated coverage to compare the agreement with, or None.
    """
    if table is None or table["node"] not in evidence.names:
        return
    experiments = sorted(table["experiments"], key=lambda row: -float(row["median_apart"]))
    rows = [{"label": row["experiment"].replace("-", " "), "estimate": 100 * row["median_apart"], "low": None,
             "high": None, "text": f"{100 * row['median_apart']:.1f}%"} for row in experiments]  # fmt: skip
    timed, numeric = (
        [row for row in experiments if (row["experiment"] in NUMERIC) is counted] for counted in (False, True)
    )
    if not timed:
        return
    (points, agree), (counted, equal) = (
        [sum(row[name] for row in part) for name in ("points", "agree")] for part in (timed, numeric)
    )
    says = [f"Two results agree if the {table['level']:.0%} interval of their ratio includes 1."]
    if calibration:
        says[0] += (
            " In simulations with occasional slow rounds, such intervals include a repetition in "
            f"{repetition_coverage(calibration, table['level'])} of results."
        )
    apart = [as_percent(row["median_apart"]) for row in (timed[-1], timed[0])]
    says.append(f"They agree because the intervals are wide: the median distance is {range_words(*apart)}, depending "
                "on the experiment.")  # fmt: skip
    if counted:
        says.append(
            f"Of {counted:,} more results in {join_words([row['experiment'] for row in numeric])}, mostly counted "
            f"or exact, {equal:,} agree."
        )
    days = join_words([str(run["started_utc"])[:16].replace("T", " at ") for run in table["runs"]], "and on")
    yield Exhibit(
        Chart(
            "checks-repeated",
            f"Measured a second time, {agree / points:.1%} of {points:,} timed results agree with the first",
            estimate_chart(rows, "median distance of the second measurement from the first (%)", log=False),
            f"● measured twice on {evidence.names[table['node']]}, on {days} (UTC).",
            alt_text(rows),
        ),
        says,
        Table(["Experiment", "Results", "Agree", "Median distance", "Second over first, median", "Farthest"],
              [[row["label"], f"{entry['points']:,}", f"{entry['agree']:,}", row["text"], f"×{entry['shift']:.3f}",
                f"×{entry['worst']['ratio']:.2f}"] for row, entry in zip(rows, experiments, strict=True)], "lrrrrr",
              "Two runs of the same experiments"),
    )  # fmt: skip


def results_measured_again(evidence: Evidence) -> list[Record]:
    """Return the results that another program measured again, if they belong to a decided part of a decided claim."""
    table = read_table("second")
    if table is None or table["node"] not in evidence.names:
        return []
    decided = {
        (verdict["id"], part["name"])
        for verdict in evidence.document["verdicts"]
        for part in verdict["parts"]
        if verdict["verdict"] in DECIDED and part["outcome"] in DECIDED
    }
    return [{**row, "node": table["node"]} for row in table["rows"] if (row["claim"], row["part"]) in decided]


def _second_program_exhibit(evidence: Evidence) -> Iterable[Exhibit]:
    """Compare results to those that other programs measured for the same work."""
    rows, lines = [], []
    pairs = results_measured_again(evidence)
    if not pairs:
        return
    for pair in pairs:
        first, second = pair["first"], pair["second"]
        ends = sorted(second[end] / first["estimate"] for end in ("low", "high"))
        ratio = second["median"] / first["estimate"]
        what = pair["part"] or str(pair["labels"]).rpartition("batch 1, ")[2]
        rows.append({"label": f"{pair['claim']}: {what}", "estimate": ratio, "low": ends[0], "high": ends[1],
                     "text": f"×{format_number(ratio, 2)}"})  # fmt: skip
        unit = str(pair["unit"])
        lines.append([pair["claim"], format_estimate(first, unit),
                     format_estimate({**second, "estimate": second["median"]}, unit),
                     threshold_text(pair["threshold"], unit), capitalize(str(pair["means"]))])  # fmt: skip
    agree = sum(bool(pair["agrees"]) for pair in pairs)
    yield Exhibit(
        Chart(
            "checks-second",
            f"Measured again by other programs, {agree} of {len(rows)} results come out on the same side of their "
            "threshold",
            estimate_chart(rows, "result of the other program over the study's", [1.0], "equal", log=False),
            f"● measured on {evidence.names[pairs[0]['node']]}. Bars: 95% intervals of the second measurement.",
            alt_text(rows),
        ),
        [],
        Table(["Claim", "The study", "The other program", "Threshold", "Other means"], lines, "lrrrl",
              "The same results by two programs"),
        [str(pair["claim"]) for pair in pairs],
    )  # fmt: skip


def shown_share(inside: int, examined: int) -> float:
    """Return the lower 95% confidence bound on a share, after Clopper and Pearson (1934)."""
    return clopper_pearson(inside, inside, examined, 0.9)[0]


def coverage_text(known: Coverage) -> str:
    """Format how many jobs the other jobs predict, how widely, and the coverage that this shows."""
    return (
        f"{known.predicted or 'none'} of {format_count(known.jobs, 'job')} came within a factor of "
        f"{two_digits(known.width)} of the time calculated from the other jobs, which shows it for "
        f"{shown_share(known.predicted, known.jobs):.0%} of such jobs or more"
    )


def _derived_exhibit(evidence: Evidence) -> Iterable[Exhibit]:
    """Compare measured times for whole jobs with derived times.

    Each job's derived time is corrected by a line that is fitted to all other jobs. A sentence also compares the job's
    measured time with the sum of its parts, each timed alone before.
    """
    cases = sorted(records(evidence.quantity(CHECK)), key=lambda case: case["estimate"])
    if evidence.data is None or not cases:
        return
    kinds = len({case["device"] for case in cases}) > 1
    rows = [{"label": f"{case['job']}{', ' + case['device'].upper() if kinds else ''}", "tier": "derived",
             **{end: case[end] for end in ("estimate", "low", "high")},
             "text": f"×{format_number(case['estimate'], 2)}"}
            for case in cases]  # fmt: skip
    least, most = (f"×{two_digits(cases[at]['estimate'])}" for at in (0, -1))
    sure = [case for case in cases if not pd.isna(case["low"])]
    inside = sum(case["low"] <= 1 <= case["high"] for case in sure)
    title = [
        f"{inside or 'none'} of {format_count(len(sure), 'whole job')} took as long as derived, within the interval"
    ]
    title = title if sure else []
    title += [f"measured times are {join_words(list(dict.fromkeys([least, most])), 'to')} the derived times"]
    sums = parts_coverage(evidence.data)
    parts = np.array(
        [abs(case["estimate"] - 1) for case in records(predicted_over_measured(evidence.data).filter(method="parts"))]
    )
    yield Exhibit(
        Chart(
            "checks-derived",
            capitalize("; ".join(title)),
            estimate_chart(rows, "measured time over derived time", [1.0], "as derived", log=True),
            f"◑ each job's time, derived from all other jobs, against its measured time. {BARS} of the derivation.",
            alt_text(rows),
        ),
        ["The same method gives the times of published trainings whose own step was not timed: operations over the "
         "best rate, corrected by whole jobs.",
         *([f"{inside} of {len(sure)} shows that the interval is right for {shown_share(inside, len(sure)):.0%} of "
            "such jobs or more."] if inside else []),
         *([f"The sum of a job's parts, each timed alone before, is off by {as_percent(float(np.median(parts)))} in "
            f"the median and {as_percent(float(parts.max()))} at most."
            + (f" Corrected: {coverage_text(sums)}." if sums else "")]
           if len(parts) else []),
         *_step_sentences(records(evidence.quantity(STEP_CHECK)))],
        Table(["Job", "Measured over derived", "Before correction"],
              [[row["label"], format_estimate(case, "1"), str(case["detail"]).partition(" times")[0]]
               for row, case in zip(rows, cases, strict=True)], "lrr", "Whole jobs, each derived from the others"),
    )  # fmt: skip


def _step_sentences(cases: list[Record]) -> list[str]:
    """Compare whole jobs to their steps in `training`; name the longest job."""
    if not cases:
        return []
    longest = max(cases, key=lambda case: float(case["seconds"]))
    inside = sum(case["low"] <= 1 <= case["high"] for case in cases)
    return [
        f"Calculated from a step timed alone, as published runs are, {inside or 'none'} of "
        f"{format_count(len(cases), 'result')} of whole jobs are within the interval. The longest job, "
        f"{longest['job']} ({format_number(longest['seconds'] / 60, 2)} minutes), took "
        f"×{format_number(longest['estimate'], 3)} the calculated time."
    ]


def _machine_bars(table: pd.DataFrame, value: str, axis: str) -> Callable[[float], Figure]:
    """Return a drawing with a bar for each machine and row; with more than MOST_BARS machines, only the longest bar."""
    machines = table["machine"].nunique()
    if machines > MOST_BARS:
        longest = table.loc[table.groupby("what", sort=False, observed=True)[value].idxmax()]
        return bar_chart(longest, value, "what", f"{axis}, largest of {machines}")
    return bar_chart(table, value, "what", axis, hue="machine" if machines > 1 else None)


def _disturbed_exhibit(evidence: Evidence) -> Iterable[Exhibit]:
    """Show the share of disturbed results by machine and kind of disturbance."""
    rows: list[Record] = []
    lines, worst = [], (0.0, "", "")
    for view in evidence.views:
        row_flags = [
            {flag.name for flag in disturbances.parse_flags(str(text or ""))} - {disturbances.EXACT}
            for text in view.rows["flags"]
        ]
        for flag, means in disturbances.MEANING.items():
            many = sum(flag in flags for flags in row_flags)
            if many:
                rows.append({"what": means, "share": 100 * many / len(row_flags), "machine": view.name})
                worst = max(worst, (many / len(row_flags), means, view.name))
        quiet = sum(not flags for flags in row_flags)
        lacked = sum(row in view.data.disturbed_rows for row in view.rows.index)
        ranges = [
            range_words(*(f"{end:,.0f}" for end in (view.rows[column].min(), view.rows[column].max())))
            for column in ("n_rounds", "n_samples")
        ]
        if len(row_flags):
            lines.append(
                [view.name, f"{len(row_flags):,}", *ranges, f"{quiet:,}", f"{lacked:,}" if lacked else NOTHING]
            )
    if not rows:
        return
    yield Exhibit(
        Chart(
            "checks-disturbed",
            f"The most frequent disturbance is that {worst[1]}: in {as_percent(worst[0])} of the results on {worst[2]}",
            _machine_bars(pd.DataFrame(rows), "share", "share of a machine's results (%)"),
            "● observed during the measurements. Disturbed results are kept, and marked in the data.",
            "; ".join(f"{row['machine']}: {row['what']}: {two_digits(row['share'])}%" for row in rows),
        ),
        [
            "A result counts if one of its samples was disturbed, or if its rounds differ.",
            *filter(None, [repeat_sentence(evidence.data) if evidence.data else ""]),
        ],
        Table(["Machine", "Results", "Rounds", "Samples", "Undisturbed", "Lacked cores in most rounds"], lines,
              "lrrrrr",
              "Rounds, samples and disturbances of each machine's results"),
    )  # fmt: skip


def _lacking_exhibit(evidence: Evidence) -> Iterable[Exhibit]:
    """Count measured points that have no value for a metric, for example because a profile saw no kernels."""
    if evidence.data is None:
        return
    table = evidence.data.table
    ok = table["status"] == "ok"
    measured = pd.MultiIndex.from_frame(table.loc[ok, POINT].astype(str))
    lost = table[~ok & pd.MultiIndex.from_frame(table[POINT].astype(str)).isin(measured)]
    rows: list[Record] = []
    lines = []
    for (node, experiment, metric), points in lost.groupby(["node", "experiment", "metric"], observed=True):
        machine = evidence.names.get(str(node), str(node))
        what = f"{metric} of {experiment}"
        reasons = points["status"].astype(str) + ": " + points["reason"].astype(str)
        rows.append({"what": what, "points": len(points), "machine": machine})
        lines.append([machine, what, f"{len(points):,}", str(reasons.mode()[0])])
    if not rows:
        return
    most = max(rows, key=lambda row: row["points"])
    yield Exhibit(
        Chart(
            "checks-lacking",
            f"Some measurements lack a number: most often, {most['what']}",
            _machine_bars(pd.DataFrame(rows), "points", "measurements that lack the number"),
            "● counted from the samples. The other numbers of these measurements are used.",
            "; ".join(f"{row['machine']}: {row['what']}: {row['points']:,}" for row in rows),
        ),
        ["A measurement without a number is left out wherever that number is needed; nothing replaces it."],
        Table(["Machine", "Number", "Measurements", "Most common reason"], lines, "llrl", "Numbers that measurements "
                                                                                          "lack"),
    )  # fmt: skip


FAMILY = Family(
    "checks", "Checks: how reliable the measurements are",
    "How far is a second measurement from the first, and how often are verdicts wrong?", show,
)  # fmt: skip
