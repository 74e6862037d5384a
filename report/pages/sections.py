"""Exhibits of several machines put together: one figure where all are lists of estimates, else one heading over all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from report.formatting import several, within
from report.pages import disturbed_results
from report.pages.charts import Chart, estimates
from report.pages.estimate_drawing import Estimated
from report.pages.exhibit_types import Exhibit, Family, Table
from report.pages.figure_data import Evidence
from report.pages.heading_numbers import merge

# Rows of one figure: of more, each machine has its own.
MOST_ROWS = 30


def exhibits_of(family: Family, evidence: Evidence) -> list[Exhibit]:
    """Exhibits of a family's page, machines side by side."""
    if evidence.data is None:
        return list(family.show(evidence))
    return side_by_side(disturbed_results.exhibits(family, evidence), len(evidence.views))


def side_by_side(exhibits: Sequence[Exhibit], machines: int) -> list[Exhibit]:
    """Exhibits of so many machines for a page: those of one subject beside each other, no title twice."""
    if machines < 2:
        return _distinct(exhibits)
    subjects: dict[str, list[Exhibit]] = {}
    for one in exhibits:
        subjects.setdefault(one.subject or one.chart.name, []).append(one)
    return _distinct([one for group in subjects.values() for one in _together(group)])


def _together(group: Sequence[Exhibit]) -> Iterator[Exhibit]:
    """The exhibits of one subject."""
    title, elsewhere = _title(group)
    if len(group) == 1 or not title:
        yield from map(_named, group)
        return
    drawn = _drawn(group)
    if drawn:
        yield replace(_combined(group, title, drawn), says=[*elsewhere, *_says(group)])
        return
    # The one whose title is that of all comes first, under no other heading.
    first, *others = sorted(map(_named, group), key=lambda one: one.chart.title != title)
    yield first if first.chart.title == title else replace(first, section=title, within=True)
    yield from (replace(other, within=True) for other in others)


def _title(group: Sequence[Exhibit]) -> tuple[str, list[str]]:
    """The heading of several machines: of the user's own if there are any, with the others' numbers in a sentence.

    '' where more than their numbers differs.
    """
    headings = [one.heading for one in group]
    if any(heading is None for heading in headings) or merge([heading for heading in headings if heading]) is None:
        return "", []
    own = [one for one in group if one.own]
    shown = own if own and len(own) < len(group) else list(group)
    others = [one for one in group if one not in shown]
    title = _sentence(shown, whole=not others)
    elsewhere = _sentence(others, whole=False) if others else ""
    return title, [f"{elsewhere}."] if elsewhere and any(
        other.heading and other.heading.able for other in others
    ) else []


def _sentence(group: Sequence[Exhibit], whole: bool) -> str:
    """The sentence that a group's numbers make; named are the machines that it is of, where these are not all."""
    able = [one for one in group if one.heading and one.heading.able]
    together = merge([one.heading for one in able or group if one.heading])
    text = str(together) if together else ""
    if whole and len(able) in (0, len(group)):
        return text
    told = able or group
    called = "Your machines" if len(told) == len(group) > 1 and all(one.own for one in told) else ""
    return _of(called or several([one.called for one in told]), text) if text else ""


def _of(machine: str, text: str) -> str:
    """A sentence with the machine that it is of."""
    return text if not machine or machine in text else f"{machine}: {within(text)}"


def _named(one: Exhibit) -> Exhibit:
    return replace(one, chart=replace(one.chart, title=_of(one.called, one.chart.title)))


def _drawn(group: Sequence[Exhibit]) -> Estimated | None:
    """One figure with the rows of all, by machine; None where their charts or tables do not go together."""
    draws = [one.chart.draw for one in group]
    lists = [draw for draw in draws if isinstance(draw, Estimated)]
    alike = {(draw.axis, tuple(draw.lines), draw.line) for draw in lists}
    heads = {tuple(one.table.head) for one in group if one.table}
    if len(lists) < len(draws) or len(alike) > 1 or len(heads) > 1 or sum(len(draw.rows) for draw in lists) > MOST_ROWS:
        return None
    rows = [{**row, "group": one.called} for one, draw in zip(group, lists, strict=True) for row in draw.rows]
    first = lists[0]
    return estimates(rows, first.axis, first.lines, first.line, first.log)


def _combined(group: Sequence[Exhibit], title: str, drawn: Estimated) -> Exhibit:
    """One exhibit for all: notes, words and tables put together."""
    first = group[0]
    return Exhibit(
        Chart(first.subject, title, drawn, _one_text(group, lambda one: one.chart.note),
              ". ".join(f"{one.called}: {one.chart.alt}" for one in group)),
        (), _table(group), tuple(dict.fromkeys(name for one in group for name in one.claims)), subject=first.subject,
    )  # fmt: skip


def _one_text(group: Sequence[Exhibit], text: Callable[[Exhibit], str]) -> str:
    """A text that differs in the machine's name alone, with all names; else each machine's own."""
    blank = {text(one).replace(one.machine, "\0") for one in group}
    if len(blank) == 1:
        return blank.pop().replace("\0", several([one.machine for one in group]))
    return " ".join(text(one) if one.machine in text(one) else _of(one.called, text(one)) for one in group if text(one))


def _says(group: Sequence[Exhibit]) -> list[str]:
    """Sentences that all have in common once, others with their machine."""
    common = [text for text in group[0].says if all(text in one.says for one in group)]
    own = [
        text if one.machine in text else _of(one.called, text)
        for one in group
        for text in one.says
        if text not in common
    ]
    return [*own, *common]


def _table(group: Sequence[Exhibit]) -> Table | None:
    tables = [(one.machine, one.table) for one in group if one.table]
    if not tables:
        return None
    first = tables[0][1]
    caption = _one_text([one for one in group if one.table], lambda one: one.table.caption if one.table else "")
    rows = [[machine, *row] for machine, table in tables for row in table.rows]
    return Table(["Machine", *first.head], rows, f"l{first.align}", caption)


def _distinct(exhibits: Iterable[Exhibit]) -> list[Exhibit]:
    """Exhibits without equal titles: from the second on, equal ones are numbered."""
    seen: set[str] = set()
    found = []
    for exhibit in exhibits:
        title, number = exhibit.chart.title, 2
        while title in seen:
            title, number = f"{exhibit.chart.title} ({number})", number + 1
        seen.add(title)
        found.append(
            exhibit if title == exhibit.chart.title else replace(exhibit, chart=replace(exhibit.chart, title=title))
        )
    return found
