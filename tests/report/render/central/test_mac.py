"""Multiply-adds per cycle: what was measured, what is worked out from it, and what makers state, told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from report.data.reference import REFERENCE, read_reference
from report.render.central.base import MOST_MACHINES
from report.render.central.mac import FIGURE
from report.render.figures import keep
from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.builders import product

SERVER, MOST = 128.0, 1000
CLAIM = {
    "id": "W15", "verdict": "challenged", "quantity": "gemm.mac_per_cycle_per_core",
    "parts": [{"quantity": "gemm.mac_per_cycle_per_core", "scale": SERVER, "threshold": MOST, "options": {}}],
}  # fmt: skip
JUDGED = {"verdicts": [CLAIM]}


def machine(synthetic: Factory, name: str = "node-a", per_cycle: float = 20.0, **more: Any) -> SyntheticNode:
    node = synthetic(name, **more).clock()
    node.gemm(0.01, backend="python", dtype="float64").gemm(0.5, backend="scalar").gemm(6, backend="simd")
    node.peak(2 * 2 * 3e9, kernel="scalar_fma").peak(2 * 32 * 3e9)
    node.gemm(per_cycle).gemm(1.9 * per_cycle, threads=2)
    return node.gemm(2 * per_cycle, dtype="bfloat16").gemm(3.8 * per_cycle, dtype="bfloat16", threads=2)


def groups(shown: Any) -> dict[str, dict[str, Any]]:
    return {group["title"]: {row["label"]: row for row in group["rows"]} for group in shown.drawing.shows["groups"]}


def at(row: dict[str, Any]) -> float:
    return float(row["cells"][0]["marks"][0]["estimate"])


def test_one_node_shows_every_rung_of_a_core_and_the_claims_server(
    figure_of: Any, synthetic: Factory, tmp_path: Path
) -> None:
    shown = figure_of(FIGURE, machine(synthetic), document=JUDGED)
    core, makers, chip = groups(shown).values()
    assert {label: at(row) for label, row in core.items()} == pytest.approx(
        {
            "interpreted loop": 0.01, "compiled loop, scalar": 0.5, "compiled loop, vectors": 6,
            "scalar instructions": 2, "best library, float32": 20, "vectors in registers, float32": 32,
            "best library, bfloat16": 40,
        },
        rel=0.1,
    )  # fmt: skip
    mark = core["best library, float32"]["cells"][0]["marks"][0]
    assert mark["low"] < mark["estimate"] < mark["high"] and not mark["hollow"]
    server = chip["128 × one core: float32"]["cells"][0]["marks"][0]
    assert server["hollow"], "what is worked out is not drawn as measured"
    assert server["estimate"] == pytest.approx(SERVER * mark["estimate"])
    assert [at(row) for label, row in chip.items() if label.startswith("Synthetic,")] == pytest.approx(
        [38, 76], rel=0.1
    )
    assert "awaiting hardware" in chip["GPU"]["waits"]
    lines = shown.drawing.shows["groups"][-1]["lines"]
    assert [(line["x"], line["label"]) for line in lines] == [(MOST, "W15: at most 1,000 MAC/cycle")]
    assert shown.title.startswith("One core retires ") and shown.title.endswith("128 of them do more than 1,000")
    assert shown.claims == ["W15"]
    assert all(row["cells"][0]["marks"][0]["hollow"] for row in makers.values())
    assert "with the best library in bfloat16" in " ".join(shown.reading)
    assert keep(shown.drawing, tmp_path, None)


def test_makers_figures_are_the_references_own(figure_of: Any, synthetic: Factory) -> None:
    reference = read_reference(REFERENCE)
    shown = figure_of(FIGURE, machine(synthetic))
    _, makers, chip = groups(shown).values()
    told = {label: at(row) for label, row in [*makers.items(), *chip.items()] if row.get("cells")}
    assert told["Intel AMX: bfloat16"] == reference["amx.bf16_flop_per_cycle"]["value"] / 2
    assert told["Intel AVX-512: float32"] == reference["avx512.fp32_flop_per_cycle"]["value"] / 2
    assert told["NVIDIA H100 SXM5: float32 lanes"] == reference["h100-sxm.fp32_cores"]["value"]


@pytest.mark.parametrize(
    ("per_cycle", "spread", "told"),
    [(5.0, 0.01, "128 of them do no more than 1,000"), (7.8, 0.05, "is too close to call")],
)
def test_the_title_follows_the_interval(
    figure_of: Any, synthetic: Factory, per_cycle: float, spread: float, told: str
) -> None:
    node = synthetic().clock().gemm(per_cycle, spread=spread)
    assert figure_of(FIGURE, node, document=JUDGED).title.endswith(told)


def test_without_the_claim_there_is_no_line_and_no_server(figure_of: Any, synthetic: Factory) -> None:
    shown = figure_of(FIGURE, machine(synthetic))
    assert "lines" not in shown.drawing.shows["groups"][-1]
    assert not any("128" in label for rows in groups(shown).values() for label in rows)
    assert shown.title.endswith("in a clock cycle")


def test_a_gpu_stands_among_whole_chips(figure_of: Any, synthetic: Factory) -> None:
    node = machine(synthetic, gpus=1)
    product(node, 3e13, dtype="float32")
    product(node, 3e14, dtype="bfloat16")
    shown = figure_of(FIGURE, node, document=JUDGED)
    chip = list(groups(shown).values())[-1]
    assert at(chip["Synthetic GPU: float32"]) == pytest.approx(1e4, rel=0.01)
    assert at(chip["Synthetic GPU: bfloat16"]) == pytest.approx(1e5, rel=0.01)
    assert "GPU" not in chip
    assert any(entry["label"] == "measured, GPU" for entry in shown.drawing.shows["legend"])


def test_of_many_nodes_the_fastest_per_core_are_shown(figure_of: Any, synthetic: Factory) -> None:
    nodes = [machine(synthetic, f"node-{place}", 10.0 + 4 * place) for place in range(MOST_MACHINES + 1)]
    shown = figure_of(FIGURE, *nodes, document=JUDGED)
    cores = [title for title in groups(shown) if title.startswith("one core: ")]
    assert len(cores) == MOST_MACHINES
    assert "1 more node with fewer on one core" in shown.drawing.caption
    assert list(groups(shown)[cores[0]]) == ["scalar instructions", "best library, float32", "best library, bfloat16"]


def test_without_products_on_one_core_or_without_a_clock_nothing_is_shown(figure_of: Any, synthetic: Factory) -> None:
    assert figure_of(FIGURE, synthetic().gemm(20.0)) is None
    assert figure_of(FIGURE, synthetic("node-b").clock().gemm(20.0, threads=2)) is None
