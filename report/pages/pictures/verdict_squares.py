"""One square a claim: by article, coloured by verdict and hatched by evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from report.formatting import capitalize
from report.outcomes import BASES, count_bases, verdict_basis
from report.pages import verdict_words
from report.pages.charts import AMBER, BLUE, GRID, INK, MUTED, PAPER, PURPLE, VERMILION, Chart, is_narrow, wrap_text
from report.pages.exhibit_types import Exhibit, Family, Table
from report.pages.figure_data import Evidence
from report.pages.markdown import identifier

# Face colour by the verdict's style, and hatch by the evidence.
_COLOURS = {
    "supported": BLUE, "challenged": VERMILION, "depends": AMBER, "outdated": PURPLE, "undecided": MUTED, "open": PAPER,
    "opinion": GRID,
}  # fmt: skip
_HATCHES = {"derived": "///", "published": "...", "documented": "--"}
# Squares in a row, on a page and on a phone.
_ACROSS = (20, 10)


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show a square for each claim."""
    verdicts = evidence.document["verdicts"]
    tally = verdict_words.format_tally(verdicts)
    title = f"{len(verdicts)} claims of three articles" + (f": {tally}" if tally else "")
    bases, groups = count_bases(verdicts), _group_by_article(verdicts)
    rows = [[article, *(str(sum(_style(verdict) == css for verdict in own)) for css in _COLOURS)]
            for article, own in groups.items()]  # fmt: skip
    yield Exhibit(
        Chart(
            "picture-verdict-squares",
            title,
            _squares_drawing(verdicts),
            "A square a claim, in the article’s order. Colour: the verdict. Hatch: what it rests on, "
            + ", ".join(f"{BASES[name]} {bases[name]}" for name in BASES if bases[name]) + ".",
            "; ".join(f"{name}: {verdict_words.format_tally(own)}" for name, own in groups.items()),
        ),
        [],
        Table(["Article", *(_names()[css] for css in _COLOURS)], rows, "l" + "r" * len(_COLOURS),
              "Claims by article and verdict"),
    )  # fmt: skip


def square_entries(verdicts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the claims as squares for a page, each with its verdict, its evidence and its finding."""
    return [
        {**verdict_words.claim_entry(verdict, "finding"), "basis": identifier(verdict_basis(verdict).replace(" ", "-"))}
        for verdict in verdicts
    ]


def _group_by_article(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for verdict in verdicts:
        groups.setdefault(str(verdict["article_title"]), []).append(verdict)
    return groups


def _style(verdict: Mapping[str, Any]) -> str:
    return verdict_words.verdict_word(str(verdict["verdict"])).css


def _names() -> dict[str, str]:
    """Map a verdict's style to its name."""
    return {word.css: word.name for word in verdict_words.VERDICTS.values()}


def _squares_drawing(verdicts: Sequence[Mapping[str, Any]]) -> Callable[[float], Figure]:
    """Return a drawing with a block per article, and a legend for verdicts and evidence."""
    groups = _group_by_article(verdicts)

    def draw(width: float) -> Figure:
        across = _ACROSS[is_narrow(width)]
        blocks = [-(-len(own) // across) for own in groups.values()]
        head = 1.2 if is_narrow(width) else 0.9
        rows = sum(blocks) + head * len(blocks)
        legend = 1.9 if is_narrow(width) else 0.75
        figure = Figure(figsize=(width, rows * width / across * 0.96 + legend))
        axes = figure.add_subplot()
        top = 0.0
        for (title, own), block in zip(groups.items(), blocks, strict=True):
            text = axes.text(0, top + head - 0.1, wrap_text(title, 40 if is_narrow(width) else 80), va="bottom",
                             weight="bold", color=INK, fontsize=9)  # fmt: skip
            text.set_in_layout(False)
            for number, verdict in enumerate(own):
                _draw_square(axes, number % across, top + head + number // across, verdict)
            top += block + head
        axes.set_xlim(-0.1, across + 0.1)
        axes.set_ylim(rows + 0.05, 0)
        axes.set_aspect("equal")
        axes.set_axis_off()
        shown = {_style(verdict) for verdict in verdicts}
        handles = [
            Patch(facecolor=colour, edgecolor=MUTED, label=_names()[css])
            for css, colour in _COLOURS.items()
            if css in shown
        ]
        bases = {verdict_basis(verdict) for verdict in verdicts}
        handles += [
            Patch(facecolor=PAPER, edgecolor=INK, hatch=_HATCHES.get(name, ""), label=capitalize(words))
            for name, words in BASES.items()
            if name in bases & {"measured", *_HATCHES}
        ]
        figure.legend(handles=handles, loc="outside lower left", ncols=2 if is_narrow(width) else 4)
        return figure

    return draw


def _draw_square(axes: Any, x: float, y: float, verdict: Mapping[str, Any]) -> None:
    style = _style(verdict)
    dark = style in ("open", "opinion")
    axes.add_patch(
        Rectangle((x + 0.05, y + 0.05), 0.9, 0.9, facecolor=_COLOURS[style], linewidth=0.6,
                  edgecolor=MUTED if dark else PAPER, hatch=_HATCHES.get(verdict_basis(verdict), ""))
    )  # fmt: skip
    axes.text(x + 0.5, y + 0.52, str(verdict["id"]), ha="center", va="center", fontsize=6, color=INK if dark else PAPER,
              bbox={"boxstyle": "square,pad=0.1", "facecolor": _COLOURS[style], "edgecolor": "none"})  # fmt: skip


FAMILY = Family(
    "verdict-squares", "All claims in one picture",
    "Which claims hold, and what does each verdict rest on?", show, "pictures",
)  # fmt: skip
