"""One claim's whole chain in plain text, from the article to the verdict and to what would turn it.

Quick to start: data libraries are imported where rows of the summary are read.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.schema import did_you_mean
from report import verdict_sentences
from report.data.row_ranges import parse_ranges
from report.data.summary_rows import read_rounds, read_rows, row_lines
from report.formatting import (
    case_machine,
    case_nodes,
    format_count,
    format_interval,
    format_number,
    join_words,
    threshold_text,
    thresholds_text,
    verdict_case_name,
    with_unit,
)
from report.outcomes import AWAITING, OPINION, Verdict

WIDTH = 100
# Rows told of a case, and cases told of a part, where not all are asked for.
ROWS, CASES = 12, 40
_HANG = 13


@dataclass(frozen=True)
class Sources:
    """What the chain is followed into beyond the verdicts.

    data: the folder that `gather` wrote, None for a chain without rows. reference: the published figures by
    id. most: how many rows are told of each case, None for all of them and for all cases.
    """

    data: Path | None = None
    reference: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    most: int | None = ROWS


def explain(document: Mapping[str, Any], claim: str, sources: Sources | None = None) -> str:
    """One claim's chain: article, paraphrase, rule, quantity, rows, cases, verdict, and what would turn it.

    Raises StudyError if there is no such claim, or if the data are not those that the verdicts were made from.
    """
    one, sources = find(document, claim), sources or Sources()
    labels = {node["id"]: node["label"] for node in document["nodes"]}
    lines = [f"{one['id']}: {one['verdict'].upper()}", ""]
    lines += _wrap("article: ", f'{one["article_title"]}, "{one["section"]}"')
    lines += _wrap("says: ", one["says"])
    lines += _wrap("kind: ", f"{one['kind']} claim; evidence: {one['evidence_tier']}; rule: version {one['version']}")
    lines += _wrap("found: ", one["finding"])
    if one["verdict"] == Verdict.NOT_TESTABLE:
        lines += _wrap("why: ", one["untestable"] or OPINION)
        lines += _wrap("bears on it: ", ", ".join(one["bears_on"])) if one["bears_on"] else []
    refuted = [part["name"] for part in one["parts"] if part["outcome"] == Verdict.CHALLENGED]
    if refuted and one["verdict"] in (*AWAITING, Verdict.UNDECIDED):
        lines += _wrap("", f"It can no longer be supported. Refuted already: {join_words(refuted)}.")
    if node := one.get("hangs_on"):
        lines += _wrap("", verdict_sentences.hanging_sentence(labels.get(node, node)))
    for then in one["when_written"]:
        lines += _wrap("when written: ", verdict_sentences.when_written_text(then))
    if one.get("unpublished"):
        lines += _wrap("measured by others: ", one["unpublished"])
    for part in one["parts"]:
        cases = [case for case in one["cases"] if case["part"] == part["name"]]
        lines += ["", *_part(part, cases, one, labels, sources)]
    if text := verdict_sentences.turn_text(one):
        head = f"What would turn it ({one['robust']})" if one["robust"] else "What would turn it"
        lines += ["", "-" * WIDTH, head, *_wrap("  ", text, hang=2)]
    lines += [""] if one["changes"] or one["sources"] or one["note"] or one["see_also"] else []
    for change in one["changes"]:
        lines += _wrap(f"version {change['version']} of the rule: ", change["reason"])
    for source in one["sources"]:
        lines += _wrap("source: ", _source(source))
    if one["note"]:
        lines += _wrap("note: ", one["note"])
    for text in _contradictions(document, one["id"]):
        lines += _wrap("contradicted by: ", text)
    if one["see_also"]:
        lines += _wrap("see also: ", ", ".join(one["see_also"]))
    if any(case.get("behind") for case in one["cases"]) and sources.data is None:
        lines += ["", *_wrap("", "The rows of data behind each case are told with --data DIR, what gather wrote.")]
    return "\n".join(lines)


def find(document: Mapping[str, Any], claim: str) -> Mapping[str, Any]:
    """The verdict on a claim. Raises StudyError if there is none."""
    found: dict[str, Mapping[str, Any]] = {verdict["id"]: verdict for verdict in document["verdicts"]}
    one = found.get(claim.upper())
    if one is None:
        raise StudyError(f"there is no claim {claim!r}.{did_you_mean(claim.upper(), list(found))}")
    return one


def _others(one: Mapping[str, Any]) -> str:
    """What others measured of a part: how strong it is, what it comes to, from where to where, and why it counts."""
    ends = [with_unit(one[end], one["unit"], 3) for end in ("least", "most") if one[end] is not None]
    decides = "which decides" if one["decides"] else "shown beside it"
    told = f"{one['quantity']}, {one['strength']}, {decides}: {one['outcome'] or 'no record in this scope'}"
    return f"{told}, {' to '.join(dict.fromkeys(ends))}. {one['why']}" if ends else f"{told}. {one['why']}"


def _part(
    part: Mapping[str, Any],
    cases: Sequence[Mapping[str, Any]],
    one: Mapping[str, Any],
    labels: Mapping[str, str],
    sources: Sources,
) -> list[str]:
    lines = ["-" * WIDTH]
    if len(one["parts"]) > 1:
        lines += [f"Part {part['name']}: {part['outcome']}", ""]
    lines += [f"Rule (version {one['version']})"]
    lines += _wrap("  ", verdict_sentences.rule_text(part))
    lines += _wrap("  threshold: ", f"{threshold_text(part['threshold'], part['unit'])}. {part['threshold_why']}")
    if part["sensitivity"]:
        lines += _wrap("  also tried: ", thresholds_text(part["sensitivity"], part["unit"]))
    if part["cases_why"]:
        lines += _wrap("  why these cases: ", part["cases_why"])
    lines += ["", *_quantity(part)]
    if part["checked"] is not None:
        lines += _wrap("  model checked by: ", part["checked"] or "nothing; it decides nothing alone")
    if part.get("arithmetic"):
        lines += ["", *_arithmetic(part["arithmetic"])]
    if cases:
        lines += ["", *_cases(part, cases, labels, sources)]
    if part.get("entries"):
        lines += ["", *_entries(part["entries"], sources)]
    for one_of in part.get("others") or []:
        lines += ["", *_wrap("Measured by others: ", _others(one_of))]
    if part.get("waits"):
        lines += _wrap("  still waits for ours: ", verdict_sentences.missing_text(part["waits"]))
    if part.get("missing"):
        lines += ["", *_wrap("Waits for: ", verdict_sentences.missing_text(part["missing"]))]
    if part.get("boundary"):
        lines += ["", *_wrap("Where it holds: ", verdict_sentences.boundary_text(part["boundary"]))]
    if part.get("robustness"):
        lines += ["", *_robustness(part)]
    return lines


def _quantity(part: Mapping[str, Any]) -> list[str]:
    unit = f", in {part['unit']}" if part["unit"] not in ("", "1") else ""
    lines = [f"Quantity {part['quantity']}{unit}"]
    for paragraph in (part.get("how") or "").split("\n\n"):
        lines += _wrap("  ", " ".join(paragraph.split()), hang=2) if paragraph else []
    scope = "; ".join(f"{name} = {_scope(value)}" for name, value in part["scope"].items())
    return [*lines, *(_wrap("  scope: ", scope) if scope else [])]


def _scope(value: Any) -> str:
    return join_words(list(map(str, value)), "or") if isinstance(value, list) else str(value)


def _arithmetic(work: Mapping[str, Any]) -> list[str]:
    """The formulas, and of the case that stands for all what went in and what came out."""
    lines = ["Arithmetic"]
    for formula in work["formulas"]:
        lines += _wrap("  ", f"{formula['text']}  [{formula['unit']}]{', rounded up' if formula['rounded_up'] else ''}")
    if "inputs" not in work:
        return lines
    told = ", for ".join(filter(None, (work["formula"], work["case"])))
    lines += _wrap("  here: ", told, hang=6)
    for one in work["inputs"]:
        value = format_interval(one["value"], one["low"] or one["value"], one["high"] or one["value"], one["unit"])
        by = ", ".join(filter(None, (one["kind"], *one["entries"], one["source"])))
        lines += _wrap(f"  {one['symbol']} = ", f"{value}: {one['what'] or one['means']} ({by})", hang=6)
    result = work["result"]
    value = format_interval(result["value"], result["low"], result["high"], result["unit"])
    lines += _wrap("  ", f"{result['symbol']} = {value}")
    for tried in work["sensitivity"]:
        moved = f"{tried['symbol']} = {with_unit(tried['input'], tried['unit'])}"
        value = format_interval(tried["value"], tried["low"], tried["high"], result["unit"])
        lines += _wrap("  with ", f"{moved}: {value}, {tried['outcome']}", hang=7)
    return lines


def _cases(
    part: Mapping[str, Any], cases: Sequence[Mapping[str, Any]], labels: Mapping[str, str], sources: Sources
) -> list[str]:
    """Every case with its interval and outcome, and the summary's rows that it was made of."""
    shown = list(cases) if sources.most is None else list(cases[:CASES])
    lines = [f"Cases ({format_count(len(cases), 'case')})"]
    numbers = [parse_ranges(case.get("behind") or "") for case in shown]
    told = [behind if sources.most is None else behind[: sources.most] for behind in numbers]
    rows = read_rows(sources.data, {row for some in told for row in some}) if sources.data else {}
    for case, behind, some in zip(shown, numbers, told, strict=True):
        value = format_interval(case["estimate"], case["low"], case["high"], part["unit"])
        where = ", ".join(filter(None, (case_machine(case, labels), verdict_case_name(case))))
        counts = f"; {format_count(case['n_rounds'], 'round')}, {format_count(case['n_samples'], 'sample')}"
        lines += _wrap(
            f"  {case['outcome']:<11}", f"{value}{f' ({where})' if where else ''}{counts if case['n_rounds'] else ''}"
        )
        if behind:
            lines += _behind(part, len(behind), len(some), sources)
        for row in some if rows else ():
            if case["node"] and rows[row]["node"] not in case_nodes(case):
                raise StudyError(f"{sources.data}: not the data that these verdicts were made from: judge them again")
            lines += [line for text in row_lines(row, rows[row]) for line in _wrap(text[0], text[1], hang=15)]
            lines += _samples(sources.data, rows[row])
    if len(shown) < len(cases):
        lines += _wrap("  ", f"and {format_count(len(cases) - len(shown), 'case')} more: --rows all tells all")
    return lines


