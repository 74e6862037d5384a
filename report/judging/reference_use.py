"""Who uses which published figure: none may lie in data/reference that nothing asks for."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from report import PACKAGE
from report.data import plausibility
from report.data.dataset import Dataset, MissingSourceError
from report.data.gathered import read_dataset
from report.data.gpu_specs import gpu_specs
from report.data.nodes import read_nodes
from report.data.reference import REFERENCE, read_reference, source, stated
from report.formatting import count
from report.judging.claims import Claim, read_claims
from report.judging.contradictions import Contradiction, read_contradictions
from report.judging.evaluate import QuantityCache
from report.judging.reference_pairs import DECLARED, Triangulation, read_triangulation
from report.quantities import MODULES, quantities

Record = Mapping[str, Any]
Uses = Mapping[str, Sequence[str]]
PUBLISHED = REFERENCE.parent / "nodes"
_QUANTITIES = PACKAGE / "quantities"
# A page does not name everybody who asks for a figure of a model that a dozen quantities use.
MOST_NAMED = 6


def uses(
    evidence: QuantityCache,
    claims: Iterable[Claim],
    contradictions: Iterable[Contradiction],
    triangulation: Triangulation | None,
    run: bool = False,
) -> dict[str, list[str]]:
    """Users of each entry of the reference, in the order of importance; an orphan has none.

    A user is a claim that names the entry or whose quantity asked for it on this evidence, a quantity, a
    contradiction, a comparison with what is measured here, the prediction of a GPU that nobody has measured, or the
    check of what nodes report.
    run: compute every quantity, and not only those that the claims needed. What a quantity asks for only on evidence
    that is not there, its module names in full, or under ENTRIES as a pattern.
    """
    found: dict[str, dict[str, None]] = {name: {} for name in evidence.data.reference}

    def note(names: Iterable[str], user: str) -> None:
        for name in names:
            if name in found:
                found[name][user] = None

    asked = {name: _asked(name, evidence, run) for name in quantities()}
    for claim in claims:
        note(claim.sources, claim.id)
        for part in claim.parts:
            entry = part.scope.get("entry", [])
            note(entry if isinstance(entry, list) else [entry], claim.id)
            note(asked.get(part.quantity, []), claim.id)
    for one in contradictions:
        note((entry["id"] for entry in one.figures.entries) if one.figures else [], f"contradiction {one.id}")
    for name, entries in asked.items():
        note(entries, name)
    for module in MODULES:
        note((name for name in found if _named(module, name)), f"quantities of {module}")
    for pair in triangulation.pairs if triangulation else ():
        note((name for figure in pair.figures for name in figure.entries), f"comparison {pair.id}")
    for chip in gpu_specs(evidence.data.reference):
        note([*chip.entries, *chip.lacking], f"prediction {chip.id}")
    note(plausibility.ENTRIES, "what a node may claim")
    return {name: list(users) for name, users in found.items()}


def _asked(name: str, evidence: QuantityCache, run: bool) -> list[str]:
    """Entries that a quantity asked for on this evidence."""
    quantity = quantities()[name]
    if run:
        with suppress(MissingSourceError):
            evidence.estimates(quantity)
    return evidence.entries(quantity)


def _named(module: str, entry: str) -> bool:
    """Whether a module of quantities names an entry.

    As a text of its own; by a text that is what the figure is of, with the figure's name put behind it somewhere in
    the module; or by a pattern of its ENTRIES.
    """
    owner, _, figure = entry.rpartition(".")
    texts, endings = _texts(module)
    patterns = getattr(importlib.import_module(f"report.quantities.{module}"), "ENTRIES", ())
    return entry in texts or (owner in texts and figure in endings) or any(fnmatchcase(entry, one) for one in patterns)


@cache
def _texts(module: str) -> tuple[frozenset[str], frozenset[str]]:
    """A module's texts; and what it puts behind a name that it is given, as the last part of f"{machine}.gpus"."""
    tree = list(ast.walk(ast.parse((_QUANTITIES / f"{module}.py").read_text(encoding="utf-8"))))
    texts = {node.value for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    joined = [node.values for node in tree if isinstance(node, ast.JoinedStr) and len(node.values) == 2]
    ends = {last.value for _, last in joined if isinstance(last, ast.Constant) and isinstance(last.value, str)}
    return frozenset(texts), frozenset(end[1:] for end in ends if end.startswith("."))


def listed(reference: Mapping[str, Record], users: Uses) -> list[dict[str, Any]]:
    """Every entry with its source and its users, as `verdicts.json` has them."""
    kept = ("id", "subject", "what", "value", "low", "high", "unit", "status", "note")
    return [
        {
            **{key: entry[key] for key in kept if key in entry},
            "source": source(dict(entry)),
            "used_by": list(users[name]),
        }
        for name, entry in reference.items()
    ]


def unused(users: Uses) -> list[str]:
    """Entries that nobody uses."""
    return [name for name, by in users.items() if not by]


def told(reference: Mapping[str, Record], users: Uses) -> str:
    """The entries with their users as text: those that could not be verified first, then the verified, then orphans."""
    lines = []
    for status in ("not verified", "verified"):
        names = [name for name, entry in reference.items() if entry["status"] == status and users[name]]
        lines.append(f"{count(len(names), 'figure')} {status}:")
        lines += [f"  {name}: {stated(reference[name])}: {named(users[name])}" for name in names]
        lines.append("")
    lost = unused(users)
    lines.append(f"{len(lost)} used by nobody{':' if lost else ''}")
    lines += [f"  {name}: {stated(reference[name])}, {reference[name]['status']}" for name in lost]
    return "\n".join(lines)


def named(users: Sequence[str]) -> str:
    """Users in a line: 'W15, G03 and 2 more'."""
    shown = ", ".join(users[:MOST_NAMED])
    return f"{shown} and {len(users) - MOST_NAMED} more" if len(users) > MOST_NAMED else shown


def list_references(data: Path | None, claims: Path, reference: Path) -> tuple[str, list[str]]:
    """All entries with their users as text, and the orphans, on the evidence in `data` or on the published nodes.

    Raises StudyError for a fault in any of the files.
    """
    entries = read_reference(reference)
    evidence = Dataset(read_nodes([PUBLISHED]), entries) if data is None else read_dataset(data, entries)
    wanted = read_claims(claims, entries)
    contradictions = read_contradictions(claims.parent / "contradictions.yaml", wanted, entries)
    users = uses(QuantityCache(evidence), wanted, contradictions, read_triangulation(DECLARED, entries), run=True)
    return told(entries, users), unused(users)
