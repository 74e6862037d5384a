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
from report.render.measurements import FAMILIES, ORDER, Exhibit, Table, left_out_points, sections
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


def test_every_family_has_a_key_of_its_own() -> None:
    keys = [family.key for family in FAMILIES]
    assert len(set(keys)) == len(keys)


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


def test_points_without_a_result_are_counted_with_their_reason(data: Path) -> None:
    lost = left_out_points(data)
    assert [(row["experiment"], row["status"], row["reason"], row["count"]) for row in lost] == [
        ("transfer", "unsupported", "no accelerator", 2)
    ]


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


def test_one_rung_makes_no_ladder(show, synthetic) -> None:
    node = synthetic()
    product(node, 1e11, backend="scalar")
    assert "ladder" not in show(node)


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


def test_a_lead_within_the_interval_is_too_close_to_call(show, synthetic) -> None:
    node = synthetic()
    product(node, 1.00e11, backend="torch", spread=0.1)
    product(node, 1.01e11, backend="numpy", spread=0.1)
    assert "too close to call" in show(node)["libraries"][0].reading[0]


def test_a_format_with_one_size_is_told_and_not_drawn(show, synthetic) -> None:
    node = synthetic()
    for n in (256, 512):
        product(node, 1e11, n=n, backend="torch")
    product(node, 2e9, n=512, backend="torch", dtype="float16")
    exhibit = show(node)["products"][0]
    assert exhibit.drawing
    assert [panel["title"] for panel in exhibit.drawing.shows["panels"]] == ["float32"]
    assert "float16" in exhibit.reading[0]
    assert "2.00 GFLOP/s" in exhibit.reading[0]


def test_a_gpus_products_are_shown_with_and_without_the_host(show, synthetic) -> None:
    node = synthetic(gpus=1)
    gpu = {"device": "cuda:0", "dtype": "bfloat16"}
    for n, rate, graph in ((256, 1e12, 4e12), (512, 8e12, 1.6e13), (4096, 6e14, None)):
        product(node, rate, n=n, **gpu)
        if graph:
            product(node, graph, n=n, metric="graph_time", **gpu)
    exhibit = show(node)["products"][0]
    assert exhibit.drawing
    lines = {one["label"]: one for one in exhibit.drawing.shows["panels"][0]["series"]}
    assert lines["torch"]["y"] == pytest.approx([1e12, 8e12, 6e14], rel=0.01)
    assert lines["torch graph"]["y"] == pytest.approx([4e12, 1.6e13], rel=0.01)
    (reading,) = exhibit.reading
    assert "256x256x256 in bfloat16 takes 4.0" in reading


def test_what_a_search_found_stands_beside_the_best_of_the_listed_shapes(show, synthetic) -> None:
    node = synthetic(gpus=1)
    product(node, 7e14, n=8192, device="cuda:0", dtype="bfloat16")
    about = {"params": {"m": 2048, "n": 2048, "k": 8192, "span": 4}, "device": "cuda:0"}
    for dtype, rate in (("bfloat16", 8e14), ("float8_e4m3fn", 1.4e15)):
        node.point("gemm-search", rate, metric="rate", unit="FLOP/s", dtype=dtype, spread=1e-4, **about)
        for name, size in (("best_m", 2048.0), ("best_n", 1792.0), ("best_k", 16384.0)):
            node.point("gemm-search", size, metric=name, unit="1", dtype=dtype, spread=0, samples=1, **about)
    exhibit = show(node)["products"][1]
    assert exhibit.table
    told = {row[0]: row[1:] for row in exhibit.table.rows}
    assert told["bfloat16"][0] == "2048x1792x16384"
    assert told["bfloat16"][1].endswith("TFLOP/s")
    assert told["bfloat16"][2] == "8192x8192x8192"
    assert told["float8_e4m3fn"][2:] == [NOTHING, NOTHING]
    assert "float8_e4m3fn (2048x1792x16384)" in exhibit.reading[0]


