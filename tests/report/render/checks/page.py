"""Checks of the page: every cell stands on it with its source, and no ratio stands alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from report.commands.lint.study import Study, check

from report.model import JUDGED
from report.render.cells import shown as listed
from report.render.counted import counted
from report.render.page import sources
from report.render.words import with_interval

Found = Iterator[tuple[str, str, str]]
_RENDER = "Render again"
_NUMBER = r"\d[\d,]*(?:\.\d+)?(?: (?:million|billion|trillion))?"
# A multiple, in a sentence or with its sign; what may follow its number: interval, or that there is none.
_RATIO = re.compile(rf"(?:×({_NUMBER})|(?<![\w.,])({_NUMBER}))((?: \[[^\]]*\]| \(no interval\))?)((?(1)| times\b))")
# The base case follows, in the sentence or, in a table, in its head or caption.
_BASE = re.compile(r"\b(?:as|than|that|the|what|of|over|against|base|times (?:“|\w+))")
_ABSOLUTE = re.compile(
    rf"{_NUMBER}(?: \[[^\]]*\])? ?(?:[pnµmkMGTPE]?(?:s|FLOP/s|B/s|B|J|W|Hz)|\w+/s|cycles|/s|[KMGT]iB)\b"
)
_ELEMENTS = re.compile(r"<(table|figure|div|form)\b(?:[^>]*?\sclass=\"([\w-]+))?")
_SPAN = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\{\.n ([^}]*)\}")


def _measurements(study: Study) -> Iterator[tuple[str, str]]:
    """Each section of what was measured: its name and its text."""
    _, _, rest = study.source.partition("\n## What was measured")
    for section in re.split(r"\n### ", rest.partition("\n## ")[0])[1:]:
        title, _, text = section.partition("\n")
        yield title.partition(" {#")[0], text


def _spoken(text: str) -> Iterator[tuple[str, str]]:
    """Sentences and rows of tables, each with where its base case may be: itself, or its table's head and caption."""
    lines = text.splitlines()
    for place, line in enumerate(lines):
        if line.startswith("|"):
            first = next(i for i in range(place, -1, -1) if i == 0 or not lines[i - 1].startswith("|"))
            caption = next((one for one in lines[place:] if one.startswith(": ")), "")
            yield line, f"{lines[first]} {caption}"
        elif line and not line.startswith(("![", ": ", ":::")):
            yield line, line


@check("ratio-interval", "No multiple is told of what was measured without its interval and its base case.")
def ratio_interval(study: Study) -> Found:
    for title, text in _measurements(study):
        for line, about in _spoken(text):
            for found in _RATIO.finditer(line):
                if not (found[1] or found[4]):
                    continue
                told = line[max(0, found.start() - 30) : found.end() + 20].strip()
                if not found[3]:
                    yield f"section {title!r}", f"the ratio in {told!r} has no interval", "Tell it with marks.multiple"
                elif not _BASE.search(about if line.startswith("|") else line[found.end() - 6 :]):
                    yield f"section {title!r}", f"the ratio in {told!r} does not say of what", "Name its base case"


@check("ratio-absolute", "Where multiples are told, absolute values stand beside them.")
def ratio_absolute(study: Study) -> Found:
    for title, text in _measurements(study):
        ratios = [found for found in _RATIO.finditer(text) if found[1] or found[4]]
        if ratios and not _ABSOLUTE.search(text):
            yield f"section {title!r}", "tells ratios and no rate, time or energy", "Tell what either side did"
    spans = _told(study)
    for verdict in study.document["verdicts"]:
        for part in verdict["parts"]:
            if part["outcome"] not in JUDGED or part["unit"] != "1":
                continue
            for cell in verdict["cells"]:
                if cell["part"] == part["name"] and cell["n_rounds"] and not cell["behind"]:
                    yield (
                        f"claim {verdict['id']}",
                        "a ratio whose two sides cannot be looked up",
                        "Let it carry `behind`",
                    )
    if not spans:
        yield "the page", "no number has its source beside it", _RENDER


@check("page-cells", "Every cell of a verdict stands on the page as it is, with its rows or entries beside it.")
def page_cells(study: Study) -> Found:
    told = _told(study)
    html = Counter(re.findall(r'<span class="n"([^>]*)>', study.page))
    for where, verdict, part, cells in study.parts():
        if verdict["verdict"].startswith("awaiting"):
            continue
        shown = [one for one in listed(verdict) if one in cells]
        for cell in shown:
            text, by = with_interval(cell, part["unit"]), sources(cell, part)
            if text and ((text, by) not in told if by else text not in study.source):
                yield f"{where}, {cell['label']}", f"{text} does not stand on the page with its source ({by})", _RENDER
            if text and by and f" {by}" not in html:
                yield f"{where}, {cell['label']}", f"index.html does not hold its source ({by})", _RENDER
            if text and not by and cell["node"]:
                yield f"{where}, {cell['label']}", "has neither rows nor entries", "Let the quantity carry `behind`"