def _samples(data: Path | None, row: Mapping[str, Any]) -> list[str]:
    """The samples of a row, round by round, and the file of the node that holds them."""
    rounds = read_rounds(data, row) if data else []
    texts = [f"round {number}: {n}, median {with_unit(median, row['unit'])}" for number, n, median in rounds]
    files = f"{row['experiment']}.{row['device'].replace(':', '-')}.<round>.parquet of {row['node']}"
    return _wrap(" " * 15, f"samples ({files}): {'; '.join(texts)}", hang=15) if texts else []


def _behind(part: Mapping[str, Any], number_: int, told: int, sources: Sources) -> list[str]:
    """How many rows are behind a case, and how it is known."""
    followed = "" if part.get("followed", True) else ", all that the quantity read of this node"
    some = f"; the first {told}, for all of them --rows all" if sources.data and told < number_ else ""
    return _wrap("    ", f"made of {format_count(number_, 'row')} of the summary{followed}{some}")


def _entries(ids: Sequence[str], sources: Sources) -> list[str]:
    lines = ["Published figures that went in"]
    shown = ids if sources.most is None else ids[: sources.most]
    for name in shown:
        entry = sources.reference.get(name)
        if entry is None:
            lines += _wrap("  ", name)
            continue
        value = entry.get("value")
        ends = [entry.get("low", value), entry.get("high", value)]
        told = (
            "no value"
            if value is None
            else format_interval(float(value), float(ends[0]), float(ends[1]), entry["unit"])
        )
        source = _source({**entry["source"], "date": entry["date"], "status": entry["status"]})
        lines += _wrap(f"  {name} = ", f"{told}: {entry['subject']}, {entry['what']}. {source}", hang=6)
    if len(shown) < len(ids):
        lines += _wrap("  ", f"and {len(ids) - len(shown)} more: --rows all tells all")
    return lines


