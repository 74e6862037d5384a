"""Where two ways to pay meet: to buy or to hire, to train or to serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from report.data.dataset import Dataset, MissingSourceError
from report.judging.rules import decide

from .conftest import Factory
from .evidence import of, value
from .priced import REFERENCE, evidence


def known(synthetic: Factory, changed: Mapping[str, dict[str, Any]] | None = None) -> Dataset:
    return evidence(synthetic, synthetic("node-a").clock(), changed=changed)


def figure(name: str) -> float:
    return float(REFERENCE[name]["value"])


def test_purchases_that_were_not_verified_are_named(synthetic: Factory) -> None:
    with pytest.raises(MissingSourceError, match=r"h100-pcie\.usd .*h200\.usd_in_system .*dgx-a100\.usd"):
        of("price.break_even_hours", known(synthetic))


def test_hours_until_buying_costs_the_same(synthetic: Factory) -> None:
    found = known(synthetic, {"dgx-a100.usd": {"status": "verified", "value": 199000.0}})
    hired = figure("aws-p4d.24xlarge.usd_per_hour") / 8
    power = figure("a100-sxm-40gb.power_w") / 1000 * 2 * figure("electricity-virginia-commercial.usd_per_kwh")
    hours = of("price.break_even_hours", found)
    assert value(hours) == pytest.approx(199000 / 8 / (hired - power))
    assert hours.frame["accelerator"].iloc[0] == "DGX A100"


def test_serving_overtakes_training_the_later_the_less_is_served(synthetic: Factory) -> None:
    cells = of("serving.break_even_days", known(synthetic))
    days = figure("deepseek-v3.gpu_hours") / (figure("deepseek-v3.serving_nodes") * 8) / 24
    assert list(cells.frame["estimate"]) == pytest.approx([days, 10 * days, 100 * days])
    tokens = sum(figure(f"deepseek-v3.serving_{name}_tokens_per_day") for name in ("input", "output"))
    assert list(cells.frame["traffic"]) == pytest.approx([tokens, tokens / 10, tokens / 100])
    ruling = decide("at_most", cells, 365, "d")
    assert ruling.outcome == "depends" and str(ruling.boundary).startswith("holds at 776 billion tokens a day")
