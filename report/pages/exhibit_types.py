"""Types for a measurement page: `Family`, `Exhibit` and `Table`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from report import formatting
from report.data.table_rows import row_dicts
from report.estimates import Estimates
from report.pages.chart_rows import is_single_round
from report.pages.charts import HOLLOW, ONE_ROUND, Chart
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import Sentence, impossible_results
from report.pages.markdown import identifier
from report.pages.verdict_words import NOTHING, format_interval


@dataclass(frozen=True)
class Table:
    """A table of texts. align: one letter per column, l (left) or r (right)."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str
    caption: str = ""

    def without_empty_columns(self) -> Table:
        """Return a copy without the columns in which every entry is NOTHING."""
        columns = [i for i in range(len(self.head)) if any(row[i] != NOTHING for row in self.rows)]
        rows = [[row[i] for i in columns] for row in self.rows]
        return Table([self.head[i] for i in columns], rows, "".join(self.align[i] for i in columns), self.caption)


@dataclass(frozen=True)
class Exhibit:
    """A figure whose title states a message, with sentences beside the figure and a folded table.

    says: sentences beside the figure.
    claims: ids of claims on the same subject.
    heading: title as a `Sentence` with its numbers, to merge titles from several machines.
    machine: name of the machine, '' if the exhibit shows several machines.
    called: name of the machine in headings, such as "Your machine".
    own: True if the machine is the user's own.
    subject: key that exhibits on the same subject share across machines.
    nodes: ids of the nodes whose results are shown.
    section: heading above this exhibit and the following exhibits whose `within` is True.
    """

    chart: Chart
    says: Sequence[str] = ()
    table: Table | None = None
    claims: Sequence[str] = ()
    heading: Sentence | None = None
    machine: str = ""
    called: str = ""
    own: bool = False
    subject: str = ""
    nodes: Sequence[str] = ()
    section: str = ""
    within: bool = False


@dataclass(frozen=True)
class Family:
    """A family of measurements, which is shown on a page, or a picture, which is one figure on a page.

    asks: question to answer on the page.
    show: function to build the exhibits from all evidence.
    folder: folder of the page.
    """

    key: str
    title: str
    asks: str
    show: Callable[[Evidence], Iterable[Exhibit]]
    folder: str = "measurements"

    @property
    def path(self) -> str:
        """Path of the page, without suffix."""
        return f"{self.folder}/{identifier(self.key)}"


def exhibits_per_machine(evidence: Evidence, show: Callable[[View, int], Iterable[Exhibit]]) -> Iterator[Exhibit]:
    """Yield each machine's exhibits, with the machine, the subject and notes on unusable numbers filled in.

    show: function to build a machine's exhibits from its `View` and its number, counted from 1.
    """
    alone = sum(view.own for view in evidence.views) == 1
    for place, view in enumerate(evidence.views, 1):
        called = "Your machine" if view.own and alone else view.name
        for exhibit in show(view, place):
            disturbed = impossible_results(exhibit.heading.impossible if exhibit.heading else (), view.name)
            subject = re.sub(rf"-{place}(?=-|$)", "", exhibit.chart.name, count=1)
            dropped = (
                [exhibit.heading.dropped_note]
                if exhibit.heading and exhibit.heading.is_complete and exhibit.heading.dropped_note
                else []
            )
            yield replace(
                exhibit,
                says=[*disturbed, *exhibit.says, *dropped],
                machine=view.name,
                called=called,
                own=view.own,
                subject=subject,
                nodes=(view.node,),
            )


def explain_hollow_marks(chart: Chart) -> Chart:
    """Explain hollow marks in the chart's note, if the chart has any."""
    return replace(chart, note=f"{chart.note} {HOLLOW}.") if f", {ONE_ROUND}" in chart.alt else chart


def records(cases: Estimates) -> list[dict[str, Any]]:
    """Convert estimates to dicts: labels, estimate, low, high, n_rounds, detail."""
    return row_dicts(cases.frame)


def format_estimate(case: Mapping[str, Any], unit: str) -> str:
    """Format a table number with its interval: '412 GFLOP/s (405 to 420)', or '412 GFLOP/s (one round)'."""
    if is_single_round(case):
        return f"{formatting.with_unit(case['estimate'], unit)} ({ONE_ROUND})"
    around = format_interval(case.get("low"), case.get("high"), unit)
    name = formatting.si_prefix(float(case["estimate"]), unit)[1]
    return formatting.with_unit(case["estimate"], unit) + (f" ({around.removesuffix(name).strip()})" if around else "")
