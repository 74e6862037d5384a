"""Comparison of measured values with published figures: pairs, device matching, deviations and errors."""

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
from .quantities.builders import ONE_GPU, add_copy, add_step
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
REFERENCES = {item["id"]: item for item in ENTRIES}
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
    def bandwidth(self, rate: float, device: str = "cuda:0", op: str = "triad", spread: float = 0) -> Machine:
        """Add a memory bandwidth point at `rate` B/s, with a footprint larger than the caches."""
        params = {"op": op, "footprint": 2**30}
        self.point("bandwidth", 3e9 / rate, device=device, params=params, bytes=3e9, spread=spread)
        return self


@dataclass
class Bench:
    """A folder with nodes and a triangulation.yaml."""

    root: Path

    def node(self, name: str, *cards: str, cpu: dict[str, Any] | None = None, memory: float = 0.0, **more: Any) -> Any:
        """Start a node with one CPU and the GPUs `cards`."""
        devices: list[dict[str, Any]] = [{"id": "cpu", "kind": "cpu", "name": (cpu or {}).get("model", "Some CPU")}]
        devices += [
            {"id": f"cuda:{index}", "kind": "gpu", "name": card, "memory_bytes": memory}
            for index, card in enumerate(cards)
        ]
        return Machine(self.root / "nodes" / name, devices, cpu=cpu or {}, **more)

    def write_pairs(self, *pairs: dict[str, Any], **devices: dict[str, Any]) -> Path:
        merged = {name: {**DEVICES.get(name, {}), **devices.get(name, {})} for name in {**DEVICES, **devices}}
        return write_yaml(self.root / "triangulation.yaml", {"devices": merged, "pairs": list(pairs)})

    def compare(
        self, *nodes: SyntheticNode, pair: dict[str, Any] | None = None, **devices: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Compare the figures in a single pair with the nodes."""
        data = Dataset(read_nodes([node.write() for node in nodes], True), REFERENCES)
        return compare_pairs(data, self.write_pairs({**PAIR, **(pair or {})}, **devices))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def figures_by_device(pairs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {figure["device"]: figure for figure in pairs[0]["figures"]}


def test_measured_value_is_compared_with_its_own_device(bench: Bench) -> None:
    node = bench.node("node-a", "NVIDIA Big", "NVIDIA Bigger")
    # For each device, only the highest bandwidth is compared.
    node.bandwidth(2e12).bandwidth(3.8e12, spread=0.02, op="copy").bandwidth(1e12, "cuda:1")
    pairs = bench.compare(node)
    by_device = figures_by_device(pairs)
    assert set(by_device) == {"big", "small", "blank", "range"}, "the CPU's entry is not a GPU's"
    (case,) = by_device["big"]["cases"]
    assert (case["device"], case["name"], case["behind"]) == ("cuda:0", "NVIDIA Big", "0")
    assert "copy" in case["label"]
    assert case["low"] < case["estimate"] < case["high"]
    for name in ("estimate", "low", "high"):
        assert case["deviation"][name] == pytest.approx(case[name] / 4e12 - 1)
    assert (case["outcome"], case["explained"], by_device["big"]["waits"]) == (AGREES, "", "")
    assert by_device["big"]["sources"][0]["title"] == "A datasheet"
    assert (by_device["small"]["cases"], by_device["small"]["waits"]) == ([], "Small GPU")
    assert comparison_sentence(pairs) == (
        "1 measured value beside a published one: 1 within a tenth of it. 3 figures wait for a machine to be measured."
    )


@pytest.mark.parametrize(
    ("card", "rate", "outcome"),
    [
        ("Big", 3.61e12, AGREES),
        ("Big", 3.59e12, TO_EXPLAIN),
        ("Big", 4.41e12, TO_EXPLAIN),
        # The first value lies inside the published range, and the second lies more than a tenth below the range.
        ("Range", 3.1e12, AGREES),
        ("Range", 2.9e12, TO_EXPLAIN),
        ("Small", 1e12, UNVERIFIED),
        ("Blank", 1e12, UNVERIFIED),
    ],
)
def test_deviation_above_a_tenth_is_to_explain(bench: Bench, card: str, rate: float, outcome: str) -> None:
    figure = figures_by_device(bench.compare(bench.node("node-a", card).bandwidth(rate)))[card.lower()]
    (case,) = figure["cases"]
    assert case["outcome"] == outcome
    assert (figure["status"] == UNVERIFIED) == (outcome == UNVERIFIED)
    assert (case["deviation"]["estimate"] is None) == (card == "Blank")


def test_explanation_applies_in_its_range_with_its_measurement(bench: Bench) -> None:
    why = {"between": [-0.5, -0.1], "says": "The board is held back.", "shown_by": "transfer.rate"}
    bare, explained, above = (
        bench.node(f"node-{name}", "Big").bandwidth(rate) for name, rate in (("a", 3e12), ("b", 3e12), ("c", 6e12))
    )
    for node in (explained, above):
        add_copy(node, 1e-3, 2**28)
    cases = figures_by_device(bench.compare(bare, explained, above, pair={"explained": [why]}))["big"]["cases"]
    assert {case["node"]: (case["outcome"], case["explained"]) for case in cases} == {
        "node-a": (TO_EXPLAIN, ""),
        "node-c": (TO_EXPLAIN, ""),
        "node-b": (EXPLAINED, "The board is held back. Shown by transfer.rate."),
    }


def test_ratio_per_device_on_the_declared_host(bench: Bench) -> None:
    ratio = {
        "device": "big", "host": "host", "entry": "eight.work_per_s", "count": 8,
        "over": {"entry": "two.work_per_s", "count": 2},
    }  # fmt: skip
    scope = {"device": "gpu", "baseline": "node", "precision": "best"}
    pair = {"quantity": "training.speedup", "scope": scope, "sockets": "multiply", "figures": [ratio]}
    nodes = []
    for name, model in (("node-a", "Host(R) 9 CPU @ 2 GHz"), ("node-b", "Other 3")):
        node = bench.node(name, "Big", cpu={"model": model, "sockets": 2})
        nodes.append(add_step(add_step(node, 500, **ONE_GPU), 100, threads=4))
    figure = figures_by_device(bench.compare(*nodes, pair=pair))["big"]
    assert figure["value"] == pytest.approx(100 / 10)
    assert (figure["low"], figure["high"]) == (pytest.approx(90 / 20), pytest.approx(110 / 5)), "ends crosswise"
    assert figure["worked_out"] == "800 / 8 over 20 / 2"
    (case,) = figure["cases"]
    assert case["node"] == "node-a", "the figure names the first host"
    assert case["estimate"] == pytest.approx(5 * 2), "per processor, with two sockets"


# The tests below are on the match between devices and published figures.

EPYC = {"model": "AMD EPYC 9R45", "family": "26", "sockets": 2, "simd": ["avx2", "avx512f"], "matrix": ["amx_bf16"]}


@pytest.mark.parametrize(
    ("description", "matches"),
    [
        ({"name": "9r45"}, True),
        ({"name": "9R46"}, False),
        ({"kind": "gpu", "name": "9R45"}, False),
        ({"kind": "gpu", "name": "Big", "memory_bytes": [1e10, 2e10]}, True),
        ({"kind": "gpu", "name": "Big", "memory_bytes": [0, 1e10]}, False),
        ({"family": "26"}, True),
        ({"family": "25"}, False),
        ({"sockets": 1}, False),
        # A figure for a whole processor does not apply to a node with only some of its cores.
        ({"cores": 64}, True),
        ({"cores": 128}, False),
        ({"has": ["avx512f", "amx_bf16"]}, True),
        ({"has": ["avx512f", "avx10"]}, False),
        ({"lacks": ["avx10"]}, True),
        ({"has": ["avx512f"], "lacks": ["amx_bf16"]}, False),
    ],
)
def test_device_descriptions_match_nodes(bench: Bench, description: dict[str, Any], matches: bool) -> None:
    node = bench.node("node-a", "NVIDIA Big", cpu=EPYC, memory=1.6e10, cores=128).clock()
    device = {"kind": "cpu", "called": "What is asked for", "name": ".", **description}
    figure = {"device": "asked", "entry": "big.memory_bytes_per_s"}
    waits = figures_by_device(bench.compare(node, pair={"figures": [figure]}, asked=device))["asked"]["waits"]
    assert (" on " in waits) is matches and (waits == "What is asked for") is not matches


# The tests below are on errors in the declarations.


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_triangulation_errors_report_their_line(bench: Bench, change: dict[str, Any], message: str) -> None:
    devices = {"big": change.pop("big")} if "big" in change else {}
    path = bench.write_pairs({**PAIR, "id": "first"}, {**PAIR, **change}, **devices)
    with pytest.raises(StudyError) as caught:
        read_triangulation(path, REFERENCES)
    assert message in str(caught.value) and reported_line(caught.value, path)


# The tests below are on the pairs that the study declares.

# For each GPU name that a driver reports, the devices whose figures apply to the GPU.
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


@pytest.mark.parametrize(("name", "devices"), NAMES.items())
def test_driver_names_match_figures_for_that_build(
    bench: Bench, reference: dict[str, Any], name: str, devices: str
) -> None:
    node = bench.node("node-a", name, memory=1.3e10 if "3060" in name else 1.7e10).clock()
    pairs = compare_pairs(Dataset(read_nodes([node.write()], True), reference))
    waiting = {figure["device"] for pair in pairs for figure in pair["figures"] if " on " in figure["waits"]}
    assert waiting - {"any"} == set(devices.split())


def test_shipped_pairs_parse_and_use_every_device(reference: dict[str, Any]) -> None:
    declared = read_triangulation(DECLARED, reference)
    used = {name for pair in declared.pairs for figure in pair.figures for name in (figure.device, figure.host)}
    assert set(declared.devices) == used - {""}
    assert all(figure.value is not None or not figure.verified for pair in declared.pairs for figure in pair.figures)
