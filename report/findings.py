"""Fill a claim's declared sentence for its outcome with the numbers found.

Placeholders for a case's number:
- `{estimate}`: the claim's headline number, which is the estimate of its representative case.
- `{low}`, `{high}`: the ends of this number's interval.
- `{least}`, `{most}`: the smallest and the largest estimate of all cases.
- `{median}`: the median of all estimates, also of those without an interval; of an even number, the lower of the two
  in the middle.
- `{supports}`, `{challenges}`: the estimate of the supporting or challenging case nearest to the threshold.

Additions to these placeholders:
- `{run of supports}`: this case's value for the label `run`, in place of its number.
- `{supports for run=BERT base}`: the case is taken from the cases with this label value only.

Other placeholders:
- `{count}`: the number of cases.
- `{count supports}`, `{count challenges}`, `{count undecided}`: the number of cases with this outcome.
- `{share}`: the share of units that reaches the threshold; for a chosen list the count, as in "9 to 10.5 of the 13".
- `{share low}`, `{share high}`: the ends of this share's interval.
- `{units}`: the number of units in this share.
- `{threshold}`: the declared threshold.

Every placeholder may name a part in brackets, before its word: `{[time] least}`, `{run of [time] supports}`. Without a
part, counts and cases refer to the whole claim, the share to the first part with a share, and the threshold to the
first part.

A format may follow a colon, for a case's number or the threshold: `{estimate:percent}`. The formats are:
- `percent`: a fraction as a percentage.
- `number`: two significant digits without unit; up to four for a number that would otherwise be printed as 1.
- `about`: rounded to two significant digits, without unit.
- `exact`: all digits, without unit.

A case's number, other than `{low}`, `{high}` and `{median}`, is printed as a range in two situations:
- If several machines measured the case, the range spans them all; for `{least}` and `{most}`, only with `for`.
- If the interval ends differ by the factor WIDE, or the estimate exceeds the largest possible value, the interval
  replaces the estimate.
Without `for`, `{least}` and `{most}` give only the range's outer end if the sentence states a bound, such as "at least
{least}".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report import formatting
from report.outcomes import OPINION, OTHERS, Threshold, Verdict
from report.quantities import quantities
from report.verdict_sentences import list_count

NUMBER = ("estimate", "low", "high")
SIDES, ENDS = ("supports", "challenges"), ("least", "most")
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NUMBER_OF_CASE = re.compile(
    r"(?:(?P<label>\w+) of )?(?:\[(?P<part>[^\[\]]+)\] ?)?"
    r"(?P<which>estimate|low|high|supports|challenges|least|most|median)(?: for (?P<name>\w+)=(?P<value>[^:]+))?"
)
_COUNT = re.compile(r"(?:\[(?P<part>[^\[\]]+)\] ?)?count(?: (?P<which>supports|challenges|undecided))?")
_SHARE = re.compile(r"(?:\[(?P<part>[^\[\]]+)\] ?)?(?:(?P<share>share)(?: (?P<end>low|high))?|(?P<units>units))")
_THRESHOLD = re.compile(r"(?:\[(?P<part>[^\[\]]+)\] ?)?threshold")
FORMATS = ("percent", "number", "about", "exact")
# An interval is printed as a range if its ends differ by at least this factor.
WIDE = 3.0
# A sentence is not used if its percentage has a range at least this wide (0.9 is 90 percentage points), because such a
# range tells nothing.
_NOTHING = 0.9
# Cases that agree in these fields are the same case on different machines.
_ALIKE = ("part", "device", "labels", "outcome")
_JOINS = r"\A\s*(?:to|and)\s*\Z"
_LOWER = re.compile(r"\b(?:at least|more than|less than|only after|from|between)\s*\Z", re.I)
_UPPER = re.compile(r"\b(?:at most|up to|no more than|within|under|after)\s*\Z", re.I)
_LOWER_AFTER = re.compile(rf"{_JOINS}|\A[\w\s]*\bor more\b")
_UPPER_AFTER = re.compile(r"\A[\w\s]*\bat most\b")
_ALMOST = _LEAST_SHARE = 1e-4
# For each time unit: its length in seconds, its name, and the smallest number to print in it. A shorter time is printed
# in a smaller unit.
TIMES = ((31_557_600.0, "year", 2.0), (86400.0, "day", 2.0), (3600.0, "hour", 2.0), (60.0, "minute", 2.0))
SECONDS = {"s": 1.0, "h": 3600.0, "d": 86400.0}
GENERAL = {
    "supported": "It holds for {count supports} of the {count} cases that were tried.",
    "challenged": "It does not hold for {count challenges} of the {count} cases that were tried.",
    "outdated": "It held when it was written, and no longer does.",
    "depends": "It holds for {count supports} of the {count} cases that were tried, and not for {count challenges}.",
    "undecided": "What was measured lies too close to the line to tell.",
    "awaiting": "Still open: what it takes to tell has not been measured yet.",
    "not testable": OPINION,
}
# Default sentences for claims that published runs decide.
_PUBLISHED = {
    "supported": "Others' published runs support it, with {least} to {most}.",
    "challenged": "Others' published runs do not support it, with {least} to {most}.",
    "depends": "It holds for {count supports} of {count} published runs of others, and not for {count challenges}.",
}


def finding(verdict: Mapping[str, Any], declared: Mapping[str, Sequence[str]]) -> str:
    """Return the sentence for a verdict (see `finding_and_part`)."""
    return finding_and_part(verdict, declared)[0]


def finding_and_part(verdict: Mapping[str, Any], declared: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Return the first sentence that can be filled, and the first part that it names ('' if none).

    verdict: a record from `verdicts.json`.
    declared: the claim's sentences by outcome; if published runs decide the verdict, its sentences for published runs.
    A general sentence is used if none can be filled.
    """
    outcome = str(verdict["verdict"])
    key = "awaiting" if Verdict(outcome).awaits else outcome
    general = _PUBLISHED if verdict.get("decided_on") == OTHERS else GENERAL
    for sentence in (*declared.get(key, ()), general.get(key, "")):
        text = fill_sentence(sentence, verdict)
        if text:
            parts = (re.search(r"\[([^\[\]]+)\]", place) for place in PLACEHOLDER.findall(sentence))
            return text, next((match[1] for match in parts if match), "")
    return str(verdict.get("untestable") or ""), ""


