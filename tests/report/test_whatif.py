"""What if: other thresholds, prices, bases and formats. What moves is what judging anew would give."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from report.judging.overrides import overrides

from contract.errors import StudyError
from report.cli import main
from report.commands.what_if import lines, what_if
from report.data.dataset import Dataset
from report.data.gather import gather
from report.data.nodes import read_nodes
from report.data.reference import REFERENCE, read_reference
from report.judging.claims import read_claims
from report.judging.judge import judge

from .conftest import Factory, SyntheticNode

HEAD = {
    "article": "whygpu",
    "section": "A section",
    "says": "Something.",
    "kind": "measured",
    "note": "N.",
    "version": 1,
}
PRODUCT: dict[str, Any] = {
    "quantity": "gemm.mac_per_cycle_per_core",
    "scope": {"device": "cpu", "dtype": "float32", "threads": 1, "backend": "best"},
}
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
    "W06": {
        "kind": "derived", "quantity": "llama405b.days_from_gpu_hours",
        "rule": "at_most", "threshold": {"value": 90, "why": "a quarter"},
    },
    "W07": {
        "kind": "documented", "quantity": "reference.value", "scope": {"entry": "thing.price"},
        "rule": "at_most", "threshold": {"value": 1000, "why": "cheap"},
    },
}  # fmt: skip
THING = {
    "id": "thing.price", "subject": "A thing", "what": "Its price", "value": None, "unit": "USD", "date": "2026",
    "source": {"title": "none", "publisher": "nobody", "url": "https://example.org", "where": "nowhere"},
    "status": "not verified",
}  # fmt: skip


@cache
def published_figures() -> dict[str, Any]:
    return read_reference(REFERENCE)


@dataclass
class Study:
    """Claims, reference and nodes in one folder, and what one asks of them."""

    root: Path
    nodes: Path
    claims: dict[str, dict[str, Any]] = field(default_factory=lambda: {**CLAIMS})

    def __post_init__(self) -> None:
        self.reference = {**published_figures(), "thing.price": THING}
        self.folder = self.root / "claims"
        self.folder.mkdir()
        self.write(self.folder, self.claims)

    def write(self, folder: Path, claims: dict[str, dict[str, Any]]) -> None:
        for name, content in claims.items():
            # JSON is YAML.
            (folder / f"{name}.yaml").write_text(json.dumps({"id": name, **HEAD, **content}))

    def data(self) -> Dataset:
        return Dataset(read_nodes([self.nodes], True), self.reference)

    def ask(self, *thresholds: str, every: bool = True, **more: Any) -> dict[str, Any]:
        """The answer; records by claim's id under `by`."""
        known = read_claims(self.folder, self.reference)
        asked = overrides(known, self.reference, thresholds, **more)
        document = what_if(self.data(), known, asked, every, allow_synthetic=True)
        return {**document, "by": {one["id"]: one for one in document["claims"]}}

    def judged(self, claims: dict[str, dict[str, Any]]) -> dict[str, str]:
        """The verdicts of judging other claims from the beginning."""
        folder = self.root / "others"
        folder.mkdir(exist_ok=True)
        self.write(folder, claims)
        document = judge(self.data(), self.root / "v.json", folder, allow_synthetic=True)
        return {one["id"]: one["verdict"] for one in document["verdicts"]}


def machine(synthetic: Factory, name: str = "node-a", sockets: int = 1) -> SyntheticNode:
    """A CPU of 27.9 MAC/cycle in float32 and half in float64, and a GPU that trains 50 times as fast as a core,
    20 times as fast as both."""

    class Machine(SyntheticNode):
        def record(self) -> dict[str, Any]:
            found = super().record()
            found["hardware"]["cpu"]["sockets"] = sockets
            return found

    made = synthetic(name, gpus=1)
    node = Machine(made.folder, made.devices)
    node.gemm(27.9).gemm(4, dtype="float64").clock()
    for device, threads, rate in (("cpu", 1, 10.0), ("cpu", 2, 25.0), ("cuda:0", 0, 500.0)):
        node.point("training", 32 / rate, device=device, threads=threads, params={"model": "mlp", "batch": 32})
    return node


@pytest.fixture
def study(synthetic: Factory, tmp_path: Path) -> Study:
    machine(synthetic).write()
    return Study(tmp_path, synthetic.root)


