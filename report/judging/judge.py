"""Judge every claim on the data from all nodes, and write the verdicts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
from msgspec import to_builtins

from contract.errors import StudyError
from contract.files import atomic_path, write_json
from contract.looks import node_looks
from contract.node import count_machines, utc_time
from contract.provenance import current_commit, study_version
from report import PACKAGE, verdicts
from report.compared_estimates import row_name
from report.data.dataset import Dataset
from report.data.node_reader import Node
from report.data.reference_figures import source_record
from report.dataset.declaration import dataset_unit
from report.dataset.files import write_csv
from report.findings import finding_and_part
from report.formatting import case_nodes
from report.judging.claim_files import ARTICLES, Change, Claim, read_claims
from report.judging.contradictions import decide_contradictions, read_contradictions
from report.judging.cpus_per_gpu import replaced_processors
from report.judging.multiplicity import multiplicity
from report.judging.part_evaluation import PartResult, QuantityCache, add_published_results, evaluate_part
from report.judging.published_baselines import compare_counterparts
from report.judging.published_use import evidence_records, record_users, source_users
from report.judging.reference_comparison import compare_pairs
from report.judging.reference_pairs import read_triangulation
from report.judging.reference_use import reference_records, reference_users
from report.judging.robustness import claim_robustness, claim_sliders
from report.judging.verdict_records import case_records, part_record, row_interval
from report.outcomes import DIFFER, HERE, OTHERS, Side, Tier, Verdict, combine_verdicts, count_bases

CLAIMS = PACKAGE / "claims"
# Claim fields to copy to the verdict.
_DECLARED = (
    "id", "article", "section", "says", "word", "kind", "untestable", "unpublished", "same_as", "note", "version",
)  # fmt: skip
# Fields to copy from the representative part to the claim's verdict.
_OF_PART = ("quantity", "unit", "estimate", "low", "high", "threshold", "threshold_why")
_CSV = {
    **dict.fromkeys(("id", "article", "section", "kind", "verdict", "finding", "quantity"), pl.String),
    **dict.fromkeys(("estimate", "low", "high"), pl.Float64), "unit": pl.String,
    **dict.fromkeys(("threshold_low", "threshold_high"), pl.Float64),
    **dict.fromkeys(("evidence_tier", "decided_on"), pl.String), "version": pl.Int64,
}  # fmt: skip


# The code reads labels one value at a time, which takes longer if pandas stores the strings in Arrow than in Python.
@pd.option_context("mode.string_storage", "python")
def judge(
    data: Dataset,
    out: Path,
    claims: Path = CLAIMS,
    allow_synthetic: bool = False,
) -> dict[str, Any]:
    """Judge all claims on `data`, write the verdicts to `out`, and return them as a document.

    Also writes the JSON schema and the verdict tables beside `out`. Raises StudyError for a mistake in a claim file
    and, unless `allow_synthetic` (for tests only), for synthetic data. Raises OSError if a file cannot be written.
    """
    refuse_synthetic(data, allow_synthetic)
    declared_claims = read_claims(claims, data.reference)
    declared = read_contradictions(claims.parent / "contradictions.yaml", declared_claims, data.reference)
    triangulation_path = claims.parent / "triangulation.yaml"
    pairs = read_triangulation(triangulation_path, data.reference) if triangulation_path.exists() else None
    cache = QuantityCache(data)
    results = [evaluate_parts(claim, cache) for claim in declared_claims]
    judged = [judge_claim(claim, own, cache) for claim, own in zip(declared_claims, results, strict=True)]
    replaced_rows, counterpart_rows = (
        replaced_processors(data),
        compare_counterparts(cache, claims.parent / "counterparts.yaml"),
    )
    document = {
        "format": verdicts.FORMAT,
        "generated_utc": utc_time(),
        "commit": current_commit(),
        "study_version": study_version(),
        "origin": "synthetic" if any(node.record["origin"] == "synthetic" for node in data.nodes.nodes) else "measured",
        "nodes": _node_records(data),
        "refused": data.nodes.refused,
        "tally": {name: sum(record["verdict"] == name for record in judged) for name in Verdict},
        "decided": count_bases(judged),
        "multiplicity": multiplicity(result for own in results for result in own),
        "questions": group_by_question(judged),
        "verdicts": judged,
        "contradictions": decide_contradictions({record["id"]: record for record in judged}, declared),
        "triangulation": compare_pairs(data, triangulation_path, cache),
        "references": reference_records(data.reference, reference_users(cache, declared_claims, declared, pairs)),
        "published": source_users(
            data.published, record_users(data.published, evidence_records(judged), replaced_rows, counterpart_rows)
        ),
        "replaced": replaced_rows,
        "counterparts": counterpart_rows,
    }
    # The document is written last: without it, nothing reads the files beside it.
    out.unlink(missing_ok=True)
    write_json(out.with_name("verdicts.schema.json"), verdicts.verdict_schema())
    _write_csv(out.with_suffix(".csv"), judged)
    write_json(out, document, in_lines=True)
    return document


def refuse_synthetic(data: Dataset, allow: bool = False) -> None:
    """Raise StudyError for synthetic node data unless `allow`, which only tests may set."""
    made_up = next((node.id for node in data.nodes.nodes if node.record["origin"] == "synthetic"), None)
    if made_up and not allow:
        raise StudyError(f"{made_up}: its data are synthetic, which are for tests only. Remove it or measure the node")


def evaluate_parts(claim: Claim, cache: QuantityCache) -> list[PartResult]:
    """Decide each of a claim's parts, with published results. Raises StudyError as `evaluate_part` does."""
    return [add_published_results(evaluate_part(part, claim, cache), claim, cache) for part in claim.parts]


