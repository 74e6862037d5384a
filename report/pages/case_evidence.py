"""Links from the cases on a claim's page to their evidence: results, records and reference figures, each by its id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from report.dataset.judged import claim_cells
from report.formatting import first_items
from report.pages.evidence_ids import KINDS, EvidenceIds, Piece, count_text
from report.pages.markdown import Markdown, escape, escape_html, raw_html
from report.pages.verdict_words import NOTHING
from report.publish.study_metadata import read_study

# Maximum number of pieces of evidence to name in a table; more are counted, and named in a list below the table.
_MOST_NAMES = 1
# Fewest pieces in a part that several lists have in common and that stands once.
_LONG = 10
# Maximum number of pieces to list one by one; more are counted by the page that lists them.
_MOST_LISTED = 300
# Maximum number of cases to name above a list of evidence.
_MOST_CELLS = 3


@dataclass(frozen=True)
class Cell:
    """A case of a claim by its id, with its evidence."""

    id: str
    evidence: tuple[Piece, ...]

    @property
    def anchor(self) -> Markdown:
        """Anchor of the case on its claim's page."""
        return Markdown(f"cell-{self.id.partition('/')[2].replace('.', '-')}")


def list_cells(verdict: Mapping[str, Any], results: Sequence[str] | None) -> list[Cell]:
    """Return a cell for each case of a claim, in order. results: the result id of each summary row, None if unknown."""
    cells = []
    for row, pieces in claim_cells(verdict, results):
        evidence = tuple((piece["kind"], piece["evidence_id"]) for piece in pieces if piece["kind"] in KINDS)
        cells.append(Cell(row["cell_id"], evidence))
    return cells


def representative_cell(verdict: Mapping[str, Any], cells: Sequence[Cell]) -> Cell | None:
    """Return the case whose number stands for the claim; None if there is none."""
    quantities = {part["name"]: part["quantity"] for part in verdict["parts"]}
    ends = ("estimate", "low", "high")
    for case, cell in zip(verdict["cases"], cells, strict=True):
        same = all(case[name] == verdict[name] for name in ends) and quantities[case["part"]] == verdict["quantity"]
        if same and verdict["estimate"] is not None:
            return cell
    return None


def citation(document: Mapping[str, Any], *ids: str) -> str:
    """Return the text that cites a number: the study's title, version and date, and the number's ids."""
    edition = (f"version {document['study_version']}", str(document["generated_utc"])[:10])
    return ", ".join([read_study().title, *edition, *ids])


@dataclass
class EvidenceLists:
    """Lists of evidence below the tables of a claim's page. Cases with equal evidence share a list."""

    ids: EvidenceIds
    cells: dict[tuple[Piece, ...], list[Cell]] = field(default_factory=dict)

    def link(self, cell: Cell) -> Markdown:
        """Return a link to a case's evidence, or to the list of it if there is more than a table can name."""
        evidence = cell.evidence
        if not evidence:
            return escape(NOTHING)
        if len(evidence) > _MOST_NAMES:
            self.cells.setdefault(evidence, []).append(cell)
            return Markdown(f"[{escape(count_text(evidence))}](#{self._anchor(evidence)})")
        return Markdown(" ".join(map(self._named_link, evidence)))

    def _anchor(self, evidence: tuple[Piece, ...]) -> str:
        return f"evidence-{list(self.cells).index(evidence) + 1}"

    def _named_link(self, piece: Piece) -> Markdown:
        address, name = self.ids.address(piece), escape(piece[1])
        return Markdown(f"[{name}](../{address}){{.code}}" if address else f"[{name}]{{.code}}")

    def html(self) -> Markdown:
        """Return all lists as raw HTML; '' if there are none. Long parts that lists have in common stand once."""
        common = self._common_parts()
        lists = []
        for place, (evidence, cells) in enumerate(self.cells.items()):
            names = [f'<a href="#{cell.anchor}">{escape_html(cell.id)}</a>' for cell in cells]
            head = f"{count_text(evidence)} behind {first_items(names, _MOST_CELLS)}:"
            shared = {number: part for number, (places, part) in enumerate(common, 1) if place in places}
            elsewhere = {piece for part in shared.values() for piece in part}
            items = self._items([piece for piece in evidence if piece not in elsewhere])
            items += [
                f'<a href="#evidence-in-common-{number}">{count_text(part)} in common</a>'
                for number, part in shared.items()
            ]
            lists.append(_html_list(self._anchor(evidence), head, items))
        for number, (_, part) in enumerate(common, 1):
            head = f"{count_text(part)} in common:"
            lists.append(_html_list(f"evidence-in-common-{number}", head, self._items(part)))
        return raw_html("\n".join(lists)) if lists else Markdown("")

    def _common_parts(self) -> list[tuple[tuple[int, ...], tuple[Piece, ...]]]:
        """Return the long parts that several lists have in common, each with the places of these lists."""
        places: dict[Piece, tuple[int, ...]] = {}
        for place, evidence in enumerate(self.cells):
            for piece in evidence:
                places[piece] = (*places.get(piece, ()), place)
        parts: dict[tuple[int, ...], list[Piece]] = {}
        for piece, of_lists in places.items():
            parts.setdefault(of_lists, []).append(piece)
        return [(of_lists, tuple(part)) for of_lists, part in parts.items() if len(of_lists) > 1 and len(part) >= _LONG]

    def _items(self, pieces: Sequence[Piece]) -> list[str]:
        """Return a link per piece; for very many, a link per page with their number."""
        if len(pieces) <= _MOST_LISTED:
            return [self._item(piece) for piece in pieces]
        by_page: dict[str, list[Piece]] = {}
        for piece in pieces:
            by_page.setdefault(self.ids.pages.get(piece, ""), []).append(piece)
        return [
            f'<a href="../{escape_html(page)}.html">{count_text(own)}</a>' if page else count_text(own)
            for page, own in by_page.items()
        ]

    def _item(self, piece: Piece) -> str:
        address, name = self.ids.address(piece, ".html"), escape_html(piece[1])
        return f'<a href="../{escape_html(address)}">{name}</a>' if address else name


def _html_list(anchor: str, head: str, items: Iterable[str]) -> str:
    lines = "".join(f"<li>{item}</li>\n" for item in items)
    return f'<p id="{anchor}">{head}</p>\n<ul class="ids">\n{lines}</ul>'
