"""What must hold of a published report: its page, its figures, its source, and the program that writes them.

Each check gives a line for every fault that it finds. `tests.report.render.test_checks` asks them of the published
nodes' report, and shows each of them something spoilt.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from contract.files import read_json
from report import PACKAGE
from report.model import Verdict
from report.render import strokes
from report.render.cells import shown
from report.render.page import sources
from report.render.words import with_interval

Found = Iterator[str]


@dataclass
class Published:
    """A report: its verdicts, its page's source, its page and its figures by name; and the program that wrote it."""

    document: dict[str, Any]
    markdown: str
    page: str
    figures: dict[str, str]
    package: Path = PACKAGE

    @classmethod
    def of(cls, verdicts: Path, folder: Path) -> Published:
        """As it lies in a folder."""
        markdown, page = ((folder / name).read_text(encoding="utf-8") for name in ("index.qmd", "index.html"))
        names = dict.fromkeys(re.findall(r"\]\(figures/([\w-]+)\.svg\)", markdown))
        figures = {name: (folder / "figures" / f"{name}.svg").read_text(encoding="utf-8") for name in names}
        return cls(read_json(verdicts), markdown, page, figures)

    @cached_property
    def source(self) -> str:
        """The markdown, signs that it would take for markup freed of their backslashes."""
        return re.sub(r"\\([^\w\s])", r"\1", self.markdown)

    @cached_property
    def lines(self) -> list[tuple[int, str]]:
        """The lines of markdown outside fences and front matter, by their number, without what is escaped."""
        text = re.sub(r"\A---\n.*?\n---\n|^(```+).*?^\1", _blank, self.markdown, flags=re.DOTALL | re.MULTILINE)
        return [(number, re.sub(r"\]\(<[^<>]*>\)|\\.", "]()", line)) for number, line in enumerate(text.split("\n"), 1)]

    def parts(self) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]]:
        """Each part that was judged: its verdict, itself, its cells."""
        for verdict in self.document["verdicts"]:
            for part in verdict["parts"]:
                if Verdict(part["outcome"]).judged:
                    yield verdict, part, [one for one in verdict["cells"] if one["part"] == part["name"]]


Check = Callable[[Published], Found]
CHECKS: list[Check] = []


def check(find: Check) -> Check:
    CHECKS.append(find)
    return find


def _blank(found: re.Match[str]) -> str:
    """As many lines without anything in them."""
    return re.sub(r"[^\n]", "", found[0])


# ------------------------------------------------------------------ numbers on the page

_NUMBER = r"\d[\d,]*(?:\.\d+)?(?: (?:million|billion|trillion))?"
# A multiple, in a sentence or with its sign; what may follow its number: an interval, or that there is none.
_RATIO = re.compile(rf"(?:×({_NUMBER})|(?<![\w.,])({_NUMBER}))((?: \[[^\]]*\]| \(no interval\))?)((?(1)| times\b))")
# The base case follows, in the sentence or, in a table, in its head or caption.
_BASE = re.compile(r"\b(?:as|than|that|the|what|of|over|against|base|times (?:“|\w+))")
_ABSOLUTE = re.compile(
    rf"{_NUMBER}(?: \[[^\]]*\])? ?(?:[pnµmkMGTPE]?(?:s|FLOP/s|B/s|B|J|W|Hz)|\w+/s|cycles|/s|[KMGT]iB)\b"
)
_SPAN = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\{\.n ([^}]*)\}")


@check
def multiples_have_their_interval_and_their_base(of: Published) -> Found:
    """In what was measured; and rates, times or energies stand beside them."""
    rest = of.source.partition("\n## What was measured")[2]
    for section in re.split(r"\n### ", rest.partition("\n## ")[0])[1:]:
        title, told = section.partition("\n")[0], False
        for line, about in _spoken(section):
            for found in _RATIO.finditer(line):
                if not (found[1] or found[4]):
                    continue
                told, text = True, line[max(0, found.start() - 30) : found.end() + 20]
                if not found[3]:
                    yield f"{title}: no interval: {text}"
                elif not _BASE.search(about if line.startswith("|") else line[found.end() - 6 :]):
                    yield f"{title}: of what: {text}"
        if told and not _ABSOLUTE.search(section):
            yield f"{title}: multiples alone"


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


