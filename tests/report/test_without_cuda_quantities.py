"""What is left of CUDA's rates without CUDA is what the nodes were built to have, and the claim is decided by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contract.files import read_json
from report.data.dataset import Dataset
from report.data.gather import gather
from report.render.figures import keep
from report.render.measurements import Exhibit

from .conftest import Factory, SyntheticNode
from .evidence import Shown, data
from .quantity_cases_2 import Case, case, cases, measured, verdicts

TRIAD = 2**25


def kernel(node: SyntheticNode, name: str, backend: str, seconds: float, n: int = 2048, **more: Any) -> SyntheticNode:
    size: dict[str, float] = {"flop": 2.0 * n, "bytes": 12.0 * n} if name == "triad" else {"flop": 2.0 * n**3}
    more = {"device": "cuda:0", "spread": 1e-3, **more}
    return node.point("without-cuda", seconds, backend=backend, params={"kernel": name, "n": n}, **size, **more)


def product(node: SyntheticNode, seconds: float, m: int = 2048, **more: Any) -> SyntheticNode:
    more = {"device": "cuda:0", "spread": 1e-4, **more}
    return node.point("gemm", seconds, params={"m": m, "n": 2048, "k": 2048}, flop=2.0 * m * 2048**2, **more)


def card(synthetic: Factory, share: float = 0.8) -> SyntheticNode:
    """A GPU that does through Vulkan the given share of what it does in CUDA, and half of that under WebGPU."""
    node = synthetic("node-a", gpus=1)
    for name, n, seconds in (("naive", 2048, 4e-3), ("tiled", 2048, 3e-3), ("triad", TRIAD, 2e-4)):
        for backend, part in (("cuda", 1.0), ("vulkan", share), ("webgpu", share / 2)):
            kernel(node, name, backend, seconds / part, n)
    # The library's: of another format, another shape and another device.
    return product(product(product(product(node, 4e-4), 1e-4, dtype="bfloat16"), 1e-5, m=512), 1.0, device="cpu")


def build(synthetic: Factory) -> Dataset:
    return data(synthetic, kernel(card(synthetic), "tiled", "vulkan", 1.0, n=4096))  # no CUDA beside the last


found = measured(build)


@cases(
    *(case("without_cuda.rate_share", {"vulkan": 0.8, "webgpu": 0.4}, by="backend", kernel=name, rel=0.01)
      for name in ("naive", "tiled", "triad")),
    case("without_cuda.rate", 2 * 2048**3 / 3e-3, kernel="tiled", backend="cuda", rel=0.01),
    case("without_cuda.rate", 2 * TRIAD / 2e-4, kernel="triad", backend="cuda", rel=0.01),
    case("without_cuda.naive_over_library", 0.1, rel=0.01),
)  # fmt: skip
def test_kernels(found: Dataset, one: Case) -> None:
    one.check(found)


@pytest.mark.parametrize(("share", "outcome"), [(0.9, "challenged"), (0.2, "supported")])
def test_the_claim_is_decided_by_vulkan_alone(synthetic: Factory, share: float, outcome: str) -> None:
    assert [one.outcome for one in verdicts("N10", data(synthetic, card(synthetic, share))).values()] == [outcome]


@pytest.fixture
def show(synthetic: Factory, tmp_path: Path) -> Any:
    def shown(*nodes: SyntheticNode) -> list[Exhibit]:
        gather([synthetic.write(nodes)], tmp_path / "data", allow_synthetic=True)
        return Shown(tmp_path / "data", read_json(tmp_path / "data" / "nodes.json")).get("without-cuda", [])

    return shown


def test_interfaces_stand_beside_each_other_and_the_library(show: Any, synthetic: Factory, tmp_path: Path) -> None:
    (exhibit,) = show(card(synthetic))
    text = " ".join(exhibit.reading)
    assert all(share in text for share in ("0.80", "0.40", "0.1"))
    (group,) = exhibit.drawing.shows["groups"]
    assert [len(row["marks"]) for row in group["rows"]] == [4, 4]
    assert keep(exhibit.drawing, tmp_path, None)
    assert exhibit.table.rows[-1][4] == "–" and exhibit.table.rows[-1][5].startswith("0.8")


def test_a_triad_alone_has_a_table_without_a_figure(show: Any, synthetic: Factory) -> None:
    (exhibit,) = show(kernel(synthetic("node-a", gpus=1), "triad", "cuda", 2e-4, TRIAD))
    assert exhibit.drawing is None and exhibit.reading == [] and exhibit.table.head == ["Kernel", "CUDA"]
