"""Command `new-claim`: write a valid claim file, with comments on optional keys."""

from __future__ import annotations

import io
import json
import re
import tempfile
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_yaml, write_text
from contract.schema import check_document, did_you_mean
from report import PACKAGE
from report.data.reference_figures import REFERENCE, read_reference
from report.judging.claim_files import CLOSED, full_schema, read_claims
from report.quantities import Quantity, quantities

RULES = {
    "at_least": "most cases reach the threshold, with no sure exception; the option quantifier: every asks for all",
    "at_most": "most cases do not exceed the threshold, with no sure exception",
    "within": "most cases lie in the range; the threshold has two numbers",
    "ratio": "compares the ratio of two cases whose label `over` has the values `of` and `to`; options over, of, to",
    "trend": "compares the exponent with which the quantity grows along a numeric label; option along",
    "exists": "a single case that reaches the threshold is enough",
    "crossover": "compares the value of the label `along` at which `of` overtakes `to`; options over, of, to, along",
    "for_share_of": "at least this share of the label's values (say, models) reach the threshold; options share, of",
}
# Hints on label values, for labels that also accept special words or ids.
_LABEL_HINTS = {
    "threads": "a number, or all for every core of the machine",
    "backend": "the name of a library, or best for the fastest",
    "shape": "the name of a shape, or best for the fastest",
    "entry": "ids of entries in data/reference",
}
_OPTIONAL_KEYS = """\
# Other keys: see_also and bears_on (ids of claims), sources (ids in data/reference), scale (by, why), cases (the reason
# for a chosen list of cases), machine (the only kind of machine that decides), question (shared with other claims),
# awaits (missing evidence).
"""
# Placeholder findings, for the author to rewrite.
_FINDINGS = {
    "supported": "It holds: {estimate}.",
    "challenged": "It does not hold: {estimate}.",
    "depends": "It depends on the case: {least} to {most}.",
    "undecided": "The measurements lie too close to the threshold: {estimate}.",
    "awaiting": "Still open: the data have no such case yet.",
}
_FINDINGS_OF_SHARES = {
    "supported": "It holds for {share} of the {units} cases that were tried.",
    "challenged": "It holds for only {share} of the {units} cases that were tried.",
    "undecided": "The share of cases for which it holds, {share}, is too close to the threshold.",
    "awaiting": _FINDINGS["awaiting"],
}


def new_claim(name: str, folder: Path, arguments: Namespace) -> Path:
    """Write `folder`/NAME.yaml for a new claim, and return its path.

    `arguments` has these fields:
    article, section, says, word, note, quantity, rule: as in a claim file.
    threshold: a list with one number, or with both ends of a range.
    why: the reason for the threshold.
    kind: the claim's kind; None to take the quantity's tier.
    scope, option: lists of 'key=value' or 'key=value,value'.
    sensitivity: other thresholds, as a flat list.

    Raises StudyError if the claim exists, a name is unknown, or the rule lacks an option. Raises OSError if the folder
    cannot be written.
    """
    path, place = folder / f"{name}.yaml", f"new claim {name}"
    if not re.fullmatch(r"[A-Z][0-9]{2}", name):
        raise StudyError(f"{place}: an id is one capital letter and two digits, as in W39")
    if path.exists():
        raise StudyError(f"{path}: there is a claim {name} already: take the next free number")
    if arguments.kind == "judgement":
        raise StudyError(
            f"{place}: a judgement has no rule and cannot be made by this command: see existing ones in {folder}"
        )
    _check_heading(arguments.article, arguments.section, place)
    quantity, ends = _find_quantity(arguments.quantity, place), len(arguments.threshold)
    if len(arguments.sensitivity) % ends:
        raise StudyError(f"{place}: --sensitivity: the threshold is a range, so give both ends of each other range")
    tried = [arguments.sensitivity[at : at + ends] for at in range(0, len(arguments.sensitivity), ends)]
    claim: dict[str, Any] = {
        "id": name,
        **{key: getattr(arguments, key) for key in ("article", "section", "says", "word")},
        "kind": arguments.kind or quantity.tier,
        "quantity": arguments.quantity,
        "scope": _parse_pairs(arguments.scope, "scope", place),
        "rule": arguments.rule,
        "options": _parse_pairs(arguments.option, "option", place),
        "threshold": {"value": _format_bound(arguments.threshold), "why": arguments.why},
        "sensitivity": [_format_bound(threshold) for threshold in tried],
        "findings": _FINDINGS if arguments.rule != "for_share_of" else _FINDINGS_OF_SHARES,
        "note": arguments.note,
        "version": 1,
    }
    claim = {key: value for key, value in claim.items() if value not in ({}, [])}
    check_document(claim, full_schema(), place)
    text = "".join(_claim_lines(claim, quantity))
    # Read the draft as `judge` reads claims, so that no faulty file reaches the folder.
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / f"{name}.yaml"
        write_text(draft, text)
        try:
            read_claims(Path(scratch), read_reference(REFERENCE) if "reference.value" in text else {})
        except StudyError as fault:
            raise StudyError(str(fault).replace(str(draft), place)) from None
    write_text(path, text)
    return path


