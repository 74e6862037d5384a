"""Read study metadata from CITATION.cff: title, version, licence, authors and keywords."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from contract.errors import StudyError
from contract.files import read_yaml
from report import ROOT

CITATION = ROOT / "CITATION.cff"
NAME = "does-ai-need-a-gpu"


@dataclass(frozen=True)
class Study:
    """Citation metadata. authors: the first author entry's name. licence: SPDX identifier."""

    title: str
    version: str
    licence: str
    authors: str
    keywords: tuple[str, ...]


def read_study(citation: Path = CITATION) -> Study:
    """Read the citation file. Raises StudyError if it is missing or incomplete."""
    citation_data = read_yaml(citation)
    try:
        return Study(
            citation_data["title"],
            citation_data["version"],
            citation_data["license"],
            citation_data["authors"][0]["name"],
            tuple(citation_data["keywords"]),
        )
    except (KeyError, IndexError, TypeError) as lacking:
        raise StudyError(f"{citation}: field missing: {lacking}: see citation-file-format.github.io") from None
