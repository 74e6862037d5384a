"""The spread between a machine's sessions, relative to the spread between the rounds of one session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from report.data.summary import GROUP
from report.formatting import capitalize, format_count, join_words, two_digits
from report.pages.chart_rows import as_percent
from report.pages.charts import Chart, bar_chart
from report.pages.exhibit_types import Exhibit, Table
from report.pages.figure_data import Evidence

# Smallest spread between rounds, of the logarithm: counted numbers differ by less, from rounding.
_LEAST_SPREAD = 1e-5


def session_groups(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each group of results with a known spread between sessions.

    table: results, with the columns of `report.data.summary.COLUMNS`. Only times and other numbers on the logarithmic
    scale are kept. Columns: GROUP, `results`, `repeated` (results in several sessions), `rounds` and `sessions`
    (standard deviations of the logarithm: the median over results, and the group's).
    """
    known = table[(table["scale"] == "log").to_numpy() & table["session_variance"].notna().to_numpy()]
    groups = known.groupby(GROUP, observed=True, sort=True)
    spread = groups.agg(
        results=("estimate", "size"),
        repeated=("n_sessions", lambda counts: int((counts > 1).sum())),
        rounds=("variance", "median"),
        sessions=("session_variance", "first"),
    )
    spread[["rounds", "sessions"]] = np.sqrt(spread[["rounds", "sessions"]])
    return spread[spread["rounds"] > _LEAST_SPREAD].reset_index()


def _number_name(experiment: str, metric: str) -> str:
    """Name a number as in 'gemm' (its time), 'clock', or 'training: time forward'."""
    words = [text.replace("_", " ").replace("-", " ").replace(".", " ") for text in (experiment, metric)]
    return words[0] if metric in ("time", experiment) else f"{words[0]}: {words[1]}"


def session_exhibit(evidence: Evidence) -> Iterable[Exhibit]:
    """Show the spread between sessions for each experiment, beside that between rounds."""
    if evidence.data is None or "session_variance" not in evidence.data.table:
        return
    groups = session_groups(evidence.data.table)
    if groups.empty:
        return
    machines = groups["node"].map(lambda node: evidence.names.get(str(node), str(node)))
    devices = groups["device"].nunique() > 1
    names = [_number_name(str(row.experiment), str(row.metric)) for row in groups.itertuples()]
    groups = groups.assign(
        machine=machines,
        name=names,
        what=pd.Series(names)
        + (" on " + groups["device"].astype(str) if devices else "")
        + (", " + machines if machines.nunique() > 1 else ""),
        ratio=groups["sessions"] / groups["rounds"],
    )  # fmt: skip
    # The chart shows each experiment once, by the metric that most of its results have.
    most = groups.sort_values("results", ascending=False, kind="stable")
    chosen = most.drop_duplicates(["node", "experiment", "device"]).sort_values("ratio", ascending=False, kind="stable")
    shown: list[dict[Any, Any]] = chosen.to_dict("records")
    kinds = {"sessions": "between sessions", "rounds": "between rounds of one session"}
    bars = pd.DataFrame(
        {"what": row["what"], "spread": 100 * row[name], "kind": kind} for row in shown for name, kind in kinds.items()
    )
    wider = sum(row["ratio"] > 1 for row in shown)
    farthest = max(shown, key=lambda row: float(row["sessions"]))
    yield Exhibit(
        Chart(
            "checks-sessions",
            f"Between sessions, {wider or 'none'} of {format_count(len(shown), 'experiment')} spread more than between "
            "rounds",
            bar_chart(bars, "spread", "what", "standard deviation (%)", hue="kind"),
            f"● measured on {join_words(sorted(set(machines)))}, in sessions at least an hour apart.",
            "; ".join(f"{row['what']}: {as_percent(row['sessions'])} between sessions, {as_percent(row['rounds'])} "
                      "between rounds" for row in shown),
        ),
        [capitalize(f"{farthest['what']} spreads most between sessions: {as_percent(farthest['sessions'])}, from "
                    f"{format_count(farthest['repeated'], 'result')} in several sessions."),
         "The spread between sessions is the part that exceeds the spread between rounds: 0 if sessions differ no more "
         "than rounds imply. It widens the interval of every result in its row."],
        Table(["Machine", "Number", "Results", "In several sessions", "Between rounds", "Between sessions", "Ratio"],
              [[row["machine"], row["name"], f"{row['results']:,}",
                f"{row['repeated']:,}", as_percent(row["rounds"]), as_percent(row["sessions"]),
                two_digits(row["ratio"])] for row in groups.to_dict("records")], "llrrrrr",
              "Standard deviations between sessions and between rounds"),
    )  # fmt: skip
