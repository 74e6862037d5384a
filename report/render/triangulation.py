"""What the section on published figures prints: each measured value beside its figure, and what waits for a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from report.formatting import count, interval
from report.judging.reference_comparison import OUTCOMES, TO_EXPLAIN, sentence

# More rows are read to their end by nobody; verdicts.json holds every one.
MOST_ROWS = 40
# An outcome bears the sign and the colour of a verdict that means as much.
_CLASSES = dict(zip(OUTCOMES, ("supported", "depends", "challenged", "awaiting"), strict=True))


def triangulation(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The comparisons of `verdicts.json` in words; None of a file that was written before there were any."""
    pairs = document.get("triangulation")
    if not pairs:
        return None
    labels = {str(node["id"]): str(node.get("label") or node["id"]) for node in document["nodes"]}
    cells = [(pair, figure, cell) for pair in pairs for figure in pair["figures"] for cell in figure["cells"]]
    # What is to be explained stands first where a table of many nodes is cut.
    if len(cells) > MOST_ROWS:
        cells.sort(key=lambda one: one[2]["outcome"] != TO_EXPLAIN)
    rows = [_row(pair, figure, cell, labels) for pair, figure, cell in cells[:MOST_ROWS]]
    waiting = [_waiting(pair) for pair in pairs if any(figure["waits"] for figure in pair["figures"])]
    n = sum(one["count"] for one in waiting)
    return {
        "sentence": sentence(pairs),
        "rows": rows,
        "left_out": len(cells) - len(rows),
        "notes": [_note(pair) for pair in pairs if any(figure["cells"] for figure in pair["figures"])],
        "waiting": waiting,
        "waits": f"{count(n, 'published figure')} without a measured counterpart",
    }


def _row(pair: Mapping[str, Any], figure: Mapping[str, Any], cell: Mapping[str, Any], labels: Mapping[str, str]) -> Any:
    unit = str(pair["unit"])
    first = figure["sources"][0]
    node = labels.get(str(cell["node"]), str(cell["node"]))
    return {
        "title": str(pair["title"]),
        "where": node if cell["device"] == "cpu" else f"{node}, {cell['name']}",
        "label": str(cell["label"]),
        "measured": interval(cell["estimate"], cell["low"], cell["high"], unit),
        "published": _figure(figure, unit),
        "worked_out": str(figure["worked_out"]),
        "what": str(figure["what"]),
        "source": str(first["title"]),
        "url": str(first["url"]),
        "date": str(first["date"]),
        "deviation": _deviation(cell["deviation"]),
        "outcome": str(cell["outcome"]),
        "class": _CLASSES.get(str(cell["outcome"]), "awaiting"),
        "explained": str(cell["explained"]),
    }


def _note(pair: Mapping[str, Any]) -> dict[str, str]:
    return {"title": str(pair["title"]), "differs": str(pair["differs"]), "scaled": str(pair["scaled"])}


def _waiting(pair: Mapping[str, Any]) -> dict[str, Any]:
    """A pair's figures without a counterpart: what has to be measured for them, each machine once."""
    machines = [str(figure["waits"]) for figure in pair["figures"] if figure["waits"]]
    return {"title": str(pair["title"]), "count": len(machines), "for": "; ".join(dict.fromkeys(machines))}


def _figure(figure: Mapping[str, Any], unit: str) -> str:
    if figure["value"] is None:
        return "no figure verified"
    value = float(figure["value"])
    low, high = (float(figure[end]) if figure[end] is not None else value for end in ("low", "high"))
    return interval(value, low, high, unit)


def _deviation(ends: Mapping[str, float | None]) -> str:
    """'-1.4% [-8.7%, +6.5%]': of what is measured from what is published."""
    shares: Sequence[float | None] = [ends[name] for name in ("estimate", "low", "high")]
    if shares[0] is None:
        return "–"
    told = [f"{100 * share:+.1f}%".replace("-", "−") for share in shares if share is not None]
    if len(told) < len(shares) or len(set(told)) == 1:
        return told[0]
    return f"{told[0]} [{told[1]}, {told[2]}]"
