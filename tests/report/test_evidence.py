"""Datasets behind quantities: caching, a record of the rows used, percentiles, and missing experiments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from report.data.dataset import Dataset, DataUse, MissingSourceError, cached_per_dataset
from report.estimates import Estimates
from report.judging.part_evaluation import find_missing
from report.quantities import quantities

from .conftest import Factory
from .figure_evidence import nodes_dataset
from .made_estimates import part
from .priced_nodes import add_training, evidence, priced_node


def two_nodes(synthetic: Factory) -> Dataset:
    nodes = [synthetic(name).gemm(20).gemm(10, n=256).clock() for name in ("node-a", "node-b")]
    return nodes_dataset(synthetic, *nodes)


def test_cached_function_records_its_rows_on_every_call(synthetic: Factory) -> None:
    data = two_nodes(synthetic)
    calls: list[tuple[Any, ...]] = []

    @cached_per_dataset
    def rates(dataset: Dataset, metric: str, value: str = "estimate") -> Estimates:
        calls.append((metric, value))
        return dataset.summary("gemm", metric, value)

    first = rates(data, "time")
    data.used = DataUse()
    assert rates(data, "time") is first
    assert data.used.rows == {("gemm", "time")}
    rates(data, "time", value="flop_per_s")
    assert calls == [("time", "estimate"), ("time", "flop_per_s")]
    assert rates(two_nodes(synthetic), "time") is not first


def test_failed_function_is_not_cached_and_records_its_rows(synthetic: Factory) -> None:
    data, tries = two_nodes(synthetic), []

    @cached_per_dataset
    def fail_once(dataset: Dataset) -> Estimates:
        dataset.summary("clock")
        tries.append(1)
        raise ValueError

    for _ in range(2):
        data.used = DataUse()
        with pytest.raises(ValueError):
            fail_once(data)
        assert data.used.rows == {("clock", "time")}
    assert len(tries) == 2


@pytest.mark.parametrize("share", [0.01, 0.9])
def test_percentile_averages_nearest_rank_percentiles_over_rounds(synthetic: Factory, share: float) -> None:
    node = synthetic("node-a")
    node.point("inference", 1.0, params={"model": "mlp", "batch": 1}, samples=37, spread=0.3)
    node.point("inference", 2.0, params={"model": "cnn", "batch": 1}, samples=5)
    data = nodes_dataset(synthetic, node)
    cases = data.percentile("inference", share, least=10)
    assert list(cases.frame["model"]) == ["mlp"]
    rows = data.samples("inference")
    rows = rows[rows["params"].astype(str).str.contains("mlp")]
    by_round = [np.quantile(samples, share, method="inverted_cdf") for _, samples in rows.groupby("round")["value"]]
    assert cases.frame["estimate"].iloc[0] == pytest.approx(np.exp(np.mean(np.log(by_round))))
    assert not len(data.percentile("inference", share, least=100))
    assert not len(data.percentile("clock", share, least=1))


WITH_EXPERIMENTS = {name: quantity for name, quantity in quantities().items() if quantity.experiments}


@pytest.fixture(scope="module")
def sparse_data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset]:
    """Two datasets: the first has only an unknown experiment, the second has training on a GPU, but not on its host."""
    bare, with_gpu = (Factory(tmp_path_factory.mktemp(name)) for name in ("bare", "gpu"))
    node = add_training(priced_node(with_gpu, gpu="Tesla T4"), 9000, device="cuda:0").clock(device="cuda:0")
    return evidence(bare, bare("node-a").point("unknown", 1.0)), evidence(with_gpu, node)


@pytest.mark.parametrize("name", WITH_EXPERIMENTS)
def test_quantity_without_its_experiments_is_empty_and_awaits_hardware(
    sparse_data: tuple[Dataset, Dataset], name: str
) -> None:
    (bare, gpu_alone), quantity = sparse_data, WITH_EXPERIMENTS[name]
    try:
        estimates = quantity.estimates(bare)
    except MissingSourceError as missing:
        assert missing.what and quantity.tier == "derived"
        return
    assert not len(estimates) or quantity.tier == "derived"
    if "gpu" in quantity.kinds and not len(estimates):
        need = find_missing(part("at_least", 1, quantity=name), quantity, estimates, bare)
        assert (need.verdict, need.device) == ("awaiting hardware", "gpu")
    if "cpu" in quantity.kinds and quantity.tier == "measured":
        assert not len(quantity.estimates(gpu_alone))
