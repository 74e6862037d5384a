"""The command what-if: reads what was asked and what there is, judges again, and says which verdicts move."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json, write_json
from report.commands.what_if import check_swaps, lines, what_if
from report.data.gathered import read_dataset
from report.data.reference import REFERENCE, read_reference
from report.judging.claims import read_claims
from report.judging.judge import CLAIMS
from report.judging.overrides import changes
from report.judging.provenance import fresh


def ask(given: Namespace) -> dict[str, Any]:
    """Answer one question of the command line; prints the answer, writes it all to `given.json` if that is asked for.

    Raises StudyError for what is not known, is not of its kind, or asks for nothing.
    """
    swaps = check_swaps({"baseline": given.baseline, "dtype": given.dtype})
    if not (given.set or given.price or given.prices or swaps):
        raise StudyError("what-if: nothing is asked: give --set, --price, --prices, --baseline or --dtype")
    reference, folder = read_reference(given.reference or REFERENCE), given.claims or CLAIMS
    claims = read_claims(folder, reference)
    changed = changes(claims, reference, given.set, given.price, given.prices, swaps)
    if not (given.data / "nodes.json").is_file():
        raise StudyError(
            f"{given.data}: no gathered data. Run the study, or: python -m report gather --out {given.data}"
        )
    data = read_dataset(given.data, reference)
    # A threshold or a swap touches its own claims; which ones a price touches, only all of them tell.
    whole = bool(given.json or changed.entries)
    published = _published(given.verdicts, given.data, folder, given.reference or REFERENCE) if whole else None
    document = what_if(data, claims, changed, published, every=bool(given.json))
    if given.json:
        write_json(given.json, document)
    print("\n".join(lines(document)).strip())
    return document


def _published(path: Path, data: Path, claims: Path, reference: Path) -> dict[str, Any] | None:
    """The verdicts, if they were made from just these data, claims and code."""
    document: dict[str, Any] | None = read_json(path) if path.is_file() else None
    if fresh(document, data, claims, reference):
        return document
    print(f"{path}: not there, or made from other data, claims or code: judged anew", file=sys.stderr)
    return None
