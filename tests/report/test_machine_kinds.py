"""Machine kinds: baselines for GPUs, pooled machines of one kind, and node labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.machine_kinds import DESKTOP, LAPTOP, SERVER_CORES
from contract.node import read_node, write_node
from contract.sample_table import read_samples, write_samples
from report.data.dataset import Dataset
from report.data.node_reader import read_nodes
from report.data.reference_figures import REFERENCE as ENTRIES
from report.data.reference_figures import read_reference
from report.formatting import node_label, verdict_case_name
from report.judging.claim_files import read_claims
from report.judging.judge import CLAIMS, judge
from report.judging.part_evaluation import QuantityCache, evaluate_part

from .conftest import Factory, SyntheticNode
from .figure_evidence import nodes_dataset
from .lying_nodes import EXPERIMENTS, PUBLISHED, write_few_claims
from .priced_nodes import REFERENCE
from .quantities.builders import add_passes


def gpu_server(synthetic: Factory, cores: int) -> SyntheticNode:
    """Build a node whose CPU trains at 1/10 of its GPU's rate, and reads memory at 1/8 of its GPU's rate."""
    node = synthetic("node-a", gpus=1, cores=cores)
    for device, memory, rate, threads in (("cuda:0", 2400e9, 1000, 0), ("cpu", 300e9, 100, cores)):
        about: dict[str, Any] = {"device": device, "threads": threads, "spread": 0.001}
        add_passes(node, 2**32, memory, **about)
        node.point("training", 4 / rate, params={"model": "bert-base-classifier", "batch": 4}, flop=1e9, **about)
    return node


def part_outcomes(name: str, data: Dataset) -> list[str]:
    """Return the outcome per part of a claim."""
    claim = next(claim for claim in read_claims(CLAIMS, REFERENCE) if claim.id == name)
    cache = QuantityCache(data)
    return [str(evaluate_part(part, claim, cache).outcome) for part in claim.parts]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("desktop", name) for name in (
            "AMD Ryzen 9 7950X 16-Core Processor", "AMD Ryzen 5 8600G w/ Radeon 760M Graphics",
            "AMD Ryzen 7 PRO 7745 8-Core Processor", "Intel(R) Core(TM) Ultra 9 285K",
        )),
        *(("laptop", name) for name in (
            "AMD Ryzen 9 7945HX with Radeon Graphics", "AMD Ryzen 7 7840U w/ Radeon 780M Graphics", "Apple M2 Pro",
            "Intel(R) Core(TM) Ultra 9 275HX", "Intel(R) Core(TM) i9-13980HX",
            "11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz",
        )),
        # These processors count neither as desktop nor as laptop: some take DDR4, some have four or more memory
        # channels, and some are for servers.
        *(("", name) for name in (
            "Intel(R) Core(TM) i9-13900K", "AMD Ryzen 7 5800X 8-Core Processor", "AMD EPYC",
            "AMD Ryzen Threadripper 7970X 32-Cores", "Intel(R) Xeon(R) Platinum 8480CL",
        )),
    ],
)  # fmt: skip
def test_desktop_and_laptop_processors_are_recognised(kind: str, name: str) -> None:
    assert (bool(DESKTOP.search(name)), bool(LAPTOP.search(name))) == (kind == "desktop", kind == "laptop")


@pytest.mark.parametrize(
    ("cores", "elsewhere", "outcomes"),
    [
        (SERVER_CORES - 1, False, ["awaiting hardware"] * 3),
        # The baseline must be the GPU's own host, so a server that is another node does not count.
        (2, True, ["awaiting hardware"] * 3),
        (SERVER_CORES, False, ["awaiting hardware", "awaiting hardware", "supported"]),
    ],
)
def test_gpu_without_the_baseline_machine_awaits_hardware(
    synthetic: Factory, cores: int, elsewhere: bool, outcomes: list[str]
) -> None:
    nodes = [gpu_server(synthetic, cores)]
    if elsewhere:
        params = {"model": "bert-base-classifier", "batch": 4}
        nodes.append(synthetic("node-d", cores=96).point("training", 0.04, params=params, flop=1e9, threads=96))
    data = nodes_dataset(synthetic, *nodes)
    assert [*part_outcomes("W07", data), *part_outcomes("W01", data)] == outcomes


# The tests below are on several machines of one kind.

NAME = PUBLISHED.name


def copy_rounds(folder: Path, name: str, rounds: int, run: str = "", factor: float = 1.0) -> Path:
    """Copy the first `rounds` rounds from the published node to `folder`, as a synthetic node called `name`.

    run: text to add to run ids. factor: factor for all times.
    """
    record = read_node(PUBLISHED / "node.json")
    identity = {"id": name, "kind": name.partition(".")[0], "instance": name.partition(".")[2]}
    write_node(folder / "node.json", {**record, **identity, "origin": "synthetic"})
    for path in sorted(PUBLISHED.glob("*.parquet")):
        experiment, _, number, _ = path.name.split(".")
        if experiment in EXPERIMENTS and int(number) <= rounds:
            table, about = read_samples(path)
            value = table["value"].where(table["unit"] != "s", table["value"] * factor)
            more = {"node": name, "run": table["run"] + run, "value": value, "origin": "synthetic"}
            write_samples(folder / path.name, table.assign(**more), about)
    return folder


def judge_nodes(out: Path, *folders: Path) -> dict[str, Any]:
    data, claims = Dataset(read_nodes(folders, True), read_reference(ENTRIES)), write_few_claims(out / "claims")
    return judge(data, out / "verdicts.json", claims, allow_synthetic=True)


def test_machine_of_a_known_kind_joins_cases_and_keeps_verdicts(tmp_path: Path) -> None:
    """Add one round on the same machine, and three on another machine of its kind, to a run with five rounds."""
    first, mine = copy_rounds(tmp_path / "published", NAME, 5), copy_rounds(tmp_path / "mine", NAME, 1, "again", 1.04)
    friend = copy_rounds(tmp_path / "f", f"{NAME}.0a1b2c", 3, "m", 0.97)
    before, after = judge_nodes(tmp_path / "one", first), judge_nodes(tmp_path / "all", first, mine, friend)
    verdicts = [{verdict["id"]: verdict["verdict"] for verdict in document["verdicts"]} for document in (before, after)]
    decided = {name: verdict for name, verdict in verdicts[0].items() if not verdict.startswith("awaiting")}
    assert {*decided.values()} == {"challenged", "supported"} and decided.items() <= verdicts[1].items()

    def cases(document: dict[str, Any]) -> dict[tuple[str, ...], dict[str, Any]]:
        pairs = [(verdict["id"], case) for verdict in document["verdicts"] for case in verdict["cases"]]
        return {(claim, case["part"], verdict_case_name(case)): case for claim, case in pairs if case["node"]}

    marks = zip((NAME, f"{NAME}.2", f"{NAME}.0a1b2c"), ("A", "B", "C"), strict=True)
    labels = [(node["id"], node["label"]) for node in after["nodes"]]
    assert labels == [(name, f"AMD EPYC, 2 cores ({mark})") for name, mark in marks]
    assert cases(before).keys() == cases(after).keys()
    for case, joined in ((case, cases(after)[key]) for key, case in cases(before).items()):
        assert (joined["node"], "instances" in case) == (NAME, False)
        # The run with one round has no interval, so it does not join the case.
        assert {NAME, f"{NAME}.0a1b2c"} <= {*joined["instances"]}
        assert joined["low"] <= case["low"] <= case["high"] <= joined["high"]
        assert joined["instance_low"] <= case["estimate"] <= joined["instance_high"]


def test_only_duplicate_labels_are_marked(synthetic: Factory) -> None:
    nodes = [synthetic("node-a"), synthetic("node-b.0a1b2c", cores=4), synthetic("node-c", cores=4)]
    data = nodes_dataset(synthetic, *(node.gemm(20) for node in nodes))
    assert [data.label(node.id) for node in nodes] == [
        "Synthetic, 2 cores", "Synthetic, 4 cores (B)", "Synthetic, 4 cores (C)"
    ]  # fmt: skip


@given(st.text(max_size=400))
def test_labels_are_short_for_any_processor_name(name: str) -> None:
    record: dict[str, Any] = {"id": "some-2c", "hardware": {"cpu": {"model": name, "usable_cores": 2}}, "devices": []}
    label = node_label(record)
    assert len(label) <= 60 and label.endswith(", 2 cores")
    record["hardware"]["cpu"]["quota"] = 2.5
    assert node_label(record) == f"{label} (quota 2.5)"
    gpu = {"id": "cuda:0", "kind": "gpu", "name": "NVIDIA H100"}
    assert node_label({**record, "devices": [gpu]}).endswith("NVIDIA H100")