@check
def every_cell_is_told_with_what_it_rests_on(of: Published) -> Found:
    told, html = set(_SPAN.findall(of.source)), set(re.findall(r'<span class="n" ([^>]*)>', of.page))
    for verdict, part, cells in of.parts():
        if Verdict(verdict["verdict"]).awaits:
            continue
        for cell in (one for one in shown(verdict) if one in cells):
            text, by = with_interval(cell, part["unit"]), sources(cell, part)
            where = f"{verdict['id']}, {cell['label']}"
            if text and ((text, by) not in told if by else text not in of.source):
                yield f"{where}: {text} does not stand on the page with {by}"
            if text and by and by not in html:
                yield f"{where}: index.html does not hold {by}"
            if text and not by and cell["node"]:
                yield f"{where}: neither rows nor entries"


@check
def a_claim_is_told_with_one_number(of: Published) -> Found:
    """In the opening, the table and its card."""
    # An interval in the opening is set small.
    opening = re.sub(r" \[(\[[^\[\]]*\])\]\{\.ci\}", r" \1", of.source.partition("\n## All ")[0])
    for verdict in of.document["verdicts"]:
        name, text = verdict["id"], with_interval(verdict, verdict["unit"] or "1")
        for where, place in (
            ("the opening", re.search(rf"^\[{name}\]\(.*\n\n(Found: .*)", opening, flags=re.MULTILINE)),
            ("the table", re.search(rf"^\| \[{name}\]\(#{name}\) \|(.*)", of.source, flags=re.MULTILINE)),
            ("its card", re.search(rf"^#### \[{name}\](?:.*\n(?!#))*?Number\n: +(.*)", of.source, flags=re.MULTILINE)),
        ):
            there = place and re.search(rf"(?<![\w.,]){re.escape(text)}(?![\w,])", place[1])
            if text and not there and (place or where == "the table"):
                yield f"{name}: {where} does not tell {text}"


# A name that lost its capital is known by the name itself, which stands elsewhere on the page (cUDA and CUDA, not kB).
_LOST_CAPITAL = re.compile(r"(?<![\w/.-])[a-z][A-Z]{2,}\w*")
_SINGULAR = re.compile(
    r"(?<![\d.,×])\b1 (?:cell|core|cycle|day|hour|node|point|request|round|sample|server|thread|token)s\b"
)
_TWICE = re.compile(r"\b([a-z]{2,}) \(\1\)")


@check
def words_are_as_people_write_them(of: Published) -> Found:
    """Names keep their capitals, units stand once, and of one thing in the singular."""
    for pattern in (_LOST_CAPITAL, _SINGULAR, _TWICE):
        for found in pattern.finditer(of.source):
            whole = found[0][0].upper() + found[0][1:]
            if pattern is not _LOST_CAPITAL or re.search(rf"\b{whole}\b", of.source):
                yield found[0]


# ------------------------------------------------------------------ the source and what a renderer makes of it

_CAPTION = re.compile(r": \S.*\{(?:\.[\w-]+ )+widths=\"([\d ]+)\"\}")
_ELEMENTS = re.compile(r"<(table|figure|form)\b(?:[^>]*?\sclass=\"([\w-]+))?")


@check
def nothing_in_the_source_is_more_than_text(of: Published) -> Found:
    """No citation, mathematics, tag, code cell, evaluated code or shortcode, by either renderer."""
    for number, line in of.lines:
        for found in re.findall(r"[@$<]|\{\{<|`(?:r\s|\{)", line):
            yield f"line {number}: {found}"
    for found in re.findall(r"^\s*```+\s*\{\s*[A-Za-z].*|^\s*```+\s*\{=(?!html|typst).*", of.markdown, re.MULTILINE):
        yield f"a cell of code: {found}"


