"""Map published figures to their users."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from report.data import plausibility
from report.data.gpu_specs import gpu_specs
from report.data.reference_figures import source_record
from report.judging.claim_files import Claim
from report.judging.contradictions import Contradiction
from report.judging.part_evaluation import QuantityCache
from report.judging.reference_pairs import Triangulation
from report.quantities import MODULES, quantities

Record = Mapping[str, Any]
Uses = Mapping[str, Sequence[str]]


def reference_users(
    cache: QuantityCache,
    claims: Iterable[Claim],
    contradictions: Iterable[Contradiction],
    triangulation: Triangulation | None,
) -> dict[str, list[str]]:
    """List each reference entry's users.

    The users are, in this order:
    - claims that name the entry or whose quantity read it,
    - contradictions,
    - quantities that read the entry,
    - quantity modules that declare the entry in `ENTRIES`, which they read only if other data are present,
    - comparisons with measurements here,
    - GPU ratings,
    - the plausibility check on nodes.
    """
    by_entry: dict[str, dict[str, None]] = {name: {} for name in cache.data.reference}

    def note(names: Iterable[str], user: str) -> None:
        for name in by_entry.keys() & set(names):
            by_entry[name][user] = None

    used_entries = {name: cache.entries(quantity) for name, quantity in quantities().items()}
    for claim in claims:
        note(claim.sources, claim.id)
        for part in (*claim.parts, *claim.when_written):
            note([*part.entries, *used_entries.get(part.quantity, [])], claim.id)
    for contradiction in contradictions:
        note((str(entry["id"]) for entry in contradiction.figures), f"contradiction {contradiction.id}")
    for name, entries in used_entries.items():
        note(entries, name)
    for module in MODULES:
        for pattern in getattr(import_module(f"report.quantities.{module}"), "ENTRIES", ()):
            note(fnmatch.filter(by_entry, pattern), f"quantities of {module}")
    for pair in triangulation.pairs if triangulation else ():
        note((name for figure in pair.figures for name in figure.entries), f"comparison {pair.id}")
    for gpu in gpu_specs(cache.data.reference):
        note([*gpu.entries, *gpu.lacking], f"rating {gpu.id}")
    note(plausibility.ENTRIES, "what a node may claim")
    return {name: list(users) for name, users in by_entry.items()}


def reference_records(reference: Mapping[str, Record], users: Uses) -> list[dict[str, Any]]:
    """Record every entry with source and users, for `verdicts.json`."""
    fields = ("id", "subject", "what", "value", "low", "high", "unit", "status", "note")
    return [
        {
            **{key: entry[key] for key in fields if key in entry},
            "source": source_record(dict(entry)),
            "used_by": list(users[name]),
        }
        for name, entry in reference.items()
    ]
