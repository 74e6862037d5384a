"""Sentences for fields in `verdicts.json`: rules, missing evidence, boundaries, robustness.

This module imports no data libraries, so that commands which only print verdicts start fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contract.machine_kinds import KINDS
from report.formatting import (
    YES_NO,
    capitalize,
    first_items,
    format_count,
    format_exact,
    format_interval,
    format_number,
    join_words,
    label_value,
    shorten_names,
    side_name,
    threshold_text,
    thresholds_text,
    two_digits,
    uncapitalize,
    with_unit,
)
from report.outcomes import UNTRIED, Verdict, is_sensitive_to_list

Record = Mapping[str, Any]
_COMPARES = {"at_least": "at least", "at_most": "at most", "within": "within"}
_HOLDS = {"supports": "holds", "challenges": "fails", "undecided": "is undecided"}
_LABELS = {"dtype": "number format", "threads": "number of threads", "backend": "library", "op": "operation"}
# At most this many measured label values are listed.
_MOST_LISTED = 8
# If a trial's threshold differs from the declared threshold by less than this fraction, the text says "hardly more" or
# "hardly less" instead of their ratio.
_HARDLY = 0.005
_FACT = "Only another reading of the words would change it."


def hanging_sentence(node: str) -> str:
    """Format a warning that a single contributed node decides the verdict.

    node: the node's name.
    """
    return f"It hangs on one machine, {node}, which was handed in: nothing that the project measured itself decides it."


def rule_text(part: Record) -> str:
    """Format a part's rule and threshold: 'supported if at most 1,000 MAC/cycle in every case'.

    For the quantifier most, the text ends with 'in most cases, with no sure exception'.
    """
    options, kind, unit, bound = part["options"], part["rule"], part["unit"], part["threshold"]
    own = kind in _COMPARES
    exact = isinstance(bound, list) and bound[0] == bound[1]
    compares = "exactly" if exact else _COMPARES[kind if own else options.get("compare", "at_least")]
    limit = threshold_text(bound, "1" if kind in ("ratio", "trend", "crossover") else unit)
    every, series = (
        f"in every {name}" if options.get("quantifier") == "every" or part.get("n_cases") == 1
        else f"in most {many}, with no sure exception"
        for name, many in (("case", "cases"), ("series", "series"))
    )  # fmt: skip
    if unit == YES_NO:
        text = f"the answer is {limit}"
    elif kind == "ratio":
        text = f"the ratio {side_name(options['of'])} over {side_name(options['to'])} is {compares} {limit} {every}"
    elif kind == "trend":
        text = f"it grows as {options['along']} to the power of {compares} {limit} {series}"
    elif kind == "crossover":
        pair = f"{side_name(options['of'])} and {side_name(options['to'])}"
        text = f"{pair} change places along {options['along']}, at a value of {compares} {limit}"
    elif kind == "exists":
        text = f"some case is {compares} {limit}"
    elif kind == "for_share_of":
        share = format_exact(100 * float(options.get("share", 1)))
        listed = " on the list" if part.get("cases_why") else ""
        text = f"at least {share}% of the {options['of']}s{listed} are {compares} {limit}"
    else:
        text = f"{compares} {limit} {every}"
    scaled = f", after {_scaling_text(part['scale'])} ({part['scale_why']})" if part["scale"] != 1 else ""
    return f"supported if {text}{scaled}{_margin_rule_text(part)}"


def _margin_rule_text(part: Record) -> str:
    """Format the margin that others' figures need to count; '' for a part that our own rounds or documents decide."""
    margin = part.get("margin")
    if margin is None:
        return ""
    why = f" ({uncapitalize(part['margin_why'].rstrip('.'))})" if part["margin_why"] else ""
    return (
        f". A figure of others counts if it clears the threshold by a factor of {format_exact(margin)}{why}, or if an "
        "independent source lies on the same side"
    )


def strength_text(part: Record, cases: Sequence[Record]) -> str:
    """Format how many results decide a part if the others are undecided; '' if all are decided, or for a share.

    cases: the part's cases.
    """
    side = {Verdict.SUPPORTED: "supports", Verdict.CHALLENGED: "challenges"}.get(part["outcome"])
    decided = sum(case["outcome"] == side for case in cases)
    if side is None or part["rule"] in ("exists", "for_share_of") or decided == len(cases):
        return ""
    says = "support it" if side == "supports" else "speak against it"
    return f"{decided:,} of {format_count(len(cases), 'result')} clearly {says}; the others are too uncertain to count."