def _check_heading(article: str, section: str, place: str) -> None:
    """Raise StudyError unless the article has all headings that `section` names, separated by '; '.

    In `section`, a suffix in parentheses is ignored, and a heading may be shortened to the text before its colon.
    place: the location to name in the error.
    """
    articles = {entry["key"]: entry for entry in read_yaml(PACKAGE / "articles.yaml")}
    if article not in articles:
        raise StudyError(f"{place}: there is no article {article!r}.{did_you_mean(article, list(articles))}")
    headings = [section["heading"] for section in articles[article]["sections"]]
    for name in (re.sub(r" \(.*\)$", "", part) for part in section.split("; ")):
        if not any(name in (heading, heading.partition(":")[0]) for heading in headings):
            raise StudyError(
                f"{place}: {article} has no heading {name!r}.{did_you_mean(name, headings)} "
                f"Headings: {'; '.join(headings)}"
            )


def _find_quantity(name: str, place: str) -> Quantity:
    known = quantities()
    if name not in known:
        near = did_you_mean(name, list(known))
        raise StudyError(
            f"{place}: there is no quantity {name!r}.{near} `python -m report quantities "
            f"{name.split('.')[0]}` lists them; a new one is a function in report/quantities/"
        )
    return known[name]


def _parse_pairs(pair_texts: Iterable[str], what: str, place: str) -> dict[str, Any]:
    pairs = {}
    for text in pair_texts:
        key, sign, value = text.partition("=")
        if not (key and sign and value):
            raise StudyError(f"{place}: --{what} {text!r} is not of the form key=value")
        values = [_parse_scalar(item) for item in value.split(",")]
        pairs[key] = values[0] if len(values) == 1 else values
    return pairs


def _parse_scalar(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def _format_bound(ends: Sequence[float]) -> float | list[float]:
    values = [int(end) if float(end).is_integer() else end for end in ends]
    return values[0] if len(values) == 1 else values


def _claim_lines(claim: Mapping[str, Any], quantity: Quantity) -> Iterable[str]:
    """Yield the file's text piece by piece, with optional keys as comments."""
    unit = "no unit" if quantity.unit in ("", "1") else quantity.unit
    for key, value in claim.items():
        if key == "quantity":
            first = " ".join((quantity.compute.__doc__ or quantity.name).split("\n\n")[0].split())
            yield f"# In {unit}: {first.rstrip('.')}.\n"
        if key == ("scope" if "scope" in claim else "rule"):
            yield from _label_comments(quantity, "scope" in claim)
        if key == "rule":
            yield "# Rules:\n"
            yield from (f"#   {name}: {what}\n" for name, what in RULES.items())
            yield "# ratio, trend, exists, crossover and for_share_of take the option compare: "
            yield "at_least, at_most, within.\n"
        if key == "findings":
            yield "# The first sentence that a reader sees, per outcome; report/findings.py lists the placeholders.\n"
        if key == "note":
            if "sensitivity" not in claim:
                yield f"# Other fair thresholds ({unit}); the report names those that change the verdict:\n"
                yield f"# sensitivity: {json.dumps(_example_thresholds(claim['threshold']['value']))}\n"
            yield _OPTIONAL_KEYS
        yield _dump_key(key, value)


def _example_thresholds(value: Any) -> list[Any]:
    if isinstance(value, list):
        quarter = (value[1] - value[0]) / 4
        return [_format_bound((value[0] + step, value[1] - step)) for step in (-quarter, 0, quarter)]
    return [_format_bound([threshold]) for threshold in (value / 2, value, value * 2)]


def _label_comments(quantity: Quantity, has_scope: bool) -> Iterable[str]:
    yield "# The scope selects the claim's cases; without a scope, all measured cases count. Labels:\n"
    for label in quantity.labels:
        closed = ", ".join(CLOSED.get(label, []))
        also = _LABEL_HINTS.get(label, "" if closed else "a measured value, or a list of them")
        yield f"#   {label}: {'; '.join(filter(None, (closed, also)))}\n"
    if not has_scope and quantity.labels:
        label = next((label for label in quantity.labels if label in CLOSED), quantity.labels[0])
        yield f"# scope: {{{label}: {CLOSED.get(label, ['value'])[0]}}}\n"


def _dump_key(key: str, value: Any) -> str:
    """Format a key as YAML, nested values on one line except under threshold and findings."""
    from ruamel.yaml import YAML

    in_line = key not in ("threshold", "findings") and isinstance(value, (dict, list))
    out, yaml = io.StringIO(), YAML()
    yaml.width = 10_000 if in_line else 110
    yaml.default_flow_style = in_line
    yaml.dump(value if in_line else {key: value}, out)
    return f"{key}: {out.getvalue()}" if in_line else out.getvalue()


def next_steps(path: Path) -> str:
    """Format the file's path and the next commands for its author."""
    return (
        f"{path}\n"
        "Next, edit the file: narrow the scope, add other fair thresholds (sensitivity) and a related\n"
        "claim (see_also), and rewrite the findings. Then judge it on the published nodes:\n"
        "  python -m report gather --nodes data/nodes --out results/try/data\n"
        f"  python -m report judge --data results/try/data --claims {path.parent} --out results/try/verdicts.json\n"
        f"  python -m report explain {path.stem} --verdicts results/try/verdicts.json"
    )
