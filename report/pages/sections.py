"""Combine exhibits from several machines: one figure if all are estimate lists, else a common heading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from report.formatting import join_words, uncapitalize
from report.pages import disturbed_results
from report.pages.charts import Chart, estimate_chart
from report.pages.estimate_drawing import EstimateDrawing
from report.pages.exhibit_types import Exhibit, Family, Table
from report.pages.figure_data import Evidence
from report.pages.heading_numbers import merge_sentences

# Maximum number of rows in a combined figure; with more rows, each machine gets its own figure.
MOST_ROWS = 30


def exhibits_of(family: Family, evidence: Evidence) -> list[Exhibit]:
    """Return a family's exhibits, grouped across machines."""
    if evidence.data is None:
        return list(family.show(evidence))
    return group_by_subject(disturbed_results.exhibits_with_disturbances(family, evidence), len(evidence.views))


def group_by_subject(exhibits: Sequence[Exhibit], machines: int) -> list[Exhibit]:
    """Combine exhibits on the same subject from several machines, and make all titles unique."""
    if machines < 2:
        return _number_duplicate_titles(exhibits)
    subjects: dict[str, list[Exhibit]] = {}
    for exhibit in exhibits:
        subjects.setdefault(exhibit.subject or exhibit.chart.name, []).append(exhibit)
    return _number_duplicate_titles([exhibit for group in subjects.values() for exhibit in _combine_subject(group)])


def _combine_subject(group: Sequence[Exhibit]) -> Iterator[Exhibit]:
    """Yield the exhibits for a subject: a combined exhibit if possible, else an exhibit per machine.

    Titles name the machine if exhibits are not combined.
    """
    title, elsewhere = _common_title(group)
    if len(group) == 1 or not title:
        yield from map(_with_machine_title, group)
        return
    drawing = _merged_drawing(group)
    if drawing:
        yield replace(_combined_exhibit(group, title, drawing), says=[*elsewhere, *_merge_says(group)])
        return
    # If an exhibit has the common title already, it comes first, and no section heading is needed.
    first, *others = sorted(map(_with_machine_title, group), key=lambda exhibit: exhibit.chart.title != title)
    yield first if first.chart.title == title else replace(first, section=title, within=True)
    yield from (replace(other, within=True) for other in others)


def _common_title(group: Sequence[Exhibit]) -> tuple[str, list[str]]:
    """Return a common heading, and a list with a sentence for machines that the heading does not cover.

    The heading covers the user's machines if there are any, else all machines. It is '' if the exhibits' headings
    differ in more than numbers.
    """
    headings = [exhibit.heading for exhibit in group]
    if (
        any(heading is None for heading in headings)
        or merge_sentences([heading for heading in headings if heading]) is None
    ):
        return "", []
    own_exhibits = [exhibit for exhibit in group if exhibit.own]
    shown = own_exhibits if own_exhibits and len(own_exhibits) < len(group) else list(group)
    others = [exhibit for exhibit in group if exhibit not in shown]
    title = _merged_sentence(shown, whole=not others)
    elsewhere = _merged_sentence(others, whole=False) if others else ""
    return title, [f"{elsewhere}."] if elsewhere and any(
        other.heading and other.heading.is_complete for other in others
    ) else []


def _merged_sentence(group: Sequence[Exhibit], whole: bool) -> str:
    """Merge a group's headings into one sentence.

    whole: True if the group has all machines. The sentence then names its machines only if some headings are complete
    and others are not.
    """
    complete = [exhibit for exhibit in group if exhibit.heading and exhibit.heading.is_complete]
    merged = merge_sentences([exhibit.heading for exhibit in complete or group if exhibit.heading])
    text = str(merged) if merged else ""
    if whole and len(complete) in (0, len(group)):
        return text
    named = complete or group
    called = "Your machines" if len(named) == len(group) > 1 and all(exhibit.own for exhibit in named) else ""
    return _with_machine(called or join_words([exhibit.called for exhibit in named]), text) if text else ""


def _with_machine(machine: str, text: str) -> str:
    """Put the machine's name before a text that does not contain it."""
    return text if not machine or machine in text else f"{machine}: {uncapitalize(text)}"