def fill_sentence(sentence: str, verdict: Mapping[str, Any]) -> str | None:
    """Fill the placeholders in a sentence; return None if the evidence has nothing for one of them."""
    pieces = PLACEHOLDER.split(sentence)
    texts = [
        fill_placeholder(piece, verdict, surrounding_text(pieces, at)) if at % 2 else piece
        for at, piece in enumerate(pieces)
    ]
    return None if None in texts else formatting.capitalize("".join(map(str, texts)))


def surrounding_text(pieces: Sequence[str], at: int) -> tuple[str, str]:
    """Return the text before and after the placeholder at `at` in a split sentence."""
    joins = at + 2 < len(pieces)
    return pieces[at - 1], pieces[at + 1] if joins else f"{pieces[at + 1]} ."


def unknown_placeholders(sentence: str, parts: Sequence[str]) -> Iterator[str]:
    """Yield placeholders that are not valid for a claim with these parts."""
    for place in PLACEHOLDER.findall(sentence):
        text, _, how = place.partition(":")
        match = next(
            filter(None, (pattern.fullmatch(text) for pattern in (_NUMBER_OF_CASE, _COUNT, _SHARE, _THRESHOLD))), None
        )
        part = match.groupdict().get("part") if match else None
        if match is None or (how and how not in FORMATS) or (part and part not in parts):
            yield place