@pytest.mark.parametrize("lengths", [(128,), (128, 512)])
def test_batches_are_drawn_by_length_and_one_length_is_told(show, synthetic, lengths) -> None:
    node = synthetic(gpus=1)
    for length in lengths:
        for batch, rate in ((64, 1e13), (512, 3e13)):
            flop = batch * 2.0 * length**2 * 64
            about = {"params": {"batch": batch, "m": length, "n": length, "k": 64}, "device": "cuda:0", "flop": flop}
            node.point("batched", flop / rate, spread=1e-4, **about)
    (exhibit,) = show(node)["products"]
    assert "512 of 128 × 64 by 64 × 128 at once" in exhibit.reading[0] or len(lengths) > 1
    assert "30.0 TFLOP/s" in exhibit.reading[0]
    assert bool(exhibit.drawing) == (len(lengths) > 1)
    if exhibit.drawing:
        lines = {one["label"]: one["y"] for one in exhibit.drawing.shows["panels"][0]["series"]}
        assert lines["64 at once, torch"] == pytest.approx([1e13, 1e13], rel=0.01)
        assert lines["512 at once, torch"] == pytest.approx([3e13, 3e13], rel=0.01)


@pytest.mark.parametrize(("threads", "drawn"), [((1, 2), False), ((1, 2, 4), True)])
def test_two_numbers_of_threads_make_a_table_and_more_a_figure(show, synthetic, threads, drawn: bool) -> None:
    node = synthetic(cores=max(threads))
    for count in threads:
        product(node, 1e11 * (1 + 0.5 * (count - 1)), backend="torch", threads=count)
    exhibit = show(node)["scaling"][0]
    assert exhibit.table
    last = exhibit.table.rows[0]
    gain = 1 + 0.5 * (threads[-1] - 1)
    assert re.match(rf"×{gain:.2f}\d* \[.+\]$", last[3])
    assert last[4].startswith(f"{gain / threads[-1]:.3f}")
    assert bool(exhibit.drawing) == drawn
    if exhibit.drawing:
        panel = exhibit.drawing.shows["panels"][0]
        assert panel["series"][0]["xs"] == [1, 2, 4]
        assert panel["series"][0]["y"] == pytest.approx([1, 1.5, 2.5], rel=0.01)
        assert panel["guides"][0]["ys"] == [1, 4]


def test_stores_past_the_caches_stand_beside_plain_ones(show, synthetic) -> None:
    node = synthetic()
    for backend, speed in (("llvm", 2e10), ("llvm-nt", 3e10)):
        for footprint in (2**15, 2**27):
            moved = speed * (10 if footprint == 2**15 else 1)
            node.point("bandwidth", 1e9 / moved, backend=backend, dtype="float64", bytes=1e9, spread=1e-4,
                       params={"op": "triad", "footprint": footprint})  # fmt: skip
    exhibit = show(node)["bandwidth"][0]
    assert exhibit.drawing
    labels = {one["label"] for one in exhibit.drawing.shows["panels"][0]["series"]}
    assert labels == {"triad", "triad, past the caches"}
    assert "1.50" in exhibit.reading[0]
    assert "10.0" in exhibit.reading[0]


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


def test_a_flat_curve_shows_no_levels(show, synthetic) -> None:
    node = synthetic()
    chase(node, dict.fromkeys((2**12, 2**20, 2**27), 5e-9))
    exhibit = show(node)["latency"][0]
    assert exhibit.table
    assert "Found" not in exhibit.table.filled().head


def test_chains_at_once_share_the_time_of_a_step(show, synthetic) -> None:
    node = synthetic()
    for data, time in (("predictable", 1e-9), ("random", 5e-9)):
        for chains, threads in (("one", 1), ("full", 2)):
            at = {"backend": "numba", "dtype": "", "threads": threads, "spread": 1e-4,
                  "params": {"kernel": "branches", "chains": chains, "data": data, "footprint": 16384}}  # fmt: skip
            node.point("sequential", time, metric="step_time", **at)
            node.point("sequential", float(threads), metric="chains_in_flight", unit="1", **at)
    exhibit = show(node)["sequential"][0]
    assert rows(exhibit)["branches, random"]["told"].startswith("5.00 ns")
    assert rows(exhibit, 1)["branches, random"]["told"].startswith("2.50 ns")
    assert "5.00" in exhibit.reading[0]


