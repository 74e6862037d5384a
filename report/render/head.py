"""What the page says of itself to those who pass on its address: Open Graph, the feed, the one address that counts.

Sources of the vocabularies: https://ogp.me, RFC 6596 (canonical), RFC 4287 (feeds).
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from report.formatting import count, several
from report.render.answer import answer, plain
from report.render.markdown import clean
from report.render.words import VERDICTS
from report.site import paths

TITLE = "Does AI need a GPU?"
# Of the picture, in pixels: what is shown whole wherever addresses are shown with pictures (1.91 to 1).
WIDTH, HEIGHT = 1200, 630
# Machines that are named; of more it is said how many they are.
_NAMED = 2


def told(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is passed on of a file of verdicts: title, answer, tally (name and number), and what it rests on."""
    found = document["tally"]
    order = [*VERDICTS, *sorted(set(found) - set(VERDICTS))]
    nodes = [clean(str(node.get("label") or node["id"])) for node in document["nodes"]]
    named = nodes if len(nodes) <= _NAMED else [nodes[0], f"{count(len(nodes) - 1, 'other machine')}"]
    evidence = f"Evidence of {several(named)}" if nodes else ""
    return {
        "title": TITLE,
        "answer": clean(" ".join(plain(one) for one in answer(document))),
        "tally": [(clean(name), int(found[name])) for name in order if found.get(name)],
        "foot": ", ".join(filter(None, (evidence, str(document["generated_utc"])[:10]))),
    }


def alternative(shows: Mapping[str, Any]) -> str:
    """The picture of what `told` gave, in words."""
    counts = several([f"{number} {name}" for name, number in shows["tally"]])
    total = count(sum(number for _, number in shows["tally"]), "claim")
    return f"{shows['title']} {shows['answer']} {total}: {counts or 'none'}. {shows['foot']}."


def head(document: Mapping[str, Any], url: str) -> str:
    """The tags for the page's head, each on a line, in HTML.

    url: where the page will be published, as `report.site.sitemap.address` gives it; '' leaves out what only an
    address can say.
    """
    shows = told(document)
    tags = [
        _property("og:type", "article"),
        _property("og:locale", "en_GB"),
        _property("og:title", shows["title"]),
        _property("og:description", shows["answer"]),
        _property("article:modified_time", str(document["generated_utc"])),
        f'<meta name="twitter:card" content="{"summary_large_image" if url else "summary"}">',
    ]
    if url:
        tags += [
            _property("og:url", url),
            _property("og:image", url + paths.PICTURE),
            _property("og:image:type", "image/png"),
            _property("og:image:width", str(WIDTH)),
            _property("og:image:height", str(HEIGHT)),
            _property("og:image:alt", alternative(shows)),
            f'<link rel="canonical" href="{html.escape(url)}">',
            f'<link rel="alternate" type="application/atom+xml" title="Editions" href="{paths.FEED}">',
        ]
    return "\n".join(tags) + "\n"


def _property(name: str, content: str) -> str:
    return f'<meta property="{name}" content="{html.escape(content)}">'


def put(page: Path, tags: str) -> None:
    """Put tags into the head of a finished page. The programs that render would fetch what an address names.

    Raises ValueError if it has no head: a defect of ours.
    """
    before, end, after = page.read_text(encoding="utf-8").partition("</head>")
    if not end:
        raise ValueError(f"{page}: has no head to put tags into")
    page.write_text(before + tags + end + after, encoding="utf-8")
