"""Command `explain --all`: print all steps from an article to the verdict on a claim, and what would change it.

Data libraries are imported only to read summary rows, so that the command starts fast.
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
from report.outcomes import AWAITING, OPINION, Verdict, verdict_name

WIDTH = 100
# By default, at most ROWS summary rows are printed for a case, and at most CASES cases for a part.
ROWS, CASES = 12, 40
_HANG = 13
# The side of a case, as on the pages.
SIDES = {"supports": "for it", "challenges": "against it", "undecided": "cannot tell"}


@dataclass(frozen=True)
class Sources:
    """Sources that `explain` uses besides the verdicts.

    data: the folder that `gather` wrote; None to print no summary rows.
    reference: the published figures by id.
    most: the maximum number of rows to print for a case; None to print all rows and all cases.
    """

    data: Path | None = None
    reference: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    most: int | None = ROWS


def explain(document: Mapping[str, Any], claim: str, sources: Sources | None = None) -> str:
    """Format all steps from the article to the verdict on a claim, and what would change the verdict.

    The steps are the article, the paraphrase, and for each part the rule, the quantity, the cases and their rows.
    Raises StudyError if the claim is unknown, or if the verdicts were made from other data.
    """
    verdict, sources = find_verdict(document, claim), sources or Sources()
    labels = {node["id"]: node["label"] for node in document["nodes"]}
    lines = [f"{verdict['id']}: {verdict_name(verdict['verdict'], reason=True).upper()}", ""]
    lines += _wrap("article: ", f'{verdict["article_title"]}, "{verdict["section"]}"')
    lines += _wrap("claim: ", verdict["says"])
    evidence, version = verdict["evidence_tier"], verdict["version"]
    lines += _wrap("kind: ", f"{verdict['kind']} claim; evidence: {evidence}; rule: version {version}")
    lines += _wrap("finding: ", verdict["finding"])
    if verdict["verdict"] == Verdict.NOT_TESTABLE:
        lines += _wrap("why: ", verdict["untestable"] or OPINION)
        lines += _wrap("bears on it: ", ", ".join(verdict["bears_on"])) if verdict["bears_on"] else []
    refuted = [part["name"] for part in verdict["parts"] if part["outcome"] == Verdict.CHALLENGED]
    if refuted and verdict["verdict"] in (*AWAITING, Verdict.UNDECIDED):
        lines += _wrap("", f"It can no longer be supported. Refuted already: {join_words(refuted)}.")
    if node := verdict.get("hangs_on"):
        lines += _wrap("", verdict_sentences.hanging_sentence(labels.get(node, node)))
    for then in verdict["when_written"]:
        lines += _wrap("when written: ", verdict_sentences.when_written_text(then))
    if verdict.get("unpublished"):
        lines += _wrap("measured by others: ", verdict["unpublished"])
    for part in verdict["parts"]:
        cases = [case for case in verdict["cases"] if case["part"] == part["name"]]
        lines += ["", *_part_lines(part, cases, verdict, labels, sources)]
    if text := verdict_sentences.turn_text(verdict):
        head = f"What would change it ({verdict['robust']})" if verdict["robust"] else "What would change it"
        lines += ["", "-" * WIDTH, head, *_wrap("  ", text, hang=2)]
    lines += [""] if verdict["changes"] or verdict["sources"] or verdict["note"] or verdict["see_also"] else []
    for change in verdict["changes"]:
        lines += _wrap(f"version {change['version']} of the rule: ", change["reason"])
    for source in verdict["sources"]:
        lines += _wrap("source: ", _source_text(source))
    if verdict["note"]:
        lines += _wrap("note: ", verdict["note"])
    for text in _contradiction_texts(document, verdict["id"]):
        lines += _wrap("contradicted by: ", text)
    if verdict["see_also"]:
        lines += _wrap("see also: ", ", ".join(verdict["see_also"]))
    if any(case.get("behind") for case in verdict["cases"]) and sources.data is None:
        lines += ["", *_wrap("", "Use --data DIR, the output folder of `gather`, to print the data behind each case.")]
    return "\n".join(lines)


def find_verdict(document: Mapping[str, Any], claim: str) -> Mapping[str, Any]:
    """Return the verdict on a claim. Raises StudyError if the claim is unknown."""
    verdicts: dict[str, Mapping[str, Any]] = {verdict["id"]: verdict for verdict in document["verdicts"]}
    verdict = verdicts.get(claim.upper())
    if verdict is None:
        raise StudyError(f"there is no claim {claim!r}.{did_you_mean(claim.upper(), list(verdicts))}")
    return verdict


def _published_text(record: Mapping[str, Any]) -> str:
    """Format published measurements for a part: strength, outcome, range, and reason."""
    ends = [with_unit(record[end], record["unit"], 3) for end in ("least", "most") if record[end] is not None]
    decides = "which decides" if record["decides"] else "shown beside it"
    head = f"{record['quantity']}, {record['strength']}, {decides}: {record['outcome'] or 'no record in this scope'}"
    return f"{head}, {' to '.join(dict.fromkeys(ends))}. {record['why']}" if ends else f"{head}. {record['why']}"


def _part_lines(
    part: Mapping[str, Any],
    cases: Sequence[Mapping[str, Any]],
    verdict: Mapping[str, Any],
    labels: Mapping[str, str],
    sources: Sources,
) -> list[str]:
    lines = ["-" * WIDTH]
    if len(verdict["parts"]) > 1:
        lines += [f"Part {part['name']}: {part['outcome']}", ""]
    lines += [f"Rule (version {verdict['version']})"]
    lines += _wrap("  ", verdict_sentences.rule_text(part))
    lines += _wrap("  threshold: ", f"{threshold_text(part['threshold'], part['unit'])}. {part['threshold_why']}")
    if part["sensitivity"]:
        lines += _wrap("  also tried: ", thresholds_text(part["sensitivity"], part["unit"]))
    if part["cases_why"]:
        lines += _wrap("  why these cases: ", part["cases_why"])
    lines += ["", *_quantity_lines(part)]
    if part["checked"] is not None:
        lines += _wrap("  model checked by: ", part["checked"] or "nothing; it decides nothing alone")
    if part.get("arithmetic"):
        lines += ["", *_arithmetic_lines(part["arithmetic"])]
    if cases:
        lines += ["", *_case_lines(part, cases, labels, sources)]
    if part.get("entries"):
        lines += ["", *_reference_lines(part["entries"], sources)]
    for record in part.get("others") or []:
        lines += ["", *_wrap("Measured by others: ", _published_text(record))]
    if part.get("waits"):
        lines += _wrap("  still waits for ours: ", verdict_sentences.missing_text(part["waits"]))
    if part.get("missing"):
        lines += ["", *_wrap("Waits for: ", verdict_sentences.missing_text(part["missing"]))]
    if part.get("boundary"):
        lines += ["", *_wrap("Where it holds: ", verdict_sentences.boundary_text(part["boundary"]))]
    if part.get("robustness"):
        lines += ["", *_robustness_lines(part)]
    return lines


def _quantity_lines(part: Mapping[str, Any]) -> list[str]:
    unit = f", in {part['unit']}" if part["unit"] not in ("", "1") else ""
    lines = [f"Quantity {part['quantity']}{unit}"]
    for paragraph in (part.get("how") or "").replace("`", "").split("\n\n"):
        lines += _wrap("  ", " ".join(paragraph.split()), hang=2) if paragraph else []
    scope = "; ".join(f"{name} = {_scope_text(value)}" for name, value in part["scope"].items())
    return [*lines, *(_wrap("  scope: ", scope) if scope else [])]


def _scope_text(value: Any) -> str:
    return join_words(list(map(str, value)), "or") if isinstance(value, list) else str(value)


def _arithmetic_lines(work: Mapping[str, Any]) -> list[str]:
    """Format the formulas, with inputs and results for the representative case."""
    lines = ["Arithmetic"]
    for formula in work["formulas"]:
        lines += _wrap("  ", f"{formula['text']}  [{formula['unit']}]{', rounded up' if formula['rounded_up'] else ''}")
    if "inputs" not in work:
        return lines
    case = ", for ".join(filter(None, (work["formula"], work["case"])))
    lines += _wrap("  here: ", case, hang=6)
    for item in work["inputs"]:
        low, high = item["low"] or item["value"], item["high"] or item["value"]
        value = format_interval(item["value"], low, high, item["unit"])
        by = ", ".join(filter(None, (item["kind"], *item["entries"], item["source"])))
        lines += _wrap(f"  {item['symbol']} = ", f"{value}: {item['what'] or item['means']} ({by})", hang=6)
    result = work["result"]
    value = format_interval(result["value"], result["low"], result["high"], result["unit"])
    lines += _wrap("  ", f"{result['symbol']} = {value}")
    for trial in work["sensitivity"]:
        moved = f"{trial['symbol']} = {with_unit(trial['input'], trial['unit'])}"
        value = format_interval(trial["value"], trial["low"], trial["high"], result["unit"])
        lines += _wrap("  with ", f"{moved}: {value}, {trial['outcome']}", hang=7)
    return lines


def _case_lines(
    part: Mapping[str, Any], cases: Sequence[Mapping[str, Any]], labels: Mapping[str, str], sources: Sources
) -> list[str]:
    """Format every case with its interval, outcome and summary rows."""
    shown = list(cases) if sources.most is None else list(cases[:CASES])
    lines = [f"Cases ({format_count(len(cases), 'case')})"]
    numbers = [parse_ranges(case.get("behind") or "") for case in shown]
    listed = [behind if sources.most is None else behind[: sources.most] for behind in numbers]
    rows = read_rows(sources.data, {row for ids in listed for row in ids}) if sources.data else {}
    for case, behind, ids in zip(shown, numbers, listed, strict=True):
        value = format_interval(case["estimate"], case["low"], case["high"], part["unit"])
        where = ", ".join(filter(None, (case_machine(case, labels), verdict_case_name(case))))
        counts = f"; {format_count(case['n_rounds'], 'round')}, {format_count(case['n_samples'], 'sample')}"
        lines += _wrap(
            f"  {SIDES[case['outcome']]:<13}",
            f"{value}{f' ({where})' if where else ''}{counts if case['n_rounds'] else ''}",
        )
        if behind:
            lines += _row_count_lines(part, len(behind), len(ids), sources)
        for row in ids if rows else ():
            if case["node"] and rows[row]["node"] not in case_nodes(case):
                raise StudyError(f"{sources.data}: not the data that these verdicts were made from: judge them again")
            lines += [line for text in row_lines(row, rows[row]) for line in _wrap(text[0], text[1], hang=15)]
            lines += _round_lines(sources.data, rows[row])
    if len(shown) < len(cases):
        lines += _wrap("  ", f"and {format_count(len(cases) - len(shown), 'case')} more; use --rows all to print all")
    return lines


def _round_lines(data: Path | None, row: Mapping[str, Any]) -> list[str]:
    """Format a row's samples per round, and the node file that holds them."""
    rounds = read_rounds(data, row) if data else []
    texts = [f"round {number}: {n}, median {with_unit(median, row['unit'])}" for number, n, median in rounds]
    files = f"{row['experiment']}.{row['device'].replace(':', '-')}.<round>.parquet of {row['node']}"
    return _wrap(" " * 15, f"samples ({files}): {'; '.join(texts)}", hang=15) if texts else []


