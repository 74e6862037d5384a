"""Measuring on a machine of a kind that is published adds cells, and takes none and no verdict away."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from contract.node import read_node, write_node
from contract.tables import read_samples, write_samples
from report.data.dataset import Dataset
from report.data.nodes import read_nodes
from report.data.reference import REFERENCE, read_reference
from report.judging.judge import judge
from report.quantities import quantities
from report.render.arithmetic import _beside
from report.render.central.rungs import fitted
from report.render.claim_figure import claim_drawing
from report.render.nodes import describe

from .conftest import ROOT, Factory

(PUBLISHED,) = (path.parent for path in (ROOT / "data" / "nodes").glob("*/node.json"))
# Enough for claims of every outcome, and soon judged.
EXPERIMENTS = ("clock", "peak", "gemm", "numerics")
CLAIMS = ("N03", "G02", "W13", "W14", "W15")


def taken(
    to: Path, name: str, rounds: int, run: str = "", factor: float = 1.0, experiments: Sequence[str] = EXPERIMENTS
) -> Path:
    """Some rounds of the published node, marked as made up: as it is, or as another run of such a machine."""
    record = read_node(PUBLISHED / "node.json")
    identity = {"id": name, "kind": name.partition(".")[0], "instance": name.partition(".")[2]}
    write_node(to / "node.json", {**record, **identity, "origin": "synthetic"})
    for path in sorted(PUBLISHED.glob("*.parquet")):
        experiment, _, number, _ = path.name.split(".")
        if experiment in experiments and int(number) <= rounds:
            table, about = read_samples(path)
            value = table["value"].where(table["unit"] != "s", table["value"] * factor)
            more = {"node": name, "run": table["run"] + run, "value": value, "origin": "synthetic"}
            write_samples(to / path.name, table.assign(**more), about)
    return to


def judged(out: Path, *folders: Path) -> dict[str, Any]:
    data = Dataset(read_nodes(folders, True), read_reference(REFERENCE))
    claims = out / "claims"
    claims.mkdir(parents=True)
    for name in CLAIMS:
        text = (ROOT / "report" / "claims" / f"{name}.yaml").read_text(encoding="utf-8")
        # The claims that it points to are not here.
        (claims / f"{name}.yaml").write_text(re.sub(r"(?m)^see_also:.*\n", "", text), encoding="utf-8")
    return judge(data, out / "verdicts.json", claims, allow_synthetic=True)


@pytest.fixture(scope="module")
def published_and_more(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Verdicts on the published rounds alone, and beside one round of the same machine and a friend's machine."""
    root = tmp_path_factory.mktemp("instances")
    name = PUBLISHED.name
    alone = taken(root / "published", name, 5)
    mine, friends = taken(root / "mine", name, 1, "again", 1.04), taken(root / "f", f"{name}.0a1b2c", 3, "more", 0.97)
    return judged(root / "one", alone), judged(root / "all", alone, mine, friends)


def test_no_verdict_that_was_decided_is_lost(published_and_more: tuple[dict[str, Any], ...]) -> None:
    before, after = ({one["id"]: one["verdict"] for one in document["verdicts"]} for document in published_and_more)
    decided = {name: verdict for name, verdict in before.items() if not verdict.startswith("awaiting")}
    assert {*decided.values()} == {"challenged", "depends"}
    assert {name: after[name] for name in decided} == decided


def test_published_cells_stay_and_the_others_stand_beside_them(
    published_and_more: tuple[dict[str, Any], ...],
) -> None:
    def cells(document: dict[str, Any], node: str) -> dict[tuple[str, ...], tuple[Any, ...]]:
        return {
            (verdict["id"], cell["part"], cell["label"]): tuple(
                cell[name] for name in ("estimate", "low", "high", "n_rounds", "n_samples")
            )
            for verdict in document["verdicts"]
            for cell in verdict["cells"]
            if cell["node"] == node
        }

    before, after = published_and_more
    name = PUBLISHED.name
    assert [node["id"] for node in after["nodes"]] == [name, f"{name}.2", f"{name}.0a1b2c"]
    assert cells(before, name) and cells(after, name) == cells(before, name)
    assert set(cells(after, f"{name}.0a1b2c")) == set(cells(before, name))
    # One round has no interval: it decides nothing where another of its kind does.
    assert all(low is not None for _, low, *_ in cells(after, f"{name}.2").values())
    assert not any("already read" in one["reason"] for one in after["refused"])


def test_they_are_told_apart_wherever_they_are_named(published_and_more: tuple[dict[str, Any], ...]) -> None:
    document = published_and_more[1]
    machines = {node["id"]: node["label"] for node in document["nodes"]}
    assert list(machines.values()) == [f"AMD EPYC, 2 cores ({mark})" for mark in ("2026-11-22", "2", "0a1b2c")]
    for verdict in document["verdicts"]:
        drawing = claim_drawing(verdict, machines)
        for panel in drawing.shows["panels"] if drawing else ():
            rows = [row["name"] for row in panel["rows"]]
            assert len(set(rows)) == len(rows), verdict["id"]
    server = {"server": "192 cores", "evidence": "measured"}
    result = {"name": "cost", "value": 1.0, "low": None, "high": None, "unit": "USD"}
    results = [{**result, "labels": {**server, "node": node}} for node in machines]
    assert [row["cell"] for row in _beside(results, machines)] == [
        f"192 cores (measured); {label}" for label in machines.values()
    ]
    told = describe(document["nodes"][0], machines)
    assert told["alike"] == "AMD EPYC, 2 cores (2) and AMD EPYC, 2 cores (0a1b2c)"
    assert fitted(f"128 × one core of {machines[PUBLISHED.name]}").endswith("… (2026-11-22)")


def test_times_vary_by_what_their_own_machine_varies_by(tmp_path: Path) -> None:
    """A noisy machine of the same kind widens no interval of a quiet one."""
    quiet = taken(tmp_path / "quiet", PUBLISHED.name, 1, experiments=["convergence"])
    noisy = taken(tmp_path / "noisy", f"{PUBLISHED.name}.0a1b2c", 1, "noisy", experiments=["convergence"])
    for path in noisy.glob("convergence.*.parquet"):
        table, about = read_samples(path)
        wild = table["value"].where(table["unit"] != "s", table["value"] * (1 + table["sample"] % 7))
        write_samples(path, table.assign(value=wild), about)
    reference, name = read_reference(REFERENCE), "convergence.time_to_target_s"
    one, both = (quantities()[name].cells(Dataset(read_nodes(folders, True), reference)).frame
                 for folders in ([quiet], [quiet, noisy]))  # fmt: skip
    assert len(one) and len(both) > len(one)
    columns = ["estimate", "low", "high"]
    pd.testing.assert_frame_equal(
        both[both["node"] == PUBLISHED.name][columns].reset_index(drop=True), one[columns], check_dtype=False
    )


def test_a_label_that_one_node_bears_is_not_marked(synthetic: Factory) -> None:
    nodes = [synthetic("node-a"), synthetic("node-b.0a1b2c", cores=4), synthetic("node-c", cores=4)]
    found = Dataset(read_nodes([synthetic.write(node.gemm(20) for node in nodes)], True))
    assert [found.label(node.id) for node in nodes] == [
        "Synthetic, 2 cores", "Synthetic, 4 cores (0a1b2c)", "Synthetic, 4 cores (node-c)"
    ]  # fmt: skip
