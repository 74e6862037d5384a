"""Who uses which published measurements of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from report.data.published_records import Published

# Who uses the records of which the opening tells, and those that stand beside our own figures.
OPENING, COUNTERPART = "opening", "counterpart"
Rows = Sequence[Mapping[str, Any]]


def record_users(
    published: Published, named: Iterable[tuple[str, str]], replaced: Rows = (), beside: Rows = ()
) -> dict[str, list[str]]:
    """Of each record, by its key, the claims whose evidence names it, in their order, and others; [] where none does.

    named: a claim's id with the key of a record of its evidence.
    replaced, beside: the rows of `judging.cpus_per_gpu` and `judging.published_baselines`.
    """
    found: dict[str, dict[str, None]] = {key: {} for key in published.by_key}
    for claim, key in named:
        found.setdefault(key, {})[claim] = None
    for row in replaced:
        for end in ("least", "most"):
            for key in row[end]["records"].split():
                found[key][OPENING] = None
    for row in beside:
        for key in row["records"]:
            found[key][COUNTERPART] = None
    return {key: list(claims) for key, claims in found.items()}


def evidence_records(verdicts: Rows) -> Iterator[tuple[str, str]]:
    """The id of each claim with the key of each published record of its evidence."""
    for verdict in verdicts:
        for case in verdict["cases"]:
            yield from ((str(verdict["id"]), key) for key in str(case["labels"].get("records") or "").split())
        for part in verdict["parts"]:
            yield from ((str(verdict["id"]), key) for other in part["others"] for key in other["records"])


def source_users(published: Published, used: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Each source with its number of records, how many of them evidence names, and its users (`record_users`)."""
    found = []
    for name, source in published.sources.items():
        keys = published.records.loc[published.records["source"] == name, "key"]
        by = {user: None for key in keys for user in used[key]}
        named = sum(bool(used[key]) for key in keys)
        found.append({**source, "records": len(keys), "named": named, "used_by": list(by)})
    return found
