"""The opening screen: the answer, what became of the claims, what surprises, and what was measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from report import formatting
from report.model import DIFFER
from report.render import others, words
from report.render.answer import Sentence, answer, plain
from report.render.markdown import Markdown, escape, identifier
from report.render.surprises import FAR, Result, surprises

# Nodes that are named; of more it is said how many they are.
MOST_NODES = 3
# Letters of a boundary that an opening has room for.
_LONGEST = 120
_INTERVAL = re.compile(r" (\[[^\[\]]*\])")
_ASKS = {"at_most": "allow at most", "at_least": "ask for at least", "within": "mean"}
_FROM = {"measured": "measured on", "derived": "derived from", "documented": "on"}
# What every cell has; its other keys are the labels of its quantity.
_NO_LABELS = {
    "part", "node", "device", "label", "estimate", "low", "high", "n_rounds", "n_samples", "outcome", "behind",
    # The kind of evidence is told with the place.
    "evidence",
}  # fmt: skip


def opening(
    document: Mapping[str, Any], claims: Sequence[Mapping[str, Any]], articles: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What the opening prints.

    document: verdicts.json. claims, articles: as the page tells them, see `page.context`. Raises StudyError for a
    fault in the declared statements of the answer.
    """
    sentences = answer(document)
    names = {str(node["id"]): str(node.get("label") or node["id"]) for node in document["nodes"]}
    rows = tally(claims)
    return {
        "answer": [told(sentence) for sentence in sentences],
        "plain": [plain(sentence) for sentence in sentences],
        "tally": rows,
        "questions": _questions(document),
        "decided": others.decided(document),
        "replaced": others.replaced(document),
        "replaced_text": others.in_words(document),
        "factors": others.factors(document),
        "tally_text": f"{formatting.count(len(claims), 'claim')}: {in_words(rows)}",
        "surprises": [_surprise(one, names) for one in surprises(document["verdicts"])],
        "far": formatting.number(FAR, 1),
        "nodes": _nodes(document["nodes"]),
        "more_nodes": max(0, len(document["nodes"]) - MOST_NODES),
        "articles": [_tiles(article) for article in articles],
    }


def _questions(document: Mapping[str, Any]) -> str:
    """The tally by question, each counted once; '' where no two claims ask the same, or the file does not say."""
    asked = document.get("questions") or []
    if not any(len(one["claims"]) > 1 for one in asked):
        return ""
    found = [str(one["verdict"]) for one in asked]
    told = [f"{found.count(name)} {name}" for name in words.VERDICTS if name in found]
    if DIFFER in found:
        n = found.count(DIFFER)
        told.append(f"{n} on which the claims differ")
    return f"Several claims ask the same. By question, each counted once, there are {len(asked)}: {', '.join(told)}."


