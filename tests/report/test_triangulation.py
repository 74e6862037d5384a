"""Published figures beside measured ones: the declared pairs, whose device is whose, deviations, and mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from contract.errors import StudyError
from report.data.dataset import Dataset
from report.data.nodes import read_nodes
from report.data.reference import REFERENCE, read_reference
from report.judging.reference_comparison import AGREES, EXPLAINED, OUTCOMES, TO_EXPLAIN, UNVERIFIED, compare, sentence
from report.judging.reference_pairs import DECLARED, read_triangulation

from .conftest import Factory, SyntheticNode
from .evidence import of, value


def entry(name: str, value: float | None, unit: str = "B/s", **more: Any) -> dict[str, Any]:
    source = {"title": "A datasheet", "publisher": "A maker", "url": "https://example.org/", "where": "page 1"}
    about = {"id": name, "subject": "A chip", "what": "Rate", "date": "2024", "source": source, "status": "verified"}
    return {**about, "value": value, "unit": unit, **more}


ENTRIES = [
    entry("big.memory_bytes_per_s", 4e12),
    entry("small.memory_bytes_per_s", 2e12, status="not verified"),
    entry("blank.memory_bytes_per_s", None, status="not verified"),
    entry("range.memory_bytes_per_s", 8e12, low=3e12, high=8e12),
    entry("host.memory_bytes_per_s", 1e11),
    entry("eight.work_per_s", 800.0, "1/s", low=720.0, high=880.0),
    entry("two.work_per_s", 20.0, "1/s", low=10.0, high=40.0),
    entry("wide.fp32_flop_per_cycle", 64.0, "FLOP"),
]
REFERENCES = {one["id"]: one for one in ENTRIES}
DEVICES: dict[str, Any] = {
    "big": {"kind": "gpu", "called": "Big GPU", "name": r"\bBig\b"},
    "small": {"kind": "gpu", "called": "Small GPU", "name": r"\bSmall\b"},
    "blank": {"kind": "gpu", "called": "Blank GPU", "name": "Blank"},
    "range": {"kind": "gpu", "called": "Range GPU", "name": "Range"},
    "host": {"kind": "cpu", "called": "Some host", "name": "Host 9"},
    "wide": {"kind": "cpu", "called": "A wide CPU", "has": ["avx512f"], "lacks": ["amx_bf16"]},
}
PAIR: dict[str, Any] = {
    "id": "memory",
    "title": "Memory bandwidth",
    "quantity": "bandwidth.rate",
    "scope": {"device": "gpu", "backend": "best"},
    "figures": ["*.memory_bytes_per_s"],
    "differs": "The rating is a ceiling.",
}


def declared(folder: Path, *pairs: dict[str, Any], devices: dict[str, Any] | None = None) -> Path:
    path = folder / "triangulation.yaml"
    with path.open("w") as file:
        YAML().dump({"devices": devices or DEVICES, "pairs": list(pairs)}, file)
    return path


class Machine(SyntheticNode):
    """A node whose hardware says more than a synthetic node's does."""

    cpu: dict[str, Any] | None = None

    def record(self) -> dict[str, Any]:
        record = super().record()
        record["hardware"]["cpu"] |= self.cpu or {}
        return record


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """A node with one CPU and the GPUs that are named."""

    def made(name: str, *cards: str, cpu: dict[str, Any] | None = None, memory: float = 0.0, **more: Any) -> Machine:
        devices: list[dict[str, Any]] = [{"id": "cpu", "kind": "cpu", "name": (cpu or {}).get("model", "Some CPU")}]
        devices += [
            {"id": f"cuda:{at}", "kind": "gpu", "name": card, "memory_bytes": memory} for at, card in enumerate(cards)
        ]
        node = Machine(tmp_path / "nodes" / name, devices, **more)
        node.cpu = cpu
        return node

    return made


def moved(node: SyntheticNode, rate: float, device: str = "cuda:0", **more: Any) -> SyntheticNode:
    """A triad past the caches at so many bytes per second."""
    about = {"op": "triad", "footprint": 2**30}
    return node.point("bandwidth", 3e9 / rate, device=device, params=about, bytes=3e9, spread=0, **more)


def evidence(*nodes: SyntheticNode, reference: dict[str, Any] | None = None) -> Dataset:
    folders = [node.write() for node in nodes]
    return Dataset(read_nodes(folders, True), REFERENCES if reference is None else reference)


def figures(found: list[dict[str, Any]], pair: int = 0) -> dict[str, dict[str, Any]]:
    return {figure["device"]: figure for figure in found[pair]["figures"]}


# ------------------------------------------------------------------ deviations