def test_equal_bits_are_shown_as_zero_and_said(show, synthetic) -> None:
    node = synthetic()
    size = {"m": 200, "n": 200, "k": 200}
    for method, spread_ulp in (("cell_order", 0.0), ("split_k", 12.0)):
        node.point("numerics", spread_ulp, metric="spread_ulp", unit="ulp", params={"method": method, **size}, spread=0)
    for metric, value in (("distinct_results", 1.0), ("fingerprint", 77.0)):
        node.point("numerics", value, metric=metric, unit="1", params={"method": "repeat", **size}, spread=0)
    exhibit = show(node)["numerics"][0]
    told = rows(exhibit)
    assert told["cells in another order"]["told"] == "same bits"
    assert told["cells in another order"]["marks"][0]["estimate"] == 0
    assert told["sum in parts"]["told"] == "12"
    assert exhibit.table
    assert list(exhibit.table.rows[0])[:3] == ["torch, float32", "1 result", "1 result"]
    assert "1 of 1 cases" in exhibit.reading[0]


def test_content_is_told_against_normal_data(show, synthetic) -> None:
    node = synthetic()
    for content, time in (("normal", 2.0), ("zeros", 1.0), ("ones", 2.0)):
        node.point("content", time, params={"content": content, "m": 64, "n": 64, "k": 64}, flop=1e9, spread=1e-4)
    exhibit = show(node)["content"][0]
    told = rows(exhibit)
    assert set(told) == {"zeros", "ones"}
    assert told["zeros"]["marks"][0]["estimate"] == pytest.approx(2, rel=0.01)
    assert "1 of 2 cases" in exhibit.reading[0]
    # A ratio alone says nothing of what the device did: both sides stand beside it.
    assert re.search(
        r"times on zeros .*: 1\.\d+ \[.*\] GFLOP/s against (?:500|499)[\d.]* \[.*\] MFLOP/s", exhibit.reading[0]
    )


def test_tables_are_told_in_rows_per_second(show, synthetic) -> None:
    node = synthetic()
    for backend, speed in (("pandas", 1e7), ("polars", 4e7)):
        for count in (1000, 100_000):
            params = {"op": "group_by", "rows": count, "transfers": "none"}
            node.point("tabular", count / speed, backend=backend, dtype="", params=params, spread=1e-4)
    exhibit = show(node)["tabular"][0]
    assert exhibit.drawing
    panel = exhibit.drawing.shows["panels"][0]
    assert panel["title"] == "group by"
    assert [y for one in panel["series"] for y in one["y"]] == pytest.approx([1e7, 1e7, 4e7, 4e7], rel=0.01)
    assert exhibit.table
    assert list(exhibit.table.rows[0])[:3] == ["group by", "100,000", "polars, 1 thread"]
    assert float(exhibit.table.rows[0][4].split()[0]) == pytest.approx(4, rel=0.01)


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


def test_a_table_stands_beside_its_figure_if_half_a_page_holds_it() -> None:
    drawing = Drawing("a", {}, lambda shown: None, "", "")  # type: ignore[arg-type, return-value]
    words = Table("", ["Model", "Time"], [["a model of quite a few words that may be broken", "1.0 s"]], "lr", [1, 1])
    figures = Table("", ["Model", "Time"], [["mlp", "1,234,567 [1,234,000, 1,235,000] samples/s " * 2]], "lr", [1, 1])
    assert Exhibit(drawing=drawing, table=words).beside
    assert not Exhibit(drawing=drawing, table=figures).beside
    assert not Exhibit(drawing=drawing, table=words, wide=True).beside
    assert not Exhibit(table=words).beside
