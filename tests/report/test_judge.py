"""Judging turns node folders and claim files into verdicts, which state their sensitivity and missing evidence."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from report import verdict_sentences
from report.data.dataset import Dataset
from report.data.node_reader import read_nodes
from report.data.reference_figures import read_reference
from report.judging.judge import judge
from report.outcomes import Verdict, tally

from .claim_mistakes import HEAD
from .conftest import Factory, SyntheticNode
from .test_claims import make_entry, write_references

PER_CYCLE: dict[str, Any] = {
    "quantity": "gemm.mac_per_cycle_per_core",
    "scope": {"device": "cpu", "dtype": "float32", "threads": 1, "backend": "best"},
    "rule": "at_most",
    "threshold": {"value": 1000, "why": "read generously"},
}
W15 = {**PER_CYCLE, "scale": {"by": 128, "why": "the server"}, "sensitivity": [200, 500, 1000, 2000, 5000]}
CORES: dict[str, Any] = {
    "quantity": "reference.value", "scope": {"entry": ["chip.cores"]}, "rule": "at_most",
    "threshold": {"value": 128, "why": "?"},
}  # fmt: skip
DAYS: dict[str, Any] = {
    "quantity": "llama405b.days_from_gpu_hours", "rule": "at_most", "threshold": {"value": 90, "why": "?"},
}  # fmt: skip
GPU_HOURS = [make_entry("llama31-405b.gpu_hours", 30.84e6, "h"), make_entry("llama31-405b.gpus", 16384)]


class Court:
    """Claim files, reference entries and nodes in one folder, with their verdicts."""

    def __init__(self, synthetic: Factory, tmp_path: Path) -> None:
        self.synthetic, self.root = synthetic, tmp_path
        self.claims, self.reference = tmp_path / "claims", tmp_path / "reference"
        self.claims.mkdir()
        self.reference.mkdir()

    def claim(self, name: str = "", **content: Any) -> None:
        name = name or f"W{len(list(self.claims.iterdir())) + 1:02d}"
        # JSON is also valid YAML, so the claim can be written as JSON.
        (self.claims / f"{name}.yaml").write_text(json.dumps({"id": name, **HEAD, **content}, indent=1))

    def judge(self, *nodes: SyntheticNode) -> dict[str, Any]:
        self.synthetic.write(nodes)
        out = self.root / "out" / "verdicts.json"
        data = Dataset(read_nodes([self.synthetic.root], True), read_reference(self.reference))
        judge(data, out, self.claims, allow_synthetic=True)
        document: dict[str, Any] = json.loads(out.read_text())
        return document

    def verdict(self, *nodes: SyntheticNode) -> dict[str, Any]:
        """Judge the nodes, and return the last verdict in the document."""
        return dict(self.judge(*nodes)["verdicts"][-1])


@pytest.fixture
def court(synthetic: Factory, tmp_path: Path) -> Court:
    return Court(synthetic, tmp_path)


def gemm_node(synthetic: Factory, mac: float = 27.9, **more: Any) -> SyntheticNode:
    node = synthetic("node-a").gemm(mac, **more).gemm(mac / 2, n=256, **more).clock(**more)
    return node.gemm(mac / 2, dtype="float64", **more)


def test_challenged_verdict_has_numbers_rule_and_sensitivity(court: Court, synthetic: Factory) -> None:
    court.claim(**W15)
    verdict = court.verdict(gemm_node(synthetic))
    assert verdict["verdict"] == "challenged" and verdict["evidence_tier"] == "measured"
    assert verdict["estimate"] == pytest.approx(27.9 * 128, rel=0.05)
    assert 1000 == verdict["threshold"] < verdict["low"] < verdict["estimate"] < verdict["high"]
    (case,) = verdict["cases"]
    assert (case["outcome"], case["node"], case["device"], case["labels"]["dtype"]) == (
        "challenges",
        "node-a",
        "cpu",
        "float32",
    )
    assert case["n_rounds"] == 3 and case["estimate"] == verdict["estimate"]
    rule = "supported if at most 1,000 MAC/cycle in every case, after multiplying by 128 (the server)"
    assert verdict_sentences.rules_text(verdict["parts"]) == rule
    swept = {trial["threshold"]: trial["verdict"] for trial in verdict["parts"][0]["robustness"]["trials"][:4]}
    assert swept == {200: "challenged", 500: "challenged", 2000: "challenged", 5000: "supported"}


@pytest.mark.parametrize(
    ("threshold", "node", "close"),
    [(1000, {"rounds": 1}, None), (27.9 * 128, {"spread": 0.05}, 0.5)],
)  # fmt: skip
def test_single_round_or_close_result_is_undecided(
    court: Court, synthetic: Factory, threshold: float, node: dict[str, Any], close: float | None
) -> None:
    court.claim(**{**W15, "threshold": {"value": threshold, "why": "?"}})
    verdict = court.verdict(gemm_node(synthetic, **node))
    assert verdict["verdict"] == "undecided" and verdict["robust"] is None
    assert (verdict["low"] is None) == ("rounds" in node)
    widths = verdict["parts"][0]["robustness"]["margin_widths"]
    assert widths == close or (close is not None and widths < close)


CORE = {"name": "one core", **PER_CYCLE, "threshold": {"value": 8, "why": "?"}}
SCALING = {
    "name": "all cores",
    "quantity": "gemm.scaling_efficiency",
    "rule": "at_most",
    "scope": {**PER_CYCLE["scope"], "threads": "all"},
    "threshold": {"value": 0.5, "why": "?"},
}


def test_parts_with_different_outcomes_give_depends(court: Court, synthetic: Factory) -> None:
    court.claim(all_of=[CORE, SCALING])
    verdict = court.verdict(gemm_node(synthetic).gemm(27.9 * 0.6, threads=2))
    assert verdict["verdict"] == "depends"
    assert [(part["name"], part["outcome"]) for part in verdict["parts"]] == [
        ("one core", "challenged"), ("all cores", "supported")
    ]  # fmt: skip
    # No part has the verdict's outcome, so the verdict takes its estimate from the first part with a number.
    assert verdict["estimate"] == verdict["parts"][0]["estimate"]
    assert {case["part"] for case in verdict["cases"]} == {"one core", "all cores"}
    assert all(part["robustness"]["decides"] for part in verdict["parts"]), "either alone may turn it"


@pytest.mark.parametrize("order", [1, -1])
def test_evidence_tier_is_the_weakest_over_parts(court: Court, synthetic: Factory, order: int) -> None:
    write_references(court.reference, *GPU_HOURS)
    court.claim(all_of=[CORE, {"name": "days", **DAYS}][::order])
    verdict = court.verdict(gemm_node(synthetic))
    assert sorted(part["outcome"] for part in verdict["parts"]) == ["challenged", "supported"]
    assert verdict["evidence_tier"] == "derived"


@pytest.mark.parametrize(
    ("limit", "outcome", "verdict"), [(100, "supported", "awaiting hardware"), (1, "challenged", "challenged")]
)
def test_part_without_evidence_makes_the_verdict_await_unless_another_part_is_refuted(
    court: Court, synthetic: Factory, limit: float, outcome: str, verdict: str
) -> None:
    gpu = {**CORE, "name": "a GPU", "quantity": "gemm.mac_per_cycle", "scope": {"device": "gpu"}, "rule": "at_least"}
    court.claim(all_of=[{**CORE, "threshold": {"value": limit, "why": "?"}}, gpu])
    result = court.verdict(gemm_node(synthetic))
    assert result["verdict"] == verdict
    assert [part["outcome"] for part in result["parts"]] == [outcome, "awaiting hardware"]
    assert result["estimate"] == result["parts"][0]["estimate"] and result["evidence_tier"] == "measured"


SPEEDUP = {"quantity": "training.speedup", "rule": "within", "threshold": {"value": [10, 100], "why": "?"}}
RATIO: dict[str, Any] = {
    "quantity": "gemm.rate", "rule": "ratio", "options": {"over": "device", "of": "gpu", "to": "cpu"},
    "threshold": {"value": 1, "why": "?"},
}  # fmt: skip
TRIP: dict[str, Any] = {"quantity": "offload.trip", "rule": "exists", "threshold": {"value": 1, "why": "?"}}


def unsupported_node(synthetic: Factory) -> SyntheticNode:
    return synthetic("node-a").clock().point("gemm", 0, status="unsupported", reason="no BLAS")


@pytest.mark.parametrize(
    ("claim", "node", "awaited", "text", "fields"),
    [
        (SPEEDUP, gemm_node, "hardware", "no node with a GPU has measured training",
         {"device": "gpu", "experiments": ["training"]}),
        (RATIO, gemm_node, "hardware", "no node with a GPU has measured gemm", {"device": "gpu"}),
        (W15, unsupported_node, "experiment", "gemm: unsupported on the CPU of Synthetic, 2 cores: no BLAS", {}),
        (W15, lambda factory: factory("node-a").gemm(20), "experiment",
         "clock: not run on the CPU of Synthetic, 2 cores", {"experiments": ["clock"]}),
        ({**W15, "scope": {"device": "cpu", "dtype": "float16"}}, gemm_node, "experiment",
         "gemm: measured, but not with float16 (measured: float32, float64)",
         {"label": "dtype", "wanted": ["float16"], "measured": ["float32", "float64"]}),
        ({**RATIO, "options": {"over": "dtype", "of": "float16", "to": "float64"}}, gemm_node, "experiment",
         "gemm: 3 results measured, but none that can be compared", {"rule": "ratio", "estimates": 3}),
        ({**TRIP, "awaits": {"experiment": "offload", "why": "the trip"}}, gemm_node, "experiment",
         "offload: the trip", {"experiments": ["offload"]}),
        ({**TRIP, "awaits": {"source": "the datasheet", "why": "x"}}, gemm_node, "source", "the datasheet (x)", {}),
        (CORES, gemm_node, "source", "A chip, Cores of one (A datasheet: not verified)", {}),
    ],
)  # fmt: skip
def test_missing_evidence_is_named(
    court: Court, synthetic: Factory, claim: dict[str, Any], node: Any, awaited: str, text: str, fields: dict[str, Any]
) -> None:
    write_references(court.reference, make_entry(status="not verified"))
    court.claim(**claim)
    verdict = court.verdict(node(synthetic))
    assert verdict["verdict"] == f"awaiting {awaited}"
    missing = verdict["parts"][0]["missing"]
    assert verdict_sentences.missing_text(missing) == text
    assert missing | {"verdict": verdict["verdict"], **fields} == missing
    assert verdict["cases"] == [] and verdict["estimate"] is None and verdict["evidence_tier"] == "none"


@pytest.mark.parametrize(
    ("change", "message"),
    [({"awaits": {"experiment": "gemm", "why": "?"}}, r"W01\.yaml: awaits: remove it"),
     ({"rule": "trend", "options": {"along": "dtpye"}}, r"W01.yaml, line \d+: options.along: 'dtpye' is not allowed")],
)  # fmt: skip
def test_claim_that_does_not_fit_the_data_is_refused_by_file(
    court: Court, synthetic: Factory, change: dict[str, Any], message: str
) -> None:
    court.claim(**{**W15, **change})
    with pytest.raises(StudyError, match=message):
        court.verdict(gemm_node(synthetic))


def test_verdicts_document_is_complete_and_sorted(court: Court, synthetic: Factory) -> None:
    for name in ("W01", "W02", "N07"):
        court.claim(name, **W15, **({"article": "nuface"} if name == "N07" else {}))
    document = court.judge(gemm_node(synthetic).point("transfer", 0, status="unsupported", reason="no accelerator"))
    assert [verdict["id"] for verdict in document["verdicts"]] == ["N07", "W01", "W02"]
    assert list(document["tally"]) == list(Verdict) and document["tally"]["challenged"] == 3
    (node,) = document["nodes"]
    assert node["label"] == "Synthetic, 2 cores" and node["statuses"] == {"ok": 4, "unsupported": 1}
    assert (node["n_points"], node["n_ok"]) == (5, 4) and node["duty"] == pytest.approx(0.7)
    assert document["origin"] == "synthetic" and document["refused"] == []
    with (court.root / "out" / "verdicts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["verdict"] for row in rows] == ["challenged"] * 3 and float(rows[0]["estimate"]) > 1000


EARLIER: dict[str, Any] = {**PER_CYCLE, "scale": W15["scale"], "threshold": 5000}


@pytest.mark.parametrize(
    ("changes", "recorded", "turned"),
    [
        ([{"data_seen": True, "was": [EARLIER]}], [("supported", False)], [(1, "supported")]),
        ([{"data_seen": False, "was": [EARLIER]}], [("supported", False)], []),
        ([{"data_seen": True, "was": [{**EARLIER, "threshold": 900}]}], [("challenged", False)], []),
        ([{"data_seen": True, "gone": "Lost."}], [(None, False)], []),
        ([{"data_seen": True}], [("challenged", True)], []),
        ([{"data_seen": True, "before": "depends"}], [("challenged", True)], [(1, "depends")]),
        # A version with the same rule as the next one has the next one's verdict.
        ([{"data_seen": False}, {"data_seen": True, "was": [EARLIER]}], [("supported", True), ("supported", False)],
         [(2, "supported")]),
        ([{"data_seen": False}, {"data_seen": True, "gone": "Lost."}], [(None, True), (None, False)], []),
        ([{"data_seen": True, "was": [{**EARLIER, "scope": {"dtype": "int8"}}]}], [("awaiting experiment", False)], []),
    ],
)  # fmt: skip
def test_earlier_versions_are_judged_on_the_same_evidence(
    court: Court, synthetic: Factory, changes: list[dict[str, Any]], recorded: list[Any], turned: list[Any]
) -> None:
    """The threshold is 1,000, the result about 3,600: raising the limit to 5,000 would support the claim."""
    numbered = [
        {"version": at, "date": "2026-01-01", "reason": "Better.", **change} for at, change in enumerate(changes, 2)
    ]
    court.claim(**{**W15, "version": len(changes) + 1, "changes": numbered})
    verdict = court.verdict(gemm_node(synthetic))
    assert [(change["earlier"], change["same_rule"]) for change in verdict["changes"]] == recorded
    assert list(verdict_sentences.replaced_verdicts(verdict)) == turned
    counts = verdict_sentences.count_rule_changes([verdict])
    seen = any(change["data_seen"] for change in changes)
    assert counts == {"rules": 1, "unchanged": 0, "before": not seen, "after": seen, "turned": bool(turned)}


def test_claims_are_counted_by_the_evidence_that_decides_them(court: Court, synthetic: Factory) -> None:
    write_references(court.reference, make_entry())
    court.claim(**W15)
    court.claim(**CORES)
    court.claim(**{**PER_CYCLE, "scope": {"device": "gpu"}})
    document = court.judge(gemm_node(synthetic))
    counts = {"measured": 1, "derived": 0, "published": 0, "documented": 1, "open": 1, "not testable": 0}
    assert document["decided"] == counts
    assert "decided by: 1 measured here, 1 by documents, 1 open" in tally(document)