@check("page-whole", "The page holds every table with its class, every figure, its own scripts, and no markup as text.")
def page_whole(study: Study) -> Found:
    page = re.sub(r"<(script|style)\b.*?</\1>", "", study.page, flags=re.DOTALL)
    for text in dict.fromkeys(re.findall(r"\{[.#][a-z][^{}<>]*\}(?=\s*</)|\?@[\w-]+", page)):
        yield "index.html", f"{text!r} stands in it as text", _RENDER
    tables = re.findall(r"^: .*\{\.([\w-]+) [^{}]*\}$", study.markdown, flags=re.MULTILINE)
    images = re.findall(r"^!\[.*\]\(figures/.*\)\{([^{}]*)\}$", study.markdown, flags=re.MULTILINE)
    wide = sum(".central" in about.split() for about in images)
    wanted = Counter({f"table.{name}": count for name, count in Counter(tables).items()})
    wanted += Counter({"figure": len(images), "div.table-frame": len(tables) + wide, "form.filter": 1 if tables else 0})
    there = Counter(tag + (f".{name}" if name else "") for tag, name in _ELEMENTS.findall(page))
    for name, count in (wanted - there).items():
        yield "index.html", f"{wanted[name] - count} of {wanted[name]} {name} of its source are in it", _RENDER
    scripts = re.findall(r"script-src ([^;\"]*)", study.page)
    if not scripts or scripts[0].count("'sha256-") < 2:
        yield "index.html", "its scripts may not run, so the table cannot be filtered", _RENDER


def _told(study: Study) -> set[tuple[str, str]]:
    """Numbers on the page with their sources."""
    return {(text, by) for text, by in _SPAN.findall(study.source)}


@check("page-number", "A claim is told with one number wherever it stands: in the opening, the table and its card.")
def page_number(study: Study) -> Found:
    for verdict in study.document["verdicts"]:
        name, text = verdict["id"], with_interval(verdict, verdict["unit"] or "1")
        if not text:
            continue
        # An interval in the opening is set small.
        opening = re.sub(r" \[(\[[^\[\]]*\])\]\{\.ci\}", r" \1", study.source.partition("\n## All ")[0])
        for where, place in (
            ("the opening", re.search(rf"^\[{name}\]\(.*\n\n(Found: .*)", opening, flags=re.MULTILINE)),
            ("the table", re.search(rf"^\| \[{name}\]\(#{name}\) \|(.*)", study.source, flags=re.MULTILINE)),
            ("its card", re.search(rf"^#### \[{name}\](?:.*\n(?!#))*?Number\n: +(.*)", study.source, flags=re.M)),
        ):
            if place is None and where == "the table":
                yield f"claim {name}", f"has no number in {where}", _RENDER
            elif place is not None and not re.search(rf"(?<![\w.,]){re.escape(text)}(?![\w,])", place[1]):
                yield f"claim {name}", f"{where} does not tell {text}, which decides it", _RENDER


# A name that lost its capital is known by the name itself, which stands elsewhere on the page (cUDA and CUDA, not kB).
_LOST_CAPITAL = re.compile(r"(?<![\w/.-])[a-z][A-Z]{2,}\w*")
_SINGULAR = re.compile(
    r"(?<![\d.,×])\b1 (?:cell|core|cycle|day|hour|node|point|request|round|sample|server|thread|token)s\b"
)
_TWICE = re.compile(r"\b([a-z]{2,}) \(\1\)")


@check("page-words", "Names keep their capitals, units stand once, and of one thing in the singular.")
def page_words(study: Study) -> Found:
    text = study.source
    for found in _LOST_CAPITAL.finditer(text):
        if re.search(rf"\b{found[0][0].upper()}{found[0][1:]}\b", text):
            yield f"“{found[0]}”", "a name has lost its capital", "Put it within a sentence with wording.within"
    for pattern, what in ((_SINGULAR, "one of several"), (_TWICE, "a unit twice")):
        for found in pattern.finditer(text):
            yield f"“{found[0]}”", what, "Tell numbers with report.formatting, and axes with figures.name_axis"


@check("page-version", "Every claim's card says the version of its rule.")
def page_version(study: Study) -> Found:
    for verdict in study.document["verdicts"]:
        card = re.search(rf"^#### \[{verdict['id']}\].*?(?=^##|\Z)", study.source, flags=re.MULTILINE | re.DOTALL)
        if card is None:
            yield f"claim {verdict['id']}", "has no card on the page", _RENDER
        elif f"rule version {verdict['version']}]" not in card[0]:
            yield f"claim {verdict['id']}", f"its card does not say version {verdict['version']} of its rule", _RENDER


@check("page-counts", "What was measured is told with the number of rounds and samples behind it.")
def page_counts(study: Study) -> Found:
    if not any(True for _ in _measurements(study)):
        return
    for text in counted(study.data, study.document["nodes"]):
        if text not in study.source:
            yield "section 'What was measured'", f"does not say {text!r}", _RENDER