def moved(answer: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {name: (one["was"]["verdict"], one["is"]["verdict"]) for name, one in answer["by"].items() if one["moved"]}


# ------------------------------------------------------------------ thresholds


def test_a_threshold_moves_its_claim_and_no_other(study: Study) -> None:
    answer = study.ask("W01.threshold=40")
    # W04 says the same as W01 and takes its rule over.
    assert moved(answer) == {"W01": ("challenged", "supported"), "W04": ("challenged", "supported")}
    assert (answer["moved"], answer["stayed"]) == (2, len(CLAIMS) - 2)
    assert "not above the threshold of 40" in answer["by"]["W01"]["is"]["reason"]
    text = "\n".join(lines(answer))
    assert "W01.threshold: 10 -> 40" in text and "2 verdicts would move, 5 would not" in text
    # What no change touches need not be judged.
    quick = study.ask("W01.threshold=40", every=False)
    assert moved(quick) == moved(answer) and quick["by"]["W02"]["is"]["verdict"] is None


@pytest.mark.parametrize(
    ("setting", "claim", "part", "value"),
    [
        ("W01.threshold=40", "W01", None, 40),
        ("w02.threshold=[5, 20]", "W02", None, [5, 20]),
        ("W03.two-orders.threshold=30", "W03", 1, 30),
        ("W03.one order, in all.threshold=300", "W03", 0, 300),
    ],
)
def test_what_moves_is_what_judging_a_changed_file_gives(
    study: Study, setting: str, claim: str, part: int | None, value: Any
) -> None:
    other = json.loads(json.dumps(CLAIMS))
    rule = other[claim] if part is None else other[claim]["all_of"][part]
    rule["threshold"]["value"] = value
    answer = study.ask(setting)["by"].items()
    assert {name: one["is"]["verdict"] for name, one in answer} == study.judged(other)
    assert {name: one["was"]["verdict"] for name, one in answer} == study.judged(CLAIMS)


def test_a_part_that_moves_is_told_though_the_whole_stays(study: Study) -> None:
    answer = study.ask("W03.one-order-in-all.threshold=20", "W03.two-orders.threshold=50")
    one = answer["by"]["W03"]
    assert one["parts_moved"] == ["two orders"] and one["was"]["parts"]["two orders"] == "challenged"
    if not one["moved"]:
        assert any(line.startswith("W03: two orders: challenged -> ") for line in lines(answer))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("W001.threshold=1", "there is no claim 'W001'. Did you mean 'W01'?"),
        ("W01.thresholds=1", "'thresholds' cannot be set. Keys: threshold. Did you mean 'threshold'?"),
        ("W01.threshold", "write CLAIM.threshold=VALUE"),
        ("W01=3", "write CLAIM.threshold=VALUE"),
        ("W03.threshold=1", "say which of its parts"),
        ("W03.two-order.threshold=1", "there is no part 'two-order'. Did you mean 'two-orders'?"),
        ("W01.part.threshold=1", "W01 has one rule and no parts"),
        ("W01.threshold=[1,2]", "at_most compares with a number, such as 10, not '[1,2]'"),
        ("W01.threshold=many", "compares with a number"),
        ("W01.threshold=NaN", "compares with a number"),
        ("W01.threshold=true", "compares with a number"),
        ("W01.threshold=-1", "-1 is below zero: what is counted here never is"),
        ("W02.threshold=10", "compares with a range of two numbers, such as [10, 100]"),
        ("W02.threshold=[1,2,3]", "compares with a range of two numbers"),
        ("W02.threshold=[50,5]", "ends before it begins: write [5, 50]"),
        ("W02.threshold=[-5,5]", "below zero"),
        ("W05.threshold=1", "W05 is a judgement"),
        ("price: thing.prise=3", "there is no reference entry 'thing.prise'. Did you mean 'thing.price'?"),
        ("price: thing.price", "write ENTRY=VALUE"),
        ("price: thing.price=much", "not a number above 0 (in USD)"),
        ("price: thing.price=-1", "not a number above 0"),
        ("price: thing.price=inf", "not a number above 0"),
        ("price: gpu.built_for_graphics=1", "not a number above 0"),
        ("dtype: float65", "nothing was measured in it. Measured: float32 and float64. Did you mean 'float64'?"),
    ],
)
def test_what_makes_no_sense_is_refused(study: Study, given: str, said: str) -> None:
    kind, _, asked = given.partition(": ")
    more: Any = {"price": {"prices": [asked]}, "dtype": {"swaps": {"dtype": asked}}}.get(kind)
    with pytest.raises(StudyError) as fault:
        study.ask(**more) if more else study.ask(given)
    assert said in str(fault.value)


def test_a_threshold_that_decides_nothing_yet_is_said(synthetic: Factory, tmp_path: Path) -> None:
    synthetic("node-a").gemm(27.9).clock().write()
    answer = Study(tmp_path, synthetic.root).ask("W02.threshold=[1,2]")
    assert answer["moved"] == 0
    assert any("W02: its threshold decides nothing yet: awaiting hardware" in note for note in answer["notes"])


