"""Prices: what requests, runs and cards cost follows from rates and entries; what is not verified is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from report.data.dataset import MissingSourceError
from report.derived_estimates import DerivedEstimates
from report.quantities import quantities
from report.quantities.prices import gpu_machine

from .conftest import Factory
from .evidence import of, value
from .priced import REFERENCE, evidence, priced, trained
from .test_serving_quantities import tails

H100 = "NVIDIA H100 80GB HBM3"


def figure(name: str) -> float:
    return float(REFERENCE[name]["value"])


def test_a_request_costs_the_cores_that_keep_the_limit(synthetic: Factory) -> None:
    node = priced(synthetic, cores=4)
    tails(node, {5: 0.01, 20: 0.03}, cores=4)
    tails(node, {5: 0.02, 20: 0.3}, cores=2)
    found = evidence(synthetic, node)
    per_core = figure("aws-c7a.large.usd_per_hour") / 2
    gpu = figure("aws-g4dn.xlarge.usd_per_hour")
    for load, cores in ((1, 2), (5, 2), (10, 4), (20, 4)):
        cell = of("price.cpu_over_gpu_per_request", found, requests_per_s=load)
        assert value(cell) == pytest.approx(per_core * cores / gpu), load
        assert f"{cores} cores of c7a.large against g4dn.xlarge" in cell.frame["detail"].iloc[0]


def test_what_no_server_answers_in_time_has_no_price_and_what_is_unsure_no_interval(synthetic: Factory) -> None:
    node = priced(synthetic)
    tails(node, {5: 0.4}, service="slow")
    tails(node, {5: 0.09}, service="unsure", spread=0.3)
    found = evidence(synthetic, node)
    cells = of("price.cpu_over_gpu_per_request", found, requests_per_s=5)
    assert list(cells.frame["service"]) == ["unsure"] and np.isnan(cells.frame["high"].iloc[0])


def test_a_gpu_pays_off_when_its_speedup_exceeds_the_ratio_of_prices(synthetic: Factory) -> None:
    node = priced(synthetic, gpu=H100, cores=2)
    trained(node, 100)
    trained(node, 9000, device="cuda:0")
    found = evidence(synthetic, node)
    cells = of("price.speedup_over_price_ratio", found, baseline="node", precision="best")
    cpu, gpu = figure("aws-c7a.large.usd_per_hour"), figure("aws-p5.48xlarge.usd_per_hour") / 8
    assert value(cells) == pytest.approx(90 * cpu / gpu)
    detail = cells.frame["detail"].iloc[0]
    assert "us-east-1, 2026" in detail and "2 cores of c7a.large" in detail
    whole = quantities()["price.speedup_over_price_ratio"].cells(found)
    assert isinstance(whole, DerivedEstimates)
    for row in range(len(whole)):
        work = whole.works[row]
        worked_out = work.formula.evaluate(work.values())
        assert float(worked_out) == pytest.approx(float(whole.frame["estimate"].iloc[row]))


def test_a_gpu_that_nobody_hires_out_asks_for_its_price(synthetic: Factory) -> None:
    node = priced(synthetic, gpu="Unheard Of 9")
    trained(node, 100)
    trained(node, 9000, device="cuda:0")
    with pytest.raises(MissingSourceError, match="Unheard Of 9"):
        of("price.speedup_over_price_ratio", evidence(synthetic, node))


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        (H100, "aws-p5.48xlarge"), ("NVIDIA H100 PCIe", "lambda-1x-h100-pcie"), ("Tesla T4", "aws-g4dn.xlarge"),
        ("NVIDIA A100-SXM4-80GB", "aws-p4de.24xlarge"), ("NVIDIA A100-SXM4-40GB", "aws-p4d.24xlarge"),
        ("NVIDIA L4", "aws-g6.xlarge"), ("NVIDIA GH200 480GB", "lambda-1x-gh200"),
    ],
)  # fmt: skip
def test_a_gpu_is_found_by_its_name(name: str, machine: str) -> None:
    found = gpu_machine(name)
    assert found is not None and found[0] == machine
    assert f"{machine}.gpus" in REFERENCE and f"{machine}.usd_per_hour" in REFERENCE


def test_ranks_ask_for_what_was_not_verified(synthetic: Factory) -> None:
    with pytest.raises(MissingSourceError, match=r"rtx-3060\.usd, .*rtx-4060-ti-16gb\.memory_bytes_per_s"):
        of("price.rank_per_dollar", evidence(synthetic, synthetic("node-a").clock()))


def test_ranks_count_the_cards_that_give_more_for_a_dollar(synthetic: Factory) -> None:
    figures = {
        "rtx-3060-12gb": (300.0, 1.0, 3.0, 12.0), "rtx-4060-ti-8gb": (400.0, 8.0, 2.0, 8.0),
        "rtx-4060-ti-16gb": (500.0, 5.0, 2.0, 16.0),
    }  # fmt: skip
    changed = {}
    for card, (usd, *ratings) in figures.items():
        price = "rtx-3060.usd" if card.startswith("rtx-3060") else f"{card}.usd"
        names = [price, *(f"{card}.{name}" for name in ("bf16_flops", "memory_bytes_per_s", "memory_bytes"))]
        for name, number in zip(names, (usd, *ratings), strict=True):
            changed[name] = {"status": "verified", "value": number}
    found = evidence(synthetic, synthetic("node-a").clock(), changed=changed)
    ranks = of("price.rank_per_dollar", found, version="rtx-3060-12gb").frame.set_index("limit")["estimate"]
    assert dict(ranks) == {"arithmetic": 3, "bandwidth": 1, "capacity": 1}
    assert value(of("price.rank_per_dollar", found, version="rtx-4060-ti-8gb", limit="capacity")) == 3