@check
def every_table_has_its_caption_and_whole_rows(of: Published) -> Found:
    text = "\n".join(line for _, line in of.lines)
    for table in re.finditer(r"((?:^ *\|.*\n)+)\s*(.*)", text, flags=re.MULTILINE):
        columns = [row.count("|") - 1 for row in table[1].splitlines()]
        caption = _CAPTION.fullmatch(table[2].strip())
        if len(set(columns)) > 1:
            yield f"cells {columns}: {table[1][:60]}"
        if caption is None or len(caption[1].split()) != columns[0] or sum(map(int, caption[1].split())) != 100:
            yield f"caption and widths: {table[2]}"


@check
def the_page_holds_what_its_source_does(of: Published) -> Found:
    """Every table with its class, every figure and form, its own scripts, and no markup as text."""
    page = re.sub(r"<(script|style)\b.*?</\1>", "", of.page, flags=re.DOTALL)
    for text in re.findall(r"\{[.#][a-z][^{}<>]*\}(?=\s*</)|\?@[\w-]+", page):
        yield f"{text} stands in it as text"
    tables = re.findall(r"^: .*\{\.([\w-]+) [^{}]*\}$", of.markdown, flags=re.MULTILINE)
    figures = re.findall(r"^!\[.*\]\(figures/", of.markdown, flags=re.MULTILINE)
    wanted = Counter(f"table.{name}" for name in tables) + Counter({"figure": len(figures), "form.filter": 1})
    there = Counter(tag + (f".{name}" if name and tag != "figure" else "") for tag, name in _ELEMENTS.findall(page))
    for name, count in (wanted - there).items():
        yield f"{count} of {wanted[name]} {name} are missing"
    if of.page.partition("script-src ")[2].partition('"')[0].count("'sha256-") < 2:
        yield "its scripts may not run"


# ------------------------------------------------------------------ figures

_SVG = "{http://www.w3.org/2000/svg}"
# What matplotlib names by itself: a line or a collection of lines that nobody declared.
_UNDECLARED = re.compile(r"(line2d|LineCollection|PathCollection|FillBetweenPolyCollection|PolyCollection)_\d+")
_TITLE = re.compile(r".*\(.+\)|.+, log scale|.*\(.+\), log scale")
_BARE_RATIO = re.compile(r"×\d[\d.,]*(?![\d.,]| \[| \(no interval)")


def _texts(group: ElementTree.Element) -> str:
    return "".join(text.text or "" for text in group.iter(f"{_SVG}text"))


def _groups(svg: str) -> list[tuple[str, ElementTree.Element]]:
    return [(group.get("id", ""), group) for group in ElementTree.fromstring(svg).iter(f"{_SVG}g")]


@check
def points_are_joined_along_what_lies_between_them(of: Published) -> Found:
    for name, svg in of.figures.items():
        groups = _groups(svg)
        axes = {part for id_, group in groups if id_.startswith("matplotlib.axis_") for part in group.iter()}
        for id_, group in groups:
            kind, along, _ = strokes.parse(id_) or ("", "", 0)
            if group not in axes and _UNDECLARED.fullmatch(id_):
                yield f"{name}: a stroke of no declared kind: {id_}"
            elif kind == "join" and along not in strokes.INTERPOLABLE:
                yield f"{name}: joined along {along}"


@check
def every_axis_has_a_title_and_a_unit(of: Published) -> Found:
    for name, svg in of.figures.items():
        groups = _groups(svg)
        titles: dict[str, list[str]] = {"x": [], "y": []}
        for id_, group in groups:
            # `name_axis` knows where the words before say the unit already.
            if found := re.fullmatch(r"title\.([xy])\.\d+(\.said)?", id_):
                titles[found[1]].append("" if found[2] else _texts(group))
        for which, number in (("x", 1), ("y", 2)):
            axes = [group for id_, group in groups if id_ == f"matplotlib.axis_{number}"]
            # Panels side by side share the title of the first.
            if any(map(_texts, axes)) and not titles[which]:
                yield f"{name}: no title: {which}"
            yield from (f"{name}: no unit: {text}" for text in titles[which] if text and not _TITLE.fullmatch(text))


