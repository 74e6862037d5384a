"""Command `what-if`: answers for other thresholds, scopes and prices match new judgements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from report.cli import main
from report.commands import what_if as what_if_command
from report.commands.what_if import Answer, apply_settings, format_answers, parse_prices, what_if
from report.data.dataset import Dataset
from report.data.gather import gather
from report.data.node_reader import read_nodes
from report.judging.claim_files import read_claims
from report.judging.judge import judge

from .conftest import Factory, SyntheticNode
from .priced_nodes import REFERENCE
from .test_claims import make_entry
from .test_judge import DAYS, HEAD, PER_CYCLE

PRODUCT: dict[str, Any] = {name: PER_CYCLE[name] for name in ("quantity", "scope")}
SPEED: dict[str, Any] = {"quantity": "training.speedup", "scope": {"baseline": "core", "precision": "equal"}}
CLAIMS: dict[str, dict[str, Any]] = {
    "W01": {**PRODUCT, "rule": "at_most", "threshold": {"value": 10, "why": "few"}},
    "W02": {**SPEED, "rule": "within", "threshold": {"value": [10, 100], "why": "tens"}},
    "W03": {
        "all_of": [
            {"name": "one order, in all", **SPEED, "rule": "at_least", "threshold": {"value": 10, "why": "one"}},
            {"name": "two orders", **SPEED, "rule": "at_least", "threshold": {"value": 100, "why": "two"}},
        ]
    },
    "W04": {"same_as": "W01"},
    "W05": {"kind": "judgement", "bears_on": ["W01"]},
    "W06": {**DAYS, "kind": "derived"},
    "W07": {
        "kind": "documented", "quantity": "reference.value", "scope": {"entry": "thing.price"},
        "rule": "at_most", "threshold": {"value": 1000, "why": "cheap"},
    },
}  # fmt: skip
THING = make_entry("thing.price", None, "USD")


@dataclass
class Study:
    """A study with claims, reference entries and nodes, which answers what-if questions."""

    root: Path
    nodes: Path
    claims: dict[str, dict[str, Any]] = field(default_factory=lambda: {**CLAIMS})

    def __post_init__(self) -> None:
        self.reference = {**REFERENCE, "thing.price": THING}
        self.folder = self.root / "claims"
        self.folder.mkdir()
        self.write(self.folder, self.claims)

    def write(self, folder: Path, claims: dict[str, dict[str, Any]]) -> None:
        for name, content in claims.items():
            # JSON is also valid YAML, so the claim can be written as JSON.
            (folder / f"{name}.yaml").write_text(json.dumps({"id": name, **HEAD, **content}))

    def data(self) -> Dataset:
        return Dataset(read_nodes([self.nodes], True), self.reference)

    def answer(self, *settings: str, price: Sequence[str] = ()) -> dict[str, Answer]:
        """Return the answers by affected claim."""
        claims, data = read_claims(self.folder, self.reference), self.data()
        figures = parse_prices(price, self.reference)
        answers = what_if(data, claims, apply_settings(settings, claims, data), figures, allow_synthetic=True)
        return {answer.claim.id: answer for answer in answers}

    def judge(self, claims: dict[str, dict[str, Any]]) -> dict[str, str]:
        """Judge `claims` and return the verdicts by claim."""
        folder = self.root / "others"
        folder.mkdir(exist_ok=True)
        self.write(folder, claims)
        document = judge(self.data(), self.root / "v.json", folder, allow_synthetic=True)
        return {verdict["id"]: verdict["verdict"] for verdict in document["verdicts"]}


def machine(synthetic: Factory, name: str = "node-a", sockets: int = 1) -> SyntheticNode:
    """Build a node whose CPU does 27.9 multiply-adds per cycle, or 4 in float64.

    Its GPU trains 50 times as fast as one core, and 20 times as fast as both cores.
    """
    node = synthetic(name, gpus=1, cpu={"sockets": sockets})
    node.gemm(27.9).gemm(4, dtype="float64").clock()
    for device, threads, rate in (("cpu", 1, 10.0), ("cpu", 2, 25.0), ("cuda:0", 0, 500.0)):
        node.point("training", 32 / rate, device=device, threads=threads, params={"model": "mlp", "batch": 32})
    return node


@pytest.fixture
def study(synthetic: Factory, tmp_path: Path) -> Study:
    machine(synthetic).write()
    return Study(tmp_path, synthetic.root)


def changed_verdicts(answers: dict[str, Answer]) -> dict[str, tuple[str, str]]:
    return {name: (answer.before, answer.after) for name, answer in answers.items() if answer.before != answer.after}


@pytest.mark.parametrize(
    ("setting", "claim", "part", "change"),
    [
        ("W01.threshold=40", "W01", None, {"threshold": {"value": 40, "why": "few"}}),
        ("w02.threshold=[5, 20]", "W02", None, {"threshold": {"value": [5, 20], "why": "tens"}}),
        ("W03.two-orders.threshold=30", "W03", 1, {"threshold": {"value": 30, "why": "two"}}),
        ("W03.one order, in all.threshold=300", "W03", 0, {"threshold": {"value": 300, "why": "one"}}),
        ("W01.dtype=float64", "W01", None, {"scope": {**PRODUCT["scope"], "dtype": "float64"}}),
        ("W02.baseline=node", "W02", None, {"scope": {"baseline": "node", "precision": "equal"}}),
    ],
)
def test_answers_match_judging_a_changed_file(
    study: Study, setting: str, claim: str, part: int | None, change: dict[str, Any]
) -> None:
    changed = json.loads(json.dumps(CLAIMS))
    (changed[claim] if part is None else changed[claim]["all_of"][part]).update(change)
    before, after = study.judge(CLAIMS), study.judge(changed)
    answers = study.answer(setting)
    assert {name: (answer.before, answer.after) for name, answer in answers.items()} == {
        name: (before[name], after[name]) for name in answers
    }
    assert {name for name in before if before[name] != after[name]} <= set(answers)


def test_changed_part_is_listed_when_the_verdict_stays(study: Study) -> None:
    answers = study.answer("W03.one-order-in-all.threshold=200", "W03.two-orders.threshold=20")
    answer = answers["W03"]
    assert answer.before == answer.after and answer.parts["two orders"] == ("challenged", "supported")
    assert any("two orders: challenged -> supported" in line for line in format_answers([answer]))


def test_socket_baseline_equals_node_on_one_socket(study: Study, synthetic: Factory) -> None:
    assert study.answer("W02.baseline=socket")["W02"].after == study.answer("W02.baseline=node")["W02"].after
    machine(synthetic, sockets=2).write()
    assert study.answer("W02.baseline=socket")["W02"].after == "awaiting experiment"


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("W001.threshold=1", "there is no claim 'W001'. Did you mean 'W01'?"),
        ("W01.thresholds=1", "'thresholds' cannot be set. Known: threshold, "),
        ("W01.threshold", "write CLAIM.threshold=VALUE"),
        ("W03.threshold=1", "W03 has no part ''. Parts: one-order-in-all, two-orders."),
        ("W03.two-order.threshold=1", "W03 has no part 'two-order'. Parts: one-order-in-all, two-orders. Did you mean"),
        *((f"W01.threshold={value}", "compares with a number") for value in ("many", "NaN", "true", "[1,2]")),
        ("W01.threshold=-1", "-1 is below zero: this count never is"),
        ("W02.threshold=10", "compares with a range of two numbers, such as [10, 100]"),
        ("W02.threshold=[50,5]", "ends before it begins"),
        ("W05.threshold=1", "W05 is a judgement"),
        ("price: thing.prise=3", "there is no reference entry 'thing.prise'. Did you mean 'thing.price'?"),
        *((f"price: thing.price={value}", "not a number above 0 (in USD)") for value in ("much", "-1", "0", "inf")),
    ],
)
def test_invalid_settings_are_refused(study: Study, question: str, message: str) -> None:
    kind, _, price = question.partition(": ")
    with pytest.raises(StudyError) as fault:
        study.answer(price=[price]) if kind == "price" else study.answer(question)
    assert message in str(fault.value)


def test_price_changes_only_claims_that_use_it(study: Study) -> None:
    assert changed_verdicts(study.answer(price=["llama31-405b.gpus=100"])) == {"W06": ("supported", "challenged")}
    assert changed_verdicts(study.answer(price=["thing.price=700"])) == {"W07": ("awaiting source", "supported")}
    assert study.answer(price=["aws-p5.48xlarge.usd_per_hour=1"]) == {}


def test_what_if_command(
    study: Study,
    synthetic: Factory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    synthetic("node-b", origin="measured").gemm(27.9).clock().write()
    data, made_up = tmp_path / "data", tmp_path / "made-up"
    gather([synthetic.root / "node-b"], data)
    gather([synthetic.root / "node-a"], made_up, allow_synthetic=True)
    (study.folder / "W07.yaml").unlink()
    common = ["what-if", "--claims", str(study.folder)]
    capsys.readouterr()
    assert main([*common, "--data", str(data), "--set", "W01.threshold=40"]) == 0
    answers, note = capsys.readouterr()
    assert "2 verdicts change; no other claim is affected." in answers and note == ""
    # Before any study, the published machines are judged.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(what_if_command, "NODES", synthetic.root / "node-b")
    assert main([*common, "--set", "W01.threshold=40"]) == 0
    assert capsys.readouterr() == (
        answers,
        "note: no study here yet (results/data): the published machines are judged, which takes longer\n",
    )
    for words, why in (
        (["--data", str(made_up), "--set", "W01.threshold=4"], "synthetic"),
        (["--data", str(data)], "give --set or --price"),
        (["--data", str(tmp_path / "x"), "--set", "W01.threshold=4"], "no gathered data"),
    ):
        with pytest.raises(StudyError, match=why):
            main([*common, *words])


@pytest.mark.parametrize(
    ("setting", "first", "last"),
    [
        ("W01.threshold=40", "W01: challenged -> supported", "1 verdict changes; 1 affected claim keeps its verdict."),
        ("W01.threshold=12", "W01: stays challenged", "0 verdicts change; 2 affected claims keep their verdict."),
    ],
)
def test_answers_are_short_and_tell_if_a_threshold_is_unfair(
    synthetic: Factory, tmp_path: Path, setting: str, first: str, last: str
) -> None:
    machine(synthetic).write()
    claims = {**CLAIMS, "W01": {**CLAIMS["W01"], "sensitivity": [5, 20]}}
    answers = Study(tmp_path, synthetic.root, claims).answer(setting)
    other = replace(answers["W04"], before=answers["W04"].after)
    lines = [*format_answers([answers["W01"], other])]
    assert lines[0] == first and lines[-1] == last and all(len(line) <= 100 for line in lines)
    unfair = "  40 MAC/cycle is no fair reading of the article: fair are 5 to 20 MAC/cycle."
    assert (unfair in lines) == (setting == "W01.threshold=40")


def test_answer_without_evidence_names_the_missing_hardware(synthetic: Factory, tmp_path: Path) -> None:
    synthetic("node-a").gemm(27.9).clock().write()
    answer = Study(tmp_path, synthetic.root).answer("W02.threshold=[1,2]")["W02"]
    assert answer.before == answer.after == "awaiting hardware" and "GPU" in "\n".join(format_answers([answer]))
