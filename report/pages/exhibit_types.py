"""What a family of measurements is given, and what it gives back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from report import formatting
from report.estimates import Estimates
from report.pages.chart_rows import dicts, one_round
from report.pages.charts import HOLLOW, ONE_ROUND, Chart
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import Sentence, excess
from report.pages.verdict_words import NOTHING, between


@dataclass(frozen=True)
class Table:
    """A table in words. align: one letter a column, l or r."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str
    caption: str = ""

    def filled(self) -> Table:
        """The table without columns that say nothing."""
        kept = [i for i in range(len(self.head)) if any(row[i] != NOTHING for row in self.rows)]
        rows = [[row[i] for i in kept] for row in self.rows]
        return Table([self.head[i] for i in kept], rows, "".join(self.align[i] for i in kept), self.caption)


@dataclass(frozen=True)
class Exhibit:
    """One message: a figure whose title it is, what a reader should know beside it, and the numbers, folded.

    claims: ids of the claims that rest on it. heading: the title with its numbers. machine: its name, '' where the
    exhibit is of no single one; called: as headings call it; own: whether it is the user's own. subject: the same for
    all machines. section: a heading over this exhibit and those after it that are `within` it.
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
    section: str = ""
    within: bool = False


@dataclass(frozen=True)
class Family:
    """A page of measurements. asks: what it answers, in a sentence. show: from all nodes' evidence to its exhibits."""

    key: str
    title: str
    asks: str
    show: Callable[[Evidence], Iterable[Exhibit]]


def on_each(evidence: Evidence, show: Callable[[View, int], Iterable[Exhibit]]) -> Iterator[Exhibit]:
    """The exhibits of each machine, marked with the machine and their subject; `show` gets its number, from 1."""
    alone = sum(view.own for view in evidence.views) == 1
    for place, view in enumerate(evidence.views, 1):
        called = "Your machine" if view.own and alone else view.name
        for one in show(view, place):
            disturbed = excess(one.heading.impossible if one.heading else (), view.name)
            subject = re.sub(rf"-{place}(?=-|$)", "", one.chart.name, count=1)
            lost = [one.heading.left_out] if one.heading and one.heading.able and one.heading.left_out else []
            yield replace(
                one,
                says=[*disturbed, *one.says, *lost],
                machine=view.name,
                called=called,
                own=view.own,
                subject=subject,
            )


def annotate(chart: Chart) -> Chart:
    """The chart with a note that explains hollow marks where it has any."""
    return replace(chart, note=f"{chart.note} {HOLLOW}.") if f", {ONE_ROUND}" in chart.alt else chart


def records(cases: Estimates) -> list[dict[str, Any]]:
    """Estimates as dicts: their labels, estimate, low, high, n_rounds, detail."""
    return dicts(cases.frame)


def stated(case: Mapping[str, Any], unit: str) -> str:
    """A number of a table with its interval: '412 GFLOP/s (405 to 420)', or '412 GFLOP/s (one round)'."""
    if one_round(case):
        return f"{formatting.with_unit(case['estimate'], unit)} ({ONE_ROUND})"
    around = between(case.get("low"), case.get("high"), unit)
    name = formatting.prefix(float(case["estimate"]), unit)[1]
    return formatting.with_unit(case["estimate"], unit) + (f" ({around.removesuffix(name).strip()})" if around else "")
