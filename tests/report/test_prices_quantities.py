"""Prices: what requests, runs and cards cost follows from rates and entries; what is not verified is asked for."""

from __future__ import annotations

import pytest

from report.data.dataset import Dataset, MissingSourceError
from report.derived_estimates import DerivedEstimates
from report.quantities.prices import gpu_machine

from .conftest import Factory
from .priced import REFERENCE, evidence, priced, trained
from .quantity_cases_2 import Case, case, cases, cells, measured
from .test_serving_quantities import tails

H100 = "NVIDIA H100 80GB HBM3"
CORE, T4, GPU = (
    float(REFERENCE[f"aws-{name}.usd_per_hour"]["value"]) / share
    for name, share in (("c7a.large", 2), ("g4dn.xlarge", 1), ("p5.48xlarge", 8))
)


def build(synthetic: Factory) -> Dataset:
    node = priced(synthetic, gpu=H100, cores=4)
    tails(node, {5: 0.01, 20: 0.03}, cores=4)
    tails(node, {5: 0.02, 20: 0.3}, cores=2)
    tails(node, {5: 0.4}, service="slow")
    tails(node, {5: 0.09}, service="unsure", spread=0.3)
    trained(node, 100, threads=4, spread=1e-3)
    trained(node, 9000, device="cuda:0", spread=1e-3)
    return evidence(synthetic, node)


found = measured(build)


@cases(
    *(case("price.cpu_over_gpu_per_request", CORE * cores / T4, service="classifier", requests_per_s=load,
           width="exact", detail=f"{cores} cores of c7a.large against g4dn.xlarge; float32, held at {held} requests/s")
      for load, cores, held in ((1, 2, 5), (5, 2, 5), (10, 4, 20), (20, 4, 20))),
    # What no server answers in time has no price, and what is unsure no interval.
    case("price.cpu_over_gpu_per_request", None, service="slow"),
    case("price.cpu_over_gpu_per_request", CORE * 2 / T4, service="unsure", requests_per_s=5, width="unknown"),
    case("price.speedup_over_price_ratio", 90 * 4 * CORE / GPU, precision="best", rel=0.01),
)  # fmt: skip
def test_prices(found: Dataset, one: Case) -> None:
    one.check(found)


def test_each_estimate_is_what_its_formula_gives(found: Dataset) -> None:
    whole = cells("price.speedup_over_price_ratio", found)
    assert isinstance(whole, DerivedEstimates) and len(whole) == 2
    worked_out = [float(work.formula.evaluate(work.values())) for work in (whole.works[0], whole.works[1])]
    assert worked_out == pytest.approx(list(whole["estimate"]))


def test_a_gpu_that_nobody_hires_out_asks_for_its_price(synthetic: Factory) -> None:
    node = priced(synthetic, gpu="Unheard Of 9")
    trained(trained(node, 100), 9000, device="cuda:0")
    with pytest.raises(MissingSourceError, match="Unheard Of 9"):
        cells("price.speedup_over_price_ratio", evidence(synthetic, node))


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        (H100, "aws-p5.48xlarge"), ("NVIDIA H100 PCIe", "lambda-1x-h100-pcie"), ("Tesla T4", "aws-g4dn.xlarge"),
        ("NVIDIA A100-SXM4-80GB", "aws-p4de.24xlarge"), ("NVIDIA A100-SXM4-40GB", "aws-p4d.24xlarge"),
        ("NVIDIA L4", "aws-g6.xlarge"), ("NVIDIA GH200 480GB", "lambda-1x-gh200"),
    ],
)  # fmt: skip
def test_a_gpu_is_found_by_its_name(name: str, machine: str) -> None:
    assert (gpu_machine(name) or ("",))[0] == machine
    assert f"{machine}.gpus" in REFERENCE and f"{machine}.usd_per_hour" in REFERENCE


def test_ranks_count_the_cards_that_give_more_for_a_dollar(synthetic: Factory) -> None:
    node, ratings = synthetic("node-a").clock(), ("bf16_flops", "memory_bytes_per_s", "memory_bytes")
    with pytest.raises(MissingSourceError, match=r"rtx-3060\.usd, .*rtx-4060-ti-16gb\.memory_bytes_per_s"):
        cells("price.rank_per_dollar", evidence(synthetic, node))
    figures = {
        "rtx-3060-12gb": (300.0, 1.0, 3.0, 12.0), "rtx-4060-ti-8gb": (400.0, 8.0, 2.0, 8.0),
        "rtx-4060-ti-16gb": (500.0, 5.0, 2.0, 16.0),
    }  # fmt: skip
    changed = {
        name: {"status": "verified", "value": number}
        for card, numbers in figures.items()
        for name, number in zip(
            [f"{card.removesuffix('-12gb')}.usd", *(f"{card}.{one}" for one in ratings)], numbers, strict=True
        )
    }
    found = cells("price.rank_per_dollar", evidence(synthetic, node, changed=changed))
    ranks = {(card, limit): rank for card, limit, rank in found.rows("version", "limit", "estimate")}
    assert {key: ranks["rtx-3060-12gb", key] for key in ("arithmetic", "bandwidth", "capacity")} == {
        "arithmetic": 3, "bandwidth": 1, "capacity": 1,
    }  # fmt: skip
    assert ranks["rtx-4060-ti-8gb", "capacity"] == 3