def more_rounds_text(part: Record) -> str:
    """Format how many rounds would decide a part's undecided cases; '' if no projection was made.

    part: a part with `more_rounds`, as `verdicts.MoreRounds` or None.
    """
    record = part.get("more_rounds")
    if not record:
        return ""
    texts = []
    if single := record["in_one_round"]:
        texts.append(f"{format_count(single, 'result')} measured only once, which gives no interval.")
    if record["cases"] > single:
        # A number of measurements is printed only if it decides more results than fewer measurements do.
        first = {number: rounds for rounds, number in reversed(record["decided_by"].items())}
        looks = [f"{number} after {rounds} measurements" for number, rounds in sorted(first.items()) if number]
        texts.append(
            f"Of {format_count(record['cases'], 'open result')}, measuring again would decide "
            f"{join_words(looks) or 'none'}, if numbers and spreads stay as they are."
        )
    return " ".join(texts)


def replaced_verdicts(verdict: Record) -> Iterator[tuple[int, str]]:
    """Yield each version that was replaced after data had been seen, if it comes to another verdict.

    That verdict is on today's evidence or, if the rule is the same, on the evidence that there was at the change.
    """
    for change in verdict["changes"]:
        earlier = change["before"] if change["same_rule"] else change["earlier"]
        known = earlier is not None and not Verdict(earlier).awaits
        if change["data_seen"] and known and earlier != verdict["verdict"]:
            yield int(change["version"]) - 1, str(earlier)


def count_rule_changes(verdicts: Sequence[Record]) -> dict[str, int]:
    """Count the rules that are as first declared, changed before data only, changed after, and turned by the latter."""
    judged = [verdict for verdict in verdicts if verdict["kind"] != "judgement"]
    seen = [verdict for verdict in judged if any(change["data_seen"] for change in verdict["changes"])]
    return {
        "rules": len(judged),
        "unchanged": sum(not verdict["changes"] for verdict in judged),
        "before": sum(bool(verdict["changes"]) for verdict in judged) - len(seen),
        "after": len(seen),
        "turned": sum(any(replaced_verdicts(verdict)) for verdict in seen),
    }


def list_text(part: Record) -> str:
    """Format the count on a chosen list and the units that would change the verdict; '' for other parts."""
    share = part.get("share")
    if not share or not share.get("listed"):
        return ""
    text = f"{capitalize(list_count(share))} {share['of']}s on a list that we chose reach the threshold"
    further = share["turning_units"]
    if further is None:
        return f"{text}, which is too close to call."
    sensitive = ", so it is sensitive to the list" if is_sensitive_to_list(further, share["units"]) else ""
    more = format_count(further, f"more {share['of']}")
    return f"{text}; {more} to the contrary would change the verdict{sensitive}."


def list_count(share: Record) -> str:
    """Format a chosen list's count with its measurement error: '9 to 10.5 of the 13', 'all 9' or 'none of the 5'."""
    units = int(share["units"])
    low, high = (f"{units * float(share[end]):.1f}".removesuffix(".0") for end in ("low", "high"))
    if low == high:
        return f"all {units}" if low == str(units) else f"{'none' if low == '0' else low} of the {units}"
    return f"{low} to {high} of the {units}"


def rules_text(parts: Sequence[Record]) -> str:
    """Format the rules for all parts, each after its part's name."""
    heads = [f"{part['name']}: " if len(parts) > 1 else "" for part in parts]
    return "; ".join(head + rule_text(part) for head, part in zip(heads, parts, strict=True)) or "not decided by a rule"


def _scaling_text(by: float) -> str:
    """Format a scaling: 'multiplying by 128', or for a fraction 'dividing by 16,896'."""
    # Claim files round fractions such as 1/16,896; five digits of the inverse restore the whole number.
    return f"multiplying by {format_exact(by)}" if by > 1 else f"dividing by {format_exact(float(f'{1 / by:.5g}'))}"


def missing_text(need: Record) -> str:
    """Format the evidence that a waiting part needs.

    need: the non-empty fields of `verdicts.Missing`.
    """
    wanted = join_words(need.get("experiments", []))
    if need["verdict"] == Verdict.AWAITING_HARDWARE:
        kind = need.get("machine")
        machine = KINDS[kind].name if kind else f"node with a {need['device'].upper()}"
        return f"no {machine} has measured {wanted}"
    why = need.get("why", "")
    if need["verdict"] == Verdict.AWAITING_SOURCE:
        return need["source"] + (f" ({why})" if why else "")
    return f"{wanted}: {why or _missing_reason(need)}"


