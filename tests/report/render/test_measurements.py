"""The section of measurements: what each family shows comes from the data, and nothing is shown without it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import StudyError
from contract.files import read_json
from report.data.gather import gather
from report.data.gathered import read_summary
from report.quantities.ladder import DEFAULT
from report.render.figures import Drawing
from report.render.measurements import FAMILIES, ORDER, Exhibit, Table, sections
from report.render.measurements.base import NOTHING, with_parameters
from report.render.measurements.gemm import MOST_NAMED
from tests.report.evidence import Shown

CACHES = {"L1d": {"bytes": 2**16, "instances": 2}, "L3": {"bytes": 2**25, "instances": 1}}


def drawings(data: Path, nodes: list[dict]) -> dict[str, Drawing]:
    """Every figure by its name."""
    shown = [exhibit.drawing for section in sections(data, nodes) for exhibit in section.exhibits]
    return {drawing.name: drawing for drawing in shown if drawing}


@pytest.fixture
def show(synthetic, tmp_path: Path):
    """Gathers synthetic nodes and gives what they show, by family."""

    def shown(*nodes: Any) -> Shown:
        root = synthetic.write(nodes)
        gather([root], tmp_path / "data", allow_synthetic=True)
        records = read_json(tmp_path / "data" / "nodes.json")
        for record in records:
            record["hardware"]["cpu"]["caches"] = CACHES
        return Shown(tmp_path / "data", records)

    return shown


def product(node: Any, rate: float, n: int = 1000, m: int | None = None, **more: Any) -> None:
    """A matrix product at `rate` FLOP/s."""
    flop = 2.0 * (m or n) * n * n
    more = {"spread": 1e-4, **more}
    node.point("gemm", flop / rate, params={"m": m or n, "n": n, "k": n}, flop=flop, **more)


def rows(exhibit: Exhibit, group: int = 0) -> dict[str, dict[str, Any]]:
    """The rows of a dot plot's group by their label."""
    assert exhibit.drawing
    return {row["label"]: row for row in exhibit.drawing.shows["groups"][group]["rows"]}


def test_a_node_without_points_has_no_sections(show, synthetic) -> None:
    assert show(synthetic().clock()) == {}


def test_families_come_in_their_order_and_all_that_it_names_are_there() -> None:
    shown = [family.show.__module__.rpartition(".")[2] for family in FAMILIES]
    assert shown[: len(ORDER)] == list(ORDER) and shown[len(ORDER) :] == sorted(shown[len(ORDER) :])


def test_central_figures_come_from_the_summary(make_document, data: Path) -> None:
    figures = drawings(data, make_document()["nodes"])
    assert {"gemm-1-cpu", "bandwidth-1-cpu", "training-rate-1-cpu", "training-phases-1-cpu"} <= set(figures)
    summary = with_parameters(read_summary(data))
    products = summary[(summary["experiment"] == "gemm") & (summary["dtype"] == "float32")]
    products = products[~products["backend"].isin(["python", "scalar", "simd"])]
    panel = next(one for one in figures["gemm-1-cpu"].shows["panels"] if one["title"] == "float32")
    drawn = sorted(rate for series in panel["series"] for rate in series["y"])
    assert drawn == pytest.approx(sorted(products["flop_per_s"]))
    for series in panel["series"]:
        assert all(
            low <= rate <= high for low, rate, high in zip(series["low"], series["y"], series["high"], strict=True)
        )
    joined = [series for series in panel["series"] if series["joined"]]
    lone = [series for series in panel["series"] if not series["joined"]]
    assert sum(len(series["xs"]) for series in lone) == int((products["m"] != products["n"]).sum())
    assert joined
    assert {limit["label"] for limit in panel["limits"]} == {"peak, 1 thread", "peak, 2 threads"}


def test_caches_are_marked_for_as_many_cores_as_work(make_document, data: Path) -> None:
    node = make_document()["nodes"][0]
    caches = node["hardware"]["cpu"]["caches"]
    drawing = drawings(data, [node])["bandwidth-1-cpu"]
    marks = {panel["title"]: {mark["label"]: mark["x"] for mark in panel["marks"]} for panel in drawing.shows["panels"]}
    assert marks["1 thread"]["L1d"] == caches["L1d"]["bytes"] / caches["L1d"]["instances"]
    assert marks["2 threads"]["L1d"] == caches["L1d"]["bytes"]
    assert marks["2 threads"]["L3"] == caches["L3"]["bytes"]


def test_a_folder_without_a_summary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="report gather"):
        sections(tmp_path, [])
    (tmp_path / "summary.parquet").write_bytes(b"not parquet")
    with pytest.raises(StudyError, match="gather again"):
        sections(tmp_path, [])


