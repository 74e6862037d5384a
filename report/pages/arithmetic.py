"""Tables that show how a derived result is calculated: formula, inputs, and results for other input values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from report import formatting
from report.pages.machine_selection import filter_cases
from report.pages.verdict_words import format_interval

_KINDS = {"measured": "measured here", "documented": "documented", "assumed": "assumed"}


def derivation_entries(
    parts: Sequence[Mapping[str, Any]],
    machines: Mapping[str, str] | None = None,
    shown: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Return a template entry for each formula that gave a part of the claim a derived result.

    Parts without a derived result have no entry.
    machines: machine names by node id, to label other results from the same inputs if several nodes gave them.
    shown: ids of the nodes whose other results are listed; None lists the results of all nodes.
    """
    worked: list[dict[str, Any]] = []
    for part in parts:
        record = part.get("arithmetic") or {}
        for derivation in [record, *record.get("also", [])] if record.get("formula") else []:
            worked.append(
                {"part": str(part.get("name") or ""), **_derivation_entry(derivation), "beside": [], "more": 0}
            )
        if worked and record.get("beside"):
            further = filter_cases(record["beside"], shown, lambda result: result["labels"].get("node"))
            worked[-1]["beside"] = _further_results(further, machines or {})
            worked[-1]["more"] = len(record["beside"]) - len(further)
    return worked


def pending_formulas(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the formulas for a claim's parts that lack a derived result."""
    texts = [
        format_formula(formula["text"])
        for part in parts
        if (record := part.get("arithmetic")) and not record.get("formula")
        for formula in record["formulas"]
    ]
    return list(dict.fromkeys(texts))


def format_formula(text: str) -> str:
    """Write a formula from Python syntax in mathematical notation, with `²` and `×`."""
    return text.replace("**2", "²").replace(" * ", " × ")


def _derivation_entry(record: Mapping[str, Any]) -> dict[str, Any]:
    result = record["result"]
    unit = str(result["unit"])
    return {
        "formula": format_formula(record["formula"]),
        "result": f"{result['symbol']} = {_format_result(result, unit)}",
        "case": str(record["case"]),
        "inputs": [_input_row(entry) for entry in record["inputs"]],
        "turns": [
            {
                "what": f"{trial['symbol']} = {_format_input(trial['input'], trial['unit'])}",
                "result": _format_result(trial, unit),
                "verdict": str(trial["verdict"]),
            }
            for trial in record["sensitivity"]
        ],
    }


def _input_row(record: Mapping[str, Any]) -> dict[str, str]:
    description = "; ".join(dict.fromkeys(filter(None, (str(record["means"]), str(record["what"])))))
    ends = [record["low"], record["high"]]
    bounds = [_format_input(end, record["unit"]) for end in ends if end is not None]
    where = str(record["source"])
    return {
        "symbol": str(record["symbol"]),
        "about": description,
        "value": _format_input(record["value"], record["unit"]),
        "range": " to ".join(bounds),
        "where": f"{_KINDS[record['kind']]}: {where}" if record["kind"] != "measured" or record["entries"] else where,
    }


def _format_result(result: Mapping[str, Any], unit: str) -> str:
    """Format a result, with its interval in brackets."""
    around = format_interval(result["low"], result["high"], unit)
    return formatting.with_unit(result["value"], unit) + (f" ({around})" if around else "")


def _format_input(value: float, unit: str) -> str:
    """Format a value with its unit, rounded to four significant digits."""
    scale, name = formatting.si_prefix(float(value), unit)
    return f"{formatting.format_exact(float(f'{value / scale:.4g}'))} {name}".strip()


def _further_results(records: Sequence[Mapping[str, Any]], machines: Mapping[str, str]) -> list[dict[str, str]]:
    several = len({record["labels"]["node"] for record in records if "node" in record["labels"]}) > 1
    return [
        {
            "what": formatting.capitalize(str(record["name"])),
            "case": _case_label(record, machines if several else {}),
            "result": _format_result(record, record["unit"]),
        }
        for record in records
    ]


def _case_label(record: Mapping[str, Any], machines: Mapping[str, str]) -> str:
    """Label a result by its server, or by its case if it names no server, and by its machine if `machines` has it."""
    labels = record["labels"]
    label = f"{labels['server']} ({labels['evidence']})" if "server" in labels else str(record["case"])
    return "; ".join(filter(None, [label, machines.get(str(labels.get("node")))]))