def _missing_reason(need: Record) -> str:
    cases = format_count(need.get("estimates", 0), "result")
    if need.get("failures"):
        return "; ".join(map(_failure_text, need["failures"]))
    if need.get("measured"):
        there = first_items(need["measured"], _MOST_LISTED)
        wanted = join_words(need.get("wanted", []), "or") or "this scope"
        return f"measured, but not with {wanted} (measured: {there})"
    if need.get("rule"):
        return f"{cases} measured, but none that can be compared"
    if need.get("single_rounds"):
        return f"{need['single_rounds']:,} of {cases} measured only once, which gives no interval"
    return "the points that ran do not give this quantity on any node"


def _failure_text(failure: Record) -> str:
    where = f"on the {failure['device'].upper()} of {shorten_names(failure['nodes'], 'node')}"
    return f"{failure['status']} {where}: {failure['reason']}" if failure["status"] else f"not run {where}"


def boundary_text(record: Record) -> str:
    """Format where a claim holds and where it fails.

    For a crossover, format which side is ahead and from which value on.
    """
    if "ahead" in record:
        return str(record["ahead"])
    if "label" in record:
        undecided = record.get("undecided", 0)
        return _separation_text(record) + (f" ({format_count(undecided, 'case')} undecided)" if undecided else "")
    parts = [f"{_HOLDS[side]} in {n}" for side, n in record["counts"].items()]
    every = format_count(sum(record["counts"].values()), "case")
    return f"{join_words(parts)} of {every}, which no one or two labels tell apart"


def _separation_text(record: Record) -> str:
    """Format how labels separate the cases: 'holds from batch 256 on, fails up to batch 64'.

    If two labels are needed, the text has such a separation for each value of the first label.
    """
    label = record["label"]
    if "ranges" in record:
        lower, upper = record["ranges"]
        texts = {lower["side"]: _range_text(lower, "up to {}"), upper["side"]: _range_text(upper, "from {} on")}
        return ", ".join(texts[side] for side in _HOLDS if side in texts)
    if "values" in record:
        at = "on" if label == "node" else "for"
        return ", ".join(
            f"{_HOLDS[item['side']]} {at} {join_words([label_value(label, value) for value in item['values']])}"
            for item in record["values"]
        )
    return "; ".join(
        f"{label_value(label, item['value'])}: "
        + (f"{_HOLDS[item['side']]} throughout" if "side" in item else _separation_text(item))
        for item in record["inner"]
    )


def _range_text(record: Record, where: str) -> str:
    place = (("at {}") if record["single"] else where).format(label_value(record["label"], record["value"]))
    return f"{_HOLDS[record['side']]} {place}"


def when_written_text(then: Record) -> str:
    """Format a part as of the article's date: 'supported by 3.2 TB/s (AMD Instinct MI250), against 3.35 TB/s'."""
    if then.get("estimate") is None:
        return str(then["outcome"])
    value = format_interval(then["estimate"], then["low"], then["high"], then["unit"])
    case = f" ({then['case']})" if then["case"] else ""
    return f"{then['outcome']} by {value}{case}, against {threshold_text(then['threshold'], then['unit'])}"


def turn_text(verdict: Record) -> str | None:
    """Format the nearest change that would turn the verdict; None for a claim that was not judged here."""
    nearest = verdict.get("turn")
    if not nearest:
        return _FACT if verdict.get("robust") == UNTRIED else None
    part = next((part for part in verdict["parts"] if part["name"] == nearest.get("part")), None)
    if part is None and nearest["kind"] == "nothing":
        return "No other choice that we tried, on any part, changes it."
    if part is None:
        parts = "" if nearest["kind"] == "input" else " in every part that has it"
        return f"{change_text(nearest)}{parts}, {_verdict_effect(nearest)}."
    if nearest["kind"] == "nothing":
        text = _fruitless_trials(part)
    elif nearest["kind"] == "margin":
        text = _margin_text(part) or "No other choice that we tried changes it, but it is close."
    else:
        text = f"{change_text(nearest, part)}, {effect_text(nearest, part)}."
    return f"{capitalize(part['name'])}: {uncapitalize(text)}" if len(verdict["parts"]) > 1 else text


def change_text(trial: Record, part: Record | None = None) -> str:
    """Format a trial's change: 'With float64 instead of float32', 'Without the machine AMD EPYC'."""
    if trial["kind"] == "threshold" and part is not None:
        now = threshold_text(part["threshold"], part["unit"])
        return f"With {_threshold_change(trial, part['unit'])} instead of {now}{_factor_text(trial, part)}"
    if trial["kind"] == "scope":
        return f"With {swap_text(trial)}"
    if trial["kind"] == "input":
        value, now = (threshold_text(trial[key], trial["unit"]) for key in ("value", "now"))
        return f"With {value} instead of {now} for the {trial['means']}"
    noun = "result" if trial["of"] == "case" else trial["of"]
    if trial.get("number", 1) > 1:
        return f"Without any one of {format_count(trial['number'], noun)}"
    what = f"({trial['what']})" if noun == "result" else trial["what"]
    return f"Without the {noun} {what}"