@check
def every_mark_has_its_interval_or_the_caption_says_why_not(of: Published) -> Found:
    for name, svg in of.figures.items():
        groups = _groups(svg)
        bare = sum(parsed[2] for id_, _ in groups if (parsed := strokes.parse(id_)))
        captions = re.findall(rf"!\[(.*?)\]\(figures/{re.escape(name)}\.svg\)", of.source)
        if bare and not all("No interval is drawn" in caption for caption in captions):
            yield f"{name}: {bare} marks without an interval"
        if not any(id_.startswith("title.x.") and " over " in _texts(group) for id_, group in groups):
            texts = [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{_SVG}text")]
            yield from (f"{name}: a bare ratio {found[0]}" for found in map(_BARE_RATIO.search, texts) if found)


# ------------------------------------------------------------------ the program

# A number of its own; digits within a name (float64, W15, 2x) are none.
_TYPED = re.compile(r"(?<![\w.,/#§^-])[-−]?\d[\d.,]*(?:%|\b)(?![\w-]*[A-Za-z_])(?!\w)")
# What is typed by definition, not by measurement: each with why it may be.
ALLOWED = {
    r"\b95% intervals \(Wilson\)": "the level of the shares of simulated trials, set where they are counted",
    r"\b99% of (?:single )?requests\b": "the percentile of claims about waiting",
    r"\b99 (?:of|in) 100\b": "the same",
    r"\bLlama (?:2|3\.1)\b": "the name of a model",
    r"\bMLPerf Training 3\.1\b": "the name of an edition",
    r"\bXeon Platinum 8480\+": "the name of a product",
    r"\((?:Smyth |Kaplan et al\. |Rajbhandari et al\. )?\d{4}(?=[),])": "the year of a reference",
    r"\bWelch's \(1947\)|\bBelli \(2015\)": "the year of a reference",
    r"\b(?:Kaplan|Rajbhandari) et al\. 2020\b": "the year of a reference",
    r"(?<=, )section \d\.\d(?=\))": "a place in a reference",
    r"\(1\).* \(0\)|^1 if .*, else 0\.": "the code of yes and no",
    r"\b\d+ x (?=[a-z])": "the factor of a formula, told in words",
    r"/ 24\b": "the hours of a day",
    r"\b2 \+ 2 \+ 12 bytes in mixed precision, 4 each in float32\b": "bytes of the formats named: arithmetic",
    r"\b16 bytes a parameter\b": "weights, gradients and both moments in float32: arithmetic",
    r"\bgroup of 32\b": "the threads of a GPU that run one program in step, by its maker's definition",
    r"\b100 cores\b": "what a claim of the articles speaks of",
    r"\b90 days\b": "the time that claims about feasibility ask for",
    r"\b1,000 x 1,000\b": "the articles' own example",
    r"\b10, 33 and 100 ms\b|^(?:10|33|100) ms$": "the time that an answer has, by declaration",
    r"\bunder (?:0\.1|1)%": "where a share is too small to be told",
    r"^1 \w+$|: 1 thread\b": "one of what is counted, where the number is not printed from data",
    r"\bbase, ×1\)": "the base of a ladder",
    r"− 1\||\bless 1\b|\bbelow 1\b": "what no difference and no gain are",
    r"\bat 0\b|\bfrom 0\b|^0 to ": "where a count begins",
}
_ALLOWED = re.compile("|".join(f"(?:{pattern})" for pattern in ALLOWED))
# About the program and its files, not about results; and calls whose strings are patterns or formulas.
_NO_RESULTS, _NO_PROSE = ("commands", "publish", "cli.py"), ("re.", "Formula")
# What only `strokes` may call: whatever puts a line, a mark or an area on axes.
_DRAWS = {
    "add_artist", "add_collection", "add_line", "add_patch", "axhline", "axhspan", "axline", "axvline", "axvspan",
    "bar", "barh", "errorbar", "fill_between", "fill_betweenx", "hlines", "loglog", "plot", "scatter", "semilogx",
    "semilogy", "stackplot", "stairs", "stem", "step", "vlines",
}  # fmt: skip
# What a macro, a call or a captured block returns is escaped twice.
_CAPTURED = re.compile(r"<%-?\s*(?:macro|call|filter|autoescape)\b|<%-?\s*set\s+\w+\s*-?%>")


@check
def no_number_is_typed_into_prose(of: Published) -> Found:
    """Each comes from data, from a declaration, or is a definition."""
    for path, number, text in told(of.package):
        for found in _TYPED.findall(_ALLOWED.sub(" ", text)):
            yield f"{path.name}, line {number}: {found} in {text.strip()[:60]!r}"


@check
def only_strokes_draws(of: Published) -> Found:
    """It joins points along ordered variables alone."""
    for path in sorted(of.package.rglob("*.py")):
        for node in ast.walk(_tree(path)) if path.name != "strokes.py" else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called, on = node.func.attr, ast.unparse(node.func.value)
                if (called in _DRAWS and on != "strokes") or (called == "savefig" and path.name != "figures.py"):
                    yield f"{path.name}, line {node.lineno}: {on}.{called}"


@check
def no_template_goes_round_the_escaping(of: Published) -> Found:
    for path in sorted((of.package / "templates").rglob("*.qmd")):
        text = path.read_text(encoding="utf-8")
        fenced = re.findall(r"^```.*?^```", text, flags=re.DOTALL | re.MULTILINE)
        for found in [*(block for block in fenced if "<<" in block), *_CAPTURED.findall(text)]:
            yield f"{path.name}: {found}"


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def told(package: Path) -> Iterator[tuple[Path, int, str]]:
    """What modules and templates put into words: file, line, text."""
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] not in _NO_RESULTS:
            yield from ((path, number, text) for number, text in _prose(path))
    for path in sorted((package / "templates").rglob("*.qmd")):
        yield from ((path, number, text) for number, text in _template_prose(path))


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    """Strings of a module that are prose: of two words or more, no docstring, pattern or error."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)
        elif isinstance(node, ast.Raise) or (
            isinstance(node, ast.Call) and ast.unparse(node.func).startswith(_NO_PROSE)
        ):
            skipped |= set(ast.walk(node))
    for node in ast.walk(_tree(path)):
        if node in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            # What stands in braces is data: an X holds its place, as a part of the word around it.
            skipped |= {part for part in node.values if isinstance(part, ast.Constant)}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = re.sub(r"\{\w*\}", "X", node.value)
        else:
            continue
        if " " in text and re.search(r"[A-Za-z]{2,}", text) and not re.search(r"\.\*|\\[bd]", text):
            yield node.lineno, text


def _template_prose(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a template without what it prints, its statements, attributes, addresses, code and front matter."""
    text = path.read_text(encoding="utf-8")
    for pattern in (r"\A---\n.*?\n---\n", r"```.*?```", r"<%.*?%>", r"<<.*?>>", r"\{[^{}]*\}", r"\]\([^()]*\)"):
        text = re.sub(pattern, lambda found: re.sub(r"[^\n]", "X", found[0]), text, flags=re.DOTALL)
    # A list of references is bibliography: volumes, pages and years are names.
    head, mark, rest = text.partition("### References")
    for number, line in enumerate((head + mark + re.sub(r"\d", "x", rest)).splitlines(), 1):
        if not re.match(r"[|:X \-]*\Z", line):
            yield number, line