def test_the_ladder_climbs_from_the_loop_to_the_best_and_says_what_the_default_leaves(show, synthetic) -> None:
    node = synthetic(gpus=1)
    product(node, 1e7, m=4, backend="python", dtype="float64")
    product(node, 1e9, backend="scalar")
    product(node, 1e11, backend="torch")
    product(node, 2e11, backend="torch", threads=2)
    product(node, 8e11, backend="onednn", dtype="bfloat16", threads=2)
    product(node, 4e13, device="cuda:0", backend="torch")
    exhibit = show(node)["ladder"][0]
    told = rows(exhibit)
    assert next(iter(told)) == "interpreted loop"
    assert told[DEFAULT]["strong"]
    assert re.fullmatch(r"×2\.\d+ \[.+\]", told[DEFAULT]["told_below"]), "never a bare factor"
    assert "onednn" in told["bfloat16, all cores"]["below"]
    assert exhibit.table
    steps = {row[0]: row[2:] for row in exhibit.table.rows}
    assert steps["interpreted loop"] == [NOTHING, NOTHING]
    factors = [float(step.split()[0].strip("×").replace(",", "")) for step in steps["bfloat16, all cores"]]
    assert factors == pytest.approx([4.0, 80_000], rel=1e-3)
    assert all(step.endswith("]") for step in steps["bfloat16, all cores"])
    reading = " ".join(exhibit.reading)
    assert "4.00" in reading.split("times as fast")[0], "the best over the default"
    assert "cuda:0" in reading
    assert f"times “{DEFAULT}”" in reading


def test_every_library_has_a_row_and_the_fastest_is_named(show, synthetic) -> None:
    node = synthetic().peak(4e11, dtype="float32", spread=1e-4)
    names = ["torch", *(f"library-{i}" for i in range(9))]
    for place, name in enumerate(names):
        for n in (512, 1024):
            product(node, (1 + place) * 2e10, n=n, backend=name)
    shown = show(node)
    exhibit = shown["libraries"][0]
    assert list(rows(exhibit)) == names[::-1]
    assert exhibit.drawing
    assert exhibit.drawing.shows["groups"][0]["lines"][0]["x"] == pytest.approx(4e11, rel=0.01)
    assert "library-8" in exhibit.reading[0]
    assert "50% of the measured peak" in exhibit.reading[0]
    assert exhibit.table is None, "one number of threads needs no table"
    series = shown["products"][0].drawing.shows["panels"][0]["series"]
    named = {one["label"] for one in series if one["label"]}
    assert len(named) == MOST_NAMED
    assert {"torch", "library-8"} <= named
    assert sum(bool(one.get("grey")) for one in series) == len(names) - MOST_NAMED


def chase(node: Any, latencies: dict[int, float]) -> None:
    for footprint, latency in latencies.items():
        params = {"kernel": "chase", "chains": "one", "data": "random", "footprint": footprint}
        node.point("sequential", latency, metric="step_time", backend="numba", dtype="", params=params, spread=0.005)


def test_the_curve_shows_where_caches_end(show, synthetic) -> None:
    node = synthetic()
    plateaus = {2**k: 1.5e-9 if 2**k <= 2**15 else 4e-9 if 2**k <= 2**22 else 80e-9 for k in range(12, 28)}
    chase(node, plateaus)
    exhibit = show(node)["latency"][0]
    assert exhibit.table
    levels = {row[0]: row[1:] for row in exhibit.table.filled().rows}
    assert levels["L1d"][0] == "32 KiB", "one instance"
    assert levels["L1d"][1].endswith("[32, 64] KiB")
    assert levels["L1d"][2].startswith("1.50")
    assert levels["L3"][1] == NOTHING, "the third level that the system tells of was not found"
    assert "L3 (32 MiB)" in " ".join(exhibit.reading)
    assert exhibit.drawing
    marks = exhibit.drawing.shows["panels"][0]["marks"]
    assert [mark["x"] for mark in marks if "low" not in mark] == [2**15, 2**25]
    assert [(mark["low"], mark["high"]) for mark in marks if "low" in mark] == [(2**15, 2**16), (2**22, 2**23)]


def test_each_node_is_named_where_there_are_several(show, synthetic) -> None:
    nodes = [synthetic("node-a"), synthetic("node-b")]
    for node in nodes:
        for backend, rate in (("torch", 1e11), ("numpy", 2e11)):
            product(node, rate, backend=backend)
    shown = show(*nodes)["libraries"]
    assert len({exhibit.drawing.name for exhibit in shown if exhibit.drawing}) == 2
    assert all(exhibit.reading[0].startswith("On ") for exhibit in shown)


@given(st.lists(st.tuples(st.integers(1, 90), st.booleans()), min_size=1, max_size=7))
def test_widths_are_per_cent_and_silent_columns_are_left_out(columns: list[tuple[int, bool]]) -> None:
    cells = ["here", *(NOTHING if silent else "here" for _, silent in columns)]
    table = Table("", cells, [cells], "l" * len(cells), [10, *(width for width, _ in columns)]).filled()
    assert sum(table.widths) == 100
    assert NOTHING not in table.rows[0]
    assert len(table.head) == len(table.align) == len(table.widths) == len(table.rows[0]) == cells.count("here")