def _row_count_lines(part: Mapping[str, Any], total: int, printed: int, sources: Sources) -> list[str]:
    """Format how many summary rows are behind a case.

    If the rows were not tracked through the arithmetic, the text adds that these are all rows that the quantity read.
    """
    followed = "" if part.get("followed", True) else ", all that the quantity read of this node"
    hint = f"; the first {printed} follow, use --rows all for all" if sources.data and printed < total else ""
    return _wrap("    ", f"made of {format_count(total, 'row')} of the summary{followed}{hint}")


def _reference_lines(ids: Sequence[str], sources: Sources) -> list[str]:
    lines = ["Published figures used"]
    shown = ids if sources.most is None else ids[: sources.most]
    for name in shown:
        entry = sources.reference.get(name)
        if entry is None:
            lines += _wrap("  ", name)
            continue
        value = entry.get("value")
        ends = [entry.get("low", value), entry.get("high", value)]
        figure = (
            "no value"
            if value is None
            else format_interval(float(value), float(ends[0]), float(ends[1]), entry["unit"])
        )
        source = _source_text({**entry["source"], "date": entry["date"], "status": entry["status"]})
        lines += _wrap(f"  {name} = ", f"{figure}: {entry['subject']}, {entry['what']}. {source}", hang=6)
    if len(shown) < len(ids):
        lines += _wrap("  ", f"and {len(ids) - len(shown)} more; use --rows all to print all")
    return lines


