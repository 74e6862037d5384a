"""Build a claim's page: claim, verdict, figure, confidence, what would change it, and all evidence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from contract.node import count_machines, kind_of_node
from report import formatting, verdict_sentences
from report.formatting import (
    capitalize,
    case_machine,
    case_nodes,
    format_count,
    join_words,
    shorten_names,
    uncapitalize,
)
from report.outcomes import FEWEST_MACHINES, LISTED
from report.pages import verdict_words
from report.pages.advice_page import examples_for_claim
from report.pages.arithmetic import derivation_entries, pending_formulas
from report.pages.bibliography import document_key, published_key
from report.pages.case_evidence import Cell, EvidenceLists, citation, list_cells, representative_cell
from report.pages.claim_figure import MOST_ROWS, claim_chart
from report.pages.evidence_ids import EvidenceIds
from report.pages.machine_selection import filter_cases
from report.pages.markdown import identifier
from report.pages.quantity_words import quantity_words, scope_text
from report.pages.threshold_slider import sliders_json

# Maximum number of cases to list for a part of the claim; the data tables hold all cases.
_MOST_CASES = 120


def claim_context(
    verdict: Mapping[str, Any],
    document: Mapping[str, Any],
    machines: Mapping[str, str],
    shown: Collection[str] | None = None,
    ids: EvidenceIds | None = None,
) -> dict[str, Any]:
    """Build the template context for a claim's page.

    machines: short node names by id. shown: node ids to list cases for; None lists all cases. ids: ids of the evidence.
    """
    ids = ids or EvidenceIds()
    lists, cells = EvidenceLists(ids), list_cells(verdict, ids.results)
    standing = representative_cell(verdict, cells)
    verdicts = {str(verdict["id"]): verdict for verdict in document["verdicts"]}
    order = list(verdicts)
    place = order.index(str(verdict["id"]))
    name = str(verdict["verdict"])
    node_looks = {str(node["id"]): node["looks"] for node in document["nodes"] if node.get("looks")}
    parts = verdict["parts"] or []
    word = verdict_words.verdict_word(name)
    tables = list(_case_tables(verdict, machines, shown, cells, lists, standing))
    return {
        "id": identifier(str(verdict["id"])),
        "article": str(verdict["article"]),
        "article_title": str(verdict["article_title"]),
        "section": str(verdict["section"] or ""),
        "says": str(verdict["says"]),
        "word": word,
        "basis": verdict_words.basis_phrase(verdict),
        "tier": verdict_words.tier(str(verdict["evidence_tier"])),
        "finding": str(verdict["finding"]),
        "cite": citation(document, *([standing.id] if standing else []), f"claim {verdict['id']}"),
        "standing": standing.anchor if standing else "",
        "figure": claim_chart(verdict, machines),
        "listed": max((len(table["rows"]) for table in tables if not table["more"]), default=0) > MOST_ROWS,
        "sure": list(dict.fromkeys(_confidence_sentences(verdict, machines, node_looks))),
        "turns": list(dict.fromkeys(_turning_sentences(verdict))),
        "slider": sliders_json(verdict),
        "conflicts": list(_conflict_entries(verdict, document)),
        "see": [
            verdict_words.claim_entry(verdicts[claim_id], "says")
            for claim_id in dict.fromkeys([*(verdict["see_also"] or []), *(verdict["bears_on"] or [])])
            if claim_id in verdicts and claim_id != verdict["id"]
        ],
        "jobs": examples_for_claim(str(verdict["id"])),
        "parts": [_part_context(part, several_parts=len(parts) > 1) for part in parts],
        "note": str(verdict["note"] or ""),
        "others": [row for part in parts for row in _published_rows(part)],
        "arithmetic": derivation_entries(parts, machines, shown),
        "formulas": pending_formulas(parts),
        "tables": tables,
        "evidence": lists.html(),
        "sources": _cited_sources(verdict, document),
        "entries": list(dict.fromkeys(str(entry) for part in parts for entry in part["entries"])),
        "version": int(verdict["version"]),
        "changes": [_change_context(change) for change in verdict["changes"]],
        "turned": [
            (version, verdict_words.VERDICTS[name]) for version, name in verdict_sentences.replaced_verdicts(verdict)
        ],
        "previous": identifier(order[place - 1]) if place else None,
        "next": identifier(order[place + 1]) if place + 1 < len(order) else None,
        "place": f"{place + 1} of {len(order)}",
    }


def _change_context(change: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "version": int(change["version"]),
        "date": str(change["date"]),
        "when": "after data had been seen" if change["data_seen"] else "before there were data for it",
        "reason": str(change["reason"]),
        "same_rule": bool(change["same_rule"]),
        "earlier": verdict_words.VERDICTS[change["earlier"]] if change["earlier"] else None,
        "gone": str(change["gone"]),
        "before": verdict_words.VERDICTS[change["before"]] if change["before"] else None,
    }


def _confidence_sentences(
    verdict: Mapping[str, Any], machines: Mapping[str, str], node_looks: Mapping[str, Sequence[int]]
) -> Any:
    """Yield sentences on how far to trust the verdict.

    machines: short node names by id. node_looks: the numbers of rounds at a node's looks, for nodes that have any.
    """
    cases = [case for case in verdict["cases"] if case.get("estimate") is not None]
    kinds: dict[str, Mapping[str, Any]] = {}
    for case in sorted(cases, key=lambda case: -len(case.get("instances", ()))):
        if case.get("node"):
            kinds.setdefault(kind_of_node(str(case["node"])), case)
    rounds = [int(case["n_rounds"]) for case in cases if case.get("n_rounds")]
    if published := [case for case in cases if case["labels"].get("source")]:
        named = {name for case in published for name in str(case["labels"]["source"]).split(" and ")}
        text = f"{format_count(len(published), 'result')} from {format_count(len(named), 'published source')}"
        results = {case["labels"]["cpu_result"] for case in cases if case["labels"].get("cpu_result")}
        shared = len(published) > len(results) > 0
        yield f"{text}, compared with only {format_count(len(results), 'CPU result')}." if shared else f"{text}."
    if kinds:
        where = shorten_names([case_machine(case, machines) for case in kinds.values()], "machine")
        measured = [case for case in cases if case.get("node")]
        spread = f",{' each' if len(measured) > 1 else ''} measured {_format_repeats(rounds)}" if rounds else ""
        yield f"{format_count(len(measured), 'result')} on {where}{spread}."
        yield from _session_sentences(cases)
        yield from _look_sentences(cases, machines, node_looks)
    if node := verdict.get("hangs_on"):
        yield verdict_sentences.hanging_sentence(machines.get(node, node))
    listed = False
    for part in verdict["parts"] or []:
        of_part = [case for case in verdict["cases"] if case["part"] == part["name"]]
        listed = listed or bool(verdict_sentences.list_text(part))
        for text in (
            verdict_sentences.strength_text(part, of_part),
            verdict_sentences.list_text(part),
            _comparison_sentence(part),
        ):
            if text:
                yield f"{capitalize(part['name'])}: {uncapitalize(text)}" if part["name"] else text
        if text := _model_check_sentence(part):
            yield text
    if instance_groups := [case["instances"] for case in cases if case.get("instances")]:
        text = "Machines of one kind count as one, by their median"
        if any(count_machines(nodes) < len(nodes) for nodes in instance_groups):
            text += ", and a machine counts once, however often it was measured"
        if min(map(count_machines, instance_groups)) < FEWEST_MACHINES:
            text += f"; with fewer than {FEWEST_MACHINES} of a kind, their range says nothing sure of other machines"
        yield f"{text}."
    if not (listed and verdict.get("robust") == LISTED) and (text := verdict_words.robust_sentence(verdict)):
        yield text
    if verdict["verdict"] == "outdated":
        for condition in verdict.get("when_written") or []:
            yield f"When it was written: {verdict_sentences.when_written_text(condition)}."


def _session_sentences(cases: Sequence[Mapping[str, Any]]) -> Any:
    """Yield a sentence on the spread between sessions in the cases' intervals, if any case has an interval."""
    known = [bool(case.get("session_spread")) for case in cases if case.get("n_rounds") and case.get("low") is not None]
    if known and all(known):
        yield "The intervals include the spread between sessions at least an hour apart."
    elif any(known):
        yield (
            f"{sum(known):,} of {len(known):,} intervals include the spread between sessions at least an hour apart; "
            "the others leave out the spread between days."
        )
    elif known:
        yield "Each result comes from one session, so its interval leaves out the spread between days."


