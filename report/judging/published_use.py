"""Who uses which published measurements of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from report.data.published import Published

# Who uses the records of which the opening tells, and those that stand beside our own figures.
OPENING, COUNTERPART = "opening", "counterpart"
Rows = Sequence[Mapping[str, Any]]


def users(published: Published, verdicts: Rows, replaced: Rows = (), beside: Rows = ()) -> dict[str, list[str]]:
    """Of each record, by its key, the claims whose evidence names it, in their order, and others; [] where none does.

    replaced, beside: the rows of `judging.replaced` and `judging.counterparts`.
    """
    found: dict[str, dict[str, None]] = {key: {} for key in published.by_key}
    for verdict in verdicts:
        for cell in _cells(verdict):
            for key in str(cell.get("records") or "").split():
                found.setdefault(key, {})[str(verdict["id"])] = None
    for row in replaced:
        for end in ("least", "most"):
            for key in row[end]["records"].split():
                found[key][OPENING] = None
    for row in beside:
        for key in row["records"]:
            found[key][COUNTERPART] = None
    return {key: list(claims) for key, claims in found.items()}


def _cells(verdict: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    yield from verdict["cells"]
    for part in verdict["parts"]:
        for one in part["others"]:
            yield from one["cells"]


def of_sources(published: Published, verdicts: Rows, replaced: Rows = (), beside: Rows = ()) -> list[dict[str, Any]]:
    """Each source with the number of its records, how many of them evidence names, and the claims that rest on it."""
    used = users(published, verdicts, replaced, beside)
    found = []
    for name, source in published.sources.items():
        keys = published.records.loc[published.records["source"] == name, "key"]
        claims = {claim: None for key in keys for claim in used[key]}
        named = sum(bool(used[key]) for key in keys)
        found.append({**source, "records": len(keys), "named": named, "used_by": list(claims)})
    return found