def fill_placeholder(place: str, verdict: Mapping[str, Any], around: tuple[str, str] = ("", "")) -> str | None:
    """Return the text for a placeholder; None if the evidence has nothing for it.

    around: the text before and after the placeholder, which may state a bound.
    """
    text, _, how = place.partition(":")
    count_match, share_match, number_match = (pattern.fullmatch(text) for pattern in (_COUNT, _SHARE, _NUMBER_OF_CASE))
    if count_match:
        cases = [case for case in verdict["cases"] if count_match["part"] in (None, case["part"])]
        return f"{sum(count_match['which'] in (None, case['outcome']) for case in cases):,}"
    if share_match:
        share_part = find_part(verdict, share_match["part"]) if share_match["part"] else _part_with_share(verdict)
        share = (share_part or {}).get("share")
        if not share:
            return None
        return str(share["units"]) if share_match["units"] else _share_text(share, share_match["end"])
    if limit := _THRESHOLD.fullmatch(text):
        part = find_part(verdict, limit["part"]) if limit["part"] else next(iter(verdict["parts"]), None)
        ends = Threshold.from_json(part["threshold"]).ends if part else []
        return " to ".join(sentence_number(end, str(part["unit"] or "1"), how) for end in ends) if part else None
    if not number_match:
        return None
    case = find_case(
        verdict, number_match["part"] or "", number_match["which"], (number_match["name"], number_match["value"])
    )
    if case is None:
        return None
    if number_match["label"]:
        value = case_label(case, number_match["label"])
        return None if value is None else _label_text(number_match["label"], value)
    part = find_part(verdict, str(case.get("part") or "")) or verdict
    unit, which = str(part.get("unit") or "1"), str(number_match["which"])
    if which in ("low", "high", "median"):
        return sentence_number(case["estimate" if which == "median" else which], unit, how)
    quantity = quantities().get(str(part.get("quantity")))
    ceiling = quantity.ceiling if quantity and quantity.ceiling is not None else math.inf
    low, high = _placeholder_range(case, verdict, which, around, bool(number_match["name"]), ceiling)
    if how == "percent" and high - low >= _NOTHING:
        return None
    return formatting.range_words(*(sentence_number(end, unit, how) for end in (low, high)))


def _placeholder_range(
    case: Mapping[str, Any],
    verdict: Mapping[str, Any],
    which: str,
    around: tuple[str, str],
    labelled: bool,
    ceiling: float,
) -> tuple[float, float]:
    """Return the range to print for a case, over all machines that measured it.

    which: the placeholder's word. labelled: True if the placeholder has `for`. ceiling: the largest possible value.

    Without `for`, if the text `around` the placeholder states a bound (such as "at least"), both returned numbers are
    the lower end for `least`, and the upper end for `most`.
    """
    same_machines = [case] if which in ENDS and not labelled else same_cases(case, verdict)
    ranges = [_case_range(same_case, ceiling) for same_case in same_machines]
    low, high = min(end for end, _ in ranges), max(end for _, end in ranges)
    before, after = around
    if which == "least" and not labelled and (_LOWER.search(before) or _LOWER_AFTER.search(after)):
        return low, low
    joined = re.search(_JOINS, before)
    if which == "most" and not labelled and (joined or _UPPER.search(before) or _UPPER_AFTER.search(after)):
        return high, high
    return low, high


def _case_range(case: Mapping[str, Any], ceiling: float) -> tuple[float, float]:
    """Return the ends of a case's interval if it is wide, otherwise the estimate twice.

    If the estimate exceeds the ceiling, return the interval up to the ceiling.
    """
    value, low, high = (float(case[name]) for name in NUMBER)
    if value > ceiling:
        return min(low, ceiling), ceiling
    narrow = low == high or (low > 0 and high < WIDE * low) or (high < 0 and low > WIDE * high)
    return (value, value) if narrow else (low, high)


def case_label(case: Mapping[str, Any], name: str) -> Any:
    """Return a case's value for a label, None if it lacks this label."""
    return case[name] if name in ("node", "device") else (case.get("labels") or {}).get(name)


