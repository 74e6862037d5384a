"""Checks of the page's source: markdown that pandoc and Quarto read alike, without the traps of either.

They look at index.qmd as it is handed to the renderers, at the settings of the Quarto project beside it, and at the
templates that both are made from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from itertools import takewhile

from report.commands.lint.study import Study, check
from ruamel.yaml import YAML

from contract.errors import StudyError

Found = Iterator[tuple[str, str, str]]
_FENCE = re.compile(r"\s*(`{3,}|~{3,})\s*(.*?)\s*")
_DIV = re.compile(r"\s*:{3,}\s*(.*?)\s*:*")
_RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")
_CAPTION = re.compile(r": \S.*\{(?:\.[\w-]+ )+widths=\"([\d ]+)\"\}")
_IMAGE = re.compile(r'!\[(.*)\]\((figures/[\w.-]+)\)\{[^{}]*?fig-alt="([^"]*)"[^{}]*\}')
# Signs that a renderer takes for more than themselves.
_SIGNS = {"@": "a citation", "$": "mathematics", "<": "a tag"}
# What index.qmd itself may set: its data. All else is the project's, the same for both formats.
_FRONT = {"title", "subtitle", "date"}
# A prefix that makes Quarto number the thing and move it, and a class that it acts upon; pandoc does neither.
_CROSSED = re.compile(
    r"(?:fig|tbl|lst|sec|eq|thm|lem|cor|prp|cnj|def|exm|exr|sol|rem|alg|tip|nte|wrn|imp|cau|dia|vid|app)-"
)
_ACTED = re.compile(
    r"\{[^{}]*(?<=[ {])\.((?:cell|hidden|aside|lightbox)|(?:column|content|layout|panel|quarto)-[\w-]+)(?=[ }])"
)
_ROUND = re.compile(r"<%-?\s*(?:macro|call|filter|autoescape)\b|<%-?\s*set\s+\w+\s*-?%>")
_ESCAPE = "Print it as plain text: report.render.markdown escapes it"
_SETTINGS = "Mend report/templates/_quarto.yml"


@dataclass(frozen=True)
class Fenced:
    """A block between fences. line: where it opens; about: what follows the fence; closed: whether it ends."""

    line: int
    about: str
    text: str
    closed: bool


@dataclass(frozen=True)
class Source:
    """A document taken apart: the front matter, the lines of markdown with their numbers, and what fences hold."""

    front: str
    lines: tuple[tuple[int, str], ...]
    fenced: tuple[Fenced, ...]


@lru_cache(maxsize=4)
def taken_apart(text: str) -> Source:
    """Take markdown apart. A document that begins without front matter has none."""
    lines: list[tuple[int, str]] = []
    fenced: list[Fenced] = []
    rest = iter(enumerate(text.splitlines(), 1))
    front = ""
    if text.startswith("---\n"):
        next(rest)
        front = "\n".join(line for _, line in takewhile(lambda one: one[1].rstrip() not in ("---", "..."), rest))
    for number, line in rest:
        opened = _FENCE.fullmatch(line)
        if opened is None:
            lines.append((number, line))
            continue
        fence, inside, closed = opened[1], [], False
        for _, within in rest:
            end = within.strip()
            closed = len(end) >= len(fence) and not end.strip(fence[0])
            if closed:
                break
            inside.append(within)
        fenced.append(Fenced(number, opened[2], "\n".join(inside), closed))
    return Source(front, tuple(lines), tuple(fenced))


def bare(line: str) -> str:
    """A line without what is escaped, and without the addresses of its links."""
    return re.sub(r"\]\(<[^<>]*>\)", "]()", re.sub(r"\\.", "", line))


def _at(number: int) -> str:
    return f"index.qmd, line {number}"


def _cut(line: str) -> str:
    line = line.strip()
    return repr(line if len(line) <= 60 else f"{line[:57]}...")


@check("markdown-signs", "Signs that either renderer would take for a citation, mathematics or a tag are escaped.")
def markdown_signs(study: Study) -> Found:
    for number, line in taken_apart(study.markdown).lines:
        for sign, what in _SIGNS.items():
            if sign in bare(line):
                yield _at(number), f"a bare {sign}, which begins {what}, in {_cut(line)}", _ESCAPE


@check("markdown-code", "Nothing is executed or included: no code cell, no evaluated code in a line, no shortcode.")
def markdown_code(study: Study) -> Found:
    source = taken_apart(study.markdown)
    for block in source.fenced:
        if re.match(r"\{\s*[A-Za-z]", block.about):
            yield _at(block.line), f"the code cell {block.about}", "Name a language without braces: ```bash"
        if "{{<" in block.text:
            yield _at(block.line), "a shortcode within a block, which Quarto would put in place", _ESCAPE
    for number, line in source.lines:
        if "{{<" in bare(line):
            yield _at(number), f"a shortcode in {_cut(line)}", _ESCAPE
        if re.search(r"`(?:r\s|\{[A-Za-z]+\}\s)", bare(line)):
            yield _at(number), f"code that Quarto evaluates in {_cut(line)}", "Use the template's filter `code`"


@check("markdown-raw", "Raw blocks are HTML or typst and hold no data; no template goes round the escaping.")
def markdown_raw(study: Study) -> Found:
    source = taken_apart(study.markdown)
    for block in source.fenced:
        if block.about.startswith("{=") and block.about not in ("{=html}", "{=typst}"):
            yield _at(block.line), f"a raw block of {block.about}", "One of html or typst"
    for number, line in source.lines:
        if re.search(r"`\{=", bare(line)):
            yield _at(number), f"raw text within {_cut(line)}", "Give it a class, and the class a style"
    for path in sorted((study.package / "templates").rglob("*.qmd")):
        text, where = path.read_text(encoding="utf-8"), str(path.relative_to(study.package.parent))
        for block in taken_apart(text).fenced:
            if "<<" in block.text:
                yield (
                    f"{where}, line {block.line}",
                    "data within a fence, where markdown's escaping does not hold",
                    ("Print it outside"),
                )
        for number, line in enumerate(text.splitlines(), 1):
            if _ROUND.search(line):
                yield (
                    f"{where}, line {number}",
                    "what a macro, a call or a captured block returns is escaped twice",
                    ("Include a part"),
                )


@check("markdown-fences", "Every fence that opens is closed, and a heading stands apart from what is above it.")
def markdown_fences(study: Study) -> Found:
    source = taken_apart(study.markdown)
    for block in source.fenced:
        if not block.closed:
            yield _at(block.line), "a block of code that is never closed", "Close it"
    open_at: list[int] = []
    above = (0, "")
    for number, line in source.lines:
        if re.match(r"#{1,6} ", line) and above[0] == number - 1 and above[1].strip():
            yield _at(number), f"a heading without an empty line above it: {_cut(line)}", "End the part before with one"
        above = (number, line)
        fence = _DIV.fullmatch(line)
        if fence and fence[1]:
            open_at.append(number)
        elif fence and open_at:
            open_at.pop()
        elif fence:
            yield _at(number), "a fence that closes nothing", "Take it out"
    for number in open_at:
        yield _at(number), "a fenced part that is never closed", "Close it"


@check("markdown-tables", "Every table has a caption, a width for each column, and rows of as many cells as its head.")
def markdown_tables(study: Study) -> Found:
    for number, rows, after in _tables(taken_apart(study.markdown)):
        columns = [bare(row).count("|") - 1 for row in rows]
        if len(rows) < 2 or not _RULE.fullmatch(rows[1]):
            yield _at(number), "a table without a rule below its head", "Write a row of dashes"
            continue
        for place, count in enumerate(columns):
            if count != columns[0]:
                told = f"{count} cells in a row of a table of {columns[0]} columns"
                yield _at(number + place), told, _ESCAPE
        if any(cell.strip().strip(":").count("-") < 3 for cell in rows[1].strip("|").split("|")):
            yield _at(number + 1), "a rule of less than three dashes", "Write three at least"
        caption = _CAPTION.fullmatch(after)
        if caption is None:
            told = 'End it with ": What it shows {.class widths="…"}"'
            yield _at(number), "a table without caption, class and widths", told
            continue
        widths = [int(width) for width in caption[1].split()]
        if len(widths) != columns[0]:
            yield _at(number), f"{len(widths)} widths for {columns[0]} columns", "Give each column one"
        elif sum(widths) != 100:
            yield _at(number), f"widths that make {sum(widths)}", "Let them make 100"


def _tables(source: Source) -> Iterator[tuple[int, list[str], str]]:
    """Each table: its first line's number, its rows, and the next line that is not empty."""
    lines = [*source.lines, (0, "")]
    place = 0
    while place < len(lines):
        number, rows = lines[place][0], []
        while lines[place][1].lstrip().startswith("|"):
            rows.append(lines[place][1].strip())
            place += 1
        if rows:
            yield number, rows, next((line.strip() for _, line in lines[place:] if line.strip()), "")
        place += 1


