"""Sentences on disturbed results behind a measurement page, and on disturbed rounds that were measured again.

In most rounds behind a disturbed result, other processes used cores that the measured threads needed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from report.data.dataset import Dataset, DataUse
from report.formatting import first_items, format_count, format_part
from report.pages.exhibit_types import Exhibit, Family
from report.pages.figure_data import Evidence

# Maximum number of groups (experiment, threads and machine) to name in the sentence.
_NAMED = 4


def exhibits_with_disturbances(family: Family, evidence: Evidence) -> list[Exhibit]:
    """Return a family's exhibits; the first gets a sentence on disturbed results behind the page."""
    if evidence.data is None:
        return []
    with evidence.data.track_use() as used:
        exhibits = list(family.show(evidence))
    note = disturbance_sentence(evidence.data, used)
    return [replace(exhibits[0], says=[*exhibits[0].says, note]), *exhibits[1:]] if exhibits and note else exhibits


def disturbance_sentence(data: Dataset, used: DataUse) -> str:
    """Count disturbed results by experiment, threads and machine; '' if none."""
    rows = sorted({row for numbers in data.row_numbers_by_node(used).values() for row in numbers})
    bad = data.table.loc[[row for row in rows if row in data.disturbed_rows]]
    if bad.empty:
        return ""
    groups = Counter(zip(bad["experiment"], bad["threads"], bad["node"], strict=True))
    named = [
        f"{experiment} with {format_count(threads, 'thread')} on {data.label(node)} ({number:,})"
        for (experiment, threads, node), number in sorted(groups.items())
    ]
    return (
        f"Disturbed: {len(bad):,} of the {len(rows):,} results behind this page. In most of their rounds, other "
        f"processes used cores that the work needed: {first_items(named, _NAMED, '; ')}."
    )


def repeat_sentence(data: Dataset) -> str:
    """Count the points that were measured again in a round, and those of them that became quiet; '' if none."""
    measured, quiet = (sum(node.repeats.get(name, 0) for node in data.nodes.nodes) for name in ("measured", "quiet"))
    if not measured:
        return ""
    return (
        f"{format_part(quiet, measured, 'rounds', 'replaces', 'replace')} a first attempt: measured again at the end "
        "of a run, because other work had disturbed half or more of the samples, and quiet then."
    )