def swap_text(trial: Record) -> str:
    """Format a swap: 'float64 instead of float32'."""
    now = "all threads" if trial["now"] == "all" else label_value(trial["label"], trial["now"])
    return f"{label_value(trial['label'], trial['value'])} instead of {now}"


def effect_text(trial: Record, part: Record) -> str:
    """Format a trial's effect: 'the verdict would be supported'.

    If the part's outcome differs from the verdict, or the verdict stays, the text names the part's outcome too.
    """
    stays = trial["verdict"] == part["robustness"]["verdict"]
    if not stays and trial["verdict"] == trial["outcome"]:
        return _verdict_effect(trial)
    outcome, verdict = quote_verdict(trial["outcome"]), quote_verdict(trial["verdict"])
    return f"this part would be {outcome} and the verdict would {'stay' if stays else 'be'} {verdict}"


def _verdict_effect(trial: Record) -> str:
    return f"the verdict would be {quote_verdict(trial['verdict'])}"


def quote_verdict(verdict: str) -> str:
    """Return a verdict's name in a sentence, in quotes if it is no adjective: 'supported', '“depends”'."""
    quoted = {str(Verdict.DEPENDS): "“depends”", str(Verdict.UNDECIDED): "too close to call"}
    return quoted.get(verdict, verdict)


def _threshold_change(trial: Record, unit: str) -> str:
    """Format a trial's threshold: 'a threshold above about 4,137 MAC/cycle', 'a threshold of 12 or more'."""
    at, side = trial["threshold"], trial.get("side")
    if isinstance(at, list):
        return f"a range of {threshold_text(at, unit)}"
    if side is None:
        return f"a threshold of {threshold_text(at, unit)}"
    value = format_interval(at, at, at, unit) if float(f"{at:.5g}") == at else f"about {with_unit(at, unit)}"
    if side in ("above", "below"):
        return f"a threshold {side} {value}"
    return f"a threshold of {value} or {'more' if side == 'from' else 'less'}"


def _factor_text(trial: Record, part: Record) -> str:
    """Format the ratio of a trial's threshold to the declared one: ' (1.25 times as much)'; '' if unknown or plain."""
    at, now = trial["threshold"], part["threshold"]
    if trial.get("factor") is None or isinstance(at, list) or at == now:
        return ""
    if abs(at / now - 1) < _HARDLY:
        return f" (hardly {'more' if at > now else 'less'})"
    return f" ({format_number(at / now)} times as much)" if now != 1 else ""


def _margin_text(part: Record) -> str:
    """Format how far a part's result lies from the threshold, in interval widths; '' if `margin_widths` is None."""
    widths = part["robustness"]["margin_widths"]
    if widths is None:
        return ""
    many = f"only {two_digits(widths)} times the width of its interval from the threshold"
    which = "clearest result on one side" if part["outcome"] == Verdict.DEPENDS else "nearest result"
    return f"The {which} lies {many}."


def _fruitless_trials(part: Record) -> str:
    """Format the kinds of trials that were made on a part, for a claim whose verdict no trial turned."""
    trials, unit = part["robustness"]["trials"], part["unit"]
    tried = []
    others = [trial["threshold"] for trial in trials if trial["kind"] == "threshold" and "side" not in trial]
    if others and isinstance(part["threshold"], list):
        tried.append(f"no other declared range ({thresholds_text(others, unit)})")
    elif others:
        every = sorted([*others, part["threshold"]])
        tried.append(f"no threshold from {thresholds_text([every[0], every[-1]], unit, 'to')}")
    labels = dict.fromkeys(
        trial["label"] for trial in trials if trial["kind"] == "scope" and not trial.get("plain_loop")
    )
    if labels:
        tried.append(f"no other {join_words([_LABELS.get(label, label) for label in labels], 'or')} that was measured")
    if part["n_cases"] > 1:
        tried.append("no single result left out")
    if not tried:
        return "There was nothing to vary: no range of thresholds is declared, and it rests on one result."
    return f"Nothing that we tried changes it: {join_words(tried)}."


def trial_lines(part: Record) -> Iterator[tuple[str, str]]:
    """Yield a table row for each trial: its change and the effect."""
    for trial in part["robustness"]["trials"]:
        same = trial["outcome"] == trial["verdict"]
        came_to = trial["outcome"] if same else f"{trial['outcome']}, the claim {trial['verdict']}"
        loop = " (plain code, which does not count)" if trial.get("plain_loop") else ""
        yield change_text(trial, part), f"{came_to}{loop}"
