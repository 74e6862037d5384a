"""Draw a claim's figure: at most eight cases and the threshold, with a title that counts the cases on each side."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from report import formatting
from report.findings import case_label
from report.findings import sentence_number as plain
from report.formatting import YES_NO
from report.outcomes import Threshold
from report.pages import charts, verdict_words
from report.pages.chart_rows import alt_text, is_single_round, scale_case

MOST_ROWS = 8
# Labels that may tell cases apart. `short_labels` tries them in this order, as a reader would ask for them.
_LABELS = (
    "run", "model", "subject", "service", "server", "shape", "op", "task", "gpu", "machine", "accelerator", "cpu",
    "of", "to", "baseline", "parameters", "batch", "requests_per_s", "threads", "cores", "dtype", "phase", "direction",
    "host_memory", "level", "footprint", "backend", "method", "data", "setting", "size", "scale",
)  # fmt: skip
_MOST_LABELS = 3
# Maximum label length, in characters.
_ROOM = 44
_TIERS = {"published": "published", "derived": "derived", "documented": "documented"}


def claim_chart(verdict: Mapping[str, Any], machines: Mapping[str, str]) -> charts.Chart | None:
    """Return the figure for a verdict; None if no case has a number to draw.

    machines: short node names by id.
    """
    parts = parts_to_draw(verdict)
    if not parts:
        return None
    unit = str(parts[0]["unit"] or "1")
    names = {str(part.get("name") or "") for part in parts}
    cases = [case for case in verdict["cases"] if str(case.get("part") or "") in names and _has_number(case)]
    declared = Threshold.from_json(parts[0]["threshold"]).ends if parts[0].get("threshold") is not None else []
    shown = _select_cases(cases, declared)
    scale, unit_name = formatting.si_prefix(max(abs(float(case["estimate"])) for case in shown), unit)
    all_equal = len(cases) > 2 and len({f"{float(case['estimate']):.4g}" for case in cases}) == 1
    shown = shown[:1] if all_equal else shown
    labels = (
        [f"all {len(cases)} cases"]
        if all_equal
        else short_labels(shown, machines, {str(part.get("name")): part for part in parts})
    )
    rows = [
        {
            "label": label,
            **scale_case(case, scale),
            "text": plain(float(case["estimate"]), unit)
            + (f", {charts.ONE_ROUND}" if is_single_round(case) else "")
            + verdict_words.disturbed_suffix(case.get("disturbed")),
            "one_round": is_single_round(case),
            "side": str(case.get("outcome") or ""),
            "tier": _case_tier(verdict, case),
        }
        for label, case in zip(labels, shown, strict=True)
    ]
    axis = _axis_title(parts[0], unit_name)
    limit = formatting.threshold_text(parts[0]["threshold"], unit) if declared else ""
    line = f"threshold: {limit}" if declared else ""
    alt = alt_text(rows)
    return charts.Chart(
        str(verdict["id"]),
        chart_title(cases, declared, limit),
        charts.estimate_chart(rows, axis, [end / scale for end in declared], line),
        _chart_note(rows, 1 if all_equal else len(cases)),
        f"{axis}. {alt}. {formatting.capitalize(line)}.",
    )


def _has_number(case: Mapping[str, Any]) -> bool:
    value = case.get("estimate")
    return value is not None and bool(np.isfinite(value))


def parts_to_draw(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts to show in the claim's figure.

    The first choice is the part that the finding describes, if it has numbers to draw. All parts with the same unit,
    threshold and rule are shown if each of them has at most two cases; otherwise the chosen part is shown alone.
    """
    parts = verdict["parts"] or []

    def number_of_cases(part: Mapping[str, Any]) -> int:
        name = str(part.get("name") or "")
        return sum(str(case.get("part") or "") == name and _has_number(case) for case in verdict["cases"])

    drawable = [part for part in parts if part.get("unit") != YES_NO and number_of_cases(part)]
    if not drawable:
        return []
    estimate = verdict.get("estimate")

    def rank(part: Mapping[str, Any]) -> tuple[bool, bool, bool, bool, int]:
        return (
            str(part.get("name") or "") != verdict.get("finding_part"),
            part["outcome"] != verdict["verdict"],
            number_of_cases(part) < 2,
            estimate is None or part.get("estimate") != estimate,
            parts.index(part),
        )

    first = min(drawable, key=rank)
    same = [part for part in drawable if all(part.get(key) == first.get(key) for key in ("unit", "threshold", "rule"))]
    few_cases = all(number_of_cases(part) <= 2 for part in same)
    return same if few_cases else [first]


