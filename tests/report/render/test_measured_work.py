"""What each family of measurements shows of requests, models, training, services and devices that were made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from report.quantities.training_ladder import BASE
from report.render.figures import VERMILION
from report.render.measurements import Exhibit, time_to_train
from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.builders import (
    COUNTED,
    CURVES,
    DIFFER,
    MIB,
    MODELS,
    ONE_GPU,
    PREDICTED,
    TASKS,
    ask,
    copy,
    counted,
    curve,
    host,
    layer,
    link,
    listed,
    loops,
    on_cpu,
    paid,
    passes,
    peak,
    ranks,
    run,
    runs,
    say,
    slowing,
    step,
    to_gpu,
    under,
    with_gpu,
    zoo,
)

Show = Callable[..., list[Exhibit]]


@pytest.fixture
def show(shown: Callable[..., Any]) -> Show:
    """What a family shows of nodes, every figure of it drawn: `show("offload", node, …)`."""

    def of(family: str, *nodes: SyntheticNode) -> list[Exhibit]:
        exhibits: list[Exhibit] = shown(*nodes).get(family, [])
        for exhibit in exhibits:
            if exhibit.drawing:
                assert isinstance(exhibit.drawing.draw(exhibit.drawing.shows), Figure)
        return exhibits

    return of


def groups(exhibit: Exhibit) -> dict[str, dict[str, dict[str, Any]]]:
    """The rows of a plot of rows by group and label."""
    assert exhibit.drawing
    return {group["title"]: {row["label"]: row for row in group["rows"]} for group in exhibit.drawing.shows["groups"]}


def panels(exhibit: Exhibit) -> dict[str, dict[str, Any]]:
    """The panels of a plot of lines by title, with their lines by label."""
    assert exhibit.drawing
    return {
        panel["title"]: {**panel, "lines": {one["label"]: one for one in panel["series"]}}
        for panel in exhibit.drawing.shows["panels"]
    }


def estimates(row: dict[str, Any]) -> list[float]:
    return [mark["estimate"] for mark in row["marks"]]


def said(*exhibits: Exhibit) -> str:
    return " ".join(line for exhibit in exhibits for line in exhibit.reading)


# ------------------------------------------------------------------ memory and requests to a GPU


def test_copies_are_shown_by_rate_and_by_time(show: Show, synthetic: Factory) -> None:
    node = link(synthetic)
    for size in (4, 256 * MIB):
        copy(node, 30e-6 + size / 5e9, size, host_memory="pageable")
        copy(node, 5e-6, size, metric="request_time.enqueue")
    rates, times = show("transfer", node)
    pinned = panels(rates)["pinned host memory"]["lines"]
    assert pinned["both ways at once"]["y"][-1] == pytest.approx(75e9)
    assert set(panels(rates)["pageable host memory"]["lines"]) == {"to the device"}
    assert panels(times)["to the device"]["lines"]["pinned, link"]["y"] == pytest.approx([1e-6])
    half, smallest, pinning, duplex, within = rates.reading
    assert "(between 64 KiB and 1 MiB; best: 49.9 GB/s)" in half
    assert "takes 20.0" in smallest and smallest.endswith("without the host, 1.00 µs.")
    assert "9.9" in pinning and "move 1.5" in duplex and "within the device move 2" in within


def test_a_gpus_memory_is_shown_from_its_cache_to_the_link(show: Show, synthetic: Factory) -> None:
    node = copy(synthetic("node-a", gpus=1), 256 * MIB / 5e10, 256 * MIB)
    node.devices[1]["l2_bytes"] = 50 * MIB
    for footprint, rate in ((24 * MIB, 6e12), (8192 * MIB, 3e12)):
        passes(node, footprint, rate, backend="cupy", **ONE_GPU)
        passes(node, footprint, rate / 2, backend="torch", **ONE_GPU)
    (exhibit,) = show("bandwidth", node)
    (panel,) = panels(exhibit).values()
    assert [one["y"] for one in panel["series"]] == [
        pytest.approx([6e12, 3e12], rel=0.01), pytest.approx([3e12, 1.5e12], rel=0.01)
    ]  # fmt: skip
    assert [(mark["label"], mark["x"]) for mark in panel["marks"]] == [("L2", 50 * MIB)]
    assert [limit["y"] for limit in panel["limits"]] == pytest.approx([5e10], rel=0.01)
    assert "triad moves 3.00" in exhibit.reading[0] and "at 24 MiB it moves 2.0" in exhibit.reading[0]


def requests(node: SyntheticNode, gpu: bool = True) -> SyntheticNode:
    """Two operations over the size; the GPU overtakes in products alone."""
    for m in (16, 1024, 2**16, 2**20, 2**22, 2**24):
        there = 2e-6 + 4 * m / 5e10
        shape = {"op": "elementwise", "m": m, "n": 1, "k": 1, "spread": 0.01}
        for threads in (1, 2):
            on_cpu(node, 1e-6 + m * 1e-11 / threads, threads=threads, **shape)
        if gpu:
            to_gpu(node, 20e-6 + 2.1 * there, (there, 3e-6, there), **shape)
            to_gpu(node, 8e-6 + 2 * there, launch="graph", **shape)
            to_gpu(node, 25e-6 + 8 * there, host_memory="pageable", **shape)
    for n in (64, 256, 1000):
        shape = {"op": "gemm", "m": n, "n": n, "k": n, "spread": 0.01}
        for threads in (1, 2):
            on_cpu(node, 1e-6 + 2e-11 * n**3 / threads, threads=threads, **shape)
        if gpu:
            there, compute = 2e-6 + 8 * n**2 / 5e10, 4e-6 + 5e-14 * n**3
            to_gpu(node, 25e-6 + 1.5 * there + compute, (there, compute, there / 2), **shape)
    return node


def test_a_requests_parts_and_where_the_gpu_overtakes(show: Show, synthetic: Factory) -> None:
    parts, times = show("offload", requests(synthetic("node-a", gpus=1)))
    bars = groups(parts)
    assert list(bars["matrix product"]) == ["n = 64", "n = 256", "n = 1,000"]
    for rows in bars.values():
        assert [sum(row["shares"]) for row in rows.values()] == pytest.approx([1] * len(rows))
    assert bars["sigmoid of each number"]["128 B"]["shares"][0] > 0.6, "launching and waiting"
    drawn = panels(times)
    assert set(drawn["sigmoid of each number"]["lines"]) == {
        "GPU, pinned", "GPU, pinned, one graph", "GPU, pageable", "CPU, one core", "CPU, all cores",
    }  # fmt: skip
    assert drawn["sigmoid of each number"]["marks"] == []
    (mark,) = drawn["matrix product"]["marks"]
    assert (mark["low"], mark["high"]) == (12 * 64**2, 12 * 256**2)
    never, from_there = times.reading
    assert "the CPU is ahead at every size measured" in never and "from 287 [49, 786] kB on" in from_there


# ------------------------------------------------------------------ parallelism and libraries


def kernel(node: SyntheticNode, seconds: float, name: str, **given: Any) -> None:
    params = {"kernel": name, **{key: given.pop(key, 0) for key in ("in_flight", "paths", "n")}}
    about = {"device": "cuda:0", "backend": "cupy", "dtype": "", "spread": 1e-6, **given}
    node.point("parallelism", seconds, params=params, **about)


def test_throughput_is_drawn_over_the_threads_and_where_it_is_full_is_said(show: Show, synthetic: Factory) -> None:
    """50,000 threads fill the chip, which holds 200,000."""
    node = synthetic(gpus=1)
    for threads in (1, 1024, 16384, 65536, 262144):
        kernel(node, threads / min(threads, 50_000) * 1e-3, "chains", in_flight=threads, flop=1e6 * threads)
    kernel(node, 200_000.0, "chains", in_flight=1, metric="threads_held", unit="1")
    (exhibit,) = show("parallelism", node)
    (panel,) = panels(exhibit).values()
    assert panel["series"][0]["xs"] == [1, 1024, 16384, 65536, 262144]
    assert panel["series"][0]["y"][-1] == pytest.approx(5e13, rel=0.01)
    full, band = panel["marks"]
    assert full["x"] == pytest.approx(200_000, rel=0.01) and (band["low"], band["high"]) == (16384, 65536)
    assert "50.0 TFLOP/s" in said(exhibit) and "[16,384, 65,536] threads in flight" in said(exhibit)


def test_paths_that_part_and_products_are_told_for_both_devices(show: Show, synthetic: Factory) -> None:
    node = synthetic(gpus=1)
    for paths, seconds in ((1, 1e-3), (32, 24e-3)):
        kernel(node, seconds, "paths", paths=paths)
        kernel(node, seconds / 2, "paths", paths=paths, device="cpu", backend="llvm")
    for name, backend, seconds in (("naive", "cupy", 8e-3), ("tiled", "cupy", 4e-3), ("library", "torch", 4e-4)):
        kernel(node, seconds, name, backend=backend, n=2048, flop=2.0 * 2048**3)
    parted, products = show("parallelism", node)
    (panel,) = panels(parted).values()
    assert set(panel["lines"]) == {"CPU", "cuda:0"} and panel["lines"]["cuda:0"]["xs"] == [1, 32]
    assert panel["lines"]["cuda:0"]["y"] == pytest.approx([1, 24], rel=0.01)
    assert "24.0" in said(parted) and "32 different paths" in said(parted)
    ((row,),) = (rows.values() for rows in groups(products).values())
    assert row["told"] == "2.15 / 4.29 / 42.9 TFLOP/s"


def test_gains_of_libraries_are_drawn_layer_by_layer_and_counted(show: Show, synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    for variant, seconds in (("library", 1e-3), ("searched", 0.5e-3), ("native", 6e-3)):
        layer(node, seconds, variant, spread=1e-4)
    for variant, seconds in (("library", 1e-3), ("native", 0.9e-3)):
        layer(node, seconds, variant, kind="lstm", shape="256-cells", spread=1e-4)
    for variant in ("library", "native"):
        layer(node, 1e-3, variant, device="cpu", spread=0.02)
    on_cpu_, on_gpu = show("with-libraries", node)
    assert "in 0 of 1 cases" in said(on_cpu_)
    row = groups(on_gpu)["Convolution, float32"]["conv4-3x3, batch 32"]
    assert row["told"] == "×6.00 / ×12.0", "as it comes, and after a search"
    assert [one["hollow"] for one in row["marks"]] == [False, True]
    assert "in 1 of 2 cases, and slower in 1" in said(on_gpu)


# ------------------------------------------------------------------ models and their training


def test_levels_and_widths_are_drawn_by_model(show: Show, synthetic: Factory) -> None:
    def zoo_of(node: SyntheticNode) -> SyntheticNode:
        for model, flop, levels, span, width, median in (
            ("mlp", 6e5, 5, 29, 262_144, 5120), ("lstm-32", 7e7, 449, 969, 8.9e6, 512),
            ("gpt-1m", 3e8, 73, 402, 8.4e6, 65_536),
        ):  # fmt: skip
            counted(node, model, parameters=301_066, length=32, levels=levels, span=span, width=width,
                    median_width=median, activation_bytes=4400)  # fmt: skip
            for metric, value in (("forward_flop", flop), ("step_flop", 3 * flop)):
                node.point("models", value, params={"model": model}, metric=metric, unit="FLOP", rounds=1, samples=1,
                           spread=0.0)  # fmt: skip
        return node

    levels, widths = show(
        "models", synthetic("node-a").clock(), zoo_of(synthetic("node-b")), zoo_of(synthetic("node-c"))
    )
    ((rows,), (wide,)) = groups(levels).values(), groups(widths).values()
    assert {name: estimates(row) for name, row in rows.items()} == {
        "mlp": [5, 29], "gpt-1m": [73, 402], "lstm-32": [449, 969]
    }  # fmt: skip
    assert estimates(wide["lstm-32"]) == [512, 8.9e6]
    assert levels.table and "1.80 MFLOP" in next(row for row in levels.table.rows if row[0] == "mlp")
    assert "5 in mlp and 449 in lstm-32" in said(levels)


def test_the_ladder_of_training_names_its_base_and_shows_absolute_rates(show: Show, synthetic: Factory) -> None:
    node = with_gpu(synthetic)
    for rate, more in ((5.0, {}), (8.0, {"threads": 2}), (6.0, {"dtype": "bfloat16"})):
        step(node, rate, model="cnn", spread=0.01, **more)
    exhibits = show("training-ladder", node, host(synthetic, "node-b", gain=5.0))
    first = exhibits[0]
    by_group = groups(first)
    assert list(by_group) == ["mlp, batch 32", "cnn, batch 32"], "most rungs first"
    told = by_group["mlp, batch 32"]
    assert told[BASE]["strong"] and told[BASE]["told"] == "10.0/s  ×1.0"
    assert told["GPU, at its best"]["told"] == "3,000/s  ×300"
    lone = list(by_group["cnn, batch 32"].values())[2]["marks"][0]
    assert lone["low"] < lone["estimate"] < lone["high"] and lone["estimate"] == pytest.approx(1.6, rel=0.05)
    assert first.table and first.table.rows[0][4] == "base" and first.table.rows[0][3].endswith("samples/s")
    assert "times (mlp) as fast as the fastest CPU of all nodes" in said(*exhibits), "not its own host alone"


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_models_stand_side_by_side_on_every_device(show: Show, synthetic: Factory, device: str) -> None:
    node = synthetic("node-a", gpus=1).peak(4e9, threads=2, spread=0).gemm(1e12 / 6e9, device="cuda:0", spread=0)
    about: dict[str, Any] = {"threads": 2, "device": device}
    for model, batch, seconds in (("mlp", 32, 0.5), ("mlp", 256, 0.5), ("lstm-128", 16, 2.0)):
        shares = {"": 1.0, ".forward": 0.3, ".backward": 0.6, ".update": 0.1}
        metrics = {f"time{phase}": share * seconds for phase, share in shares.items()}
        node.point("training", metrics, params={"model": model, "batch": batch}, flop=1e9, spread=0.005, **about)
    params = {"model": "lstm-128", "batch": 16}
    node.point("training", 5e8, params=params, metric="peak_memory", unit="B", spread=0, **about)
    node.point("training", 32.0, params=params, metric=COUNTED, unit="J", spread=0, **about)
    rate, _, models = show("training", node)
    assert list(panels(rate)) == ["mlp"], "one batch makes no curve"
    ((rows),) = groups(models).values()
    assert {label: row["told"].split(",")[0] for label, row in rows.items()} == {
        "lstm-128": "batch 16", "mlp": "batch 256"
    }  # fmt: skip
    assert rows["lstm-128"]["shares"] == pytest.approx([0.3, 0.6, 0.1], rel=0.05)
    assert models.table
    told = {row[0]: row[1:] for row in models.table.rows}
    assert told["lstm-128, batch 16"][-2] == "500 MB" and told["lstm-128, batch 16"][-1].startswith("2.0")
    assert told["mlp, batch 256"][-1] == "–"


def test_error_and_spread_are_drawn_over_the_batch_for_each_rule(show: Show, synthetic: Factory) -> None:
    """Accuracy falls by 0.02 from batch to batch, its spread by half; the best rate is batch / 16."""
    node, random = synthetic(), np.random.default_rng(1)
    for place, batch in enumerate((16, 64, 256, 1024)):
        for rate in sorted({1.0, batch / 32, batch / 16, batch / 8}):
            centre = 0.97 - 0.02 * place - 0.02 * abs(np.log2(rate * 16 / batch))
            test = centre + 0.008 / 2**place * random.standard_normal(8)
            gone = {"time_to_target": [2.0] * 8, "gradient_variance": [20.0] * 8, "gradient_square": [0.5] * 8}
            runs(node, batch, rate, test, centre, **(gone if batch < 1024 else {"reached": 0.5}))
    for batch in (16, 64, 256):
        # Where all images are told rightly there is no place on a logarithm.
        runs(node, batch, 1.0, [1.0] * 8 if batch == 64 else 0.9 + 0.01 * random.standard_normal(8), data="mnist")
    error, spread = show("convergence", node)
    for exhibit in (error, spread):
        digits = panels(exhibit)["digits, mlp"]["lines"]
        assert [line["xs"] for line in digits.values()] == [[16, 64, 256, 1024]] * 3
        assert panels(exhibit)["mnist, mlp"]["series"][0]["xs"] == [16, 256]
    tuned = panels(error)["digits, mlp"]["lines"]["tuned"]
    assert tuned["y"] == pytest.approx([0.03, 0.05, 0.07, 0.09], abs=0.01)
    assert all(low < y < high for low, y, high in zip(tuned["low"], tuned["y"], tuned["high"], strict=True))
    assert "falls with the batch: every doubling changes it by -0.00999 [" in error.reading[0]
    assert spread.table
    rows = [row for row in spread.table.rows if row[0] == "digits, mlp"]
    assert rows[0][:3] == ["digits, mlp", "16", "1"] and rows[0][4:] == ["2.00 s", "40.0 samples"]
    assert rows[-1][1:3] == ["1,024", "64"] and rows[-1][4:] == ["–", "–"]


def test_what_trains_alike_is_told_and_what_does_not_is_named(show: Show, synthetic: Factory) -> None:
    node = synthetic(gpus=1)
    for model in CURVES:
        curve(node, model, device="cpu", backend="onednn")
        if model == "gpt-1m":
            curve(node, model, dtype="bfloat16", status="oom", reason="out of memory")
        else:
            curve(node, model, DIFFER if model == "cnn" else (1.0,) * 3, dtype="bfloat16")
    cpu, gpu = show("equivalence", node)
    ((rows),) = groups(gpu).values()
    assert {label: row["told"] for label, row in rows.items()} == {
        "cnn": "differs", "gpt-1m": "out of memory", "mlp": "agrees", "tabular": "agrees",
    }  # fmt: skip
    assert estimates(rows["gpt-1m"]) == [] and estimates(rows["mlp"])[0] == pytest.approx(1e-4)
    assert "all of 4 models" in said(cpu)
    assert "differing: cnn, not running: gpt-1m" in said(gpu)


def test_jobs_stand_beside_their_prediction_and_lead_to_derived_runs(show: Show, synthetic: Factory) -> None:
    whole, ladder = show("time-to-train", listed(synthetic))
    told = {(row["label"], row["below"]): row for rows in groups_in_order(whole) for row in rows}
    assert len(told) == len(TASKS) + 1
    assert told["table-boosting", "float64, sklearn"]["told"] == "0.50 s"
    assert told["bytes-gpt", "bfloat16, torch"]["told"] == "1.6 s / 2.3 s"
    assert estimates(told["digits-mlp", "float32, torch"]) == pytest.approx([2.5, PREDICTED])
    hollow = {row["label"]: row["marks"][0]["hollow"] for rows in groups_in_order(ladder) for row in rows}
    assert not hollow["bytes-gpt"] and hollow["Llama 2 70B"], "what is derived is not drawn as measured"
    # 6 x 70 billion x 2 trillion operations at 200 GFLOP/s for 90 days.
    assert "540,000 (Llama 2 70B)" in said(ladder)
    # Three jobs are too few to tell how far derived times are off.
    assert "nanoGPT on Shakespeare" in groups(ladder)["up to a day"] and "No interval" in said(ladder)


def groups_in_order(exhibit: Exhibit) -> list[list[dict[str, Any]]]:
    """The rows of each group; two may bear one label."""
    assert exhibit.drawing
    return [group["rows"] for group in exhibit.drawing.shows["groups"]]


@pytest.mark.parametrize(
    ("hours", "told"),
    [
        (0.5 / 3600, "0.50 s"), (0.2, "12 min"), (3.14, "3.1 h"), (240, "10 days"), (8766 * 25, "25 years"),
        (8766 * 81710, "82,000 years"), (8766 * 3.7e6, "3.7 million years"),
    ],
)  # fmt: skip
def test_times_are_told_as_people_say_them(hours: float, told: str) -> None:
    assert time_to_train.spoken(hours) == told


# ------------------------------------------------------------------ loops, ranks, long runs


def test_waits_are_drawn_by_source_and_workers_and_an_idle_gpu_by_batch(show: Show, synthetic: Factory) -> None:
    node = loops(loops(synthetic("node-a", gpus=1)), "cuda:0")
    for batch, kernels in ((8, 0.2e-3), (512, 0.95e-3)):
        times = {"time": 1e-3, "kernel_time": kernels}
        node.point("training", times, params={"model": "mlp", "batch": batch}, spread=0.002, **ONE_GPU)
    waits, on_gpu, idle = show("orchestration", node)
    ((rows),) = groups(waits).values()
    assert [estimates(row)[0] for row in rows.values()] == [
        pytest.approx(1e-4, rel=0.05), *(pytest.approx(x, rel=0.02) for x in (1 / 2, 1 / 6, 1 / 5))
    ]  # fmt: skip
    assert rows["encoded, 0 workers"]["told"].startswith("50% of 20")
    assert "encoded samples cost 20%" in said(on_gpu)
    ((rows),) = groups(idle).values()
    assert rows["batch 8, float32"]["told"] == "80%" and "the GPU has nothing to do for 5" in said(idle)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_ranks_are_drawn_with_what_each_keeps_and_what_their_talk_costs(
    show: Show, synthetic: Factory, device: str
) -> None:
    node = synthetic("node-a", gpus=1)
    for number, rate, talk in ((1, 100, None), (2, 180, 0.1), (4, 300, 0.3)):
        ranks(node, number, rate, talk, device=device)
    (exhibit,) = show("several-devices", node)
    ((rows),) = groups(exhibit).values()
    assert estimates(rows["2 ranks"]) == [pytest.approx(0.9, rel=0.02), pytest.approx(0.1, rel=0.02)]
    assert [one["hollow"] for one in rows["2 ranks"]["marks"]] == [False, True]
    assert all(one["low"] < one["estimate"] < one["high"] for one in rows["4 ranks"]["marks"])


def test_foreseen_memory_is_drawn_against_the_measured_peak(show: Show, synthetic: Factory) -> None:
    node = counted(synthetic("node-a"), "gpt2", parameters=1e6, activation_bytes=1e5)
    peak(node, "gpt2", 1, 1.25 * (16e6 + 1e5), spread=0.002)
    peak(node, "gpt2", 100, 0.5 * (16e6 + 1e7), spread=0.002)
    (exhibit,) = show("several-devices", node)
    rows = groups(exhibit)["gpt2"]
    assert rows["batch 1"]["told"].startswith("−20% of 20") and rows["batch 100"]["told"].startswith("+1")


def test_a_long_run_is_drawn_over_time_and_told(show: Show, synthetic: Factory) -> None:
    """Two minutes of products that lose 5%, the clock held back from the middle on."""
    node = run(
        synthetic("node-a", gpus=1), "products", slowing(0.05, noise=0.001), power_w=lambda *_: 690.0,
        clock_mhz=lambda _, at: 1980.0 - at, temperature_c=lambda _, at: 40.0 + at / 4,
        flags=lambda _, at: "throttled: heat" if at >= 50 else "",
    )  # fmt: skip
    (exhibit,) = show("sustained", node)
    assert "in 128 s of matrix products in bfloat16 without a pause the rate fell by" in said(exhibit)
    assert "clock 1.98 GHz to 1.89 GHz, temperature 41.1 °C to 63.6 °C and power 690 W to 690 W." in said(exhibit)
    assert "held back in 50 of 100 samples: heat." in said(exhibit)
    assert exhibit.drawing and exhibit.drawing.shows["spans"] == [pytest.approx([63, 128], abs=2)]


def test_energy_is_shown_by_format_with_all_devices_side_by_side(show: Show, synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    operations = 2.0 * 64**3
    paid(node, 4e-10 * operations)
    paid(node, 8e-12 * operations, **ONE_GPU)
    paid(node, 1e-12 * operations, dtype="bfloat16", **ONE_GPU)
    (exhibit,) = show("sustained", node)
    ((rows),) = groups(exhibit).values()
    assert {label: row["told"] for label, row in rows.items()} == {
        "float32": "400 pJ / 8.00 pJ", "bfloat16": "1.00 pJ",
    }  # fmt: skip
    assert "in float32 the GPU spends 0.02" in said(exhibit)


# ------------------------------------------------------------------ answers and services


def test_single_requests_stand_by_model_with_their_budgets(show: Show, synthetic: Factory) -> None:
    """The GPU overtakes the CPU between the first and the second model."""
    node = zoo(synthetic, gpus=1)
    for number, model in enumerate(MODELS):
        ask(node, model, 1e-4 * 2**number, samples=120, **ONE_GPU)
        ask(node, model, 0.6e-4 * 2**number, backend="graph", samples=120, **ONE_GPU)
    ask(node, "mlp", 20e-6, threads=2, backend="onnx", dtype="int8")
    for batch in (32, 512):
        ask(node, "mlp", 40e-6 + batch * 1e-6, batch=batch, threads=2)
    waits, many = show("inference", node)
    ((rows),) = groups(waits).values()
    assert list(rows) == list(MODELS) and rows["gpt2"]["below"] == "85.0 million parameters"
    assert waits.drawing and [line["x"] for line in waits.drawing.shows["groups"][0]["lines"]] == [0.01, 0.033, 0.1]
    # Eager and ONNX Runtime on the CPU, eager and graph on the GPU: each with median and 99th percentile.
    assert [len(row["marks"]) for row in rows.values()] == [8, 8, 8, 8]
    cpu, gpu, sooner = waits.reading
    assert "within 10 ms by 2 of 4 models (not surely: gpt-10m and gpt2)" in cpu
    assert "within 10 ms by all 4 models" in gpu and sooner.endswith("the CPU surely answers sooner for: mlp.")
    assert panels(many)["mlp"]["series"][0]["xs"] == [1, 32, 512]


def test_too_few_samples_have_no_99th_percentile(show: Show, synthetic: Factory) -> None:
    (waits,) = show("inference", ask(synthetic("node-a"), "mlp", 1e-3))
    assert waits.reading == [] and waits.table is None
    assert waits.drawing and "99th percentile" not in {one["label"] for one in waits.drawing.shows["legend"]}


# The GPU does not tell its cache: only what is past the largest there are counts.
@pytest.mark.parametrize(("device", "moved"), [("cpu", 4e8), ("cuda:0", 2e9)])
def test_text_by_the_token(show: Show, synthetic: Factory, device: str, moved: float) -> None:
    node = synthetic("node-a", gpus=1).peak(2e11, threads=2).gemm(100, device="cuda:0", n=4096)
    for place, backend in (("cpu", "llvm"), ("cuda:0", "cupy")):
        passes(node, 2**30, 2e11, backend=backend, dtype="float64", threads=2, device=place)
    for phase, seconds, flop in (("prefill", 0.5, 4e10), ("decode", 0.02, 1e9)):
        say(node, phase, seconds, flop, moved, threads=2, device=device)
    (exhibit,) = show("generation", counted(node, "gpt2", parameters=1e8))
    assert exhibit.drawing and "reads 2,0" in said(exhibit)
    rows = groups(exhibit)
    assert [len(row["marks"]) for group in rows.values() for row in group.values()] == [2, 2]
    (token,) = rows["one token after it"].values()
    assert token["told"] == "200 tokens/s"


def test_loads_are_drawn_told_and_tabled(show: Show, synthetic: Factory) -> None:
    """A classifier bears 100 requests a second and loses some of 300."""
    node = synthetic("node-a", gpus=1)
    for rate, tail, lost in ((5, 0.01, 0.0), (100, 0.03, 0.0), (300, 2.0, 0.4)):
        under(node, rate, p50_latency=tail / 2, p99_latency=tail, failed_share=lost, spread=1e-4,
              cpu_per_request=0.002, client_share=0.05, client_delay=1e-3)  # fmt: skip
    under(node, 5, p50_latency=1e-3, cpu_per_request=2e-3, gpu_busy_share=0.02, failed_share=0.0, **ONE_GPU)
    exhibit, gpu = show("serving", node)
    (panel,) = panels(exhibit).values()
    assert panel["limits"] == [{"y": 0.1, "label": "0.1 s"}]
    lines = {one["told"]: one for one in panel["series"]}
    assert lines["99%"]["xs"] == [5, 100, 300]
    assert lines["loads at which some failed"]["xs"] == [300]
    assert lines["loads at which some failed"]["look"][0] == VERMILION
    assert "of 100 requests a second, 99 in 100 are answered within 30" in said(exhibit)
    assert "40% at 300 requests a second" in said(exhibit)
    assert exhibit.table and exhibit.table.rows[0][:3] == ["classifier of images, float32", "100/s, fewer than 300",
                                                           "100/s"]  # fmt: skip
    assert gpu.table and gpu.table.head[-1] == "GPU busy" and "GPU busy" not in exhibit.table.head


# ------------------------------------------------------------------ the roofline

PEAK, MOVED, CACHE = 1.6e11, 1e10, 2**25
LIMITS = [2.0**power for power in range(-2, 13)]


def roofed(synthetic: Factory, device: str) -> SyntheticNode:
    """Ceilings, products, and steps: three tenths of the time of each in operators of 1/4 FLOP/B."""
    node = synthetic(gpus=0 if device == "cpu" else 1, cache=CACHE)
    for n in (64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1152, 1280, 4096):
        flop = 2.0 * n**3
        seconds = flop / PEAK if n == 4096 else flop / PEAK / 0.8 + 1e-5
        node.point("gemm", seconds, device=device, params={"m": n, "n": n, "k": n}, flop=flop, bytes=12.0 * n**2)
    for op in ("copy", "add", "triad"):
        for footprint in (2**16, 2**18, 2**20, 16 * CACHE, 32 * CACHE):
            passes(node, footprint, MOVED, op, backend="llvm", device=device, spread=0.01)
    for model, phase, seconds, intensity in (
        ("gpt", "training", 5e-3, 64.0), ("cnn", "training", 4e-3, 32.0), ("gpt", "decode", 2e-3, 0.5)
    ):  # fmt: skip
        about: dict[str, Any] = {"device": device, "params": {"model": model, "batch": 8, "phase": phase}}
        node.point("roofline", seconds, flop=1e7 * intensity, bytes=1e7, **about)
        node.point("roofline", seconds * 0.9, metric="operator_time", **about)
        node.point("roofline", 20.0, metric="kernels", unit="1", **about)
        told = {f"{measure}_below.{limit:g}_share": 0.3 if limit < intensity else 1.0
                for measure in ("time", "bytes", "flop") for limit in LIMITS}  # fmt: skip
        for name, share in {**told, "cached_bytes_share": 0.5}.items():
            node.point("roofline", {name: share}, spread=0 if share == 1 else 0.01, **about)
    return node


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_steps_stand_under_the_ceilings_that_were_measured(show: Show, synthetic: Factory, device: str) -> None:
    roof, bound, foretold, by_work = show("roofline", roofed(synthetic, device))
    (panel,) = panels(roof).values()
    steps = panel["lines"]["training steps"]
    assert steps["xs"] == [32, 64]
    assert steps["y"] == pytest.approx([1e7 * 32 / 4e-3, 1e7 * 64 / 5e-3], rel=0.05)
    assert steps["low"][0] < steps["y"][0] < steps["high"][0]
    (guide,) = panel["guides"]
    assert guide["ys"][1:] == pytest.approx([PEAK, PEAK], rel=0.05)
    assert guide["ys"][0] / guide["xs"][0] == pytest.approx(MOVED, rel=0.05)
    assert panel["marks"][0]["x"] == pytest.approx(PEAK / MOVED, rel=0.1)
    for row in groups(bound)["training steps"].values():
        assert sum(row["shares"]) == pytest.approx(1) and row["shares"][2] == pytest.approx(0.7, abs=0.05)
    assert [row["shares"][2] for row in groups(bound)["generating text"].values()] == [pytest.approx(0)]
    assert foretold.table and len(foretold.table.rows) == 4 and by_work.table
