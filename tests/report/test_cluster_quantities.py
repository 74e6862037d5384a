"""The largest runs without GPUs: counts, time, power and cost follow from rates, sizes and prices."""

from __future__ import annotations

import pytest

from report.data.dataset import MissingSourceError
from report.derived_estimates import DerivedEstimates
from report.quantities import quantities

from .conftest import Factory
from .evidence import of, value
from .priced import GIGA, REFERENCE, evidence, priced, trained

LARGEST, FLOP, DAY, RATIO = 405_000_000_000, 3.8e25, 86400, "ladder.cpu_cluster_cost_ratio"


def figure(name: str) -> float:
    return float(REFERENCE[name]["value"])


def rate(kind: str) -> float:
    """FLOP/s of a server of 128 cores as the node's, of one of MLPerf's, and of that as it is rated."""
    sequences = figure("mlperf-training-3.1.16x2x8480plus.bert_sequences_per_s") / 16
    share = (figure("llama31-405b.mfu_low") * figure("llama31-405b.mfu_high")) ** 0.5
    return {
        "measured": 400 * GIGA / 2 * 128,
        "documented": sequences * 6 * 12 * figure("bert-large.layers") * figure("bert-large.width") ** 2 * 256,
        "rated": figure("xeon-8480plus-2s.bf16_flops") * share,
    }[kind]


@pytest.mark.parametrize(
    ("kind", "machine", "cores"),
    [("measured", "c7a", 192 / 128), ("documented", "c7i", 96 / 112), ("rated", "c7i", 96 / 112)],
)
def test_servers_days_power_and_cost_follow_from_the_rate_of_one(
    synthetic: Factory, kind: str, machine: str, cores: float
) -> None:
    found = evidence(synthetic, trained(priced(synthetic), 400))
    needed = of("ladder.servers_for_90_days", found, parameters=LARGEST, evidence=kind)
    assert value(needed) == pytest.approx(FLOP / (rate(kind) * 90 * DAY))
    assert (len(needed["source_rows"].iloc[0]) > 0) == (kind == "measured")
    # The servers that are priced have other numbers of cores.
    servers = {days: FLOP / (rate(kind) * cores * days * DAY) for days in (54, 90)}
    for days, count in servers.items():
        assert value(of("cluster.servers", found, evidence=kind, days=days)) == pytest.approx(count)
        assert value(of("cluster.power", found, evidence=kind, days=days)) == pytest.approx(count * 1000)
    assert value(of("cluster.days", found, evidence=kind)) == pytest.approx(
        servers[54] * 54 / figure("llama31-405b.gpus")
    )
    cost = servers[54] * 54 * 24 * figure(f"aws-{machine}.48xlarge.usd_per_hour")
    assert value(of("cluster.cost", found, evidence=kind)) == pytest.approx(cost)
    gpu = figure("llama31-405b.gpu_hours") * figure("aws-p5.48xlarge.usd_per_hour") / 8
    assert value(of(RATIO, found, evidence=kind, by="operations")) == pytest.approx(cost / gpu)


def test_the_ratio_of_costs_by_the_relation_to_gpus_on_the_same_job(synthetic: Factory) -> None:
    found = evidence(synthetic, trained(priced(synthetic), 400))
    relation = figure("mlperf-training-3.1.8xh100.bert_sequences_per_s") / (
        figure("mlperf-training-3.1.16x2x8480plus.bert_sequences_per_s") / 16 * 96 / 112
    )
    prices = figure("aws-c7i.48xlarge.usd_per_hour") / figure("aws-p5.48xlarge.usd_per_hour")
    assert value(of(RATIO, found, evidence="documented", by="relation to GPUs")) == pytest.approx(relation * prices)
    ratios = quantities()[RATIO].estimates(found)
    assert isinstance(ratios, DerivedEstimates)
    assert [unit for _, unit, other in ratios.beside if len(other) == 3] == ["servers", "servers", "d", "W", "W", "USD"]


def test_without_a_price_or_a_measurement_what_is_documented_stands(synthetic: Factory) -> None:
    found = evidence(synthetic, trained(priced(synthetic, vendor="ARM"), 400))
    assert set(of("cluster.cost", found)["evidence"]) == {"documented", "rated"}
    assert "measured" in set(of("ladder.servers_for_90_days", found)["evidence"])
    nothing = evidence(Factory(synthetic.root.parent / "others"), Factory(synthetic.root.parent / "others")().clock())
    assert set(of(RATIO, nothing)["evidence"]) == {"documented", "rated"}


def test_a_rate_that_was_not_verified_is_no_evidence(synthetic: Factory) -> None:
    unsure = {"bert-wikipedia.tokens": {"status": "not verified"}}
    with pytest.raises(MissingSourceError, match="not verified"):
        of(RATIO, evidence(synthetic, trained(priced(synthetic), 400), changed=unsure))
