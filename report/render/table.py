"""What the table of claims is filtered and sorted by besides its words: the nodes behind a verdict, and places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from report.data.ranges import format_ranges
from report.formatting import several
from report.render.words import VERDICTS

# More nodes than these are told by their number.
_MOST_NODES = 2


def in_table(verdicts: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By claim, what its row needs beside the words of its card.

    from_nodes: the nodes whose cells decided it, or a part of it, in words; node_numbers: the same as the page's
    anchors count them ('1-3 7'), from 1; both '' where no node did. verdict_place: of its verdict among verdicts.
    number_place: of its number among those of the same unit, unit after unit, for numbers of different units have no
    order; None where it has no number.
    """
    labels = [str(node.get("label") or node["id"]) for node in nodes]
    numbers = {str(node["id"]): number for number, node in enumerate(nodes, start=1)}
    told = {str(one["id"]): _number(one) for one in verdicts}
    order = sorted({key for key in told.values() if key})
    shown = {}
    for verdict in verdicts:
        claim = str(verdict["id"])
        found = _decided_by(verdict, numbers)
        few = several([labels[number - 1] for number in found])
        shown[claim] = {
            "from_nodes": few if len(found) <= _MOST_NODES else f"{len(found)} nodes",
            "node_numbers": format_ranges(found),
            "verdict_place": _verdict_place(str(verdict["verdict"])),
            "number_place": order.index(key) if (key := told[claim]) else None,
        }
    return shown


def _decided_by(verdict: Mapping[str, Any], numbers: Mapping[str, int]) -> list[int]:
    """The numbers of the nodes whose cells a verdict, or what is decided of it, rests on, in order."""
    return sorted({numbers[str(cell["node"])] for cell in verdict.get("cells") or [] if cell.get("node") in numbers})


def _number(verdict: Mapping[str, Any]) -> tuple[str, float] | None:
    """Unit and value of the number that a verdict is told with."""
    if verdict.get("estimate") is None:
        return None
    unit = str(verdict.get("unit") or "1")
    return unit, float(verdict["estimate"])


def _verdict_place(verdict: str) -> int:
    """The verdicts in the order in which they are told; one that is not known here comes last."""
    return list(VERDICTS).index(verdict) if verdict in VERDICTS else len(VERDICTS)
