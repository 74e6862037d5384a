"""The largest runs without GPUs: counts, time, power and cost follow from rates, sizes and prices."""

from __future__ import annotations

import pytest

from report.data.dataset import MissingSourceError
from report.derived_estimates import DerivedEstimates
from report.quantities import quantities

from .conftest import Factory
from .evidence import of, value
from .priced import GIGA, REFERENCE, evidence, priced, trained

LARGEST = 405_000_000_000
FLOP = 3.8e25


def figure(name: str) -> float:
    return float(REFERENCE[name]["value"])


def bert_rate() -> float:
    """FLOP/s of one of MLPerf's servers."""
    sequences = figure("mlperf-training-3.1.16x2x8480plus.bert_sequences_per_s") / 16
    return sequences * 6 * 12 * figure("bert-large.layers") * figure("bert-large.width") ** 2 * 256


def test_servers_by_the_core_by_a_documented_rate_and_by_rating(synthetic: Factory) -> None:
    found = evidence(synthetic, trained(priced(synthetic), 400))
    needed = {
        kind: value(of("ladder.servers_for_90_days", found, parameters=LARGEST, evidence=kind))
        for kind in ("measured", "documented", "rated")
    }
    seconds = 90 * 86400
    assert needed["measured"] == pytest.approx(FLOP / (400 * GIGA / 2 * 128 * seconds))
    assert needed["documented"] == pytest.approx(FLOP / (bert_rate() * seconds))
    share = (figure("llama31-405b.mfu_low") * figure("llama31-405b.mfu_high")) ** 0.5
    assert needed["rated"] == pytest.approx(FLOP / (figure("xeon-8480plus-2s.bf16_flops") * share * seconds))


def test_days_power_and_cost_are_of_the_same_servers(synthetic: Factory) -> None:
    found = evidence(synthetic, trained(priced(synthetic), 400))
    for kind in ("measured", "documented", "rated"):
        in_54, in_90 = (value(of("cluster.servers", found, evidence=kind, days=days)) for days in (54, 90))
        assert in_54 / in_90 == pytest.approx(90 / 54)
        days = value(of("cluster.days", found, evidence=kind))
        assert days * figure("llama31-405b.gpus") == pytest.approx(in_54 * 54)
        assert value(of("cluster.power", found, evidence=kind, days=54)) == pytest.approx(in_54 * 1000)
        machine = "aws-c7a.48xlarge" if kind == "measured" else "aws-c7i.48xlarge"
        price = figure(f"{machine}.usd_per_hour")
        assert value(of("cluster.cost", found, evidence=kind)) == pytest.approx(in_54 * 54 * 24 * price)


def test_the_ratio_of_costs(synthetic: Factory) -> None:
    found = evidence(synthetic, trained(priced(synthetic), 400))
    ratio = of("ladder.cpu_cluster_cost_ratio", found, evidence="measured", parameters=LARGEST)
    gpu = figure("llama31-405b.gpu_hours") * figure("aws-p5.48xlarge.usd_per_hour") / 8
    assert value(ratio) == pytest.approx(value(of("cluster.cost", found, evidence="measured")) / gpu)
    by = {"evidence": "documented", "by": "relation to GPUs"}
    cores = 192 * 0.5 / 112
    relation = figure("mlperf-training-3.1.8xh100.bert_sequences_per_s") / (
        figure("mlperf-training-3.1.16x2x8480plus.bert_sequences_per_s") / 16 * cores
    )
    prices = figure("aws-c7i.48xlarge.usd_per_hour") / figure("aws-p5.48xlarge.usd_per_hour")
    assert value(of("ladder.cpu_cluster_cost_ratio", found, **by)) == pytest.approx(relation * prices)


def test_without_a_measured_node_what_is_documented_stands(synthetic: Factory) -> None:
    cells = of("ladder.cpu_cluster_cost_ratio", evidence(synthetic, synthetic("node-a").clock()))
    assert set(cells.frame["evidence"]) == {"documented", "rated"}


def test_a_maker_whose_machines_have_no_price_has_no_cost(synthetic: Factory) -> None:
    found = evidence(synthetic, trained(priced(synthetic, vendor="ARM"), 400))
    assert set(of("cluster.cost", found).frame["evidence"]) == {"documented", "rated"}
    assert "measured" in set(of("ladder.servers_for_90_days", found).frame["evidence"])


def test_all_that_the_claim_speaks_of_stands_beside(synthetic: Factory) -> None:
    cells = quantities()["ladder.cpu_cluster_cost_ratio"].cells(evidence(synthetic, trained(priced(synthetic), 400)))
    assert isinstance(cells, DerivedEstimates)
    assert [(name, unit) for name, unit, _ in cells.beside] == [
        ("servers for 54 days", "servers"), ("servers for 90 days", "servers"), ("days on 16,384 servers", "d"),
        ("power of those for 54 days", "W"), ("power of those for 90 days", "W"), ("cost of the run", "USD"),
    ]  # fmt: skip
    assert all(len(other) == 3 for _, _, other in cells.beside)


def test_a_rate_that_was_not_verified_is_no_evidence(synthetic: Factory) -> None:
    found = evidence(
        synthetic, trained(priced(synthetic), 400), changed={"bert-wikipedia.tokens": {"status": "not verified"}}
    )
    with pytest.raises(MissingSourceError, match="not verified"):
        of("ladder.cpu_cluster_cost_ratio", found)
