"""What is found of a claim in one plain sentence: the one that its file has for the outcome, with its numbers.

A place: `{estimate}`, `{low}` and `{high}` are the number that the claim is told with; `{least}` and `{most}` those
of all cases, `{supports}` and `{challenges}` that of the case on this side nearest to the threshold.
`{run of supports}` is a label of it, `{supports for run=BERT base}` the case with a label. `{[time] least}` is of one
part. `{count}`, `{count supports}` and `{count challenges}` count cases; `{share}`, `{share low}`, `{share high}` and
`{units}` tell of a share. `{threshold}` is the one that is declared. After a colon, how: `percent`; `number`, without
its unit; `about`, rounded to two digits; `exact`, with all its digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report import formatting
from report.model import OPINION, OTHERS, Threshold, Verdict

NUMBER = ("estimate", "low", "high")
SIDES, ENDS = ("supports", "challenges"), ("least", "most")
PLACE = re.compile(r"\{([^{}]*)\}")
_OF = re.compile(
    r"(?:(?P<label>\w+) of )?(?:\[(?P<part>[^\[\]]+)\] ?)?"
    r"(?P<which>estimate|low|high|supports|challenges|least|most)(?: for (?P<name>\w+)=(?P<value>[^:]+))?"
)
_COUNT = re.compile(r"(?:\[(?P<part>[^\[\]]+)\] ?)?count(?: (?P<which>supports|challenges|undecided))?")
_SHARE = re.compile(r"(?:\[(?P<part>[^\[\]]+)\] ?)?(?:(?P<share>share)(?: (?P<end>low|high))?|(?P<units>units))")
_THRESHOLD = re.compile(r"(?:\[(?P<part>[^\[\]]+)\] ?)?threshold")
FORMATS = ("percent", "number", "about", "exact")
_ALMOST = _LEAST_SHARE = 1e-4
# Seconds in a unit of time, and from how many on it is told in it.
_TIMES = ((31_557_600.0, "year", 2.0), (86400.0, "day", 2.0), (3600.0, "hour", 2.0), (60.0, "minute", 2.0))
_SECONDS = {"s": 1.0, "h": 3600.0, "d": 86400.0}
_GENERAL = {
    "depends": "It holds for {count supports} of the {count} cases that were tried, and not for {count challenges}.",
    "undecided": "What was measured lies too close to the line to tell.",
    "awaiting": "Still open: what it takes to tell has not been measured yet.",
    "not testable": OPINION,
}
# For what others' published runs come to, where the claim has no sentence of its own for it.
_OTHERS = {
    "supported": "Others' published runs support it, with {least} to {most}.",
    "challenged": "Others' published runs do not support it, with {least} to {most}.",
    "depends": "It holds for {count supports} of {count} published runs of others, and not for {count challenges}.",
}


def finding(verdict: Mapping[str, Any], declared: Mapping[str, Sequence[str]]) -> str:
    """The sentence for a verdict (see `finding_and_part`)."""
    return finding_and_part(verdict, declared)[0]


def finding_and_part(verdict: Mapping[str, Any], declared: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """The sentence for a verdict, as `verdicts.json` has it, from those that its claim declares by outcome; and the
    first part that it names, '' for none.

    declared: those for what was found here, or for what others' runs came to where the verdict rests on these.
    """
    outcome = str(verdict["verdict"])
    key = "awaiting" if Verdict(outcome).awaits else outcome
    general = _OTHERS if verdict.get("decided_on") == OTHERS else _GENERAL
    for sentence in (*declared.get(key, ()), general.get(key, "")):
        told = filled(sentence, verdict)
        if told:
            named = (re.search(r"\[([^\[\]]+)\]", place) for place in PLACE.findall(sentence))
            return told, next((found[1] for found in named if found), "")
    return str(verdict["reason"]), ""


def filled(sentence: str, verdict: Mapping[str, Any]) -> str | None:
    """A sentence with its places filled; None where the evidence has nothing for one of them."""
    values = {place: fill(place, verdict) for place in PLACE.findall(sentence)}
    if None in values.values():
        return None
    return formatting.capital(PLACE.sub(lambda found: str(values[found[1]]), sentence))


def unknown(sentence: str, parts: Sequence[str]) -> Iterator[str]:
    """Places of a sentence that mean nothing, of a claim with parts of these names."""
    for place in PLACE.findall(sentence):
        text, _, how = place.partition(":")
        found = next(filter(None, (one.fullmatch(text) for one in (_OF, _COUNT, _SHARE, _THRESHOLD))), None)
        named = found.groupdict().get("part") if found else None
        if found is None or (how and how not in FORMATS) or (named and named not in parts):
            yield place


def fill(place: str, verdict: Mapping[str, Any]) -> str | None:
    """What stands in a place; None where the evidence has nothing for it."""
    text, _, how = place.partition(":")
    counted, shared, found = (pattern.fullmatch(text) for pattern in (_COUNT, _SHARE, _OF))
    if counted:
        cells = [cell for cell in verdict["cells"] if counted["part"] in (None, cell["part"])]
        return f"{sum(counted['which'] in (None, cell['outcome']) for cell in cells):,}"
    if shared:
        told = part_of(verdict, shared["part"]) if shared["part"] else _with_share(verdict)
        share = (told or {}).get("share")
        if not share:
            return None
        return str(share["units"]) if shared["units"] else _part_of_all(float(share[shared["end"] or "estimate"]))
    if limit := _THRESHOLD.fullmatch(text):
        part = part_of(verdict, limit["part"]) if limit["part"] else next(iter(verdict["parts"]), None)
        ends = Threshold.of(part["threshold"]).ends if part else []
        return " to ".join(number(end, str(part["unit"] or "1"), how) for end in ends) if part else None
    if not found:
        return None
    cell = cell_of(verdict, found["part"] or "", found["which"], (found["name"], found["value"]))
    if cell is None:
        return None
    if found["label"]:
        value = cell.get(found["label"])
        return None if value is None else _label(found["label"], value)
    part = part_of(verdict, str(cell.get("part") or "")) or verdict
    which = found["which"] if found["which"] in ("low", "high") else "estimate"
    return number(cell[which], str(part.get("unit") or "1"), how)


def _part_of_all(share: float) -> str:
    """A share as a sentence has it: '84%', 'all', 'none'; what is merely near to an end is not told as one."""
    if not _ALMOST < share < 1 - _ALMOST:
        return "all" if share > 0.5 else "none"
    return f"{min(max(100 * share, 1), 99):.0f}%"


def _label(name: str, value: Any) -> str:
    if name == "parameters":
        return f"{formatting.number(float(value), 2)} parameters"
    if name == "threads":
        return formatting.count(int(value), "core")
    return formatting.label_value(name, value)


def number(value: float, unit: str, how: str = "") -> str:
    """A number as a sentence has it: two digits, times in the unit that people would use."""
    if how == "percent":
        return _percent(value)
    if how == "number":
        return formatting.two_digits(value)
    if how == "exact":
        return formatting.exactly(value)
    if how == "about":
        return formatting.two_digits(float(f"{value:.2g}"))
    if unit in _SECONDS:
        seconds = value * _SECONDS[unit]
        for size, name, least in _TIMES:
            if seconds >= least * size:
                return f"{formatting.number(seconds / size, 2)} {name}s"
        value, unit = seconds, "s"
    return formatting.with_unit(value, unit, 2)


def _percent(share: float) -> str:
    """Whole per cents; below ten with one digit, below one with two, and what is less than a hundredth as that."""
    if 0 < share < _LEAST_SHARE:
        return f"less than {100 * _LEAST_SHARE:g}%"
    digits = 0 if share >= 0.1 or share <= 0 else 1 if share >= 0.01 else 2
    return f"{100 * share:.{digits}f}".removesuffix(".0") + "%"


def part_of(verdict: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """A part of a claim by its name; that of a claim with one part is ''."""
    return next((one for one in verdict.get("parts") or [] if str(one.get("name") or "") == name), None)


def _with_share(verdict: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((one for one in verdict.get("parts") or [] if one.get("share")), None)


def cells_of(verdict: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
    """The cases of a claim, or of one part of it, that have an interval, the least first."""
    cells = [
        cell
        for cell in verdict.get("cells") or []
        if (not part or cell.get("part") == part) and all(cell.get(name) is not None for name in NUMBER)
    ]
    return sorted(cells, key=lambda cell: float(cell["estimate"]))


def cell_of(
    verdict: Mapping[str, Any], part: str, which: str | None, label: tuple[str | None, str | None] = (None, None)
) -> Mapping[str, Any] | None:
    """The case that a place means: on a side the nearest to its threshold, at an end of all, or the one that is told
    for the claim or part; None if there is none. label: name and value of one that it has to bear."""
    cells = [cell for cell in cells_of(verdict, part) if not label[0] or str(cell.get(label[0])) == label[1]]
    if which in ENDS:
        return cells[0 if which == "least" else -1] if cells else None
    if which in (None, *NUMBER):
        told = part_of(verdict, part) if part else verdict
        same = (cell for cell in cells if told and all(cell[name] == told.get(name) for name in NUMBER))
        return next(same, cells[0] if label[0] and cells else None)

    def far(cell: Mapping[str, Any]) -> float:
        threshold = (part_of(verdict, str(cell.get("part") or "")) or verdict).get("threshold")
        return Threshold.of(threshold).distance(float(cell["estimate"])) if threshold is not None else 0.0

    return min((cell for cell in cells if cell.get("outcome") == which), key=far, default=None)
