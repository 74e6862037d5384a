"""Command `references`: list published figures with their users, and unused ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from report.data.dataset import Dataset, MissingSourceError
from report.data.gathered_files import read_dataset
from report.data.node_reader import NODES, read_nodes
from report.data.published_records import read_published
from report.data.reference_figures import format_figure, read_reference
from report.formatting import first_items, format_count
from report.judging.claim_files import Claim, read_claims
from report.judging.contradictions import read_contradictions
from report.judging.cpus_per_gpu import replaced_processors
from report.judging.part_evaluation import QuantityCache, judge_published
from report.judging.published_baselines import compare_counterparts
from report.judging.published_use import record_users, source_users
from report.judging.reference_pairs import DECLARED, read_triangulation
from report.judging.reference_use import reference_users
from report.quantities import quantities

_MOST_NAMED = 6


def list_references(
    data: Path | None, claims: Path, reference: Path, published: Path, each: bool = False
) -> tuple[str, list[str]]:
    """List all reference entries and published sources with their users; return the text and the unused ids.

    data: the folder with gathered data; None to read the published nodes.
    each: True to list each published source's records too.
    Raises StudyError for a mistake in a file.
    """
    entries, others = read_reference(reference), read_published(published)
    nodes = Dataset(read_nodes([NODES]), entries, published=others) if data is None else None
    cache = QuantityCache(nodes or read_dataset(Path(str(data)), entries, others))
    for quantity in quantities().values():
        with suppress(MissingSourceError):
            cache.estimates(quantity)
    wanted = read_claims(claims, entries)
    contradictions = read_contradictions(claims.parent / "contradictions.yaml", wanted, entries)
    users = reference_users(cache, wanted, contradictions, read_triangulation(DECLARED, entries))
    lines = []
    for status in ("not verified", "verified"):
        names = [name for name, entry in entries.items() if entry["status"] == status and users[name]]
        lines += [f"{format_count(len(names), 'figure')} {status}:"]
        lines += [
            *(f"  {name}: {format_figure(entries[name])}: {first_items(users[name], _MOST_NAMED)}" for name in names),
            "",
        ]
    unused = [name for name, by in users.items() if not by]
    published_lines, unused_sources = _list_published(cache, wanted, each)
    lines += published_lines
    unused += unused_sources
    lines.append(f"{len(unused)} used by nobody{':' if unused else ''}")
    lines += [
        f"  {name}: {format_figure(entries[name])}, {entries[name]['status']}" for name in unused if name in entries
    ]
    lines += [f"  {name}: no record of it" for name in unused if name not in entries]
    return "\n".join(lines), unused


def _list_published(cache: QuantityCache, claims: Sequence[Claim], each: bool) -> tuple[list[str], list[str]]:
    """List published sources with their users (with `each`, every record too), and the unused sources."""
    published = cache.data.published
    named = (
        (claim.id, key)
        for claim in claims
        for part in claim.parts
        for other in judge_published(part, claim, cache)
        for key in other.records
    )
    used = record_users(published, named, replaced_processors(cache.data), compare_counterparts(cache))
    lines, sources = (
        [f"{format_count(len(used), 'record')} of {format_count(len(published.sources), 'source')} by others:"],
        [],
    )
    for row in source_users(published, used):
        by, records = row["used_by"], format_count(row["records"], "record")
        lines.append(f"  {row['id']}: {row['named']} of {records}: {first_items(by, _MOST_NAMED) or 'nobody'}")
        sources += [] if by else [row["id"]]
        if each:
            known = ((key, by) for key, by in used.items() if key.partition("/")[0] == row["id"])
            lines += [f"    {key}: {first_items(by, _MOST_NAMED) or 'shown only in the data'}" for key, by in known]
    return [*lines, ""], sources