# ------------------------------------------------------------------ prices


def test_a_figure_moves_the_claims_that_rest_on_it(study: Study) -> None:
    answer = study.ask(prices=["llama31-405b.gpus=100"])
    assert moved(answer) == {"W06": ("supported", "challenged")} and answer["notes"] == []


@pytest.mark.parametrize(
    ("entry", "value", "note"),
    [
        ("aws-p5.48xlarge.usd_per_hour", "1", "aws-p5.48xlarge.usd_per_hour: moves nothing, for no claim rests on it"),
        ("llama31-405b.gpus", None, "what was given is what stands already"),
    ],
)
def test_a_figure_that_changes_nothing_is_said(study: Study, entry: str, value: str | None, note: str) -> None:
    answer = study.ask(prices=[f"{entry}={value or study.reference[entry]['value']}"])
    assert answer["moved"] == 0 and answer["notes"] == [note]


def test_a_price_of_ones_own_decides_what_awaited_a_source(study: Study, tmp_path: Path) -> None:
    assert moved(study.ask(prices=["thing.price=700"])) == {"W07": ("awaiting source", "supported")}
    # From a file too; what is typed goes before it.
    own, path = {**THING, "value": 2000, "status": "verified"}, tmp_path / "prices.yaml"
    path.write_text(json.dumps([own]))
    assert study.ask(file=path)["by"]["W07"]["is"]["verdict"] == "challenged"
    assert study.ask(file=path, prices=["thing.price=5"])["by"]["W07"]["is"]["verdict"] == "supported"
    path.write_text(json.dumps([{**own, "id": "thing.prise"}]))
    with pytest.raises(StudyError, match=r"prices.yaml: there is no reference entry 'thing.prise'. Did you mean"):
        study.ask(file=path)


# ------------------------------------------------------------------ bases and formats


def test_another_base_moves_the_claims_that_are_told_by_it(study: Study) -> None:
    answer = study.ask("W02.threshold=[30,100]", swaps={"baseline": "node"})
    assert answer["by"]["W02"]["is"]["verdict"] == "challenged"
    assert "against all cores" in answer["by"]["W02"]["is"]["reason"]
    assert answer["by"]["W01"]["is"] == answer["by"]["W01"]["was"]
    # One socket is the node where there is one.
    socket = study.ask("W02.threshold=[30,100]", swaps={"baseline": "socket"})
    assert moved(socket) == moved(answer)


def test_a_base_that_was_not_measured_is_said(study: Study, synthetic: Factory) -> None:
    assert (
        "W02: not measured with baseline fleet: judged as it stands" in study.ask(swaps={"baseline": "fleet"})["notes"]
    )
    # Of two sockets no point is of one alone.
    machine(synthetic, sockets=2).write()
    answer = study.ask(swaps={"baseline": "socket"})
    assert answer["moved"] == 0 and any("more than one socket" in note for note in answer["notes"])


def test_another_number_format(study: Study) -> None:
    answer = study.ask(swaps={"dtype": "float64"})
    assert moved(answer) == {"W01": ("challenged", "supported"), "W04": ("challenged", "supported")}


# ------------------------------------------------------------------ the command


def test_the_command(study: Study, synthetic: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    synthetic("node-b", origin="measured").gemm(27.9).clock().write()
    data, answer = tmp_path / "data", tmp_path / "answer.json"
    gather([synthetic.root / "node-b"], data)
    (study.folder / "W07.yaml").unlink()
    common = ["what-if", "--claims", str(study.folder)]
    capsys.readouterr()
    assert main([*common, "--data", str(data), "--set", "W01.threshold=40", "--json", str(answer)]) == 0
    said = capsys.readouterr().out
    assert "challenged" in said and "supported" in said and "2 verdicts would move, 4 would not" in said
    written = json.loads(answer.read_text())
    assert written["kind"] == "what-if" and len(written["claims"]) == 6
    assert all(one["is"]["verdict"] for one in written["claims"])
    made_up = tmp_path / "made-up"
    gather([synthetic.root / "node-a"], made_up, allow_synthetic=True)
    for words, why in (
        (["--data", str(made_up), "--dtype", "float64"], "synthetic"),
        (["--data", str(data)], "nothing is asked"),
        (["--data", str(data), "--baseline", "sokcet"], r"'sokcet': is not known.*Did you mean 'socket'"),
        (["--data", str(tmp_path / "x"), "--set", "W01.threshold=4"], "no gathered data"),
    ):
        with pytest.raises(StudyError, match=why):
            main([*common, *words])