def _look_sentences(
    cases: Sequence[Mapping[str, Any]], machines: Mapping[str, str], node_looks: Mapping[str, Sequence[int]]
) -> Any:
    """Yield a sentence for each schedule of looks among the cases' machines."""
    nodes = dict.fromkeys(str(node) for case in cases for node in case.get("instances") or [case.get("node")])
    schedules: dict[tuple[int, ...], list[str]] = {}
    for node in nodes:
        if node in node_looks:
            schedules.setdefault(tuple(node_looks[node]), []).append(machines.get(node, node))
    for rounds, names in schedules.items():
        yield (
            f"On {shorten_names(names, 'machine')}, unclear results were measured again and judged after "
            f"{join_words([str(number) for number in rounds])} measurements, at {verdict_words.LOOK_LEVEL} each; a "
            "result keeps the interval that decided it."
        )


def _format_repeats(values: Sequence[int]) -> str:
    least, most = min(values), max(values)
    times = "once" if most == 1 else "twice" if most == 2 else f"{most} times"
    return times if least == most else f"{least} to {most} times"


def _model_check_sentence(part: Mapping[str, Any]) -> str:
    """State how accurate the model behind a derived part is, or that no measurement has checked the model.

    Returns '' for a part that is not derived by a model.
    """
    check = part.get("check")
    if part.get("checked") == "":
        return "No measurement has checked the model behind it, so it decides nothing alone."
    if not check:
        return ""
    if "cases" in check:
        least, most = (
            formatting.format_number(100 * check[name], 2).replace("-", "\N{MINUS SIGN}") for name in ("least", "most")
        )
        cases = format_count(check["cases"], "measurement")
        return f"We checked the model behind it against {cases}: it was off by {least}% to {most}%."
    shortest, longest = (formatting.two_digits(check[name]) for name in ("shortest", "longest"))
    return (
        f"We tested the estimate on {format_count(check['jobs'], 'complete run')}; they took {shortest} to {longest} "
        "times as long, so we corrected it."
    )