@check("markdown-anchors", "Ids are unique, links within the page lead to one, and none means more to Quarto.")
def markdown_anchors(study: Study) -> Found:
    source = taken_apart(study.markdown)
    ids: dict[str, int] = {}
    named = [(number, name) for number, line in source.lines for name in re.findall(r"\{#([^\s{}]+)", bare(line))]
    for block in source.fenced:
        if block.about == "{=html}":
            named += [(block.line, name) for name in re.findall(r'\bid="([^"]+)"', block.text)]
    for number, name in named:
        if name in ids:
            yield _at(number), f"the id {name!r}, which stands in line {ids[name]} already", "Give it another"
        if _CROSSED.match(name):
            yield _at(number), f"the id {name!r}, by which Quarto numbers what it names", "Begin it otherwise"
        ids.setdefault(name, number)
    for number, line in source.lines:
        for name in re.findall(r"\]\(#([^()\s]+)\)", bare(line)):
            if name not in ids:
                yield _at(number), f"a link to {name!r}, which is nowhere", "Give the place this id, or link elsewhere"
        acted = _ACTED.search(bare(line))
        if acted:
            yield _at(number), f"the class {acted[1]!r}, upon which Quarto acts", "Name it otherwise"


@check("markdown-images", "Every figure has a caption, words that stand for it, and its file.")
def markdown_images(study: Study) -> Found:
    for number, line in taken_apart(study.markdown).lines:
        if "![" not in bare(line):
            continue
        image = _IMAGE.fullmatch(bare(line).strip())
        if image is None or not image[1].strip() or not image[3].strip():
            yield (
                _at(number),
                f"an image without caption or alternative text: {_cut(line)}",
                ('Write ![caption](figures/name.svg){fig-alt="…"} on a line of its own'),
            )
        elif not (study.report / image[2]).is_file():
            yield _at(number), f"{image[2]} is not there", "Render again"


