"""Predictions of GPUs that were not measured: bounds from datasheets, shares of measured chips, how far they miss."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from contract.errors import StudyError
from report.commands.ask import predicted_lines, predictions
from report.data.dataset import Dataset
from report.data.gather import gather
from report.data.nodes import read_nodes
from report.data.reference import REFERENCE, read_reference
from report.judging.claims import Claim, Part
from report.predicted import TIERS
from report.predicted.chips import Chip, chips, find, measured, of_device
from report.predicted.evidence import BARRED, BOUND, SCALED, foretell
from report.predicted.overview import overview
from report.predicted.roofline import STATE_TRAFFIC, reached
from report.predicted.verdicts import NOT_FORETOLD, about_gpus, predicted_verdict
from report.render.measurements import sections
from report.statistics import LEVEL

from .conftest import Factory, SyntheticNode

TERA = 1e12
FLOP = 1e12  # of the step of one model
WEIGHTS = 1e9


@cache
def published_figures() -> dict[str, Any]:
    return read_reference(REFERENCE)


def entry(name: str, value: float | None, verified: bool = True, subject: str = "") -> dict[str, Any]:
    unit = {"bytes": "B", "w": "W"}.get(name.rpartition("_")[2], "FLOP/s" if "flops" in name else "B/s")
    return {
        "id": name, "subject": subject or f"Maker {name.rpartition('.')[0].upper()}", "what": "x", "value": value,
        "unit": unit, "date": "2026", "source": {"title": "t", "publisher": "p", "url": "u", "where": "w"},
        "status": "verified" if verified else "not verified",
    }  # fmt: skip


def gpu(name: str, bf16: float, bandwidth: float, fp32: float | None = None, **more: Any) -> dict[str, dict[str, Any]]:
    """The reference entries of a GPU: TFLOP/s, TB/s."""
    found = [
        entry(f"{name}.bf16_flops", bf16 * TERA),
        entry(f"{name}.memory_bytes_per_s", bandwidth * TERA),
        entry(f"{name}.memory_bytes", 80e9),
        entry(f"{name}.fp32_flops", fp32 * TERA if fp32 else None, verified=fp32 is not None),
    ]
    return {one["id"]: {**one, **more} for one in found}


KNOWN = {**gpu("one-100", 100, 1, 50), **gpu("two-200", 200, 2, 100), **gpu("three-400", 400, 4, 200),
         **gpu("four-800", 800, 8)}  # fmt: skip


def host(synthetic: Factory, name: str, card: str = "") -> SyntheticNode:
    """A CPU that takes 10 s for a step in float32 and 5 s in bfloat16, and counts its model."""
    node = synthetic(name)
    if card:
        node.devices.append({"id": "cuda:0", "kind": "gpu", "name": f"Maker {card}", "memory_bytes": 80e9})
    for dtype, seconds in (("float32", 10.0), ("bfloat16", 5.0)):
        node.point("training", seconds, dtype=dtype, threads=2, params=STEP, flop=FLOP, spread=0.001)
    node.point("models", WEIGHTS, params={"model": "m"}, metric="parameters", unit="1", spread=0, dtype="")
    return node


MEASURED = (("one", 100, 0.02), ("two", 200, 0.03))
STEP = {"model": "m", "batch": 8}


def card_steps(node: SyntheticNode, rated: float, share: float, **more: Any) -> SyntheticNode:
    """A step in bfloat16 on the card at a share of its rated TFLOP/s."""
    more = {"device": "cuda:0", "dtype": "bfloat16", "params": STEP, "flop": FLOP, "spread": 0, **more}
    return node.point("training", FLOP / (rated * TERA * share), **more)


def evidence(synthetic: Factory, *nodes: SyntheticNode, reference: dict[str, Any] | None = None) -> Dataset:
    return Dataset(read_nodes([synthetic.write(nodes)], True), KNOWN if reference is None else reference)


def chip(name: str, data: Dataset) -> Chip:
    return find(name, chips(data.reference))


def foretold(name: str, data: Dataset) -> Any:
    one = chip(name, data)
    return foretell(data, one, reached(data, chips(data.reference)))


def training(by: Any, dtype: str = "bfloat16") -> dict[str, Any]:
    rows = by.points[(by.points["experiment"] == "training") & (by.points["dtype"] == dtype)]
    assert len(rows) == 1
    return dict(rows.iloc[0])


def claim(rule: str = "at_least", threshold: Any = 10, quantity: str = "training.speedup", **more: Any) -> Claim:
    scope = more.pop("scope", {"baseline": "node", "precision": "best"})
    part = Part("", quantity, rule, threshold, "", scope=scope, **more)
    return Claim("W01", "whygpu", "", "", "measured", 1, Path("W01.yaml"), (part,))


def test_without_a_measured_gpu_there_are_bounds_and_no_intervals(synthetic: Factory) -> None:
    by = foretold("one-100", evidence(synthetic, host(synthetic, "node-a")))
    step = training(by)
    # The optimiser's bytes, less what a cache may keep, or the operations: whichever takes longer.
    moved = (STATE_TRAFFIC * WEIGHTS - 256 * 2**20) / TERA
    assert step["how"] == BOUND and step["seconds"] == pytest.approx(max(FLOP / (100 * TERA), moved))
    assert by.how("training") == BOUND
    found = predicted_verdict(claim(threshold=100), by)
    assert found["tier"] == "predicted" and found["verdict"] == "undecided"
    (cell,) = found["parts"][0]["cells"]
    assert cell["how"] == BOUND and cell["estimate"] is cell["low"] is cell["high"] is None
    assert cell["at_most"] == pytest.approx(5.0 / step["seconds"], rel=0.01)


def test_a_bound_refutes_and_never_shows(synthetic: Factory) -> None:
    by = foretold("one-100", evidence(synthetic, host(synthetic, "node-a")))
    limit = 5.0 / training(by)["seconds"]
    assert predicted_verdict(claim("at_least", 2 * limit), by)["verdict"] == "challenged"
    assert predicted_verdict(claim("at_least", limit / 2), by)["verdict"] == "undecided"
    assert predicted_verdict(claim("at_most", 2 * limit), by)["verdict"] == "supported"
    assert predicted_verdict(claim("at_most", limit / 2), by)["verdict"] == "undecided"
    assert predicted_verdict(claim("within", [1, 2 * limit]), by)["verdict"] == "undecided"
    assert predicted_verdict(claim("within", [2 * limit, 3 * limit]), by)["verdict"] == "challenged"


def test_a_bound_holds_no_trend_and_no_crossover(synthetic: Factory) -> None:
    node = host(synthetic, "node-a")
    node.point("training", 20.0, threads=2, params={**STEP, "batch": 16}, flop=2 * FLOP)
    node.point("training", 10.0, threads=2, dtype="bfloat16", params={**STEP, "batch": 16}, flop=2 * FLOP)
    by = foretold("one-100", evidence(synthetic, node))
    trend = predicted_verdict(claim("trend", 0.2, options={"along": "batch"}), by)
    assert trend["verdict"] in (NOT_FORETOLD, "undecided")
    node.point("inference", 1.0, threads=2, params={"model": "m", "batch": 1}, flop=FLOP / 10, bytes=4e9)
    by = foretold("one-100", evidence(synthetic, node))
    sides = {"over": "device", "of": "cpu", "to": "gpu", "along": "parameters"}
    scope = {"batch": 1, "backend": "best", "dtype": "float32"}
    crossing = predicted_verdict(claim("crossover", 1, "inference.latency_s", scope=scope, options=sides), by)
    assert crossing["verdict"] == "undecided"
    found = overview(evidence(synthetic, node))
    assert all(one["crossover"] == [] for one in found["gpus"])


def test_a_measured_chip_scales_the_others_without_an_error_bar(synthetic: Factory) -> None:
    node = card_steps(host(synthetic, "node-a", "ONE-100"), 100, 0.02)
    data = evidence(synthetic, node)
    by = foretold("two-200", data)
    step, bound = training(by), FLOP / (200 * TERA)
    moved = (STATE_TRAFFIC * WEIGHTS - 256 * 2**20) / (2 * TERA)
    assert step["how"] == SCALED and math.isnan(step["log_se"])
    # Twice the rates in all respects: half the measured time.
    assert step["seconds"] == pytest.approx(FLOP / (100 * TERA * 0.02) / 2) and step["seconds"] > max(bound, moved)
    found = predicted_verdict(claim(threshold=2), by)
    assert found["verdict"] == "undecided" and "without an error bar" in found["reason"]
    (cell,) = found["parts"][0]["cells"]
    assert cell["low"] is None and cell["estimate"] == pytest.approx(5.0 / step["seconds"], rel=0.01)


def test_several_measured_chips_give_an_error_bar(synthetic: Factory) -> None:
    shares = {"ONE-100": (100, 0.02), "TWO-200": (200, 0.03), "THREE-400": (400, 0.025)}
    nodes = [card_steps(host(synthetic, f"node-{name[:3].lower()}", name), *at) for name, at in shares.items()]
    data = evidence(synthetic, *nodes)
    by = foretold("four-800", data)
    step = training(by)
    logs = np.log([at[1] for at in shares.values()])
    # Left out in turn, each is missed by the mean of the two others.
    missed = [one - np.delete(logs, k).mean() for k, one in enumerate(logs)]
    error = math.sqrt(np.mean(np.square(missed)))
    assert step["how"] == BARRED and step["df"] == 2 and step["log_se"] == pytest.approx(error, rel=1e-6)
    factor = reached(data, chips(KNOWN)).factors["training"]
    assert factor == {"factor": pytest.approx(math.exp(error)), "chips": 3}
    found = predicted_verdict(claim(threshold=2000, scope={"baseline": "node", "precision": "equal"}), by)
    cell = found["parts"][0]["cells"][0]
    assert cell["low"] < cell["estimate"] < cell["high"] and found["verdict"] == "challenged"
    half = math.log(cell["high"] / cell["estimate"])
    # The CPU's own spread, of three rounds within 0.1%, adds next to nothing.
    assert half == pytest.approx(float(stats.t.ppf((1 + LEVEL) / 2, 2)) * error, rel=0.05)
    # All shares of bounds are those of the optimiser's traffic or of arithmetic: the same bound on every chip, halved.
    assert step["seconds"] == pytest.approx(FLOP / (800 * TERA) / math.exp(logs.mean()), rel=1e-6)


def test_several_nodes_of_one_chip_do_not_foretell_themselves(synthetic: Factory) -> None:
    nodes = [card_steps(host(synthetic, f"node-{k}", "ONE-100"), 100, 0.02) for k in "abc"]
    by = foretold("two-200", evidence(synthetic, *nodes))
    assert training(by)["how"] == SCALED


def test_predictions_cover_the_truth_of_chips_that_vary(synthetic: Factory) -> None:
    """Shares of chips drawn from one distribution: 95% intervals from five others hold the sixth about as often."""
    random, inside, runs = np.random.default_rng(5), 0, 400
    from pandas import DataFrame, MultiIndex

    from report.predicted.roofline import KEY, left_out_errors

    index = MultiIndex.from_tuples([("training", json.dumps({"batch": k}), "bfloat16") for k in range(4)], names=KEY)
    for _ in range(runs):
        logs = random.normal(0, 0.3, size=(1, 6)) + random.normal(0, 0.02, size=(4, 6))
        five = DataFrame(logs[:, :5], index, list("abcde"))
        error, number = left_out_errors(five)["training"]
        half = stats.t.ppf(0.975, number - 1) * error
        inside += int(abs(logs[0, 5] - five.iloc[0].mean()) <= half)
    assert 0.92 <= inside / runs <= 1.0


def test_a_figure_that_was_not_verified_is_never_used(synthetic: Factory) -> None:
    reference = gpu("one-100", 100, 1) | {"one-100.bf16_flops": entry("one-100.bf16_flops", 1e14, verified=False)}
    data = evidence(synthetic, host(synthetic, "node-a"), reference=reference)
    one = chip("one-100", data)
    assert one.peak("bfloat16") is None and set(one.lacking) == {"one-100.bf16_flops", "one-100.fp32_flops"}
    # What is left is the bandwidth, which bounds by the optimiser's traffic.
    step = training(foretold("one-100", data))
    assert step["seconds"] == pytest.approx((STATE_TRAFFIC * WEIGHTS - 256 * 2**20) / TERA)


def test_a_chip_without_its_best_format_has_no_best_format(synthetic: Factory) -> None:
    """The rated rate in float32 is no bound of what the chip does in bfloat16."""
    reference = gpu("one-100", 100, 1, 50) | {"one-100.bf16_flops": entry("one-100.bf16_flops", None, False)}
    node = synthetic("node-a").point("training", 5.0, threads=2, params=STEP, flop=FLOP)
    by = foretold("one-100", evidence(synthetic, node, reference=reference))
    assert predicted_verdict(claim(), by)["verdict"] == NOT_FORETOLD
    equal = predicted_verdict(claim(threshold=1e6, scope={"baseline": "node", "precision": "equal"}), by)
    assert equal["verdict"] == "challenged"


def test_no_chip_of_the_reference_is_rated_higher_in_a_wider_format() -> None:
    """What bounds of the best format rest on."""
    both = [one for one in chips(published_figures()) if one.peak("float32") and one.peak("bfloat16")]
    assert both and all((one.peak("float32") or 0) <= (one.peak("bfloat16") or 0) for one in both)


def test_memory_of_a_gpu_over_that_of_the_cpu(synthetic: Factory) -> None:
    node = host(synthetic, "node-a")
    size = 2**30
    node.point("bandwidth", size / 1e11, threads=2, params={"op": "triad", "footprint": size}, bytes=size)
    by = foretold("one-100", evidence(synthetic, node))
    sides = {"over": "device", "of": "gpu", "to": "cpu"}
    scope = {"op": "triad", "threads": "all", "backend": "best"}
    found = predicted_verdict(claim("ratio", 30, "bandwidth.rate", scope=scope, options=sides), by)
    assert found["verdict"] == "challenged"
    assert found["parts"][0]["cells"][0]["at_most"] == pytest.approx(10, rel=0.02)


def test_predictions_never_enter_the_measured_data(synthetic: Factory) -> None:
    data = evidence(synthetic, host(synthetic, "node-a"))
    before = data.table.copy()
    by = foretold("one-100", data)
    assert data.table.equals(before) and by.data is not data
    assert set(by.data.table["origin"]) == {"synthetic", "predicted"}
    assert TIERS[-1] == "predicted" and TIERS.index("documented") < TIERS.index("predicted")


def test_measured_gpus_are_not_among_predicted_cells(synthetic: Factory) -> None:
    node = card_steps(host(synthetic, "node-a", "ONE-100"), 100, 0.02)
    by = foretold("two-200", evidence(synthetic, node))
    assert "cuda:0" not in set(by.data.table["device"])


def test_names_of_gpus() -> None:
    known = chips(published_figures())
    for name, wanted in {
        "NVIDIA RTX 4090": "rtx-4090",
        "NVIDIA GeForce RTX 4090": "rtx-4090",
        "h100-sxm": "h100-sxm",
        "NVIDIA H100 80GB HBM3": "h100-sxm",
        "NVIDIA H100 PCIe": "h100-pcie",
        "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
        "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
        "NVIDIA H200": "h200",
        "NVIDIA L4": "l4",
        "NVIDIA L40S": "l40s",
        "AMD Instinct MI300X": "mi300x",
    }.items():
        assert find(name, known).id == wanted
    with pytest.raises(StudyError, match="which one: h100-nvl, h100-pcie or h100-sxm"):
        find("H100", known)
    with pytest.raises(StudyError, match=r"no verified figures of such a GPU.*Did you mean"):
        find("rtx-4O90", known)
    for name in ("NVIDIA GeForce RTX 4090 Laptop GPU", "Synthetic GPU", "NVIDIA H200 NVL"):
        assert of_device({"name": name}, known) is None


def test_a_processor_is_no_gpu() -> None:
    assert not [one.id for one in chips(published_figures()) if "xeon" in one.id or "grace" in one.id]


def test_a_gpu_that_was_measured_is_not_foretold(synthetic: Factory) -> None:
    data = evidence(synthetic, card_steps(host(synthetic, "node-a", "ONE-100"), 100, 0.02))
    assert {one.id for one in measured(data, chips(KNOWN)).values()} == {"one-100"}
    with pytest.raises(StudyError, match="was measured on"):
        predictions("one-100", data, [claim()])
    found = overview(data)
    assert found["measured"] == ["one-100"] and "one-100" not in [one["id"] for one in found["gpus"]]


def test_predicted_verdicts_say_that_they_are(synthetic: Factory) -> None:
    data = evidence(synthetic, host(synthetic, "node-a"))
    other = claim(quantity="training.mfu", scope={"device": "gpu"})
    found = predictions("ONE-100", data, [claim(threshold=1e6), Claim(**{**other.__dict__, "id": "W02"})])
    assert found["tier"] == "predicted" and found["scaled_from"] == []
    assert {name: one["verdict"] for name, one in found["verdicts"].items()} == {
        "W01": "challenged", "W02": NOT_FORETOLD
    }  # fmt: skip
    assert all(cell["tier"] == "predicted" for cell in found["verdicts"]["W01"]["parts"][0]["cells"])
    text = "\n".join(predicted_lines(found))
    assert "PREDICTED for Maker ONE-100, not measured: unscaled upper bounds, without intervals" in text
    assert "W01   predicted: challenged" in text and "1 other claim" in text
    json.dumps(found, allow_nan=False)


def test_claims_about_gpus() -> None:
    assert about_gpus(claim())
    assert not about_gpus(claim(quantity="gemm.peak_share", scope={"device": "cpu"}))


def test_the_batch_from_which_a_gpu_is_ahead(synthetic: Factory) -> None:
    node = synthetic("node-a")
    node.devices.append({"id": "cuda:0", "kind": "gpu", "name": "Maker ONE-100"})
    other = synthetic("node-b")
    other.devices.append({"id": "cuda:0", "kind": "gpu", "name": "Maker TWO-200"})
    for batch in (1, 8, 64):
        params = {"model": "m", "batch": batch}
        for dtype in ("float32", "bfloat16"):
            node.point("training", 0.01 * batch, threads=2, dtype=dtype, params=params, flop=1e9 * batch, spread=0)
        # A launch costs 0.05 s whatever the batch on either card: small batches are not worth the trip.
        for machine, more in ((node, 1.0), (other, 1.001)):
            machine.point(
                "training", more * (0.05 + 0.001 * batch), device="cuda:0", dtype="bfloat16", params=params,
                flop=1e9 * batch, spread=0,
            )  # fmt: skip
    reference = {**gpu("one-100", 100, 1), **gpu("two-200", 100, 1), **gpu("three-400", 100, 1)}
    found = overview(evidence(synthetic, node, other, reference=reference))
    (three,) = [one for one in found["gpus"] if one["id"] == "three-400"]
    (crossing,) = [one for one in three["crossover"] if one["node"] == "node-a"]
    assert (crossing["low"], crossing["high"]) == (1, 8) and 1 < crossing["estimate"] < 8
    assert found["errors"]["training"]["chips"] == 2


def test_published_models_in_a_gpus_memory(synthetic: Factory) -> None:
    reference = {**KNOWN, **{name: one for name, one in published_figures().items() if "llama" in name}}
    found = overview(evidence(synthetic, host(synthetic, "node-a"), reference=reference))
    one = next(one for one in found["gpus"] if one["id"] == "one-100")
    held = {model["model"]: model for model in one["published"]}
    small = held["Llama 3.1 8B"]
    assert small["answers"] and not small["trains"] and not held["Llama 3.1 405B"]["answers"]
    assert small["tokens_per_s_at_most"] == pytest.approx(TERA / (2 * small["parameters"]))
    assert held["Llama 3.1 405B"]["tokens_per_s_at_most"] is None


def test_the_report_shows_them_in_a_section_of_their_own(synthetic: Factory, tmp_path: Path) -> None:
    gather([synthetic.write([host(synthetic, "node-a")])], tmp_path / "data", allow_synthetic=True)
    records = json.loads((tmp_path / "data" / "nodes.json").read_text())
    found = {section.key: section for section in sections(tmp_path / "data", records, ["predicted"])}
    assert found["predicted"].title == "What GPUs that were not measured would do"
    (exhibit,) = found["predicted"].exhibits
    assert exhibit.table and exhibit.drawing
    assert all("Predicted, not measured" in text for text in (exhibit.reading[0], exhibit.table.caption))
    assert exhibit.drawing.caption.startswith("Predicted, not measured") and "upper bounds" in exhibit.reading[1]
    assert all(row["open"] for row in exhibit.drawing.shows["rows"])
    figure = exhibit.drawing.draw(exhibit.drawing.shows)
    bars = figure.axes[0].patches
    assert bars and all(bar.get_hatch() and bar.get_linestyle() != "solid" for bar in bars)
    assert any("predicted, not measured" in text.get_text() for text in figure.texts)


def test_the_report_says_how_far_scaled_predictions_miss(
    synthetic: Factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [card_steps(host(synthetic, f"node-{k}", f"{k}-{at}"), at, share) for k, at, share in MEASURED]
    gather([synthetic.write(nodes)], tmp_path / "data", allow_synthetic=True)
    monkeypatch.setattr("report.render.measurements.base.read_reference", lambda _: KNOWN)
    records = json.loads((tmp_path / "data" / "nodes.json").read_text())
    found = {section.key: section for section in sections(tmp_path / "data", records, ["predicted"])}
    exhibit = found["predicted"].exhibits[0]
    assert exhibit.drawing and not any(row["open"] for row in exhibit.drawing.shows["rows"])
    assert (
        "caled by what one-100 and two-200 reach of their datasheets; typically within a factor of"
        in (exhibit.reading[1])
    )
    assert exhibit.table and {row[0] for row in exhibit.table.rows} == {"Maker THREE-400", "Maker FOUR-800"}


def test_a_node_that_trained_nothing_has_no_predictions(synthetic: Factory, tmp_path: Path) -> None:
    gather([synthetic.write([synthetic("node-a").clock()])], tmp_path / "data", allow_synthetic=True)
    records = json.loads((tmp_path / "data" / "nodes.json").read_text())
    assert "predicted" not in {section.key for section in sections(tmp_path / "data", records, ["predicted"])}
