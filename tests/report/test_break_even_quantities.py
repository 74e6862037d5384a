"""Where two ways to pay meet: to buy or to hire, to train or to serve."""

from __future__ import annotations

import pytest

from report.data.dataset import MissingSourceError

from .conftest import Factory
from .evidence import of
from .priced import REFERENCE, evidence


def figure(name: str) -> float:
    return float(REFERENCE[name]["value"])


def test_hours_until_buying_costs_the_same_as_hiring(synthetic: Factory) -> None:
    node = synthetic().clock()
    with pytest.raises(MissingSourceError, match=r"h100-pcie\.usd .*h200\.usd_in_system .*dgx-a100\.usd"):
        of("price.break_even_hours", evidence(synthetic, node))
    found = evidence(synthetic, node, changed={"dgx-a100.usd": {"status": "verified", "value": 199000.0}})
    hired = figure("aws-p4d.24xlarge.usd_per_hour") / 8
    power = figure("a100-sxm-40gb.power_w") / 1000 * 2 * figure("electricity-virginia-commercial.usd_per_kwh")
    hours = pytest.approx(199000 / 8 / (hired - power))
    assert of("price.break_even_hours", found).rows("accelerator", "estimate") == [("DGX A100", hours)]


def test_serving_overtakes_training_the_later_the_less_is_served(synthetic: Factory) -> None:
    served = of("serving.break_even_days", evidence(synthetic, synthetic().clock()))
    days = figure("deepseek-v3.gpu_hours") / (figure("deepseek-v3.serving_nodes") * 8) / 24
    tokens = sum(figure(f"deepseek-v3.serving_{name}_tokens_per_day") for name in ("input", "output"))
    for (traffic, estimate), share in zip(served.rows("traffic", "estimate"), (1, 10, 100), strict=True):
        assert (traffic * share, estimate / share) == pytest.approx((tokens, days))
