"""Published figures beside measured ones: the declared pairs, whose device is whose, deviations, and mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from report.data.dataset import Dataset
from report.data.node_reader import read_nodes
from report.data.reference_figures import REFERENCE, read_reference
from report.judging.reference_comparison import (
    AGREES,
    EXPLAINED,
    TO_EXPLAIN,
    UNVERIFIED,
    compare_pairs,
    comparison_sentence,
)
from report.judging.reference_pairs import DECLARED, read_triangulation

from .claim_mistakes import reported_line, write_yaml
from .conftest import SyntheticNode
from .quantities.builders import ONE_GPU, copy, step
from .test_claims import make_entry

ENTRIES = [
    make_entry("big.memory_bytes_per_s", 4e12, "B/s"),
    make_entry("small.memory_bytes_per_s", 2e12, "B/s", status="not verified"),
    make_entry("blank.memory_bytes_per_s", None, "B/s"),
    make_entry("range.memory_bytes_per_s", 8e12, "B/s", low=3e12, high=8e12),
    make_entry("host.memory_bytes_per_s", 1e11, "B/s"),
    make_entry("eight.work_per_s", 800.0, "1/s", low=720.0, high=880.0),
    make_entry("two.work_per_s", 20.0, "1/s", low=10.0, high=40.0),
]
REFERENCES = {one["id"]: one for one in ENTRIES}
DEVICES: dict[str, Any] = {
    **{name.lower(): {"kind": "gpu", "called": f"{name} GPU", "name": rf"\b{name}\b"}
       for name in ("Big", "Small", "Blank", "Range")},
    "host": {"kind": "cpu", "called": "Some host", "name": "Host 9"},
}  # fmt: skip
PAIR: dict[str, Any] = {
    "id": "memory", "title": "Memory bandwidth", "quantity": "bandwidth.rate", "figures": ["*.memory_bytes_per_s"],
    "scope": {"device": "gpu", "backend": "best"}, "differs": "The rating is a ceiling.",
}  # fmt: skip


class Machine(SyntheticNode):
    def moves(self, rate: float, device: str = "cuda:0", op: str = "triad", spread: float = 0) -> Machine:
        """So many bytes per second past the caches."""
        params = {"op": op, "footprint": 2**30}
        self.point("bandwidth", 3e9 / rate, device=device, params=params, bytes=3e9, spread=spread)
        return self


@dataclass
class Bench:
    """A folder with nodes and a declaration."""

    root: Path

    def node(self, name: str, *cards: str, cpu: dict[str, Any] | None = None, memory: float = 0.0, **more: Any) -> Any:
        """A node with one CPU and the GPUs that are named."""
        devices: list[dict[str, Any]] = [{"id": "cpu", "kind": "cpu", "name": (cpu or {}).get("model", "Some CPU")}]
        devices += [
            {"id": f"cuda:{at}", "kind": "gpu", "name": card, "memory_bytes": memory} for at, card in enumerate(cards)
        ]
        return Machine(self.root / "nodes" / name, devices, cpu=cpu or {}, **more)

    def declared(self, *pairs: dict[str, Any], **devices: dict[str, Any]) -> Path:
        known = {name: {**DEVICES.get(name, {}), **devices.get(name, {})} for name in {**DEVICES, **devices}}
        return write_yaml(self.root / "triangulation.yaml", {"devices": known, "pairs": list(pairs)})

    def compare(
        self, *nodes: SyntheticNode, pair: dict[str, Any] | None = None, **devices: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """The only pair's figures beside what was measured."""
        found = Dataset(read_nodes([node.write() for node in nodes], True), REFERENCES)
        return compare_pairs(found, self.declared({**PAIR, **(pair or {})}, **devices))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def figures(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {figure["device"]: figure for figure in found[0]["figures"]}


def test_a_measured_value_stands_beside_the_figure_of_its_device_alone(bench: Bench) -> None:
    node = bench.node("node-a", "NVIDIA Big", "NVIDIA Bigger")
    # Of several cases the largest is compared.
    node.moves(2e12).moves(3.8e12, spread=0.02, op="copy").moves(1e12, "cuda:1")
    found = bench.compare(node)
    by = figures(found)
    assert set(by) == {"big", "small", "blank", "range"}, "the CPU's entry is not a GPU's"
    (case,) = by["big"]["cases"]
    assert (case["device"], case["name"], case["behind"]) == ("cuda:0", "NVIDIA Big", "0")
    assert "copy" in case["label"]
    # The interval is that of the measurement.
    assert case["low"] < case["estimate"] < case["high"]
    for name in ("estimate", "low", "high"):
        assert case["deviation"][name] == pytest.approx(case[name] / 4e12 - 1)
    assert (case["outcome"], case["explained"], by["big"]["waits"]) == (AGREES, "", "")
    assert by["big"]["sources"][0]["title"] == "A datasheet"
    assert (by["small"]["cases"], by["small"]["waits"]) == ([], "Small GPU")
    assert comparison_sentence(found) == (
        "1 measured value beside a published one: 1 within a tenth of it. 3 figures wait for a machine to be measured."
    )


@pytest.mark.parametrize(
    ("card", "rate", "outcome"),
    [
        ("Big", 3.61e12, AGREES),
        ("Big", 3.59e12, TO_EXPLAIN),
        ("Big", 4.41e12, TO_EXPLAIN),
        # Within what is published as a range; beyond it, and by more than a tenth.
        ("Range", 3.1e12, AGREES),
        ("Range", 2.9e12, TO_EXPLAIN),
        ("Small", 1e12, UNVERIFIED),
        ("Blank", 1e12, UNVERIFIED),
    ],
)
def test_more_than_a_tenth_is_to_be_explained(bench: Bench, card: str, rate: float, outcome: str) -> None:
    found = figures(bench.compare(bench.node("node-a", card).moves(rate)))[card.lower()]
    (case,) = found["cases"]
    assert case["outcome"] == outcome
    assert (found["status"] == UNVERIFIED) == (outcome == UNVERIFIED)
    assert (case["deviation"]["estimate"] is None) == (card == "Blank")


def test_an_explanation_counts_where_it_was_measured_and_for_what_it_explains(bench: Bench) -> None:
    why = {"between": [-0.5, -0.1], "says": "The board is held back.", "shown_by": "transfer.rate"}
    bare, shown, above = (
        bench.node(f"node-{name}", "Big").moves(rate) for name, rate in (("a", 3e12), ("b", 3e12), ("c", 6e12))
    )
    for node in (shown, above):
        copy(node, 1e-3, 2**28)
    cases = figures(bench.compare(bare, shown, above, pair={"explained": [why]}))["big"]["cases"]
    assert {case["node"]: (case["outcome"], case["explained"]) for case in cases} == {
        "node-a": (TO_EXPLAIN, ""),
        "node-c": (TO_EXPLAIN, ""),
        "node-b": (EXPLAINED, "The board is held back. Shown by transfer.rate."),
    }


def test_one_of_several_over_one_of_several_others_on_the_right_host(bench: Bench) -> None:
    ratio = {
        "device": "big", "host": "host", "entry": "eight.work_per_s", "count": 8,
        "over": {"entry": "two.work_per_s", "count": 2},
    }  # fmt: skip
    scope = {"device": "gpu", "baseline": "node", "precision": "best"}
    pair = {"quantity": "training.speedup", "scope": scope, "sockets": "multiply", "figures": [ratio]}
    nodes = []
    for name, model in (("node-a", "Host(R) 9 CPU @ 2 GHz"), ("node-b", "Other 3")):
        node = bench.node(name, "Big", cpu={"model": model, "sockets": 2})
        nodes.append(step(step(node, 500, **ONE_GPU), 100, threads=4))
    figure = figures(bench.compare(*nodes, pair=pair))["big"]
    assert figure["value"] == pytest.approx(100 / 10)
    assert (figure["low"], figure["high"]) == (pytest.approx(90 / 20), pytest.approx(110 / 5)), "ends crosswise"
    assert figure["worked_out"] == "800 / 8 over 20 / 2"
    (case,) = figure["cases"]
    assert case["node"] == "node-a", "the other host is not the one that the figure has"
    assert case["estimate"] == pytest.approx(5 * 2), "over one of two processors"


# ------------------------------------------------------------------ whose device is whose

EPYC = {"model": "AMD EPYC 9R45", "family": "26", "sockets": 2, "simd": ["avx2", "avx512f"], "matrix": ["amx_bf16"]}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"name": "9r45"}, True),
        ({"name": "9R46"}, False),
        ({"kind": "gpu", "name": "9R45"}, False),
        ({"kind": "gpu", "name": "Big", "memory_bytes": [1e10, 2e10]}, True),
        ({"kind": "gpu", "name": "Big", "memory_bytes": [0, 1e10]}, False),
        ({"family": "26"}, True),
        ({"family": "25"}, False),
        ({"sockets": 1}, False),
        # A figure of a whole processor says nothing of a part of it.
        ({"cores": 64}, True),
        ({"cores": 128}, False),
        ({"has": ["avx512f", "amx_bf16"]}, True),
        ({"has": ["avx512f", "avx10"]}, False),
        ({"lacks": ["avx10"]}, True),
        ({"has": ["avx512f"], "lacks": ["amx_bf16"]}, False),
    ],
)
def test_a_figure_is_of_the_devices_that_are_described(bench: Bench, wanted: dict[str, Any], found: bool) -> None:
    node = bench.node("node-a", "NVIDIA Big", cpu=EPYC, memory=1.6e10, cores=128).clock()
    told = {"kind": "cpu", "called": "What is asked for", "name": ".", **wanted}
    figure = {"device": "asked", "entry": "big.memory_bytes_per_s"}
    waits = figures(bench.compare(node, pair={"figures": [figure]}, asked=told))["asked"]["waits"]
    assert (" on " in waits) is found and (waits == "What is asked for") is not found


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"quantity": "bandwidth.rat"}, "there is no quantity 'bandwidth.rat'. Did you mean 'bandwidth.rate'?"),
        ({"scope": {"device": "gpu", "opp": "copy"}}, "there is no label of bandwidth.rate 'opp'"),
        ({"figures": ["*.memory_byte_per_s"]}, "no device of this kind has an entry '*.memory_byte_per_s'"),
        ({"figures": [{"device": "bigg", "entry": "big.memory_bytes_per_s"}]}, "there is no device 'bigg'"),
        ({"figures": [{"device": "big", "entry": "big.memory"}]}, "there is no reference entry 'big.memory'"),
        ({"figures": [{"device": "big", "entry": "eight.work_per_s"}]}, "is in 1/s, the measured value in B/s"),
        ({"scale": {"by": 2, "unit": "FLOP", "why": "So."}}, "is in B/s, the measured value in FLOP"),
        ({"explained": [{"between": [0, 1], "says": "So.", "shown_by": "nothing"}]}, "there is no quantity 'nothing'"),
        ({"id": "first"}, "the id 'first' is used twice"),
        ({"big": {"name": "("}}, "devices.big: not a regular expression"),
    ],
)
def test_mistakes_are_named_with_their_line(bench: Bench, change: dict[str, Any], said: str) -> None:
    devices = {"big": change.pop("big")} if "big" in change else {}
    path = bench.declared({**PAIR, "id": "first"}, {**PAIR, **change}, **devices)
    with pytest.raises(StudyError) as caught:
        read_triangulation(path, REFERENCES)
    assert said in str(caught.value) and reported_line(caught.value, path)


