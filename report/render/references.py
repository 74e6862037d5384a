"""What the appendix of published figures prints: every entry of the reference with its source and who uses it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from report.data.reference import stated
from report.formatting import count, several, within
from report.render.markdown import identifier

_CLAIM = re.compile(r"[A-Z]\d\d")
# What users other than claims are called, by the word that their name begins with.
_KINDS = ("contradiction", "comparison", "rating")


def references(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The entries of `verdicts.json`, those from one source in one row; None if it lists none.

    unverified: what was looked for, and not read in a primary source; never evidence. verified: the rest.
    """
    entries = document.get("references")
    if not entries:
        return None
    known = {str(one["id"]) for one in document["verdicts"]}
    verified = [one for one in entries if one["status"] == "verified"]
    others = [one for one in entries if one["status"] != "verified"]
    parts = [(False, "Not verified", others), (True, "Read in their primary source", verified)]
    return {
        "counts": f"{count(len(entries), 'figure')} from published sources: {len(verified)} were read in their "
        f"primary source, {len(others)} could not be",
        "parts": [
            {"verified": read, "title": f"{title}: {count(len(side), 'figure')}", "rows": _rows(side, known)}
            for read, title, side in parts
            if side
        ],
    }


def _rows(entries: Sequence[Mapping[str, Any]], known: set[str]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for entry in entries:
        source = entry["source"]
        groups.setdefault((source["title"], source["url"], source["publisher"], source["date"]), []).append(entry)
    return [_row(key, group, known) for key, group in groups.items()]


def _row(key: tuple[str, ...], group: Sequence[Mapping[str, Any]], known: set[str]) -> dict[str, Any]:
    title, url, publisher, date = map(str, key)
    by_subject: dict[str, list[str]] = {}
    for entry in group:
        what = str(entry["what"]).rstrip(".")
        by_subject.setdefault(str(entry["subject"]), []).append(f"{within(what)}: {stated(entry)}")
    users = list(dict.fromkeys(str(user) for entry in group for user in entry["used_by"]))
    claims = sorted(user for user in users if _CLAIM.fullmatch(user) and user in known)
    return {
        "title": title,
        "url": url,
        "about": ", ".join(text for text in (publisher, date) if text),
        "subjects": [{"name": name, "figures": "; ".join(figures)} for name, figures in by_subject.items()],
        "claims": [identifier(claim) for claim in claims],
        "others": _others([user for user in users if user not in claims]),
    }


def _others(users: Sequence[str]) -> str:
    """'2 comparisons and 3 quantities': verdicts.json has their names."""
    kinds = Counter(next((kind for kind in _KINDS if user.startswith(f"{kind} ")), "quantity") for user in users)
    texts = [count(kinds[kind], kind) for kind in _KINDS if kinds[kind]]
    if kinds["quantity"]:
        texts.append("1 quantity" if kinds["quantity"] == 1 else f"{kinds['quantity']} quantities")
    return several(texts)
