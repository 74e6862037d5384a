"""The command what-if: reads what was asked and what there is, judges again, and says which verdicts move."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json, write_json
from report.commands.what_if import check_swaps, lines, one_line, what_if
from report.data.dataset import Dataset
from report.data.gathered import read_dataset
from report.data.reference import REFERENCE, read_reference
from report.formatting import count, several
from report.judging.claims import Claim, read_claims
from report.judging.judge import CLAIMS
from report.judging.overrides import changes
from report.judging.provenance import fresh
from report.predicted import TIER
from report.predicted.chips import chips, find, measured
from report.predicted.evidence import foretell
from report.predicted.overview import record, told_error
from report.predicted.roofline import reached
from report.predicted.verdicts import NOT_FORETOLD, about_gpus, predicted_verdict, told, value


def ask(given: Namespace) -> dict[str, Any]:
    """Answer one question of the command line; prints the answer, writes it all to `given.json` if that is asked for.

    Raises StudyError for what is not known, is not of its kind, or asks for nothing.
    """
    swaps = check_swaps({"baseline": given.baseline, "dtype": given.dtype})
    if not (given.set or given.price or given.prices or swaps or given.gpu):
        raise StudyError("what-if: nothing is asked: give --set, --price, --prices, --baseline, --dtype or --gpu")
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
    if given.gpu:
        document["predicted"] = predictions(given.gpu, data, changed.claims)
    if given.json:
        write_json(given.json, document)
    print("\n".join([*lines(document), *predicted_lines(document.get("predicted"))]).strip())
    return document


def _published(path: Path, data: Path, claims: Path, reference: Path) -> dict[str, Any] | None:
    """The verdicts, if they were made from just these data, claims and code."""
    document: dict[str, Any] | None = read_json(path) if path.is_file() else None
    if fresh(document, data, claims, reference):
        return document
    print(f"{path}: not there, or made from other data, claims or code: judged anew", file=sys.stderr)
    return None


def predictions(name: str, data: Dataset, claims: Sequence[Claim]) -> dict[str, Any]:
    """The claims about GPUs by what one GPU is foretold to do. Raises StudyError if it is unknown, or was measured."""
    known = chips(data.reference)
    chip = find(name, known)
    have = [node for (node, _), one in measured(data, known).items() if one.id == chip.id]
    if have:
        labels = several([data.label(node) for node in dict.fromkeys(have)])
        raise StudyError(f"--gpu {name!r}: {chip.name} was measured on {labels}: what it does need not be foretold")
    shares = reached(data, known)
    by = foretell(data, chip, shares)
    return {
        "tier": TIER,
        "gpu": record(data, chip, shares),
        "scaled_from": shares.chips,
        "error": told_error(shares.factors),
        "verdicts": {claim.id: predicted_verdict(claim, by) for claim in claims if about_gpus(claim)},
    }


def _rates(gpu: dict[str, Any]) -> list[tuple[str, str]]:
    """What is foretold of each model, at the batch and format of its highest rate."""
    found = []
    for what, cells, unit in (
        ("training", gpu["training"], "samples/s"),
        ("text by the token", gpu["decode"], "tokens/s"),
    ):
        best = {str(cell["model"]): cell for cell in sorted(cells, key=value)}
        texts = [f"{name} {told(cell, unit)} (batch {cell['batch']}, {cell['dtype']})" for name, cell in best.items()]
        found.append((what, ", ".join(texts)))
    fits = [one["model"] for one in gpu["published"] if one["answers"]]
    found.append(("memory holds the weights in bfloat16 of", ", ".join(fits)))
    return found


def predicted_lines(predicted: dict[str, Any] | None) -> list[str]:
    """Predicted verdicts as text, each marked as such."""
    if predicted is None:
        return []
    gpu, verdicts = predicted["gpu"], predicted["verdicts"]
    scaled = predicted["scaled_from"]
    basis = (
        f"scaled by what {several(scaled)} reach of their datasheets; {predicted['error']}"
        if scaled
        else "unscaled upper bounds, without intervals: no GPU of the reference was measured"
    )
    said = [f"PREDICTED for {gpu['name']}, not measured: {basis}"]
    if gpu["not_verified"]:
        said.append(f"  left out, for it was not verified: {', '.join(gpu['not_verified'])}")
    said += [f"  {TIER} {what}: {rates}" for what, rates in _rates(gpu) if rates]
    judged = {name: one for name, one in verdicts.items() if one["verdict"] != NOT_FORETOLD}
    said += [f"  {name:<6}{TIER}: {one['verdict']:<13}{one_line(one['reason'], 200)}" for name, one in judged.items()]
    return [
        *said,
        f"  {count(len(verdicts) - len(judged), 'other claim')} about GPUs cannot be foretold from a datasheet",
    ]