def tally(claims: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The verdicts in their order, each with its claims; those that nobody got are left out."""
    listed = list(claims)
    order = [*words.VERDICTS, *sorted({claim["verdict"] for claim in listed} - set(words.VERDICTS))]
    groups = [(name, [claim for claim in listed if claim["verdict"] == name]) for name in order]
    return [
        {"name": name, "class": words.verdict_class(name), "count": len(group), "claims": group}
        for name, group in groups
        if group
    ]


def in_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """'15 supported, 11 challenged'."""
    return ", ".join(f"{row['count']} {row['name']}" for row in rows)


def told(sentence: Sentence) -> Markdown:
    """A sentence as markdown: numbers lead to their claims, intervals are set small."""
    parts = []
    for piece in sentence:
        text = number(piece.text)
        if piece.claim:
            text = Markdown(f"[{text}](#{identifier(piece.claim)}){{.told}}")
        parts.append(f"[{text}]{{.head}}" if piece.head else text)
    return Markdown("".join(parts))


def number(text: str) -> Markdown:
    """Text as markdown, the intervals in it marked, spaces at its ends kept."""
    parts = []
    for at, stretch in enumerate(_INTERVAL.split(text)):
        if at % 2:
            parts.append(f" [{escape(stretch)}]{{.ci}}")
        elif stretch.strip():
            before, after = (" " if edge.isspace() else "" for edge in (stretch[0], stretch[-1]))
            parts.append(f"{before}{escape(stretch)}{after}")
        else:
            parts.append(" " if stretch else "")
    return Markdown("".join(parts))


def _surprise(result: Result, names: Mapping[str, str]) -> dict[str, Any]:
    """A result in words: what the article says, what was found against what its words ask for, and where."""
    verdict, part, cell = result.verdict, result.part, result.cell
    unit, status = str(part.get("unit") or "1"), str(verdict["verdict"])
    asks = _ASKS[part["rejudge"]["how"]]
    return {
        "id": identifier(str(verdict["id"])),
        "says": str(verdict["says"]),
        "verdict": status,
        "class": words.verdict_class(status),
        "number": number(words.with_interval(cell, unit)),
        "asks": f"{asks} {formatting.threshold_text(part['threshold'], unit)}",
        "about": formatting.capital("; ".join(filter(None, (_what(result), _where(result, names))))),
        "boundary": _turns(str(part.get("boundary") or "")) if status == "depends" else "",
    }


def _turns(boundary: str) -> str:
    """'It holds for int8, fails for float32'; '' for one that is too long to be told here."""
    if not boundary or len(boundary) > _LONGEST:
        return ""
    # 'mlp: holds from batch 64 on, …; cnn: holds throughout' lists cases.
    return f"It differs: {boundary.replace(': ', ' ')}" if ": " in boundary else f"It {boundary}"


def _what(result: Result) -> str:
    """What was counted and which of several cells this is: 'p99 latency, float32, service embedding'."""
    verdict, part, cell = result.verdict, result.part, result.cell
    if part.get("quantity") == "reference.value":
        return str(cell.get("label") or "")
    beside = [one for one in verdict["cells"] if one.get("part") == cell.get("part")]
    labels = {key: value for key, value in cell.items() if key not in _NO_LABELS and value is not None}
    own = {key: value for key, value in labels.items() if any(one.get(key) != value for one in beside)}
    if "run" in own:
        # Its name says more than what orders it.
        own = {key: value for key, value in own.items() if key not in ("parameters", "flop")}
    if "shape" in labels:
        own = {key: value for key, value in own.items() if key not in ("m", "n", "k")}
    name = words.quantity_name(str(part.get("quantity") or "")).removesuffix(" s")
    return ", ".join(filter(None, (name, str(part.get("name") or ""), formatting.labels_text(own))))


def _where(result: Result, names: Mapping[str, str]) -> str:
    """'measured on AMD EPYC, 2 cores'; without a node, of what kind the number is."""
    tier, node = str(result.verdict["evidence_tier"]), result.cell.get("node")
    if node is None:
        return "derived from published figures" if tier == "derived" else "published"
    device = str(result.cell.get("device") or "cpu")
    place = f"{names.get(str(node), str(node))}{'' if device == 'cpu' else f', {device}'}"
    return f"{_FROM[tier]} {place}"


def _nodes(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first nodes, those with a GPU before others, each with its place among all."""
    listed = []
    for place, node in enumerate(nodes, 1):
        gpus = any(device.get("kind") == "gpu" for device in node["devices"])
        day = re.match(r"\d{4}-\d\d-\d\d", str(node.get("started_utc") or ""))
        label = str(node.get("label") or node["id"])
        # A node that shares its name with others may bear its day already.
        when = day[0] if day and day[0] not in label else ""
        listed.append(
            {
                "anchor": identifier(f"node-{place}"),
                # With its GPUs, where it has any.
                "label": label,
                "about": ", ".join(filter(None, ("" if gpus else "no GPU", when))),
                "gpus": gpus,
            }
        )
    return sorted(listed, key=lambda one: not one["gpus"])[:MOST_NODES]


def _tiles(article: Mapping[str, Any]) -> dict[str, Any]:
    """An article with its claims in the order of verdicts."""
    rows = tally(article["claims"])
    claims = [claim for row in rows for claim in row["claims"]]
    return {
        "key": article["key"],
        "letter": str(claims[0]["id"])[0],
        "title": article["title"],
        "claims": claims,
        "tally": in_words(rows),
    }