@check("quarto-settings", "The Quarto project has the settings without which its output was found to differ or fail.")
def quarto_settings(study: Study) -> Found:
    front = YAML(typ="safe").load(StringIO(taken_apart(study.markdown).front)) or {}
    for key in sorted(set(front) - _FRONT):
        yield "index.qmd, front matter", f"sets {key!r}, which is the project's", _SETTINGS
    try:
        settings = study.settings
    except StudyError as broken:
        yield "_quarto.yml", str(broken), _SETTINGS
        return
    page, pdf = settings["format"]["html"], settings["format"]["typst"]
    names = [*settings["filters"], page["template"], page["css"], page["include-after-body"], *pdf["template-partials"]]
    for name in (*names, pdf["include-in-header"]):
        if not (study.report / name).is_file():
            yield "_quarto.yml", f"{name} is not there", "Render again"
    header = study.report / pdf["include-in-header"]
    if header.is_file() and "#show figure: set block(breakable: true)" not in header.read_text(encoding="utf-8"):
        # Quarto's template sets a table as a figure, and a figure that may not break overprints what follows.
        yield header.name, "tables do not break across pages", "Let figures be breakable"
    if re.search(r"(?<!\\)@sec-", study.markdown) and not settings.get("number-sections"):
        yield "index.qmd", "refers to a section by a number that it does not have", "Set number-sections"
