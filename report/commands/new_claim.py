"""A new claim file: complete, read by the engine at once, and saying what its author may still add."""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import write_text
from contract.schema import check, did_you_mean
from report.data.reference import REFERENCE, read_reference
from report.judging.claims import CLOSED, full_schema, read_claims
from report.quantities import Quantity, quantities

RULES = {
    "at_least": "every cell reaches the threshold",
    "at_most": "no cell exceeds the threshold",
    "within": "every cell lies in a range: a threshold of two numbers",
    "ratio": "one cell over another that differs in a label; options over, of, to",
    "trend": "the power with which it grows along a numeric label; option along",
    "exists": "one cell that reaches the threshold is enough",
    "crossover": "the value of a numeric label at which two sides change places; options over, of, to, along",
    "for_share_of": "so large a share of the cells reaches the threshold; option share",
}
# Labels that also take a word for what each machine has.
_ALSO = {
    "threads": "a number; all for as many as the machine has",
    "backend": "a library by its name; best for the fastest",
    "shape": "a shape by its name; best for the fastest",
    "entry": "ids of entries in data/reference",
}
_ID = re.compile(r"[A-Z][0-9]{2}")


def new_claim(
    name: str,
    folder: Path,
    *,
    article: str,
    section: str,
    says: str,
    quantity: str,
    rule: str,
    threshold: Sequence[float],
    why: str,
    kind: str | None = None,
    scope: Sequence[str] = (),
    options: Sequence[str] = (),
    sensitivity: Sequence[float] = (),
) -> Path:
    """Write `folder`/NAME.yaml and give its path.

    threshold: one number, or both ends of a range; sensitivity: such numbers, or pairs of
    ends one after the other. scope, options: 'key=value' or 'key=value,value'. kind: how
    it is decided; the quantity's own tier if not said.
    Raises StudyError if there is such a claim, if something named is not known, or if
    the rule lacks what it needs; OSError if the folder cannot be written.
    """
    path, place = folder / f"{name}.yaml", f"new claim {name}"
    if not _ID.fullmatch(name):
        raise StudyError(f"{place}: an id is one capital letter and two digits, as in W39")
    if path.exists():
        raise StudyError(f"{path}: there is a claim {name} already: take the next free number")
    if kind == "judgement":
        raise StudyError(
            f"{place}: a judgement has no rule, only what bears on it: see the files of that kind in {folder}"
        )
    about = _quantity(quantity, place)
    claim: dict[str, Any] = {
        "id": name,
        "article": article,
        "section": section,
        "says": says,
        "kind": kind or about.tier,
        "quantity": quantity,
        "scope": _pairs(scope, "scope", place),
        "rule": rule,
        "options": _pairs(options, "option", place),
        "threshold": {"value": _bound(threshold), "why": why},
        "sensitivity": _tried(sensitivity, len(threshold), place),
        "version": 1,
    }
    claim = {key: value for key, value in claim.items() if value not in ({}, [])}
    check(claim, full_schema(), place)
    text = "".join(_written(claim, about))
    _reads(name, text, place)
    write_text(path, text)
    return path


def _quantity(name: str, place: str) -> Quantity:
    known = quantities()
    if name not in known:
        family = [one for one in known if one.split(".")[0] == name.split(".")[0]]
        near = did_you_mean(name, list(known))
        raise StudyError(
            f"{place}: there is no quantity {name!r}.{near} Known: {', '.join(family or known)}. "
            "A new one is a function in report/quantities/"
        )
    return known[name]


def _pairs(given: Iterable[str], what: str, place: str) -> dict[str, Any]:
    pairs = {}
    for one in given:
        key, sign, value = one.partition("=")
        if not (key and sign and value):
            raise StudyError(f"{place}: --{what} {one!r} is not of the form key=value")
        values = [_scalar(item) for item in value.split(",")]
        pairs[key] = values[0] if len(values) == 1 else values
    return pairs