def _source(source: Mapping[str, Any]) -> str:
    told = [source["title"], source["publisher"], source["date"], source["where"]]
    return f"{', '.join(filter(None, told))} ({source['status']}) {source.get('url') or ''}".strip()


def _robustness(part: Mapping[str, Any]) -> list[str]:
    """The margin of a part, and every trial."""
    record = part["robustness"]
    lines = ["Tried"]
    if record["exact"]:
        margin = "exact: it has no interval"
    elif record["margin_widths"] is None:
        margin = "unknown: there is no interval"
    else:
        margin = f"{format_number(record['margin_widths'], 2)} widths of the interval from the threshold"
    lines += _wrap("  margin: ", margin)
    for what, came_to in verdict_sentences.trial_lines(part):
        lines += _wrap("  ", f"{what}: {came_to}")
    return lines


def _wrap(head: str, text: str, hang: int | None = None) -> list[str]:
    """Lines of at most WIDTH columns; those after the first are indented."""
    indent = " " * (min(len(head), _HANG) if hang is None else hang)
    return textwrap.wrap(
        head + text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [head.rstrip()]


def sources_of(
    verdicts: Path, data: Path | None, reference: Path, most: int | None, claim: Mapping[str, Any]
) -> Sources:
    """Where a claim's chain leads: the data beside the verdicts unless others are named, and the published figures.

    Raises StudyError if named data are not there.
    """
    beside = verdicts.parent / "data"
    if data is None and (beside / "summary.parquet").is_file():
        data = beside
    if data is not None and not (data / "summary.parquet").is_file():
        raise StudyError(f"{data}: holds no summary.parquet. Give the folder that `python -m report gather` wrote")
    if not any(part.get("entries") for part in claim["parts"]):
        return Sources(data, {}, most)
    from report.data.reference_figures import read_reference

    return Sources(data, read_reference(reference), most)


def _contradictions(document: Mapping[str, Any], claim: str) -> Iterator[str]:
    """A line for each contradiction that a claim takes part in: what contradicts it, and where each side stands."""
    for contradiction in document.get("contradictions") or []:
        own = [
            side["name"] for side in contradiction["sides"] if claim in (carrier["id"] for carrier in side["claims"])
        ]
        if own:
            others = [
                carrier["id"]
                for side in contradiction["sides"]
                for carrier in side["claims"]
                if side["name"] not in own
            ]
            stand = "; ".join(f"side {side['name']}: {side['standing']}" for side in contradiction["sides"])
            yield f"{', '.join(others)} ({contradiction['title']}; this claim is on side {own[0]}): {stand}"
