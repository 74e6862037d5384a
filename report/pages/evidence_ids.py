"""Ids of evidence: the page and anchor of each result, record and reference figure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from report.formatting import format_count, join_words

# Evidence as kind (result, record or reference) and id.
Piece = tuple[str, str]
KINDS = {"result": "result", "record": "record", "reference": "figure"}
FOLDER, INDEX, REFERENCE_PAGE = "evidence", "evidence/index", "evidence/reference"
# Maximum number of results to list; of more, the pages list only those of the machines that other pages show.
MOST_RESULTS = 100_000
# Experiments with a page: the other names are those of other pages, or no file names.
_EXPERIMENT = re.compile(r"(?!(?:index|reference|records-.*)$)[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True)
class EvidenceIds:
    """The id of each result, by its row number, and the page of each piece of evidence.

    results: None if they are not known, because the pages are made without data.
    """

    results: Sequence[str] | None = None
    pages: Mapping[Piece, str] = field(default_factory=dict)

    def address(self, piece: Piece, suffix: str = ".qmd") -> str:
        """Return the address of a piece of evidence, from the site's root; '' if no page lists it."""
        page = self.pages.get(piece)
        return f"{page}{suffix}#{quote(piece[1], safe='/:+')}" if page else ""


def experiment_page(experiment: str) -> str:
    """Return the path of the page with an experiment's results; '' if the name is no file name."""
    return f"{FOLDER}/{experiment}" if _EXPERIMENT.fullmatch(experiment) else ""


def source_page(source: str) -> str:
    """Return the path of the page with a source's records."""
    return f"{FOLDER}/records-{source.replace('.', '-')}"


def listed_nodes(results: Sequence[str], shown: Collection[str]) -> Collection[str]:
    """Return the nodes whose results have a place on a page: all, or if the results are too many, the shown nodes."""
    return shown if len(results) > MOST_RESULTS else {name.partition("/")[0] for name in results}


def result_pages(results: Sequence[str], nodes: Collection[str]) -> dict[Piece, str]:
    """Return the page of each result of these nodes."""
    pages = {}
    for name in results:
        node, _, rest = name.partition("/")
        page = experiment_page(rest.partition("/")[0].rpartition(".")[0])
        if page and node in nodes:
            pages["result", name] = page
    return pages


def count_text(pieces: Sequence[Piece]) -> str:
    """Count pieces of evidence by kind: '2 results and 1 figure'."""
    counts = Counter(kind for kind, _ in pieces)
    return join_words([format_count(counts[kind], noun) for kind, noun in KINDS.items() if counts[kind]])
