"""From node folders and claim files to verdicts: outcomes, what is lacking, and what would flip them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from report.verdicts import VERDICTS
from ruamel.yaml import YAML

from contract.errors import StudyError
from contract.files import read_json
from report.data.dataset import Dataset
from report.data.nodes import read_nodes
from report.data.reference import REFERENCE, read_reference
from report.formatting import exactly, interval, number, thresholds_text, with_unit
from report.judging.judge import CLAIMS, judge

from .conftest import Factory, SyntheticNode

HEAD = {
    "article": "whygpu",
    "section": "A section",
    "says": "Something.",
    "kind": "measured",
    "note": "N.",
    "version": 1,
}
PER_CYCLE: dict[str, Any] = {
    "quantity": "gemm.mac_per_cycle_per_core",
    "scope": {"device": "cpu", "dtype": "float32", "threads": 1, "backend": "best"},
    "rule": "at_most",
    "threshold": {"value": 1000, "why": "read generously"},
}
W15 = {**PER_CYCLE, "scale": {"by": 128, "why": "the server"}, "sensitivity": [200, 500, 1000, 2000, 5000]}


class Court:
    """Claims and nodes under one folder, and their verdicts."""

    def __init__(self, synthetic: Factory, tmp_path: Path) -> None:
        self.synthetic, self.root = synthetic, tmp_path
        self.claims, self.reference = tmp_path / "claims", tmp_path / "reference"
        self.claims.mkdir()
        self.reference.mkdir()
        self.place = 0

    def claim(self, **content: Any) -> str:
        self.place += 1
        name = f"W{self.place:02d}"
        with (self.claims / f"{name}.yaml").open("w") as file:
            YAML().dump({"id": name, **HEAD, **content}, file)
        return name

    def entries(self, *entries: dict[str, Any]) -> None:
        with (self.reference / "all.yaml").open("w") as file:
            YAML().dump(list(entries), file)

    def judge(self, *nodes: SyntheticNode) -> dict[str, Any]:
        self.synthetic.write(nodes)
        out = self.root / "out" / "verdicts.json"
        data = Dataset(read_nodes([self.synthetic.root], True), read_reference(self.reference))
        judge(data, out, self.claims, allow_synthetic=True)
        document: dict[str, Any] = json.loads(out.read_text())
        return document

    def verdict(self, *nodes: SyntheticNode) -> dict[str, Any]:
        """The verdict on the last claim."""
        return dict(self.judge(*nodes)["verdicts"][-1])


@pytest.fixture
def court(synthetic: Factory, tmp_path: Path) -> Court:
    return Court(synthetic, tmp_path)


def avx512(synthetic: Factory, mac: float = 27.9, **more: Any) -> SyntheticNode:
    node = synthetic("node-a").gemm(mac, **more).gemm(mac / 2, n=256, **more).clock(**more)
    return node.gemm(mac / 2, dtype="float64", **more)


def test_a_claim_is_challenged_with_its_numbers(court: Court, synthetic: Factory) -> None:
    court.claim(**W15)
    one = court.verdict(avx512(synthetic))
    assert one["verdict"] == "challenged" and one["evidence_tier"] == "measured"
    assert one["low"] < one["estimate"] < one["high"] and one["low"] > 1000 == one["threshold"]
    shown = interval(one["estimate"], one["low"], one["high"], "MAC/cycle")
    assert one["reason"].startswith("On Synthetic, 2 cores, a matrix product (float32, 1 thread, fastest: torch")
    total = f"multiplying by 128 (the server) gives {shown}"
    assert one["reason"].endswith(f"{total}, above the threshold of 1,000 MAC/cycle.")
    (cell,) = one["cells"]
    assert (cell["outcome"], cell["node"], cell["device"], cell["dtype"]) == ("challenges", "node-a", "cpu", "float32")
    assert cell["n_rounds"] == 3 and cell["estimate"] == one["estimate"]


def test_what_would_flip_it_is_said_with_numbers(court: Court, synthetic: Factory) -> None:
    court.claim(**W15)
    one = court.verdict(avx512(synthetic))
    flips = one["flips"]
    assert "With a threshold of 5,000 MAC/cycle in place of 1,000 MAC/cycle, the verdict would be supported." in flips
    assert "With 200, 500 or 2,000 MAC/cycle it stays challenged." in flips
    needed = with_unit(one["high"], "MAC/cycle")
    assert f"It would be supported with a threshold of at least about {needed}." in flips
    assert any("interval widths from the threshold" in flip for flip in flips)
    assert any(flip.startswith("It stays challenged with float64 in place of float32") for flip in flips)


def test_a_swap_of_the_dtype_that_flips_is_said(court: Court, synthetic: Factory) -> None:
    court.claim(**{**PER_CYCLE, "threshold": {"value": 20, "why": "?"}})
    flips = court.verdict(avx512(synthetic))["flips"]
    assert "With float64 in place of float32, the verdict would be supported." in flips


def test_two_nodes_that_differ_name_the_boundary_and_the_cell_it_hangs_on(court: Court, synthetic: Factory) -> None:
    court.claim(**W15)
    old = synthetic("node-b", cores=1).gemm(4).gemm(2, n=256).clock()
    one = court.verdict(avx512(synthetic), old)
    assert one["verdict"] == "depends"
    assert one["boundary"] == "holds on Synthetic, 1 core, fails on Synthetic, 2 cores"
    assert any(flip.startswith("Without the cell (Synthetic, 1 core; ") for flip in one["flips"])
    assert {cell["outcome"] for cell in one["cells"]} == {"supports", "challenges"}


def test_one_round_decides_nothing_and_says_why(court: Court, synthetic: Factory) -> None:
    court.claim(**W15)
    one = court.verdict(avx512(synthetic, rounds=1))
    assert one["verdict"] == "undecided" and one["low"] is None and one["estimate"] > 1000
    assert "One round gives no interval: measure at least three." in one["reason"]


def test_an_interval_across_the_threshold_is_undecided(court: Court, synthetic: Factory) -> None:
    court.claim(**{**PER_CYCLE, "threshold": {"value": 27.9, "why": "?"}})
    one = court.verdict(avx512(synthetic, spread=0.05))
    assert one["verdict"] == "undecided" and "too close to the threshold" in one["reason"]


def test_a_share_is_told_with_those_that_challenge_and_those_that_are_too_close(
    court: Court, synthetic: Factory
) -> None:
    rates = {128: 30.0, 256: 20.0, 512: 4.0, 1024: 8.0}
    node = synthetic("node-a").clock(spread=0.001)
    for n, rate in rates.items():
        node.gemm(rate, n=n, spread=0.05 if n == 1024 else 0.001)
    scope = {"device": "cpu", "dtype": "float32", "threads": 1, "backend": "torch"}
    court.claim(
        **{**PER_CYCLE, "scope": scope, "threshold": {"value": 8.0, "why": "?"}, "rule": "for_share_of"},
        options={"share": 0.5, "compare": "at_least"},
    )
    one = court.verdict(node)
    assert one["verdict"] == "supported"
    assert one["reason"].startswith(
        "2 of 4 cells (50.0%) support it, 1 challenge it and 1 are too close to tell; 50% are needed. At that share: On"
    )


# ------------------------------------------------------------------ parts

CORE = {"name": "one core", **PER_CYCLE, "threshold": {"value": 8, "why": "?"}}
SCALING = {
    "name": "all cores",
    "quantity": "gemm.scaling_efficiency",
    "scope": {"device": "cpu", "dtype": "float32", "threads": "all", "backend": "best"},
    "rule": "at_most",
    "threshold": {"value": 0.5, "why": "?"},
}


@pytest.mark.parametrize(
    ("mac", "gain", "verdict"), [(27.9, 1.8, "challenged"), (3, 0.6, "supported"), (27.9, 0.6, "depends")]
)
def test_parts_are_combined(court: Court, synthetic: Factory, mac: float, gain: float, verdict: str) -> None:
    court.claim(all_of=[CORE, SCALING])
    one = court.verdict(avx512(synthetic, mac).gemm(mac * gain, threads=2))
    assert one["verdict"] == verdict
    if verdict == "depends":
        assert one["boundary"] == "challenged: one core; supported: all cores"
        assert any("one core: " in flip for flip in one["flips"])


def test_a_part_without_evidence_leaves_the_whole_waiting_and_says_what_is_decided(
    court: Court, synthetic: Factory
) -> None:
    gpu = {**CORE, "name": "a GPU", "quantity": "gemm.mac_per_cycle", "scope": {"device": "gpu"}, "rule": "at_least"}
    court.claim(all_of=[CORE, gpu])
    one = court.verdict(avx512(synthetic))
    assert one["verdict"] == "awaiting hardware"
    assert one["reason"].startswith(
        "awaiting hardware: no node with a GPU has measured gemm. Judged already. One core (challenged): On "
    )
    assert [part["outcome"] for part in one["parts"]] == ["challenged", "awaiting hardware"]


# ------------------------------------------------------------------ what is lacking

SPEEDUP = {"quantity": "training.speedup", "rule": "within", "threshold": {"value": [10, 100], "why": "?"}}


def test_missing_hardware_is_named(court: Court, synthetic: Factory) -> None:
    court.claim(**SPEEDUP)
    one = court.verdict(avx512(synthetic))
    assert (one["verdict"], one["reason"]) == (
        "awaiting hardware",
        "awaiting hardware: no node with a GPU has measured training",
    )
    assert one["cells"] == [] and one["estimate"] is None and one["evidence_tier"] == "none"


def test_a_ratio_over_devices_needs_both(court: Court, synthetic: Factory) -> None:
    options = {"over": "device", "of": "gpu", "to": "cpu"}
    court.claim(quantity="gemm.rate", rule="ratio", options=options, threshold={"value": 1, "why": "?"})
    assert court.verdict(avx512(synthetic))["verdict"] == "awaiting hardware"
    both = synthetic("node-b", gpus=1).gemm(27).gemm(900, device="cuda:0")
    one = court.verdict(both)
    assert one["verdict"] == "supported" and one["reason"].startswith("On Synthetic, 2 cores + Synthetic GPU")


def test_an_experiment_that_failed_is_named_with_node_and_reason(court: Court, synthetic: Factory) -> None:
    court.claim(**W15)
    node = synthetic("node-a").clock().point("gemm", 0, status="unsupported", reason="no BLAS")
    one = court.verdict(node)
    assert (one["verdict"], one["reason"]) == (
        "awaiting experiment",
        "awaiting experiment gemm: unsupported on the CPU of Synthetic, 2 cores: no BLAS",
    )


def test_an_experiment_that_did_not_run_is_named(court: Court, synthetic: Factory) -> None:
    court.claim(**W15)
    reason = court.verdict(synthetic("node-a").gemm(20))["reason"]
    assert reason == "awaiting experiment clock: not run on the CPU of Synthetic, 2 cores"


def test_what_the_scope_leaves_out_is_named(court: Court, synthetic: Factory) -> None:
    court.claim(**{**W15, "scope": {"device": "cpu", "dtype": "float16"}})
    reason = court.verdict(avx512(synthetic))["reason"]
    assert reason == "awaiting experiment gemm: measured, but not with float16 (measured: float32, float64)"


@pytest.mark.parametrize(
    ("awaits", "verdict", "reason"),
    [
        ({"experiment": "offload", "why": "the trip"}, "awaiting experiment", "awaiting experiment offload: the trip"),
        ({"source": "the datasheet", "why": "x"}, "awaiting source", "awaiting source: the datasheet (x)"),
    ],
)
def test_a_claim_says_what_it_awaits(
    court: Court, synthetic: Factory, awaits: dict[str, str], verdict: str, reason: str
) -> None:
    court.claim(quantity="offload.trip", rule="exists", threshold={"value": 1, "why": "?"}, awaits=awaits)
    one = court.verdict(avx512(synthetic))
    assert (one["verdict"], one["reason"]) == (verdict, reason)


def test_awaiting_what_is_there_is_a_mistake(court: Court, synthetic: Factory) -> None:
    court.claim(**W15, awaits={"experiment": "gemm", "why": "?"})
    with pytest.raises(StudyError, match=r"W01\.yaml: awaits: remove it"):
        court.verdict(avx512(synthetic))


def entry(**more: Any) -> dict[str, Any]:
    return {
        "id": "chip.cores", "subject": "A chip", "what": "Cores of one processor", "value": 192, "unit": "1",
        "date": "2024", "status": "verified",
        "source": {"title": "A sheet", "publisher": "A maker", "url": "https://example.org", "where": "p. 1"}, **more,
    }  # fmt: skip


CORES: dict[str, Any] = {
    "quantity": "reference.value", "scope": {"entry": ["chip.cores"]}, "rule": "at_most",
    "threshold": {"value": 128, "why": "?"},
}  # fmt: skip


def test_published_figures_are_documented_evidence(court: Court, synthetic: Factory) -> None:
    court.entries(entry())
    court.claim(**{**CORES, "kind": "documented"})
    one = court.verdict(avx512(synthetic))
    assert (one["verdict"], one["evidence_tier"]) == ("challenged", "documented")
    assert one["reason"] == "A chip, cores of one processor: 192, above the threshold of 128."
    assert one["sources"][0]["status"] == "verified" and one["sources"][0]["date"] == "2024"


def test_a_figure_that_was_not_verified_awaits_its_source(court: Court, synthetic: Factory) -> None:
    court.entries(entry(status="not verified"))
    court.claim(**CORES)
    one = court.verdict(avx512(synthetic))
    assert one["verdict"] == "awaiting source" and "A chip, Cores of one processor" in one["reason"]


def test_a_judgement_is_shown_with_what_bears_on_it(court: Court, synthetic: Factory) -> None:
    court.claim(**W15)
    court.claim(kind="judgement", bears_on=["W01"])
    one = court.verdict(avx512(synthetic))
    assert one["verdict"] == "not testable" and "W01 challenged" in one["reason"]


def test_options_that_do_not_fit_the_cells_name_the_file(court: Court, synthetic: Factory) -> None:
    court.claim(**{**W15, "rule": "trend", "options": {"along": "bacth"}})
    with pytest.raises(StudyError, match=r"W01.yaml, line \d+: options.along: 'bacth' is not allowed"):
        court.verdict(avx512(synthetic))


# ------------------------------------------------------------------ the document


def test_the_document_is_complete_and_ordered(court: Court, synthetic: Factory) -> None:
    for _ in range(3):
        court.claim(**W15)
    with (court.claims / "N07.yaml").open("w") as file:
        YAML().dump({**HEAD, **W15, "id": "N07", "article": "nuface"}, file)
    document = court.judge(avx512(synthetic).point("transfer", 0, status="unsupported", reason="no accelerator"))
    assert [one["id"] for one in document["verdicts"]] == ["N07", "W01", "W02", "W03"]
    assert list(document["tally"]) == list(VERDICTS) and document["tally"]["challenged"] == 4
    (node,) = document["nodes"]
    assert node["label"] == "Synthetic, 2 cores" and node["statuses"] == {"ok": 4, "unsupported": 1}
    assert (node["n_points"], node["n_ok"]) == (5, 4) and node["duty"] == pytest.approx(0.7)
    assert document["origin"] == "synthetic" and document["refused"] == []
    with (court.root / "out" / "verdicts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["verdict"] for row in rows] == ["challenged"] * 4 and float(rows[0]["estimate"]) > 1000


def test_the_same_data_give_the_same_verdicts(court: Court, synthetic: Factory) -> None:
    court.claim(all_of=[CORE, SCALING])
    first, second = (court.judge(avx512(synthetic)) for _ in range(2))
    assert first["verdicts"] == second["verdicts"]


def test_synthetic_data_is_never_judged_outside_tests(court: Court, synthetic: Factory) -> None:
    court.claim(**W15)
    folder = avx512(synthetic).write()
    with pytest.raises(StudyError, match="synthetic"):
        judge(Dataset(read_nodes([folder], True)), court.root / "v.json", court.claims)
    assert not (court.root / "v.json").exists()


def test_every_published_claim_is_judged(synthetic: Factory, tmp_path: Path) -> None:
    avx512(synthetic).write()
    data = Dataset(read_nodes([synthetic.root], True), read_reference(REFERENCE))
    document = judge(data, tmp_path / "v.json", allow_synthetic=True)
    assert len(document["verdicts"]) == len(list(CLAIMS.glob("*.yaml"))) == sum(document["tally"].values())
    for one in document["verdicts"]:
        assert one["reason"], one["id"]
        if one["verdict"].startswith("awaiting"):
            assert one["reason"].startswith(one["verdict"]), one["id"]
        assert "nan" not in one["reason"].lower().split(), one["id"]


# ------------------------------------------------------------------ wording


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (number(3571.2), "3,571"),
        (number(0.5), "0.500"),
        (number(3.187e9), "3.19 billion"),
        (number(2.4e-9), "2.40e-09"),
        (number(float("nan")), "unknown"),
        (exactly(0.5), "0.5"),
        (exactly(1000), "1,000"),
        (exactly(2e9), "2 billion"),
        (with_unit(4.12e11, "FLOP/s"), "412 GFLOP/s"),
        (with_unit(3.2e-5, "s"), "32.0 µs"),
        (with_unit(0.93, "1"), "0.930"),
        (interval(27.9, 27.1, 28.7, "MAC/cycle"), "27.9 [27.1, 28.7] MAC/cycle"),
        (interval(27, 26.91, 27.02, "1"), "27.0 [26.9, 27.0]"),
        (interval(1.0, 0.99996, 1.00004, "1"), "1.00000 [0.99996, 1.00004]"),
        (interval(16896, 16896, 16896, "1"), "16,896"),
        (interval(2e10, None, None, "B/s"), "20.0 GB/s (no interval)"),
        (thresholds_text([1, 2, 4], "MAC/cycle", "or"), "1, 2 or 4 MAC/cycle"),
        (thresholds_text([[10, 60]], "1"), "10 to 60"),
        (thresholds_text([1e6, 1e9], "B/s"), "1 MB/s and 1 GB/s"),
    ],
)
def test_numbers_in_words(said: str, text: str) -> None:
    assert said == text


def test_only_what_is_compared_has_a_unit_decided_or_not(published: Path) -> None:
    parts = [part for one in read_json(published / "verdicts.json")["verdicts"] for part in one["parts"]]
    bare = [part for part in parts if part["rule"] in ("ratio", "trend", "crossover")]
    assert {part["outcome"] for part in bare} >= {"awaiting hardware"}
    assert {part["unit"] for part in bare} == {"1"}


def test_a_fact_is_told_by_yes_or_no(published: Path) -> None:
    verdicts = {one["id"]: one for one in read_json(published / "verdicts.json")["verdicts"]}
    wanted = (("W37", "supported", "yes, as the claim"), ("W21", "challenged", "no, not as the claim"))
    for name, verdict, said in wanted:
        assert verdicts[name]["verdict"] == verdict
        assert said in verdicts[name]["reason"]
        assert verdicts[name]["rule"] == "supported if the answer is yes"
