"""The feed of editions: an entry for each, with what changed since the one before. Atom, RFC 4287."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

from report.formatting import count, several
from report.publish.study import study
from report.render.markdown import clean
from report.site import paths
from report.site.compare import compare, day, headline, machines, reasons
from report.site.editions import digest
from report.site.sitemap import document

Record = Mapping[str, Any]
_SPACE = "http://www.w3.org/2005/Atom"
# The place on the page that tells the changes.
CHANGES = "#editions"


def feed(editions: Sequence[Record], url: str, title: str) -> str:
    """feed.xml of all editions (records of `editions.edition`, the oldest first), the newest first.

    url: as `sitemap.address` gives it. An entry keeps its name when its edition is built again, so that no reader
    is told of it twice. Raises StudyError if the study's authors are not to be had.
    """
    root = ElementTree.Element("feed", {"xmlns": _SPACE, "xml:lang": "en"})
    _text(root, "id", url)
    _text(root, "title", title)
    _text(root, "subtitle", "What changes from one edition to the next")
    _text(root, "updated", str(editions[-1]["generated_utc"]))
    ElementTree.SubElement(root, "link", rel="self", type="application/atom+xml", href=url + paths.FEED)
    ElementTree.SubElement(root, "link", rel="alternate", type="text/html", href=url)
    _text(ElementTree.SubElement(root, "author"), "name", study().authors)
    names = _names(editions)
    told = [_first(editions[0]), *(_later(compare(old, new), url) for old, new in pairwise(editions))]
    for one, name, (summary, content) in reversed(list(zip(editions, names, told, strict=True))):
        entry = ElementTree.SubElement(root, "entry")
        _text(entry, "id", f"{url}#edition-{name}")
        _text(entry, "title", f"Edition of {day(one)}")
        _text(entry, "updated", str(one["generated_utc"]))
        place = url if one is editions[0] else url + CHANGES
        ElementTree.SubElement(entry, "link", rel="alternate", type="text/html", href=place)
        _text(entry, "summary", summary)
        _text(entry, "content", content, type="html")
    return document(root)


def _text(parent: ElementTree.Element, tag: str, text: str, **attributes: str) -> None:
    ElementTree.SubElement(parent, tag, attributes).text = clean(text)


def _names(editions: Sequence[Record]) -> list[str]:
    """A name for each edition from what it says and what was said before: the same when it is built again."""
    names, before = [], ""
    for one in editions:
        before = hashlib.sha256(f"{before} {digest(one)}".encode()).hexdigest()[:12]
        names.append(before)
    return names


def _first(one: Record) -> tuple[str, str]:
    """Summary and content of the first edition that is known: how its claims came out, and on which machines."""
    tally: dict[str, int] = {}
    for claim in one["claims"]:
        tally[claim["verdict"]] = tally.get(claim["verdict"], 0) + 1
    counts = several([f"{number} {verdict}" for verdict, number in tally.items()])
    of = several([node["label"] for node in one["nodes"]]) or "no machine"
    summary = f"{count(len(one['claims']), 'claim')}: {counts or 'none'}. Evidence of {of}."
    return summary, f"<p>{html.escape(summary)}</p>"


def _later(found: Record, url: str) -> tuple[str, str]:
    """Summary and content (HTML) of an edition that came after another."""
    summary = " ".join([headline(found), *machines(found)])
    parts = [f"<p>{html.escape(summary)}</p>"]
    for title, key in (("Changed", "changed"), ("The same verdict on other grounds", "revised")):
        items = [_item(one, url, key == "changed") for one in found[key]]
        parts += _listed(title, items)
    parts += _listed("New claims", [f"{_link(one, url)}: {html.escape(one['says'])}" for one in found["added"]])
    gone = [html.escape(f"{one['id']}: {one['says']}") for one in found["withdrawn"]]
    parts += _listed("Withdrawn", gone)
    return summary, "".join(parts)


def _item(one: Record, url: str, turned: bool) -> str:
    verdict = f"{one['is']}, before {one['was']}" if turned else one["is"]
    return f"{_link(one, url)}: {html.escape(verdict)}. {html.escape(one['says'])}" + "".join(
        f"<br>{html.escape(reason)}" for reason in reasons(one["why"])
    )


def _link(one: Record, url: str) -> str:
    return f'<a href="{html.escape(url)}#{html.escape(one["id"])}">{html.escape(one["id"])}</a>'


def _listed(title: str, items: Sequence[str]) -> list[str]:
    return [f"<p>{title}:</p><ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"] if items else []