def _source_text(source: Mapping[str, Any]) -> str:
    parts = [source["title"], source["publisher"], source["date"], source["where"]]
    return f"{', '.join(filter(None, parts))} ({source['status']}) {source.get('url') or ''}".strip()


def _robustness_lines(part: Mapping[str, Any]) -> list[str]:
    """Format a part's margin, and a line for each trial."""
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
    """Wrap text to WIDTH columns, with a hanging indent."""
    indent = " " * (min(len(head), _HANG) if hang is None else hang)
    return textwrap.wrap(
        head + text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [head.rstrip()]


def find_sources(
    verdicts: Path, data: Path | None, reference: Path, most: int | None, claim: Mapping[str, Any]
) -> Sources:
    """Find a claim's sources: gathered data (default: beside the verdicts) and published figures.

    Raises StudyError if `data` holds no results.
    """
    beside = verdicts.parent / "data"
    if data is None and (beside / "results.parquet").is_file():
        data = beside
    if data is not None and not (data / "results.parquet").is_file():
        raise StudyError(f"{data}: holds no results.parquet. Give the folder that `python -m report gather` wrote")
    if not any(part.get("entries") for part in claim["parts"]):
        return Sources(data, {}, most)
    from report.data.reference_figures import read_reference

    return Sources(data, read_reference(reference), most)


def _contradiction_texts(document: Mapping[str, Any], claim: str) -> Iterator[str]:
    """Yield a line per contradiction with this claim: the opposing claims, and each side's standing."""
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