def _scalar(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def _whole(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def _bound(given: Sequence[float]) -> float | list[float]:
    values = [_whole(one) for one in given]
    return values[0] if len(values) == 1 else values


def _tried(given: Sequence[float], ends: int, place: str) -> list[Any]:
    if len(given) % ends:
        raise StudyError(f"{place}: --sensitivity: the threshold is a range, so give both ends of each other range")
    return [_bound(given[start : start + ends]) for start in range(0, len(given), ends)]


def _written(claim: Mapping[str, Any], about: Quantity) -> Iterable[str]:
    """The file, piece by piece; what is left open stands in comments and decides nothing."""
    unit = "no unit" if about.unit in ("", "1") else about.unit
    for key, value in claim.items():
        if key == "quantity":
            yield from _comment(f"In {unit}: {_first_sentence(about)}")
        if key == ("scope" if "scope" in claim else "rule"):
            yield from _labels(about, "scope" in claim)
        if key == "rule":
            yield from _comment("Rules:", *(f"  {name}: {what}" for name, what in RULES.items()))
            yield from _comment(
                "ratio, trend, exists, crossover and for_share_of take the option compare: at_least, at_most, within."
            )
        if key == "version":
            yield from _left_open(claim, unit)
        yield _yaml(key, value)


def _first_sentence(about: Quantity) -> str:
    """What the quantity's own description begins with."""
    told = " ".join((about.compute.__doc__ or about.says).split("\n\n")[0].split())
    return told if told.endswith(".") else f"{told}."


def _labels(about: Quantity, given: bool) -> Iterable[str]:
    lines = ["A scope names the cells that the claim speaks of; without one it is all that were measured. Labels:"]
    for label in about.labels:
        closed = ", ".join(CLOSED.get(label, []))
        also = _ALSO.get(label, "" if closed else "a value, or a list of them, as measured")
        lines.append(f"  {label}: {'; '.join(text for text in (closed, also) if text)}")
    yield from _comment(*lines)
    if not given and about.labels:
        label = next((one for one in about.labels if one in CLOSED), about.labels[0])
        yield from _comment(f"scope: {{{label}: {CLOSED.get(label, ['value'])[0]}}}")


def _left_open(claim: Mapping[str, Any], unit: str) -> Iterable[str]:
    if "sensitivity" not in claim:
        value = claim["threshold"]["value"]
        if isinstance(value, list):
            tried = [f"[{_number(low)}, {_number(high)}]" for low, high in _ranges(*value)]
        else:
            tried = [_number(value / 2), _number(value), _number(value * 2)]
        yield from _comment(
            f"Other thresholds that one may reasonably take ({unit}); the report says at which the verdict changes:",
            f"sensitivity: [{', '.join(tried)}]",
        )
    yield from _comment(
        "Also: see_also and bears_on (ids of claims), sources (ids in data/reference), scale (by, why),",
        "awaits (what is not there yet), and a note on what a reader has to know:",
        "note: >-",
        "  What is left out, and what would be unfair.",
    )


def _ranges(low: float, high: float) -> list[tuple[float, float]]:
    quarter = (high - low) / 4
    return [(low - quarter, high + quarter), (low, high), (low + quarter, high - quarter)]


def _number(value: float) -> str:
    return json.dumps(_whole(value))


def _comment(*lines: str) -> Iterable[str]:
    for line in lines:
        yield f"# {line}\n"


def _yaml(key: str, value: Any) -> str:
    """One key of the file; what lies within it on one line, but for the threshold and its reason."""
    from ruamel.yaml import YAML

    inner = {name: _in_line(one) for name, one in value.items()} if key == "threshold" else _in_line(value)
    out = io.StringIO()
    yaml = YAML()
    yaml.width = 110
    yaml.dump({key: inner}, out)
    return out.getvalue()


def _in_line(value: Any) -> Any:
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    if isinstance(value, dict):
        value = CommentedMap({name: _in_line(one) for name, one in value.items()})
    elif isinstance(value, list):
        value = CommentedSeq([_in_line(one) for one in value])
    else:
        return value
    value.fa.set_flow_style()
    return value


def _reads(name: str, text: str, place: str) -> None:
    """Read the file as the engine will, before it lies among the others. Raises StudyError."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / f"{name}.yaml"
        write_text(path, text)
        try:
            read_claims(Path(scratch), read_reference(REFERENCE) if "reference.value" in text else {})
        except StudyError as fault:
            raise StudyError(str(fault).replace(str(path), place)) from None


def next_steps(path: Path) -> str:
    """Where the file is, and what its author does next."""
    return (
        f"{path}\n"
        "Next: narrow its scope, and declare its sensitivity and a note there. Then see what becomes of it:\n"
        f"  python -m report judge --data results/data --claims {path.parent} --out results/verdicts.json\n"
        f"  python -m report explain {path.stem} --verdicts results/verdicts.json"
    )
