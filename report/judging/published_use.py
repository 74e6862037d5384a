"""Map published records to their users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from report.data.published_records import Published

# Uses of published records besides claims. OPENING: the report's opening. COUNTERPART: the comparison between our CPU
# figures and published figures.
OPENING, COUNTERPART = "opening", "counterpart"
Rows = Sequence[Mapping[str, Any]]


def record_users(
    published: Published, evidence: Iterable[tuple[str, str]], replaced: Rows = (), counterparts: Rows = ()
) -> dict[str, list[str]]:
    """Map each published record's key to the record's users, claims first; an unused record has an empty list.

    evidence: pairs of claim id and record key.
    replaced: the rows from `judging.cpus_per_gpu`.
    counterparts: the rows from `judging.published_baselines`.
    """
    by_record: dict[str, dict[str, None]] = {key: {} for key in published.records_by_key}
    for claim, key in evidence:
        by_record.setdefault(key, {})[claim] = None
    for row in replaced:
        for end in ("least", "most"):
            for key in row[end]["records"].split():
                by_record[key][OPENING] = None
    for row in counterparts:
        for key in row["records"]:
            by_record[key][COUNTERPART] = None
    return {key: list(claims) for key, claims in by_record.items()}


def evidence_records(verdicts: Rows) -> Iterator[tuple[str, str]]:
    """Yield claim id and record key for all published records in the claims' evidence."""
    for verdict in verdicts:
        for case in verdict["cases"]:
            yield from ((str(verdict["id"]), key) for key in str(case["labels"].get("records") or "").split())
        for part in verdict["parts"]:
            yield from ((str(verdict["id"]), key) for other in part["others"] for key in other["records"])


def source_users(published: Published, used: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Count each source's records and those that have users, and list these users."""
    records = []
    for name, source in published.sources.items():
        keys = published.records.loc[published.records["source"] == name, "key"]
        users = {user: None for key in keys for user in used[key]}
        n_used = sum(bool(used[key]) for key in keys)
        records.append({**source, "records": len(keys), "named": n_used, "used_by": list(users)})
    return records