def _comparison_sentence(part: Mapping[str, Any]) -> str:
    """Return a sentence with the published results of the same quantity; '' if they cannot be compared.

    Their hardware is another, so the sentence states their range instead of a ratio to ours.
    """
    for other in part.get("others") or []:
        if other.get("beside"):
            ends = [formatting.with_unit(other[end], other["unit"], 2) for end in ("least", "most")]
            return f"Published runs on other hardware gave {formatting.range_words(*ends)}."
    return ""


def _turning_sentences(verdict: Mapping[str, Any]) -> Any:
    """Yield sentences on what would change the verdict, such as another threshold."""
    if text := verdict_sentences.turn_text(verdict):
        yield capitalize(text)
    for part in verdict["parts"] or []:
        missing = part.get("missing")
        for text in (
            *(_published_turns(other, part) for other in part.get("others") or [] if other["decides"]),
            verdict_sentences.more_rounds_text(part),
            f"Still missing: {verdict_sentences.missing_text(missing)}." if missing else "",
        ):
            if text:
                yield f"{capitalize(str(part['name']))}: {uncapitalize(text)}" if part["name"] else text
    if verdict.get("decided_on") == "others":
        yield "Once we measure a GPU, that result replaces these."


def _published_turns(other: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """State the outcome of published results at each other threshold that changes it."""
    unit = str(other["unit"] or "1")
    limits: dict[str, list[Any]] = {}
    for trial in other["trials"]:
        if "side" not in trial and trial["outcome"] != other["outcome"]:
            limits.setdefault(str(trial["outcome"]), []).append(trial["threshold"])
    if not limits:
        return "Other fair thresholds do not change it."
    texts = [
        f"of {formatting.thresholds_text(values, unit, 'or')}, {verdict_sentences.quote_verdict(outcome)}"
        for outcome, values in limits.items()
    ]
    now = formatting.threshold_text(part["threshold"], unit)
    return f"With a threshold {'; '.join(texts)} (now {now})."


def _conflict_entries(verdict: Mapping[str, Any], document: Mapping[str, Any]) -> Any:
    """Yield an entry for each question to which this claim and other claims in the articles give different answers."""
    verdicts = {str(verdict["id"]): verdict for verdict in document["verdicts"]}
    for contradiction in document["contradictions"]:
        sides = contradiction["sides"]
        own_sides = [side for side in sides if verdict["id"] in (claim["id"] for claim in side["claims"])]
        if len(own_sides) != 1 or contradiction["conflict"] != "real":
            continue
        others = [side for side in sides if side is not own_sides[0]]
        yield {
            "question": str(contradiction["question"]),
            "says": join_words([str(side["says"]).rstrip(".") for side in others]),
            "own": _standing_claims(own_sides, verdicts),
            "claims": _standing_claims(others, verdicts),
        }


def _standing_claims(
    sides: Sequence[Mapping[str, Any]], verdicts: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """List the claims on these sides, each with a phrase for its verdict."""
    entries = [
        verdict_words.claim_entry(verdicts[claim["id"]])
        for side in sides
        for claim in side["claims"]
        if claim["id"] in verdicts
    ]
    return [{**entry, "stands": verdict_words.stands_phrase(entry["word"])} for entry in entries]


def _part_context(part: Mapping[str, Any], several_parts: bool) -> dict[str, Any]:
    unit = str(part["unit"] or "1")
    words = quantity_words(str(part["quantity"]))
    return {
        "name": capitalize(str(part["name"] or words.axis)) if several_parts else "",
        "word": verdict_words.verdict_word(str(part["outcome"])),
        "rule": verdict_sentences.rule_text(_without_entry_names(part)),
        "why": str(part["threshold_why"] or ""),
        "what": words.means,
        "scope": capitalize(scope_text(part["scope"])),
        "result": formatting.with_unit(part["estimate"], unit) if part.get("estimate") is not None else "",
        "around": verdict_words.format_interval(part.get("low"), part.get("high"), unit),
    }


def _without_entry_names(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace the names of compared reference entries, which mean nothing to a reader."""
    options = part["options"]
    if options.get("over") != "entry":
        return part
    return {**part, "options": {**options, "of": "of the first figure", "to": "the second"}}


def _published_rows(part: Mapping[str, Any]) -> Any:
    """Yield a row for each set of published results that bears on a part of the claim."""
    for other in part.get("others") or []:
        unit = str(other["unit"] or "1")
        bounds = [formatting.with_unit(end, unit) for end in (other["least"], other["most"]) if end is not None]
        if not bounds:
            continue
        yield {
            "part": capitalize(str(part["name"] or "")),
            "why": str(other["why"]),
            "range": " to ".join(dict.fromkeys(bounds)),
            "word": verdict_words.verdict_word(str(other["outcome"])),
            "weight": "yes, it decides"
            if other["decides"]
            else "no, for comparison"
            if other["strength"] == "direct"
            else "no, it is indirect",
        }


def _case_tables(
    verdict: Mapping[str, Any],
    machines: Mapping[str, str],
    shown: Collection[str] | None,
    cells: Sequence[Cell],
    lists: EvidenceLists,
    standing: Cell | None = None,
) -> Any:
    """Yield a table for each part of the claim, with at most _MOST_CASES cases from the shown machines.

    cells: id and evidence of each case. lists: lists to which evidence is added that a table does not name.
    standing: the case that stands for the claim, which is always listed.
    """
    parts = verdict["parts"] or []
    cell_of = {id(case): cell for case, cell in zip(verdict["cases"], cells, strict=True)}
    nodes = {case.get("node") for case in verdict["cases"] if case.get("node")}
    several_nodes = len(nodes) > 1 or any(case.get("instances") for case in verdict["cases"])
    for part in parts:
        unit = str(part["unit"] or "1")
        cases = [case for case in verdict["cases"] if str(case.get("part") or "") == str(part["name"] or "")]
        cases = [case for case in cases if case.get("estimate") is not None]
        if not cases:
            continue
        listed = sorted(filter_cases(cases, shown), key=lambda case: -float(case["estimate"]))[:_MOST_CASES]
        listed_ids = set(map(id, listed))
        listed += [case for case in cases if cell_of[id(case)] is standing and id(case) not in listed_ids]
        rows = [
            {
                "what": formatting.verdict_case_name(case) or "the whole",
                "id": cell_of[id(case)].id,
                "anchor": cell_of[id(case)].anchor,
                "where": _machine_text(case, machines, unit) if several_nodes else "",
                "number": formatting.with_unit(case["estimate"], unit)
                + verdict_words.disturbed_suffix(case.get("disturbed")),
                "around": verdict_words.format_interval(case.get("low"), case.get("high"), unit)
                or verdict_words.NOTHING,
                "rounds": f"{case['n_rounds']:,} ({case['n_samples']:,})"
                if case.get("n_rounds")
                else verdict_words.NOTHING,
                "evidence": lists.link(cell_of[id(case)]),
                "side": {"supports": "for", "challenges": "against"}.get(str(case.get("outcome")), "too uncertain"),
            }
            for case in listed
        ]
        yield {
            "title": capitalize(str(part["name"])) if len(parts) > 1 else "",
            "ends": verdict_words.ENDS[part["ends"]],
            "rows": rows,
            "more": len(cases) - len(listed),
            "where": several_nodes,
            "evidence": any(row["evidence"] != verdict_words.NOTHING for row in rows),
            "disturbed": any(case.get("disturbed") for case in listed),
            "rounds": any(row["rounds"] != verdict_words.NOTHING for row in rows),
        }


def _machine_text(case: Mapping[str, Any], machines: Mapping[str, str], unit: str) -> str:
    """Name a case's machine; if there are several, add the range of their results."""
    spread = verdict_words.format_interval(case.get("instance_low"), case.get("instance_high"), unit)
    unit_name = "machine" if count_machines(case_nodes(case)) > 1 else "run"
    return case_machine(case, machines) + (f" ({spread} from {unit_name} to {unit_name})" if spread else "")


def _cited_sources(verdict: Mapping[str, Any], document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List published sources and documents used by the verdict, with title and bibliography key."""
    source_names = {str(case["labels"]["source"]) for case in verdict["cases"] if case["labels"].get("source")}
    named = {name for source in source_names for name in source.split(" and ")}
    rows = [
        {"key": published_key(str(source_entry["id"])), "title": str(source_entry["title"])}
        for source_entry in document["published"] or []
        if source_entry["id"] in named
    ]
    titles: dict[str, str] = {}
    for figure in document["references"]:
        if verdict["id"] in figure["used_by"]:
            titles.setdefault(str(figure["source"]["url"]), str(figure["source"]["title"]))
    return rows + [{"key": document_key(url), "title": title} for url, title in titles.items()]
