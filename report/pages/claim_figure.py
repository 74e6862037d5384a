"""Draw a claim's figure: results next to the threshold, with a title that gives the typical result and the range."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from report import formatting
from report.findings import SECONDS, TIMES, case_label, sentence_number
from report.formatting import YES_NO, capitalize, join_words, uncapitalize
from report.outcomes import Threshold
from report.pages import charts, verdict_words
from report.pages.chart_rows import alt_text, is_single_round, scale_case
from report.pages.quantity_words import quantity_words, scope_text

MOST_ROWS = 8
# Labels that name the hardware and the model: a row shows the first of each that differs between rows.
_HARDWARE = ("gpu", "machine", "accelerator", "card", "part", "server")
_MODELS = ("run", "model", "subject", "service")
# Labels that may tell rows apart. `short_labels` tries them in this order, as a reader would ask for them.
_LABELS = (
    "shape", "op", "task", "cpu", "of", "to", "baseline", "parameters", "batch", "uses", "requests_per_s", "threads",
    "cores", "dtype", "phase", "direction", "host_memory", "level", "footprint", "backend", "method", "data", "limit",
    "list", "setting", "size", "scale", "scenario", "precision", "transfers", "variant", "software", "gpus", "source",
)  # fmt: skip
_TIERS = {"published": "published", "derived": "derived", "documented": "documented"}
# Whole numbers from this one on are rounded to three digits.
_MANY = 1e6
# Longest text of a further label in a row, in characters; of a longer one the row shows only the distinctive pieces.
_SHORT = 24
# Places on a time axis that may have a tick, in seconds.
_TIMES = {
    1e-3: "1 ms", 1.0: "1 s", 60.0: "1 minute", 3600.0: "1 hour", 86400.0: "1 day", 2_629_800.0: "1 month",
    31_557_600.0: "1 year", 3_155_760_000.0: "100 years", 315_576_000_000.0: "10,000 years",
}  # fmt: skip
# Shares are drawn on a linear axis if all of them reach this one.
_LINEAR_SHARE = 0.02
# A time axis has the ticks above if its largest number is more than this many times its smallest.
_LONG_TIMES = 100.0


def claim_chart(verdict: Mapping[str, Any], machines: Mapping[str, str]) -> charts.Chart | None:
    """Return the figure for a verdict; None if no case has a number to draw.

    machines: short node names by id.
    """
    parts = parts_to_draw(verdict)
    if not parts:
        return None
    first, unit, share = parts[0], str(parts[0]["unit"] or "1"), _is_share(parts[0])
    declared = Threshold.from_json(first["threshold"]).ends if first.get("threshold") is not None else ()
    cases_of = {str(part.get("name") or ""): _part_cases(verdict, part) for part in parts}
    shown = _shown_cases(cases_of, declared, machines)
    drawn = [case for cases in shown.values() for case in cases.values()]
    values = {name: [float(case["estimate"]) for case in cases] for name, cases in cases_of.items()}
    every = [value for part_values in values.values() for value in part_values]
    number = _number_format(first, every)
    scale, unit_name = (0.01, "%") if share else _axis_unit(max(map(abs, every)), unit)
    grouped = len(drawn) > len(parts) > 1
    rows = [
        {
            "label": label if grouped or len(parts) == 1 else capitalize(name),
            "group": capitalize(name) if grouped else "",
            **scale_case(case, scale),
            "text": number(float(case["estimate"]))
            + (f", {charts.ONE_ROUND}" if is_single_round(case) else "")
            + verdict_words.disturbed_suffix(case.get("disturbed")),
            "one_round": is_single_round(case),
            "side": str(case.get("outcome") or ""),
            "tier": _case_tier(verdict, case),
        }
        for name, cases in shown.items()
        for label, case in cases.items()
    ]
    title, ticks = _axis_title(parts, drawn[0]), _time_ticks(every, unit, scale)
    axis = title if ticks or not unit_name or unit_name.lower() in title.lower() else f"{title}, {unit_name}"
    limit = _threshold_text(first["threshold"], unit, share) if declared else ""
    if len(declared) == 1 and unit in SECONDS and unit_name not in limit and not ticks:
        limit = f"{limit} ({number(declared[0])})"
    line, ends = f"threshold: {limit}" if declared else "", _axis_ends(first)
    if any(_axis_ends(part) != ends for part in parts):
        ends = ()
    results = {
        name: result_text(part_values, number, " times" if "times" in axis else "")
        for name, part_values in values.items()
    }
    message = "; ".join(f"{name}: {uncapitalize(text)}" for name, text in results.items())
    return charts.Chart(
        str(verdict["id"]),
        capitalize(message) if len(parts) > 1 else chart_title(every, results.popitem()[1], declared, limit, ends),
        charts.estimate_chart(
            rows,
            axis,
            [end / scale for end in declared],
            line,
            False if share and min([*every, *declared]) >= _LINEAR_SHARE else None,
            ends,
            ticks,
        ),
        _chart_note(rows, drawn, len(every), first, machines),
        f"{axis}. {alt_text(rows)}. {capitalize(line)}.",
    )


def _axis_unit(value: float, unit: str) -> tuple[float, str]:
    """Return the divisor and the name for an axis unit: for hours and days, the unit in which a reader says `value`."""
    if unit not in ("h", "d"):
        return formatting.si_prefix(value, unit)
    size, name, _ = next((time for time in TIMES if value * SECONDS[unit] >= time[0] * time[2]), TIMES[-1])
    return size / SECONDS[unit], f"{name}s"


def _number_format(part: Mapping[str, Any], values: Sequence[float]) -> Callable[[float], str]:
    """Return a function that formats the part's numbers: whole numbers without decimals, estimates to three digits."""
    unit = str(part["unit"] or "1")
    if _is_share(part):
        return partial(sentence_number, unit=unit, how="percent")
    if unit == "1" and all(value == round(value) for value in values):
        return lambda value: formatting.format_exact(float(f"{value:.3g}") if value >= _MANY else value)
    if part.get("tier") in ("measured", "derived") and unit not in SECONDS:
        return lambda value: sentence_number(float(f"{value:.3g}"), unit)
    return partial(sentence_number, unit=unit)


