"""The most common exhibit: a row per case with its interval, as chart and table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from report.estimates import device_kind
from report.pages.chart_rows import alt_text, estimate_row
from report.pages.charts import Chart, estimate_chart
from report.pages.exhibit_types import Exhibit, Table, format_estimate
from report.pages.heading_numbers import Sentence
from report.pages.verdict_words import BARS

# A row's label, its case, and the texts for further table columns.
ListEntry = tuple[str, Mapping[str, Any], Sequence[str]]


def estimate_list(
    name: str,
    heading: Sentence | str,
    entries: Sequence[ListEntry],
    unit: str,
    axis: str,
    note: str,
    head: Sequence[str],
    by: float = 1.0,
    lines: Sequence[float] = (),
    line: str = "",
    log: bool | None = None,
    says: Sequence[str] = (),
    claims: Sequence[str] = (),
    tier: str = "measured",
    groups: Sequence[str] = (),
    ends: Sequence[str] = (),
) -> Exhibit:
    """Return an exhibit with a row per case, as a chart and as a table with the column headings `head`.

    by: divisor to convert the estimates to the axis unit.
    groups: each entry's group name, drawn as a heading unless all names are equal.
    ends: names for the axis's two directions.
    """
    title = str(heading)
    shown = groups if len(set(groups)) > 1 else [""] * len(entries)
    rows = [
        estimate_row(label, case, unit, by, tier=tier, group=group)
        for (label, case, _), group in zip(entries, shown, strict=True)
    ]
    bars = f" {BARS}." if tier == "measured" else ""
    table = [[label, *more, format_estimate(case, unit)] for label, case, more in entries]
    return Exhibit(
        Chart(name, title, estimate_chart(rows, axis, lines, line, log, ends), note + bars, alt_text(rows)),
        says, Table(head, table, "l" * (len(head) - 1) + "r", axis), claims,
        heading if isinstance(heading, Sentence) else None,
    )  # fmt: skip


def format_range(values: Sequence[float], words: Any) -> str:
    """Format values as a range: '1.1 to 8.9', or a single number if both ends read the same."""
    return " to ".join(dict.fromkeys(words(end) for end in (min(values), max(values))))


def cases_with_most_threads(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep each device's cases with the highest thread count."""
    most: dict[str, int] = {}
    for case in cases:
        most[str(case["device"])] = max(most.get(str(case["device"]), 0), int(case["threads"]))
    return [case for case in cases if int(case["threads"]) == most[str(case["device"])]]


def has_gpu(cases: Sequence[Mapping[str, Any]]) -> bool:
    """True if any case ran on a GPU."""
    return any(device_kind(str(case["device"])) == "gpu" for case in cases)


def gpu_suffix(device: str) -> str:
    """Return a label suffix: '' for the processor, ', GPU', or ', GPU 1' for a second GPU."""
    if device_kind(device) == "cpu":
        return ""
    number = device.partition(":")[2]
    return f", GPU {number}" if number.isdigit() and int(number) else ", GPU"
