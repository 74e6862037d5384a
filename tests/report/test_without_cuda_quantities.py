"""What is left of CUDA's rates without CUDA is what the nodes were built to have, and the claim is decided by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.report.data.dataset import Shown

from contract.files import read_json
from report.data.dataset import Dataset
from report.data.gather import gather
from report.data.reference import REFERENCE, read_reference
from report.estimates import Estimates
from report.judging.claims import Part, read_claims
from report.judging.evaluate import QuantityCache, evaluate
from report.judging.filters import lacking, select
from report.judging.judge import CLAIMS
from report.quantities import quantities
from report.render.figures import keep
from report.render.measurements import Exhibit

from .conftest import Factory, SyntheticNode
from .evidence import data, value

TRIAD = 2**25


def of(name: str, found: Dataset, **scope: Any) -> Estimates:
    return select(quantities()[f"without_cuda.{name}"].compute(found), scope)


def kernel(
    node: SyntheticNode, name: str, backend: str, seconds: float, n: int = 2048, device: str = "cuda:0", **more: Any
) -> SyntheticNode:
    size: dict[str, float] = {"flop": 2.0 * n, "bytes": 12.0 * n} if name == "triad" else {"flop": 2.0 * n**3}
    params = {"kernel": name, "n": n}
    return node.point("without-cuda", seconds, device=device, backend=backend, params=params, **size, **more)


def product(node: SyntheticNode, seconds: float, **more: Any) -> SyntheticNode:
    shape = {"m": 2048, "n": 2048, "k": 2048, **more.pop("shape", {})}
    more = {"device": "cuda:0", "flop": 2.0 * shape["m"] * shape["n"] * shape["k"], "spread": 1e-4, **more}
    return node.point("gemm", seconds, params=shape, **more)


def card(synthetic: Factory, share: float = 0.8) -> SyntheticNode:
    """A GPU that does through Vulkan the given share of what it does in CUDA, and half of that under WebGPU."""
    node = synthetic("node-a", gpus=1)
    for name, n, seconds in (("naive", 2048, 4e-3), ("tiled", 2048, 3e-3), ("triad", TRIAD, 2e-4)):
        for backend, part in (("cuda", 1.0), ("vulkan", share), ("webgpu", share / 2)):
            kernel(node, name, backend, seconds / part, n, spread=1e-3)
    product(node, 4e-4)
    product(node, 1e-4, dtype="bfloat16")
    product(node, 1e-5, shape={"m": 512})
    return product(node, 1.0, device="cpu")


def test_the_share_is_that_of_cuda_on_the_same_kernel(synthetic: Factory) -> None:
    found = data(synthetic, kernel(card(synthetic), "tiled", "vulkan", 1.0, n=4096))  # no CUDA beside the last
    for name in ("naive", "tiled", "triad"):
        assert value(of("rate_share", found, kernel=name, backend="vulkan")) == pytest.approx(0.8, rel=0.01)
        assert value(of("rate_share", found, kernel=name, backend="webgpu")) == pytest.approx(0.4, rel=0.01)
    assert len(of("rate_share", found)) == 6


def test_rates_count_the_work_of_a_launch(synthetic: Factory) -> None:
    found = data(synthetic, card(synthetic))
    assert value(of("rate", found, kernel="tiled", backend="cuda")) == pytest.approx(2 * 2048**3 / 3e-3, rel=0.01)
    assert value(of("rate", found, kernel="triad", backend="cuda")) == pytest.approx(2 * TRIAD / 2e-4, rel=0.01)


def test_the_naive_product_is_held_against_the_same_product_of_the_library(synthetic: Factory) -> None:
    found = data(synthetic, card(synthetic))
    assert value(of("naive_over_library", found)) == pytest.approx(0.1, rel=0.01)


def test_without_the_library_nothing_is_held_against_it(synthetic: Factory) -> None:
    assert len(of("naive_over_library", data(synthetic, kernel(synthetic("node-a", gpus=1), "naive", "cuda", 1)))) == 0


@pytest.mark.parametrize(("share", "outcome"), [(0.9, "challenged"), (0.2, "supported")])
def test_the_claim_is_decided_by_vulkan_alone(synthetic: Factory, share: float, outcome: str) -> None:
    claim = next(one for one in read_claims(CLAIMS, read_reference(REFERENCE)) if one.id == "N10")
    evidence = QuantityCache(data(synthetic, card(synthetic, share)))
    assert [evaluate(part, claim, evidence).outcome for part in claim.parts] == [outcome]


def test_without_a_gpu_the_quantities_await_one(synthetic: Factory) -> None:
    node = synthetic("node-a")
    for backend in ("vulkan", "cuda"):
        kernel(node, "naive", backend, 1.0, device="cpu", status="unsupported", reason="no accelerator")
    found = data(synthetic, node)
    for name in ("rate", "rate_share", "naive_over_library"):
        quantity = quantities()[f"without_cuda.{name}"]
        cells = quantity.compute(found)
        assert len(cells) == 0
        assert lacking(Part("", quantity.name, "at_most", 1, ""), quantity, cells, found)[0] == "awaiting hardware"


@pytest.fixture
def show(synthetic: Factory, tmp_path: Path) -> Any:
    def shown(*nodes: SyntheticNode) -> list[Exhibit]:
        gather([synthetic.write(nodes)], tmp_path / "data", allow_synthetic=True)
        records = read_json(tmp_path / "data" / "nodes.json")
        return Shown(tmp_path / "data", records).get("without-cuda", [])

    return shown


def test_interfaces_stand_beside_each_other_and_the_library(show: Any, synthetic: Factory, tmp_path: Path) -> None:
    (exhibit,) = show(card(synthetic))
    text = " ".join(exhibit.reading)
    assert "through Vulkan, without CUDA, the same kernels run at 0.80" in text
    assert "with WebGPU's checks at run time they run at 0.40" in text
    assert "the naive product runs at 0.1" in text.replace("0.0999", "0.1")
    (group,) = exhibit.drawing.shows["groups"]
    assert [row["label"] for row in group["rows"]] == ["naive product, n = 2,048", "tiled product, n = 2,048"]
    assert [len(row["marks"]) for row in group["rows"]] == [4, 4]
    assert keep(exhibit.drawing, tmp_path, None)
    triad = exhibit.table.rows[-1]
    assert triad[0] == "triad, 33.6 million elements"
    assert triad[3].endswith("TB/s") and triad[4] == "–" and triad[5].startswith("0.8")


def test_a_triad_alone_has_a_table_without_a_figure(show: Any, synthetic: Factory) -> None:
    (exhibit,) = show(kernel(synthetic("node-a", gpus=1), "triad", "cuda", 2e-4, TRIAD))
    assert exhibit.drawing is None
    assert exhibit.reading == []
    assert exhibit.table.head == ["Kernel", "CUDA"]


def test_without_data_nothing_is_shown(show: Any, synthetic: Factory) -> None:
    assert show(product(synthetic("node-a", gpus=1), 1e-3)) == []