def test_a_measured_value_stands_beside_the_figure_of_its_device_alone(
    machine: Callable[..., Machine], tmp_path: Path
) -> None:
    node = moved(moved(machine("node-a", "NVIDIA Big", "NVIDIA Bigger"), 3.8e12), 1e12, "cuda:1")
    found = compare(evidence(node), declared(tmp_path, PAIR))
    by = figures(found)
    assert set(by) == {"big", "small", "blank", "range"}, "the CPU's entry is not a GPU's"
    (cell,) = by["big"]["cells"]
    assert (cell["device"], cell["name"]) == ("cuda:0", "NVIDIA Big")
    assert cell["deviation"]["estimate"] == pytest.approx(-0.05)
    assert (cell["outcome"], cell["explained"], by["big"]["waits"]) == (AGREES, "", "")
    assert by["big"]["sources"][0]["title"] == "A datasheet"
    assert cell["behind"] == "0", "the row of the summary that it was read from"
    assert by["small"]["cells"] == []
    assert by["small"]["waits"] == "Small GPU"


def test_of_several_cells_of_a_device_the_largest_is_compared(machine: Callable[..., Machine], tmp_path: Path) -> None:
    node = moved(machine("node-a", "Big"), 2e12)
    node.point("bandwidth", 2e9 / 3.9e12, device="cuda:0", params={"op": "copy", "footprint": 2**30}, bytes=2e9)
    (cell,) = figures(compare(evidence(node), declared(tmp_path, PAIR)))["big"]["cells"]
    assert cell["estimate"] == pytest.approx(3.9e12, rel=0.05)
    assert "copy" in cell["label"]


@pytest.mark.parametrize(("rate", "outcome"), [(3.61e12, AGREES), (3.59e12, TO_EXPLAIN), (4.41e12, TO_EXPLAIN)])
def test_more_than_a_tenth_is_to_be_explained(
    machine: Callable[..., Machine], tmp_path: Path, rate: float, outcome: str
) -> None:
    found = compare(evidence(moved(machine("node-a", "Big"), rate)), declared(tmp_path, PAIR))
    assert figures(found)["big"]["cells"][0]["outcome"] == outcome


def test_the_interval_of_the_deviation_is_that_of_the_measurement(
    machine: Callable[..., Machine], tmp_path: Path
) -> None:
    node = machine("node-a", "Big")
    node.point("bandwidth", 1e-3, device="cuda:0", params={"op": "triad", "footprint": 2**30}, bytes=3.9e9, spread=0.02)
    (cell,) = figures(compare(evidence(node), declared(tmp_path, PAIR)))["big"]["cells"]
    for name in ("estimate", "low", "high"):
        assert cell["deviation"][name] == pytest.approx(cell[name] / 4e12 - 1)
    assert cell["deviation"]["low"] < cell["deviation"]["estimate"] < cell["deviation"]["high"]


def test_a_value_within_a_published_range_agrees(machine: Callable[..., Machine], tmp_path: Path) -> None:
    found = compare(evidence(moved(machine("node-a", "Range"), 3.1e12)), declared(tmp_path, PAIR))
    assert figures(found)["range"]["cells"][0]["outcome"] == AGREES


def test_what_could_not_be_verified_judges_nothing(machine: Callable[..., Machine], tmp_path: Path) -> None:
    node = moved(moved(machine("node-a", "Small", "Blank"), 1e12), 1e12, "cuda:1")
    by = figures(compare(evidence(node), declared(tmp_path, PAIR)))
    assert by["small"]["cells"][0]["outcome"] == by["blank"]["cells"][0]["outcome"] == UNVERIFIED
    assert by["small"]["cells"][0]["deviation"]["estimate"] == pytest.approx(-0.5)
    assert by["blank"]["cells"][0]["deviation"]["estimate"] is None
    assert by["small"]["status"] == UNVERIFIED


def test_an_explanation_counts_where_it_was_measured_and_for_what_it_explains(
    machine: Callable[..., Machine], tmp_path: Path
) -> None:
    why = {"between": [-0.5, -0.1], "says": "The board is held back.", "shown_by": "sustained.throughput_drift"}
    path = declared(tmp_path, {**PAIR, "explained": [{**why, "shown_by": "transfer.rate"}]})
    bare, shown, above = (moved(machine(f"node-{name}", "Big"), rate) for name, rate in
                          (("a", 3e12), ("b", 3e12), ("c", 6e12)))  # fmt: skip
    for node in (shown, above):
        params = {"direction": "host_to_device", "size": 2**28, "host_memory": "pinned"}
        node.point("transfer", 1e-3, device="cuda:0", params=params, bytes=2**28)
    cells = {cell["node"]: cell for cell in figures(compare(evidence(bare, shown, above), path))["big"]["cells"]}
    assert {name: cell["outcome"] for name, cell in cells.items()} == {
        "node-a": TO_EXPLAIN,
        "node-b": EXPLAINED,
        "node-c": TO_EXPLAIN,
    }
    assert "held back" in cells["node-b"]["explained"]
    assert "transfer.rate" in cells["node-b"]["explained"]