def judge_claim(claim: Claim, results: Sequence[PartResult], cache: QuantityCache) -> dict[str, Any]:
    """Combine the results for a claim's parts; return its record for `verdicts.json`.

    Raises StudyError as `evaluate_part` does.
    """
    past = [evaluate_part(part, claim, cache) for part in claim.when_written]
    verdict = claim_verdict(results, past)
    parts = []
    for at, result in enumerate(results):

        def verdict_for(outcome: Verdict, at: int = at) -> Verdict:
            """Return the claim's verdict if part number `at` had this outcome and the other parts kept theirs."""
            return claim_verdict([*results[:at], replace(results[at], outcome=outcome), *results[at + 1 :]], past)

        parts.append(part_record(result, cache, verdict_for))
    first = verdicts.representative_part(parts, verdict)
    robust, turn = claim_robustness(parts, verdict)
    of_part: dict[str, Any] = {name: getattr(first, name, None) for name in _OF_PART}
    declared: dict[str, Any] = {name: getattr(claim, name) for name in _DECLARED}
    record = to_builtins(
        verdicts.Claim(
            **declared,
            article_title=ARTICLES[claim.article],
            question=claim.question or claim.id,
            verdict=verdict,
            finding="",
            finding_part="",
            **of_part,
            cases=[case for result in results for case in case_records(result, cache)],
            parts=parts,
            by_threshold=claim_sliders(
                results,
                lambda other: claim_verdict(
                    [replace(result, outcome=other.get(at, result.outcome)) for at, result in enumerate(results)], past
                ),
            ),
            when_written=[_when_written_record(result) for result in past],
            robust=robust,  # type: ignore[arg-type]
            turn=turn,
            evidence_tier=Tier.weakest(
                [result.quantity.tier for result in results if result.result and result.quantity]
            ),
            decided_on=deciding_source(results, verdict),  # type: ignore[arg-type]
            hangs_on="",
            see_also=list(claim.see_also),
            bears_on=list(claim.bears_on),
            sources=_claim_sources(claim, cache.data),
            changes=[_change_record(change, claim, verdict, cache) for change in claim.changes],
        )
    )
    record["hangs_on"] = sole_contributed_node(record, {node.id for node in cache.data.nodes.nodes if node.contributed})
    sentences = claim.published_findings if record["decided_on"] == OTHERS else claim.findings
    record["finding"], record["finding_part"] = finding_and_part(record, sentences)
    return dict(record)


def _change_record(change: Change, claim: Claim, verdict: Verdict, cache: QuantityCache) -> verdicts.Change:
    """Record a change to a claim's rule, with the earlier version's verdict on today's evidence.

    If the earlier version has the same rule as the next one, both have the same verdict.
    """
    later = [other for other in claim.changes if other.version > change.version and (other.parts or other.gone)]
    earlier: Verdict | None = verdict
    if change.gone or (not change.parts and later and later[0].gone):
        earlier = None
    elif change.parts or later:
        parts = change.parts or later[0].parts
        earlier = claim_verdict(evaluate_parts(replace(claim, parts=parts), cache))
    return verdicts.Change(
        version=change.version,
        date=change.date,
        data_seen=change.data_seen,
        reason=change.reason,
        same_rule=not change.parts and not change.gone,
        earlier=earlier,
        gone=change.gone,
        before=Verdict(change.before) if change.before else None,
    )


def claim_verdict(results: Sequence[PartResult], past: Sequence[PartResult] = ()) -> Verdict:
    """Combine the parts' outcomes into the claim's verdict; NOT_TESTABLE if there are no parts.

    past: the parts' results as of the article's date. If they support the claim but today's parts challenge it, the
    verdict is OUTDATED.
    """
    now = combine_verdicts([result.outcome for result in results]) if results else Verdict.NOT_TESTABLE
    was_supported = bool(past) and claim_verdict(past) is Verdict.SUPPORTED
    return Verdict.OUTDATED if was_supported and now is Verdict.CHALLENGED else now