def _select_cases(cases: Sequence[Mapping[str, Any]], declared: Sequence[float]) -> list[Mapping[str, Any]]:
    """Select up to MOST_ROWS cases, sorted from the largest estimate to the smallest.

    If there are more cases, the largest, the smallest, and the nearest on each side of a threshold are selected first,
    and then others that are spread evenly.
    declared: the thresholds.
    """
    order = sorted(cases, key=lambda case: -float(case["estimate"]))
    if len(order) <= MOST_ROWS:
        return order
    chosen = {0, len(order) - 1}
    for line in declared:
        above = [place for place, case in enumerate(order) if case["estimate"] >= line]
        chosen |= {above[-1]} if above else set()
        chosen |= {len(above)} if len(above) < len(order) else set()
    for place in np.linspace(0, len(order) - 1, MOST_ROWS).round().astype(int):
        if len(chosen) < MOST_ROWS:
            chosen.add(int(place))
    for place in range(len(order)):
        if len(chosen) < MOST_ROWS:
            chosen.add(place)
    return [order[place] for place in sorted(chosen)]


def short_labels(
    cases: Sequence[Mapping[str, Any]], machines: Mapping[str, str], parts: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Name each case by labels in which the cases differ, with no more labels than needed to tell the cases apart."""
    if len(parts) > 1:
        names = [formatting.capitalize(str(case.get("part") or "")) for case in cases]
        if len(set(names)) == len(cases):
            return names
    varies = [name for name in _LABELS if len({str(case_label(case, name)) for case in cases}) > 1]
    if "model" in varies or "run" in varies:
        varies = [name for name in varies if name != "parameters"]
    if "gpu" in varies and "machine" in varies:
        varies.remove("machine")
    chosen: list[str] = []
    labels = [""] * len(cases)
    for name in varies:
        if len(chosen) == _MOST_LABELS or len(set(labels)) == len(cases):
            break
        if chosen and len(
            {(text, str(case_label(case, name))) for text, case in zip(labels, cases, strict=True)}
        ) == len(set(labels)):
            continue
        chosen.append(name)
        labels = [", ".join(_label_text(key, case) for key in chosen if _label_text(key, case)) for case in cases]
    if len({case.get("node") for case in cases if case.get("node")}) > 1 and len(set(labels)) < len(cases):
        labels = [f"{label}, {formatting.case_machine(case, machines)}".strip(", ")
                  for label, case in zip(labels, cases, strict=True)]  # fmt: skip
    duplicates = [label for label in dict.fromkeys(labels) if labels.count(label) > 1 or not label]
    for label in duplicates:
        places = [at for at, text in enumerate(labels) if text == label]
        full = [formatting.verdict_case_name(cases[at]) for at in places]
        for at, full_name, other in zip(places, full, _distinctive_pieces(full), strict=True):
            labels[at] = _join_labels(label, other) or _truncate(full_name) or "the whole"
    return _number_duplicates(labels)


def _join_labels(label: str, other: str) -> str:
    """Join a label and its distinctive pieces `other`; if this is too long, put `other` first and cut off the end."""
    text = ", ".join(filter(None, [label, other]))
    return text if len(text) <= _ROOM or not other else _truncate(", ".join(filter(None, [other, label])))


def _number_duplicates(labels: Sequence[str]) -> list[str]:
    counts: Counter[str] = Counter()
    numbered = []
    for label in labels:
        counts[label] += 1
        numbered.append(f"{label} ({counts[label]})" if labels.count(label) > 1 else label)
    return numbered


def _distinctive_pieces(labels: Sequence[str]) -> list[str]:
    """Reduce each label to its two rarest comma-separated pieces, and drop pieces that all labels share."""
    pieces = [label.split(", ") for label in labels]
    shared = Counter(piece for label_pieces in pieces for piece in set(label_pieces))
    selected = [[piece for piece in label_pieces if shared[piece] < len(labels)] for label_pieces in pieces]
    return [", ".join(sorted(distinctive, key=lambda piece: shared[piece])[:2]) for distinctive in selected]


def _label_text(name: str, case: Mapping[str, Any]) -> str:
    value = case_label(case, name)
    if value is None:
        return ""
    text = formatting.label_value(name, _parse_number(value))
    for spoken in (f"{name.replace('_', ' ')} ", "against "):
        if name not in ("batch", "k", "level") and text.startswith(spoken):
            text = text.removeprefix(spoken)
    return _truncate(text)


def _parse_number(value: Any) -> Any:
    """Convert a label to a number if possible, because verdicts.json keeps labels as text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def _truncate(text: str, room: int = _ROOM) -> str:
    if len(text) <= room:
        return text
    return text[:room].rsplit(" ", 1)[0].rstrip(",;:(") + " …"


def _case_tier(verdict: Mapping[str, Any], case: Mapping[str, Any]) -> str:
    tiers = {str(part.get("name") or ""): part.get("tier") for part in verdict["parts"]}
    tier = tiers.get(str(case.get("part") or "")) or verdict.get("evidence_tier")
    return _TIERS.get(str(tier), "measured")


def _axis_title(part: Mapping[str, Any], unit: str) -> str:
    """Name the compared quantity and its unit."""
    name = quantity_name(str(part.get("quantity") or ""))
    form = {"ratio": "{}, times", "trend": "growth exponent of {}", "crossover": "crossover of {}"}
    title = formatting.capitalize(form.get(str(part.get("rule")), "{}").format(name))
    return f"{title}, {unit}" if unit and unit not in title else title


def quantity_name(quantity: str) -> str:
    """Spell out a quantity's name: 'training.matmul_flop_share' becomes 'matmul FLOP share'."""
    if quantity in ("", "reference.value"):
        return "published figure"
    spelt = {
        "mac": "MAC",
        "cell": "entry",
        "cells": "entries",
        "flop": "FLOP",
        "mfu": "MFU",
        "gpu": "GPU",
        "gpus": "GPUs",
        "cpu": "CPU",
        "p99": "time of the slowest of 100",
        "onnx": "ONNX",
    }
    name = re.sub(r"_(s|per_s|h|usd)$", "", quantity.split(".")[-1])
    return " ".join(spelt.get(word, word) for word in name.split("_"))


def chart_title(cases: Sequence[Mapping[str, Any]], declared: Sequence[float], line: str) -> str:
    """Return a title that counts cases on each side of the threshold."""
    count, n, part = len(cases), formatting.format_count, formatting.format_part
    line = f"the threshold of {line}" if len(declared) == 1 else line
    if not declared:
        return f"{n(count, 'case')}, from the greatest to the least"
    values = [float(case["estimate"]) for case in cases]
    if len(declared) == 1:
        above = sum(value > declared[0] for value in values)
        equal = sum(value == declared[0] for value in values)
        if equal == count:
            return f"Exactly {line}"
        if above in (0, count):
            side = "above" if above else "at or below" if equal else "below"
            return f"{'Both' if count == 2 else 'All ' + str(count)} lie {side} {line}" if count > 1 else (
                f"It lies {side} {line}"
            )  # fmt: skip
        return f"{part(above, count, 'cases', 'lies', 'lie')} above {line}"
    low, high = declared
    inside = sum(low <= value <= high for value in values)
    if inside in (0, count):
        where = "within" if inside else "outside"
        return f"{'All ' + str(count) if count > 1 else 'It'} {'lie' if count > 1 else 'lies'} {where} {line}"
    return f"{part(inside, count, 'cases', 'lies', 'lie')} within {line}"


def _chart_note(rows: Sequence[Mapping[str, Any]], total: int) -> str:
    """Explain the marks and bars; if cases are left out, state how many are drawn."""
    tiers = list(dict.fromkeys(str(row["tier"]) for row in rows))
    marks = [f"{verdict_words.TIERS[tier].sign} {verdict_words.TIERS[tier].name}" for tier in tiers]
    sides = {str(row["side"]) for row in rows}
    colours = [f"{colour} {says}" for side, colour, says in (
        ("supports", "blue", "supports the claim"), ("challenges", "orange", "speaks against it"),
        ("undecided", "grey", "cannot tell")) if side in sides]  # fmt: skip
    text = f"{formatting.capitalize(formatting.join_words(marks))}; {', '.join(colours)}." if colours else ""
    if any(row["low"] is not None and row["high"] is not None and row["high"] > row["low"] for row in rows):
        text += f" {verdict_words.BARS}." if tiers == ["measured"] else " Bars: how sure each number is."
    if any(row["one_round"] for row in rows):
        text += f" {charts.HOLLOW}."
    if total > len(rows):
        text += f" {len(rows)} of {total} cases, from the greatest to the least; all are listed below."
    return text.strip()