# ------------------------------------------------------------------ the declared ones

# What drivers call boards, with memory where a name leaves several, and whose figures they find.
NAMES = {
    "NVIDIA H100 80GB HBM3": "h100 h100-sxm",
    "NVIDIA GB200": "gb200",
    "NVIDIA H200 NVL": "",
    "NVIDIA L40": "",
    "NVIDIA A100 80GB PCIe": "a100-pcie a100-pcie-80gb",
    "NVIDIA GeForce RTX 4090 Laptop GPU": "",
    "NVIDIA GeForce RTX 4060 Ti": "rtx-4060-ti-16gb",
    "NVIDIA GeForce RTX 3060": "rtx-3060-12gb",
}


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return read_reference(REFERENCE)


@pytest.mark.parametrize(("name", "known"), NAMES.items())
def test_a_driver_s_name_finds_the_figures_of_just_that_build(
    bench: Bench, reference: dict[str, Any], name: str, known: str
) -> None:
    node = bench.node("node-a", name, memory=1.3e10 if "3060" in name else 1.7e10).clock()
    found = compare_pairs(Dataset(read_nodes([node.write()], True), reference))
    waiting = {figure["device"] for pair in found for figure in pair["figures"] if " on " in figure["waits"]}
    assert waiting - {"any"} == set(known.split())


def test_the_declared_pairs_read_and_every_device_has_a_figure(reference: dict[str, Any]) -> None:
    declared = read_triangulation(DECLARED, reference)
    used = {name for pair in declared.pairs for figure in pair.figures for name in (figure.device, figure.host)}
    assert set(declared.devices) == used - {""}
    assert all(figure.value is not None or not figure.verified for pair in declared.pairs for figure in pair.figures)