def test_one_of_several_over_one_of_several_others_on_the_right_host(
    machine: Callable[..., Machine], tmp_path: Path
) -> None:
    ratio = {
        "device": "big", "host": "host", "entry": "eight.work_per_s", "count": 8,
        "over": {"entry": "two.work_per_s", "count": 2},
    }  # fmt: skip
    pair = {
        **PAIR, "quantity": "training.speedup", "scope": {"device": "gpu", "baseline": "node", "precision": "best"},
        "sockets": "multiply", "figures": [ratio],
    }  # fmt: skip
    nodes = []
    for name, model in (("node-a", "Host(R) 9 CPU @ 2 GHz"), ("node-b", "Other 3")):
        node = machine(name, "Big", cpu={"model": model, "sockets": 2})
        for device, seconds in (("cuda:0", 1e-3), ("cpu", 5e-3)):
            params = {"model": "gpt2", "batch": 8}
            node.point("training", seconds, device=device, params=params, threads=4, spread=0, flop=1e9)
        nodes.append(node)
    (figure,) = compare(evidence(*nodes), declared(tmp_path, pair))[0]["figures"]
    assert figure["value"] == pytest.approx(100 / 10)
    assert (figure["low"], figure["high"]) == (pytest.approx(90 / 20), pytest.approx(110 / 5)), "ends crosswise"
    assert figure["worked_out"] == "800 / 8 over 20 / 2"
    (cell,) = figure["cells"]
    assert cell["node"] == "node-a", "the other host is not the one that the figure has"
    assert cell["estimate"] == pytest.approx(5 * 2), "over one of two processors"


def test_a_figure_of_one_processor_is_compared_with_one_that_is_all_there(
    machine: Callable[..., Machine], tmp_path: Path
) -> None:
    devices = {**DEVICES, "host": {**DEVICES["host"], "cores": 64}}
    pair = {**PAIR, "scope": {"device": "cpu", "threads": "all", "backend": "best"}, "sockets": "divide"}
    path = declared(tmp_path, pair, devices=devices)
    whole = machine("node-a", cpu={"model": "Host 9", "sockets": 2}, cores=128)
    part = machine("node-b", cpu={"model": "Host 9", "sockets": 1}, cores=2)
    for node in (whole, part):
        moved(node, 1.9e11, "cpu")
    (cell,) = figures(compare(evidence(whole, part), path))["host"]["cells"]
    assert (cell["node"], cell["estimate"]) == ("node-a", pytest.approx(0.95e11))
    assert cell["outcome"] == AGREES


def test_instructions_tell_processors_apart_and_operations_are_two_to_a_multiply_add(
    machine: Callable[..., Machine], tmp_path: Path
) -> None:
    pair = {
        **PAIR, "quantity": "peak.mac_per_cycle", "scope": {"device": "cpu", "dtype": "float32", "threads": 1},
        "scale": {"by": 2, "unit": "FLOP/cycle", "why": "Two to each."}, "per": "cycle",
        "figures": ["*.fp32_flop_per_cycle"],
    }  # fmt: skip
    nodes = [
        machine("node-a", cpu={"simd": ["avx2", "avx512f"]}),
        machine("node-b", cpu={"simd": ["avx2", "avx512f"], "matrix": ["amx_bf16"]}),
        machine("node-c", cpu={"simd": ["avx2"]}),
    ]
    for node in nodes:
        node.peak(62 * 3e9, spread=0).clock(3e9, spread=0)
    found = compare(evidence(*nodes), declared(tmp_path, pair))
    (cell,) = figures(found)["wide"]["cells"]
    assert (cell["node"], cell["estimate"]) == ("node-a", pytest.approx(62))
    assert found[0]["scaled"] == "Multiplied by 2. Two to each."


def test_the_memory_of_a_device_tells_builds_of_one_name_apart(machine: Callable[..., Machine], tmp_path: Path) -> None:
    devices = {**DEVICES, "big": {**DEVICES["big"], "memory_bytes": [1e10, 2e10]}}
    path = declared(tmp_path, PAIR, devices=devices)
    large, small = machine("node-a", "Big", memory=1.6e10), machine("node-b", "Big", memory=8e9)
    found = compare(evidence(moved(large, 4e12), moved(small, 4e12)), path)
    assert [cell["node"] for cell in figures(found)["big"]["cells"]] == ["node-a"]


