"""The command references: every published figure with its users, and those that nobody uses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from report import ROOT
from report.data.dataset import Dataset, MissingSourceError
from report.data.gathered import read_dataset
from report.data.nodes import read_nodes
from report.data.reference import read_reference, stated
from report.formatting import count
from report.judging.claims import read_claims
from report.judging.contradictions import read_contradictions
from report.judging.evaluate import QuantityCache
from report.judging.reference_pairs import DECLARED, read_triangulation
from report.judging.reference_use import uses
from report.quantities import quantities

PUBLISHED = ROOT / "data" / "nodes"
_MOST_NAMED = 6


def references(data: Path | None, claims: Path, reference: Path) -> tuple[str, list[str]]:
    """All entries with their users as text, and those without any, on gathered data or the published nodes.

    Raises StudyError for a fault in any of the files.
    """
    entries = read_reference(reference)
    cache = QuantityCache(Dataset(read_nodes([PUBLISHED]), entries) if data is None else read_dataset(data, entries))
    for quantity in quantities().values():
        with suppress(MissingSourceError):
            cache.estimates(quantity)
    wanted = read_claims(claims, entries)
    contradictions = read_contradictions(claims.parent / "contradictions.yaml", wanted, entries)
    users = uses(cache, wanted, contradictions, read_triangulation(DECLARED, entries))
    lines = []
    for status in ("not verified", "verified"):
        names = [name for name, entry in entries.items() if entry["status"] == status and users[name]]
        lines += [f"{count(len(names), 'figure')} {status}:"]
        lines += [*(f"  {name}: {stated(entries[name])}: {_named(users[name])}" for name in names), ""]
    unused = [name for name, by in users.items() if not by]
    lines.append(f"{len(unused)} used by nobody{':' if unused else ''}")
    lines += [f"  {name}: {stated(entries[name])}, {entries[name]['status']}" for name in unused]
    return "\n".join(lines), unused


def _named(users: Sequence[str]) -> str:
    """Users in a line: 'W15, G03 and 2 more'."""
    shown = ", ".join(users[:_MOST_NAMED])
    return f"{shown} and {len(users) - _MOST_NAMED} more" if len(users) > _MOST_NAMED else shown