def _with_machine_title(exhibit: Exhibit) -> Exhibit:
    return replace(exhibit, chart=replace(exhibit.chart, title=_with_machine(exhibit.called, exhibit.chart.title)))


def _merged_drawing(group: Sequence[Exhibit]) -> EstimateDrawing | None:
    """Merge estimate lists from several machines into one figure, grouped by machine.

    Returns None if an exhibit is no estimate list, if axes, thresholds or table headings differ, or if there are more
    than MOST_ROWS rows.
    """
    draws = [exhibit.chart.draw for exhibit in group]
    lists = [draw for draw in draws if isinstance(draw, EstimateDrawing)]
    settings = {(draw.axis, tuple(draw.lines), draw.line) for draw in lists}
    heads = {tuple(exhibit.table.head) for exhibit in group if exhibit.table}
    if (
        len(lists) < len(draws)
        or len(settings) > 1
        or len(heads) > 1
        or sum(len(draw.rows) for draw in lists) > MOST_ROWS
    ):
        return None
    rows = [{**row, "group": exhibit.called} for exhibit, draw in zip(group, lists, strict=True) for row in draw.rows]
    first = lists[0]
    return estimate_chart(rows, first.axis, first.lines, first.line, first.log, first.ends, first.ticks)


def _combined_exhibit(group: Sequence[Exhibit], title: str, drawing: EstimateDrawing) -> Exhibit:
    """Merge notes, sentences and tables into one exhibit."""
    first = group[0]
    return Exhibit(
        Chart(first.subject, title, drawing, _merge_texts(group, lambda exhibit: exhibit.chart.note),
              ". ".join(f"{exhibit.called}: {exhibit.chart.alt}" for exhibit in group)),
        (), _merge_tables(group), tuple(dict.fromkeys(name for exhibit in group for name in exhibit.claims)),
        subject=first.subject,
        nodes=tuple(node for exhibit in group for node in exhibit.nodes),
    )  # fmt: skip


def _merge_texts(group: Sequence[Exhibit], text: Callable[[Exhibit], str]) -> str:
    """Merge texts that differ only in the machine name; otherwise keep each machine's text."""
    blank = {text(exhibit).replace(exhibit.machine, "\0") for exhibit in group}
    if len(blank) == 1:
        return blank.pop().replace("\0", join_words([exhibit.machine for exhibit in group]))
    return " ".join(
        text(exhibit) if exhibit.machine in text(exhibit) else _with_machine(exhibit.called, text(exhibit))
        for exhibit in group
        if text(exhibit)
    )


def _merge_says(group: Sequence[Exhibit]) -> list[str]:
    """Return sentences that are not common to all exhibits, each with its machine, and then the common sentences."""
    common = [text for text in group[0].says if all(text in exhibit.says for exhibit in group)]
    own_sentences = [
        text if exhibit.machine in text else _with_machine(exhibit.called, text)
        for exhibit in group
        for text in exhibit.says
        if text not in common
    ]
    return [*own_sentences, *common]


def _merge_tables(group: Sequence[Exhibit]) -> Table | None:
    tables = [(exhibit.machine, exhibit.table) for exhibit in group if exhibit.table]
    if not tables:
        return None
    first = tables[0][1]
    caption = _merge_texts(
        [exhibit for exhibit in group if exhibit.table], lambda exhibit: exhibit.table.caption if exhibit.table else ""
    )
    rows = [[machine, *row] for machine, table in tables for row in table.rows]
    return Table(["Machine", *first.head], rows, f"l{first.align}", caption)


def _number_duplicate_titles(exhibits: Iterable[Exhibit]) -> list[Exhibit]:
    """Make titles unique: the second exhibit with the same title gets " (2)", the third " (3)"."""
    titles: set[str] = set()
    numbered = []
    for exhibit in exhibits:
        title, number = exhibit.chart.title, 2
        while title in titles:
            title, number = f"{exhibit.chart.title} ({number})", number + 1
        titles.add(title)
        numbered.append(
            exhibit if title == exhibit.chart.title else replace(exhibit, chart=replace(exhibit.chart, title=title))
        )
    return numbered
