"""Checks of the PDF."""

from __future__ import annotations

from collections.abc import Iterator

from report.commands.lint.study import Study, check

from contract.files import read_json
from report.render.pandoc import STANDARD

Found = Iterator[tuple[str, str, str]]


@check("pdf-standard", "The PDF conforms to the standard for readers who listen to it.")
def pdf_standard(study: Study) -> Found:
    record = read_json(study.report / "render.json")
    met = record.get("pdf_standard") if isinstance(record, dict) else None
    if met != STANDARD:
        yield "report.pdf", f"does not conform to PDF/{STANDARD.upper()}", "`report render` says why"