def deciding_source(results: Sequence[PartResult], verdict: Verdict) -> str:
    """Tell where the deciding measurements come from: HERE or OTHERS, or '' if the claim is not decided.

    The origin is OTHERS if published measurements decide at least one part.
    """
    if not verdict.is_decided:
        return ""
    return OTHERS if any(result.waits for result in results) else HERE


def sole_contributed_node(record: Mapping[str, Any], contributed: Collection[str]) -> str:
    """Find the contributed machine that alone decides a verdict; return its first node, or '' if there is none.

    record: the claim's record in `verdicts.json`. The result is '' if published measurements decide the verdict.
    Otherwise, published figures among the cases are ignored, because they have no node.
    """
    if record["decided_on"] != HERE:
        return ""
    measured = (case for case in record["cases"] if case.get("node") or case["behind"])
    decisive = (case for case in measured if case["outcome"] != Side.UNDECIDED)
    nodes = {node for case in decisive for node in case_nodes(case) or [""]}
    return min(nodes) if nodes <= set(contributed) and count_machines(nodes) == 1 else ""


def _when_written_record(part_result: PartResult) -> dict[str, Any]:
    """Record a part as of the article's date: its outcome, threshold and representative case."""
    result, row = part_result.result, part_result.result.representative if part_result.result else None
    number = row_interval(result.estimates, row) if result and row is not None else {}
    name = row_name(result.estimates, row) if result and row is not None else ""
    return {
        "outcome": part_result.outcome,
        "case": name,
        "unit": part_result.unit,
        "threshold": part_result.part.threshold.json,
        **number,
    }


def group_by_question(verdicts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Group the claims by question; return each question with its claims and their common verdict.

    The common verdict is the one that all decided claims have, or DIFFER if these disagree. If no claim is decided, it
    is the one that all claims have, or UNDECIDED if they disagree.
    """
    by_question: dict[str, list[Mapping[str, Any]]] = {}
    for record in verdicts:
        by_question.setdefault(record["question"], []).append(record)

    def shared_verdict(verdicts: set[str]) -> str:
        decisive = {verdict for verdict in verdicts if Verdict(verdict).is_decided} or verdicts
        if len(decisive) == 1:
            return decisive.pop()
        return DIFFER if any(Verdict(verdict).is_decided for verdict in decisive) else Verdict.UNDECIDED

    return [
        {
            "question": question,
            "claims": [record["id"] for record in records],
            "verdict": shared_verdict({str(record["verdict"]) for record in records}),
        }
        for question, records in by_question.items()
    ]


def _claim_sources(claim: Claim, data: Dataset) -> list[dict[str, str]]:
    """List the sources for a claim and its published figures, without duplicates."""
    names = list(claim.sources)
    for part in claim.parts:
        entries = part.entries if part.quantity == "reference.value" else []
        names += [name for name in entries if name in data.reference]
    listed = [source_record(dict(data.reference[name])) for name in dict.fromkeys(names)]
    return [entry for place, entry in enumerate(listed) if entry not in listed[:place]]


def _node_records(data: Dataset) -> list[dict[str, Any]]:
    statuses: dict[str, dict[str, int]] = {}
    numbers = data.table.groupby(["node", "status"], observed=True).size().reset_index()
    for node, status, n in numbers.itertuples(index=False, name=None):
        statuses.setdefault(str(node), {})[str(status)] = int(n)
    return [_node_record(node, data, dict(sorted(statuses.get(node.id, {}).items()))) for node in data.nodes.nodes]


def _node_record(node: Node, data: Dataset, statuses: dict[str, int]) -> dict[str, Any]:
    record = node.record
    return {
        "id": node.id,
        "label": data.label(node.id),
        **{name: record[name] for name in ("devices", "hardware", "software", "started_utc")},
        "ended_utc": record.get("ended_utc"),
        "left_out": record["left_out"],
        "hosts": len(record.get("hosts") or [""]),
        "looks": node_looks(record),
        "sessions": data.session_count(node.id),
        "missing": node.missing_rounds(),
        "n_points": sum(statuses.values()),
        "n_ok": statuses.get("ok", 0),
        "statuses": statuses,
        "source": node.source,
        "duty": node.busy_share(),
    }


def _write_csv(path: Path, judged: Sequence[dict[str, Any]]) -> None:
    rows = [
        {
            **verdict,
            **verdicts.threshold_ends(verdict),
            "unit": dataset_unit(verdict["unit"] or "", verdict["quantity"] or ""),
        }
        for verdict in judged
    ]
    table = pl.DataFrame([{name: row[name] for name in _CSV} for row in rows], schema=_CSV)
    with atomic_path(path) as temporary:
        write_csv(table.lazy(), temporary)