def test_a_device_without_the_measurement_waits_for_it(machine: Callable[..., Machine], tmp_path: Path) -> None:
    found = compare(evidence(machine("node-a", "Big").clock()), declared(tmp_path, PAIR))
    assert figures(found)["big"]["waits"].startswith("bandwidth on ")
    assert sentence(found) == "4 figures wait for a machine to be measured."


def test_the_sentence_counts_what_came_of_it(machine: Callable[..., Machine], tmp_path: Path) -> None:
    node = moved(moved(machine("node-a", "Big", "Small"), 3.9e12), 1e12, "cuda:1")
    told = sentence(compare(evidence(node), declared(tmp_path, PAIR)))
    assert told == (
        "2 measured values beside a published one: 1 within a tenth of it and 1 beside a figure that could not be "
        "verified. 2 figures wait for a machine to be measured."
    )


def test_without_a_file_there_is_nothing_to_compare(machine: Callable[..., Machine], tmp_path: Path) -> None:
    assert compare(evidence(machine("node-a").clock()), tmp_path / "none.yaml") == []


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"quantity": "bandwidth.rat"}, "there is no quantity 'bandwidth.rat'. Did you mean 'bandwidth.rate'?"),
        ({"scope": {"device": "gpu", "opp": "copy"}}, "there is no label of bandwidth.rate 'opp'"),
        ({"scope": {"backend": "best"}}, "device"),
        ({"figures": ["*.memory_byte_per_s"]}, "no device of this kind has an entry '*.memory_byte_per_s'"),
        ({"figures": ["big.memory_bytes_per_s"]}, "figures"),
        ({"figures": [{"device": "bigg", "entry": "big.memory_bytes_per_s"}]}, "there is no device 'bigg'"),
        ({"figures": [{"device": "big", "entry": "big.memory"}]}, "there is no reference entry 'big.memory'"),
        ({"figures": [{"device": "big", "entry": "eight.work_per_s"}]}, "is in 1/s, what is measured in B/s"),
        ({"scale": {"by": 2, "unit": "FLOP", "why": "So."}}, "is in B/s, what is measured in FLOP"),
        ({"explained": [{"between": [0, 1], "says": "So.", "shown_by": "nothing"}]}, "there is no quantity 'nothing'"),
        ({"differ": "x"}, "differ"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = declared(tmp_path, {**PAIR, **change})
    with pytest.raises(StudyError) as caught:
        read_triangulation(path, REFERENCES)
    assert said in str(caught.value)
    assert f"{path}, line " in str(caught.value)


def test_an_id_twice_and_a_broken_pattern_are_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"line \d+: the id 'memory' is used twice"):
        read_triangulation(declared(tmp_path, PAIR, PAIR), REFERENCES)
    broken = {**DEVICES, "big": {**DEVICES["big"], "name": "("}}
    with pytest.raises(StudyError, match=r"line \d+: devices.big: not a regular expression"):
        read_triangulation(declared(tmp_path, PAIR, devices=broken), REFERENCES)


# ------------------------------------------------------------------ the declared ones

# What drivers and lscpu call them, with memory where a name leaves several.
NAMES = {
    "NVIDIA H100 80GB HBM3": {"h100", "h100-sxm"},
    "NVIDIA H100 PCIe": {"h100", "h100-pcie"},
    "NVIDIA H100 NVL": {"h100", "h100-nvl"},
    "NVIDIA H200": {"h200"},
    "NVIDIA H200 NVL": set(),
    "NVIDIA GH200 480GB": {"gh200"},
    "NVIDIA B200": {"b200"},
    "NVIDIA GB200": {"gb200"},
    "NVIDIA A100-SXM4-40GB": {"a100-sxm", "a100-sxm-40gb"},
    "NVIDIA A100-SXM4-80GB": {"a100-sxm", "a100-sxm-80gb"},
    "NVIDIA A100-PCIE-40GB": {"a100-pcie", "a100-pcie-40gb"},
    "NVIDIA A100 80GB PCIe": {"a100-pcie", "a100-pcie-80gb"},
    "NVIDIA L4": {"l4"},
    "NVIDIA L40S": {"l40s"},
    "NVIDIA L40": set(),
    "NVIDIA GeForce RTX 4090": {"rtx-4090"},
    "NVIDIA GeForce RTX 4090 Laptop GPU": set(),
    "NVIDIA GeForce RTX 4060 Ti": {"rtx-4060-ti-16gb"},
    "NVIDIA GeForce RTX 4060": set(),
    "NVIDIA GeForce RTX 3060": {"rtx-3060-12gb"},
    "NVIDIA GeForce RTX 3060 Ti": set(),
    "AMD Instinct MI300X": {"mi300x"},
}


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return read_reference(REFERENCE)