def _has_number(case: Mapping[str, Any]) -> bool:
    value = case.get("estimate")
    return value is not None and bool(np.isfinite(value))


def _part_cases(verdict: Mapping[str, Any], part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the part's cases that have a number."""
    name = str(part.get("name") or "")
    return [case for case in verdict["cases"] if str(case.get("part") or "") == name and _has_number(case)]


def parts_to_draw(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts to show in the claim's figure.

    The figure shows the parts that decide the verdict: those with the verdict as outcome, or all parts if none has it,
    as for a verdict that depends on the part. The part that the finding describes comes first; further parts must share
    its unit and threshold.
    """
    parts = verdict["parts"] or []
    drawable = [part for part in parts if not _is_yes_no(verdict, part) and _part_cases(verdict, part)]
    if not drawable:
        return []
    deciding = [part for part in drawable if part["outcome"] == verdict["verdict"]] or drawable

    def rank(part: Mapping[str, Any]) -> tuple[bool, bool, bool, int]:
        return (
            str(part.get("name") or "") != verdict.get("finding_part"),
            len(_part_cases(verdict, part)) < 2,
            verdict.get("estimate") is None or part.get("estimate") != verdict["estimate"],
            parts.index(part),
        )

    first = min(deciding, key=rank)
    # Only a unit such as MAC/cycle makes parts with different rules comparable.
    keys = ("unit", "threshold", "rule") if first.get("unit") in ("1", None) else ("unit", "threshold")
    return [part for part in deciding if all(part.get(key) == first.get(key) for key in keys)]


def _is_yes_no(verdict: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """True if the part's numbers only answer yes (1) or no (0)."""
    numbers = {float(case["estimate"]) for case in _part_cases(verdict, part)}
    return part.get("unit") == YES_NO or (part.get("unit") == "1" and not _is_share(part) and numbers <= {0.0, 1.0})


def _are_equal(cases: Sequence[Mapping[str, Any]]) -> bool:
    """True for three or more cases that read the same."""
    return len(cases) > 2 and len({f"{float(case['estimate']):.4g}" for case in cases}) == 1


def _select_cases(cases: Sequence[Mapping[str, Any]], declared: Sequence[float], most: int) -> list[Mapping[str, Any]]:
    """Select up to `most` cases, sorted from the largest estimate to the smallest.

    If there are more cases, the largest, the smallest, and the nearest on each side of a threshold are selected first,
    and then others that are spread evenly.
    declared: the thresholds.
    """
    order = sorted(cases, key=lambda case: -float(case["estimate"]))
    if len(order) <= most or most == 1:
        return order[:most]
    chosen = [0, len(order) - 1]
    for line in declared:
        above = sum(case["estimate"] >= line for case in order)
        chosen += [place for place in (above - 1, above) if 0 <= place < len(order)]
    chosen += [int(place) for place in np.linspace(0, len(order) - 1, most).round()]
    return [order[place] for place in sorted([*dict.fromkeys([*chosen, *range(len(order))])][:most])]


def _shown_cases(
    cases_of: Mapping[str, Sequence[Mapping[str, Any]]], declared: Sequence[float], machines: Mapping[str, str]
) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Select at most MOST_ROWS cases, and return them by part and label; a label that repeats is left out.

    cases_of: each part's cases. declared: the thresholds.
    """
    shown, room = {}, MOST_ROWS
    # A part with few cases leaves its room to the others.
    for left, (name, cases) in zip(
        range(len(cases_of), 0, -1), sorted(cases_of.items(), key=lambda item: len(item[1])), strict=True
    ):
        equal = _are_equal(cases)
        selected = _select_cases(cases, declared, 1 if equal else max(2, room // left))
        labels = [f"all {len(cases)} results"] if equal else short_labels(selected, machines)
        shown[name] = {label: selected[labels.index(label)] for label in dict.fromkeys(labels)}
        room -= len(selected)
    return {name: shown[name] for name in cases_of}


def short_labels(cases: Sequence[Mapping[str, Any]], machines: Mapping[str, str]) -> list[str]:
    """Name each case by hardware and model, and by further labels in which the cases differ, if they are needed."""
    texts = {name: [_label_text(name, case) for case in cases] for name in (*_HARDWARE, *_MODELS, *_LABELS)}
    varies = [name for name, own in texts.items() if len(set(own)) > 1 or (len(cases) == 1 and own[0])]
    chosen = [next((name for name in names if name in varies), "") for names in (_HARDWARE, _MODELS)]
    labels = _joined_labels(texts, chosen, len(cases))
    for name in varies if len(cases) > 1 else ():
        longer = _joined_labels(texts, [*chosen, name], len(cases))
        is_short = name in _LABELS and max(map(len, texts[name])) <= _SHORT
        if is_short and len(set(longer)) > len(set(labels)):
            chosen, labels = [*chosen, name], longer
    if len({case.get("node") for case in cases}) > 1 or (len(cases) == 1 and not labels[0]):
        names = [formatting.case_machine(case, machines) for case in cases]
        labels = [", ".join(filter(None, pair)) for pair in zip(labels, names, strict=True)]
    for label in dict.fromkeys(label for label in labels if labels.count(label) > 1 or not label):
        places = [at for at, text in enumerate(labels) if text == label]
        full = [
            formatting.verdict_case_name(cases[at]).removesuffix(f" ({case_label(cases[at], 'source')})")
            for at in places
        ]
        for at, name, pieces in zip(places, full, _distinctive_pieces(full), strict=True):
            labels[at] = ", ".join(filter(None, [label, pieces])) or name or "the whole"
    return labels


def _joined_labels(texts: Mapping[str, Sequence[str]], names: Sequence[str], count: int) -> list[str]:
    return [", ".join(filter(None, (texts[name][at] for name in names if name))) for at in range(count)]


def _distinctive_pieces(labels: Sequence[str]) -> list[str]:
    """Reduce each label to its rarest comma-separated pieces, to no more of them than tell the labels apart.

    Pieces that all labels share are dropped.
    """
    pieces = [label.split(", ") for label in labels]
    shared = Counter(piece for label_pieces in pieces for piece in set(label_pieces))
    ranked = [
        sorted((piece for piece in label_pieces if shared[piece] < len(labels)), key=lambda piece: shared[piece])
        for label_pieces in pieces
    ]
    for count in (1, 2, 3):
        names = [", ".join(own[:count]) for own in ranked]
        if len(set(names)) == len(labels):
            break
    return names


def _label_text(name: str, case: Mapping[str, Any]) -> str:
    value = case_label(case, name)
    if value in (None, "") or (name == "threads" and float(value) == 0):
        return ""
    if name in ("card", "part"):
        return scope_text({"card": value})
    text = formatting.label_value(name, _parse_number(value))
    for prefix in (f"{name.replace('_', ' ')} ", "against "):
        if name not in ("batch", "k", "level") and text.startswith(prefix):
            text = text.removeprefix(prefix)
    return text


def _parse_number(value: Any) -> Any:
    """Convert a label to a number if possible, because verdicts.json keeps labels as text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def _case_tier(verdict: Mapping[str, Any], case: Mapping[str, Any]) -> str:
    tiers = {str(part.get("name") or ""): part.get("tier") for part in verdict["parts"]}
    tier = tiers.get(str(case.get("part") or "")) or verdict.get("evidence_tier")
    return _TIERS.get(str(tier), "measured")


def _is_share(part: Mapping[str, Any]) -> bool:
    """True if the part compares shares, which are drawn in percent."""
    axis = quantity_words(str(part.get("quantity"))).axis
    return axis.startswith(("Share", "Typical error")) and part.get("unit") in ("1", None) and _compares_values(part)


def _compares_values(part: Mapping[str, Any]) -> bool:
    return part.get("rule") not in ("ratio", "trend", "crossover")


def _threshold_text(threshold: Any, unit: str, share: bool) -> str:
    if not share:
        return formatting.threshold_text(threshold, unit)
    return " to ".join(f"{formatting.format_exact(100 * end)}%" for end in Threshold.from_json(threshold).ends)


def _axis_title(parts: Sequence[Mapping[str, Any]], case: Mapping[str, Any]) -> str:
    """Name the compared quantity, or a common name if the parts have different quantities.

    case: a case whose labels fill the braces in the name.
    """
    first, titles = parts[0], {quantity_words(str(part.get("quantity"))).axis for part in parts}
    if len(titles) == 1:
        title = titles.pop()
    else:
        title = "Share" if _is_share(first) else "Ratio" if str(first.get("unit") or "1") == "1" else "Result"
    title = title.format_map({name: scope_text({name: value}) for name, value in case["labels"].items()})
    if first.get("rule") == "ratio":
        if first["options"].get("over") == "entry":
            return "Ratio of the two figures, times"
        of, to = (formatting.side_name(first["options"][side]) for side in ("of", "to"))
        return f"{title}: {of} over {to}, times"
    form = {"trend": "growth exponent of {}", "crossover": "crossover of {}"}.get(str(first.get("rule")))
    return capitalize(form.format(uncapitalize(title))) if form else title


def _axis_ends(part: Mapping[str, Any]) -> tuple[str, ...]:
    """Return names for the two directions of an axis that compares a CPU with a GPU; none for other axes."""
    options = part.get("options") or {}
    if part.get("rule") == "ratio" and {options["of"], options["to"]} == {"cpu", "gpu"}:
        sides = [formatting.side_name(options[side]) for side in ("to", "of")]
        lower_wins = quantity_words(str(part.get("quantity"))).axis.startswith("Time")
        return tuple(f"{side} faster" for side in (reversed(sides) if lower_wins else sides))
    return quantity_words(str(part.get("quantity"))).ends if _compares_values(part) else ()


def _time_ticks(values: Sequence[float], unit: str, scale: float) -> dict[float, str] | None:
    """Return ticks from seconds to centuries for times that differ widely; None for other numbers."""
    if unit not in SECONDS or min(values) <= 0 or max(values) < _LONG_TIMES * min(values):
        return None
    return {seconds / SECONDS[unit] / scale: text for seconds, text in _TIMES.items()}


def result_text(values: Sequence[float], number: Callable[[float], str], suffix: str = "") -> str:
    """Format results: '12 times', '54 to 55 times', 'Typically 6.0 times, from 1.7 to 48 times'."""
    order = sorted(values)
    middle = f"{number(statistics.median_low(order))}{suffix}"
    if f"{order[0]:.2g}" == f"{order[-1]:.2g}":
        return f"{middle} in all {len(values)} results" if len(values) > 2 else middle
    ends = f"{formatting.range_words(number(order[0]), number(order[-1]))}{suffix}"
    return f"Typically {middle}, from {ends}" if len(values) > 2 else ends


def chart_title(
    values: Sequence[float], results: str, declared: Sequence[float], line: str, ends: Sequence[str] = ()
) -> str:
    """Return a title that gives the results, the better side if the axis has two, and the side of the threshold.

    results: the values in words. declared: the threshold or both ends of a range, and `line` its text. ends: see
    `charts.estimate_chart`.
    """
    n = len(values)
    if set(values) == set(declared) and len({*declared}) == 1:
        return f"Exactly {line}"
    if ends and (above := sum(value > 1 for value in values)) in (0, n):
        results = f"{ends[bool(above)]}: {uncapitalize(results)}"
    if len(declared) == 1:
        inside, side, other = sum(value > declared[0] for value in values), "above", "below"
        other = "at or below" if declared[0] in values else other
        line = f"the threshold of {line}"
    elif declared:
        inside, side, other = sum(declared[0] <= value <= declared[1] for value in values), "within", "outside"
    else:
        return results
    count = f", {side if inside else other}" if inside in (0, n) else f"; {inside:,} of {n:,} {side}"
    return f"{results}{count} {line}"


def _chart_note(
    rows: Sequence[Mapping[str, Any]],
    drawn: Sequence[Mapping[str, Any]],
    total: int,
    part: Mapping[str, Any],
    machines: Mapping[str, str],
) -> str:
    """Explain marks, colours and bars; name the machine if there is one, and count the results left out."""
    tiers = list(dict.fromkeys(str(row["tier"]) for row in rows))
    marks = join_words([f"{verdict_words.TIERS[tier].sign} {verdict_words.TIERS[tier].name}" for tier in tiers])
    margin = part.get("margin")
    unsure = (
        "does not count, because a published figure counts only if it lies "
        f"{formatting.format_exact(margin)} times past the threshold or a second source agrees"
        if margin
        else "is too uncertain to count"
    )
    sides = {str(row["side"]) for row in rows}
    colours = [f"{colour} {says}" for side, colour, says in (
        ("supports", "blue", "supports the claim"),
        ("challenges", "orange", "speaks against it"), ("undecided", "grey", unsure)) if side in sides]  # fmt: skip
    places = {formatting.case_machine(case, machines) for case in drawn}
    where = f" on {places.pop()}" if len(places) == 1 and "" not in places else ""
    text = f"{capitalize(marks)}{where}; {', '.join(colours)}." if colours else ""
    bars = [row for row in rows if row["low"] is not None and row["high"] is not None and row["high"] > row["low"]]
    if bars and part.get("ends") in verdict_words.BARS_BY_ENDS:
        text += f" Bars: {verdict_words.BARS_BY_ENDS[part['ends']]}."
    tiers_without_bars = {str(row["tier"]) for row in rows if row not in bars and not row["one_round"]}
    if "published" in tiers_without_bars:
        text += " No bar: the source gives no range."
    elif bars and tiers_without_bars:
        text += " No bar: the number is exact."
    if any(row["one_round"] for row in rows):
        text += f" {charts.HOLLOW}."
    if total > len(rows) and len(drawn) > 1:
        text += f" {len(rows)} of {total} results, from the greatest to the least."
    return text.strip()
