"""Numbers, intervals and tallies in words: digits from the interval, units from the field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

# The order in which verdicts are told; the class name (style sheet, PDF) and the sign beside the word.
VERDICTS: dict[str, tuple[str, str]] = {
    "supported": ("supported", "✓"),
    "challenged": ("challenged", "✗"),
    "depends": ("depends", "◐"),
    "undecided": ("undecided", "?"),
    "awaiting hardware": ("awaiting", "○"),
    "awaiting experiment": ("awaiting", "○"),
    "awaiting source": ("awaiting", "○"),
    "not testable": ("opinion", "–"),
}
MEANING = {
    "supported": "the evidence is on the article's side of the threshold, interval included, everywhere in scope",
    "challenged": "the evidence is on the other side of the threshold, interval included, everywhere in scope",
    "depends": "some of what was looked at supports the claim and some challenges it; the boundary is named",
    "undecided": "the interval straddles the threshold: too close to call",
    "awaiting hardware": "the experiment exists; no node that has reported owns the hardware",
    "awaiting experiment": "the experiment that would decide it is named, and not yet part of this edition",
    "awaiting source": "the primary source that would decide it could not be read and checked",
    "not testable": "an opinion or advice: shown with the claims that bear on it",
}
TIERS = {
    "measured": "measured by this study",
    "derived": "arithmetic on measured or published figures",
    "documented": "a published primary source",
    "none": "no evidence yet",
}
_SCALED = {"FLOP/s", "B/s", "Hz", "FLOP", "B", "W", "bit/s", "OP/s"}
_PREFIXES = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_DIGITS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def verdict_class(verdict: str) -> str:
    """Class name of a verdict, for the style sheet and the PDF; `awaiting` for one that is not known here."""
    return VERDICTS.get(verdict, ("awaiting", ""))[0]


def unit_scale(value: float, unit: str) -> tuple[float, str]:
    """Factor to divide by, and the unit with its prefix: (1e9, 'GFLOP/s').

    Seconds get prefixes below one only; units that are counts get none.
    """
    if unit not in _SCALED and unit != "s":
        return 1.0, "" if unit == "1" else unit
    if not value or not math.isfinite(value):
        return 1.0, unit
    power = 3 * math.floor(math.log10(abs(value)) / 3 + 1e-12)
    power = max(-12, min(0 if unit == "s" else 18, power))
    if unit != "s":
        power = max(0, power)
    return 10.0**power, f"{_PREFIXES[power]}{unit}"


def number(value: float, digits: int = 3) -> str:
    """`value` to `digits` significant digits: 0.0123, 31.4, 12,300, 1.2 × 10⁹."""
    if not value:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if exponent >= 7 or exponent <= -5:
        text = f"{value / 10.0**exponent:.{max(0, digits - 1)}f}".rstrip("0").rstrip(".")
        power = f"10{str(exponent).translate(_DIGITS)}"
        return power if text == "1" else f"{text} × {power}"
    return f"{round(value, digits - 1 - exponent):,.{max(0, digits - 1 - exponent)}f}"


def exact(value: float) -> str:
    """A declared or published value with every digit that it has: 0.5, 16,384, 30,840,000."""
    if value == int(value) and abs(value) < 1e12:
        return f"{int(value):,}"
    text = number(value, 6)
    return text.rstrip("0").rstrip(".") if "." in text and "×" not in text else text


def _decimals(value: float, low: float, high: float) -> int:
    """Decimals that show two digits of the interval's half-width, and no more than five digits in all."""
    wanted = 1 - math.floor(math.log10((high - low) / 2))
    return max(0, min(wanted, 4 - math.floor(math.log10(abs(value))), 9))


def with_interval(cell: Mapping[str, Any], unit: str) -> str:
    """Estimate, interval and unit of a cell or verdict: '31.4 (30.9 to 31.9) MAC/cycle'; '' without an estimate."""
    value, low, high = cell.get("estimate"), cell.get("low"), cell.get("high")
    if value is None:
        return ""
    if low is None or high is None or not high > low or not value:
        return with_unit(value, unit)
    scale, name = unit_scale(value, unit)
    told = [value / scale, low / scale, high / scale]
    if abs(told[0]) >= 1e7 or abs(told[0]) < 1e-4:
        words = [number(part) for part in told]
    else:
        words = [f"{part:,.{_decimals(*told)}f}" for part in told]
    return f"{words[0]} ({words[1]} to {words[2]}) {name}".rstrip()


def with_unit(value: float | None, unit: str) -> str:
    """One value with its unit; an en dash where there is none."""
    if value is None:
        return "–"
    scale, name = unit_scale(value, unit)
    value = value / scale
    return f"{exact(value) if float(f'{value:.6g}') == value else number(value)} {name}".rstrip()


def threshold(value: Any, unit: str) -> str:
    """A threshold, or the two ends of a range, with the unit."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return " to ".join(with_unit(end, unit) for end in value)
    return with_unit(value, unit)


def size(count: float) -> str:
    """Bytes in powers of two: 1.5 MiB."""
    for name in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{number(count)} {name}"
        count /= 1024
    return f"{number(count)} TiB"


def joined(parts: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def answer(tally: Mapping[str, int]) -> list[str]:
    """Two sentences that say what the tally says."""
    count = {verdict: int(tally.get(verdict, 0)) for verdict in VERDICTS}
    total = sum(count.values())
    decided = sum(count[verdict] for verdict in ("supported", "challenged", "depends", "undecided"))
    if not decided:
        first = f"None of the {total} claims can be decided on the evidence gathered so far."
    else:
        outcomes = {
            "supported": "{} hold",
            "challenged": "{} do not",
            "depends": "{} hold only in part",
            "undecided": "{} are too close to call",
        }
        told = [outcomes[verdict].format(count[verdict]) for verdict in outcomes if count[verdict]]
        first = f"Of {total} claims, {decided} can be decided on the evidence gathered so far: {joined(told)}."
    return [_singular(first), _singular(_others(count))]


def _others(count: Mapping[str, int]) -> str:
    """What the claims that are not decided lack."""
    lacks = {
        "awaiting hardware": "for hardware that no node here has",
        "awaiting experiment": "for an experiment still to come",
        "awaiting source": "for a source",
    }
    waiting = [f"{count[name]} {words}" for name, words in lacks.items() if count[name]]
    opinions = f"{count['not testable']} are opinions that no measurement decides" if count["not testable"] else ""
    if waiting:
        verb = "waits" if sum(count[name] for name in lacks) == 1 or waiting[0].startswith("1 ") else "wait"
        number_first, _, rest = waiting[0].partition(" ")
        return f"Of the others, {joined([f'{number_first} {verb} {rest}', *waiting[1:]])}" + (
            f"; {opinions}." if opinions else "."
        )
    return f"The other {opinions}." if opinions else "None is left open."


def _singular(sentence: str) -> str:
    for many, one in {
        " 1 hold only": " 1 holds only",
        " 1 hold": " 1 holds",
        " 1 do not": " 1 does not",
        " 1 are ": " 1 is ",
        "1 is opinions": "1 is an opinion",
        "Of 1 claims": "Of 1 claim",
    }.items():
        sentence = sentence.replace(many, one)
    return sentence
