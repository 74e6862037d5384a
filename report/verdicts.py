"""The file of verdicts, and their tally as text. Quick to start: no data libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json

VERDICTS = (
    "supported",
    "challenged",
    "depends",
    "undecided",
    "awaiting hardware",
    "awaiting experiment",
    "awaiting source",
    "not testable",
)
# What a rule can come to; of these, "undecided" is too close to call and decides nothing.
JUDGED = ("supported", "challenged", "depends", "undecided")
DECIDED = ("supported", "challenged", "depends")


def deciding(parts: Sequence[Mapping[str, Any]], verdict: str) -> Mapping[str, Any]:
    """The part whose number a claim is told with: the first with a number that came out as the whole did, else the
    first with a number; {} if there are no parts."""
    known = [part for part in parts if part.get("estimate") is not None]
    return next((part for part in known if part.get("outcome") == verdict), [*known, *parts, {}][0])


def read_verdicts(path: Path) -> dict[str, Any]:
    """Read `verdicts.json`. Raises StudyError if it is missing or something else."""
    if not path.exists():
        raise StudyError(f"{path}: no such file. `make study` writes it; --verdicts FILE names another")
    document = read_json(path)
    if not isinstance(document, dict) or "verdicts" not in document:
        raise StudyError(f"{path}: holds no verdicts. Make it with: python -m report judge --data DIR --out {path}")
    return document


def summary(document: dict[str, Any]) -> str:
    """A table of verdict counts by article, and which nodes they rest on."""
    articles = list(dict.fromkeys(one["article"] for one in document["verdicts"]))
    width = max(map(len, VERDICTS))
    head = "verdict".ljust(width) + "".join(name.rjust(11) for name in [*articles, "all"])
    lines = [head, "-" * len(head)]
    for verdict in VERDICTS:
        counts = [
            sum(one["verdict"] == verdict and one["article"] == article for one in document["verdicts"])
            for article in articles
        ]
        lines.append(verdict.ljust(width) + "".join(str(n).rjust(11) for n in [*counts, sum(counts)]))
    per_article = [sum(one["article"] == article for one in document["verdicts"]) for article in articles]
    totals = "".join(str(n).rjust(11) for n in [*per_article, sum(per_article)])
    lines += ["-" * len(head), "claims".ljust(width) + totals]
    lines.append("")
    lines += [f"node: {node['label']} ({node['n_ok']} of {node['n_points']} series ok)" for node in document["nodes"]]
    lines += [f"left out: {one['file']}: {one['reason']}" for one in document["refused"]]
    return "\n".join(lines)