def same_cases(case: Mapping[str, Any], verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the cases, from any machine, that have the same part, device, labels and outcome as this case.

    Return this case alone if it names no machine.
    """
    cases = cases_with_interval(verdict, str(case.get("part") or ""))
    matching = [other for other in cases if all(other.get(name) == case.get(name) for name in _ALIKE)]
    return matching if case.get("node") else [case]


def _share_text(record: Mapping[str, Any], end: str | None) -> str:
    """Format a share, or with `end` an end of its interval: '84%', 'all', 'none'.

    Other values close to 0 or 1 become 1% or 99%. For a chosen list, format the count: '9 to 10.5 of the 13'.
    """
    if record.get("listed") and end is None:
        return list_count(record)
    share = float(record[end or "estimate"])
    if not _ALMOST < share < 1 - _ALMOST:
        return "all" if share > 0.5 else "none"
    return f"{min(max(100 * share, 1), 99):.0f}%"


def _label_text(name: str, value: Any) -> str:
    if name == "parameters":
        return f"{formatting.format_number(float(value), 2)} parameters"
    if name == "threads":
        return formatting.format_count(int(value), "core")
    return formatting.label_value(name, value)


def sentence_number(value: float, unit: str, how: str = "") -> str:
    """Format a number for a sentence: with two digits, and a time in its customary unit.

    how: a format from FORMATS; '' for the default.
    """
    if how == "percent":
        return _percent_text(value)
    if how == "number":
        return _digits_apart_from_one(value)
    if how == "exact":
        return formatting.format_exact(value)
    if how == "about":
        return formatting.two_digits(float(f"{value:.2g}"))
    if unit in SECONDS:
        seconds = value * SECONDS[unit]
        for size, name, least in TIMES:
            if seconds >= least * size:
                return f"{_round_large(seconds / size)} {name}s"
        value, unit = seconds, "s"
    return formatting.with_unit(value, unit, 2)


def _round_large(value: float) -> str:
    """Format a number with two significant digits, from 1,000 on without further digits: '41,000', '708', '2.3'."""
    return formatting.format_number(float(f"{value:.2g}") if value >= 1000 else value, 2)


def _digits_apart_from_one(value: float) -> str:
    """Format two digits; up to four if a number other than 1 would be printed as 1: 1.02, 0.996."""
    texts = [formatting.two_digits(value), *(formatting.format_number(value, digits) for digits in (3, 4))]
    return (
        next((text for text in texts if float(text.split()[0].replace(",", "")) != 1), texts[0]) if value else texts[0]
    )


def _percent_text(share: float) -> str:
    """Format a fraction as a percentage: without decimals from 10%, with one from 1%, with two below 1%.

    The tiniest fractions give 'less than 0.01%'.
    """
    if 0 < share < _LEAST_SHARE:
        return f"less than {100 * _LEAST_SHARE:g}%"
    digits = 0 if share >= 0.1 or share <= 0 else 1 if share >= 0.01 else 2
    return f"{100 * share:.{digits}f}".removesuffix(".0") + "%"


def find_part(verdict: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return the part with this name; a claim's only part is named ''."""
    return next((part for part in verdict.get("parts") or [] if str(part.get("name") or "") == name), None)


def _part_with_share(verdict: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((part for part in verdict.get("parts") or [] if part.get("share")), None)


def cases_with_interval(verdict: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
    """Return the cases that have an interval, smallest estimate first.

    part: the name of a part, to return its cases only; '' for all cases in the claim.
    """
    cases = [
        case
        for case in verdict.get("cases") or []
        if (not part or case.get("part") == part) and all(case.get(name) is not None for name in NUMBER)
    ]
    return sorted(cases, key=lambda case: float(case["estimate"]))


def find_case(
    verdict: Mapping[str, Any], part: str, which: str | None, label: tuple[str | None, str | None] = (None, None)
) -> Mapping[str, Any] | None:
    """Return the case for a placeholder; None if there is none.

    which: `least`, `most` or `median` for the case with the smallest, the largest or the middle estimate; `supports` or
    `challenges` for the case on this side nearest to the threshold; otherwise the case with the headline number for the
    claim, or for the part if `part` names one.
    label: name and value for a label that the case must have.
    """
    if which == "median":
        known = [case for case in verdict["cases"] if part in ("", case["part"]) and case["estimate"] is not None]
        return sorted(known, key=lambda case: float(case["estimate"]))[(len(known) - 1) // 2] if known else None
    cases = [
        case
        for case in cases_with_interval(verdict, part)
        if not label[0] or str(case_label(case, label[0])) == label[1]
    ]
    if which in ENDS:
        return cases[0 if which == "least" else -1] if cases else None
    if which in (None, *NUMBER):
        headline = find_part(verdict, part) if part else verdict
        same = (case for case in cases if headline and all(case[name] == headline.get(name) for name in NUMBER))
        return next(same, cases[0] if label[0] and cases else None)

    def threshold_distance(case: Mapping[str, Any]) -> float:
        threshold = (find_part(verdict, str(case.get("part") or "")) or verdict).get("threshold")
        return Threshold.from_json(threshold).distance(float(case["estimate"])) if threshold is not None else 0.0

    return min((case for case in cases if case.get("outcome") == which), key=threshold_distance, default=None)