@pytest.mark.parametrize(("name", "known"), NAMES.items())
def test_a_driver_s_name_finds_the_figures_of_just_that_build(
    machine: Callable[..., Machine], reference: dict[str, Any], name: str, known: set[str]
) -> None:
    node = machine("node-a", name, memory=1.3e10 if "3060" in name else 1.7e10)
    data = evidence(node.clock(), reference=reference)
    found = {figure["device"] for pair in compare(data) for figure in pair["figures"] if " on " in figure["waits"]}
    assert {device for device in found if device != "any"} == known


def test_the_declared_pairs_read_and_every_device_has_a_figure(reference: dict[str, Any]) -> None:
    declared = read_triangulation(DECLARED, reference)
    used = {name for pair in declared.pairs for figure in pair.figures for name in (figure.device, figure.host)}
    assert set(declared.devices) == used - {""}
    assert all(figure.value is not None or not figure.verified for pair in declared.pairs for figure in pair.figures)


def test_the_published_node_reaches_what_its_instructions_are_documented_to_do(reference: dict[str, Any]) -> None:
    """Zen 5 has two units of 512 bits, which Intel documents as 64 operations in a cycle."""
    published = Dataset(read_nodes([REFERENCE.parent / "nodes"]), reference)
    found = {pair["id"]: pair for pair in compare(published)}
    (cell,) = next(figure["cells"] for figure in found["vector-per-cycle"]["figures"] if figure["device"] == "avx512")
    assert cell["outcome"] == AGREES
    assert cell["n_rounds"] >= 3
    assert cell["deviation"]["low"] < cell["deviation"]["estimate"] < cell["deviation"]["high"]
    assert all(
        cell["outcome"] in OUTCOMES for pair in found.values() for fig in pair["figures"] for cell in fig["cells"]
    )


# ------------------------------------------------------------------ the quantities that figures speak of


def test_clock_and_vectors_by_the_cycle(synthetic: Factory) -> None:
    node = synthetic("node-a").peak(64 * 3e9, spread=0).peak(100 * 3e9, threads=2, spread=0).clock(3e9, spread=0)
    found = Dataset(read_nodes([synthetic.write([node])], True))
    assert value(of("clock.rate", found)) == pytest.approx(3e9)
    assert value(of("peak.mac_per_cycle", found, threads=1)) == pytest.approx(32)
    assert value(of("peak.mac_per_cycle", found, threads=2)) == pytest.approx(25), "of each core"


def test_the_most_that_a_gpu_answers_over_the_most_of_its_host(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    for device, seconds in (("cpu", {1: 1e-3, 32: 8e-3}), ("cuda:0", {1: 2e-3, 32: 1e-3})):
        for batch, time in seconds.items():
            node.point("inference", time, device=device, params={"model": "resnet", "batch": batch}, spread=0)
    for device, time in (("cpu", 1e-2), ("cuda:0", 1e-3)):
        params = {"model": "gpt2", "phase": "decode", "context": 256, "batch": 4}
        node.point("generation", time, device=device, params=params, spread=0)
    found = Dataset(read_nodes([synthetic.write([node])], True))
    assert value(of("inference.gpu_over_cpu", found, model="resnet")) == pytest.approx(32e3 / 4e3)
    assert value(of("generation.gpu_over_cpu", found, phase="decode")) == pytest.approx(10)
    more = synthetic("node-b").point("inference", 1e-3, params={"model": "resnet", "batch": 1})
    both = Dataset(read_nodes([synthetic.write([node, more])], True))
    assert list(of("inference.gpu_over_cpu", both).frame["node"]) == ["node-a"], "no ratio without a GPU"


def test_operations_for_each_parameter_and_token_are_counted(synthetic: Factory) -> None:
    counted = {"parameters": 1000.0, "length": 8.0, "step_flop": 48_800.0, "forward_flop": 16_800.0}
    node = synthetic("node-a").point("models", counted, params={"model": "gpt-7b"}, unit="1", spread=0)
    found = Dataset(read_nodes([synthetic.write([node])], True))
    assert value(of("models.flop_per_parameter_token", found, of="training")) == pytest.approx(6.1)
    assert value(of("models.flop_per_parameter_token", found, of="inference")) == pytest.approx(2.1)
