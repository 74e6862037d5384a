"""What quantities draw on: computed once, counted by rank, traced to the rows that were read, and not always there."""

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


def test_what_is_computed_once_notes_each_time_what_it_asks_for(synthetic: Factory) -> None:
    found = two_nodes(synthetic)
    asked: list[tuple[Any, ...]] = []

    @cached_per_dataset
    def rates(of: Dataset, metric: str, value: str = "estimate") -> Estimates:
        asked.append((metric, value))
        return of.summary("gemm", metric, value)

    first = rates(found, "time")
    found.used = DataUse()
    assert rates(found, "time") is first
    assert found.used.rows == {("gemm", "time")}
    rates(found, "time", value="flop_per_s")
    assert asked == [("time", "estimate"), ("time", "flop_per_s")]
    assert rates(two_nodes(synthetic), "time") is not first


def test_what_fails_is_tried_again_and_its_questions_are_noted(synthetic: Factory) -> None:
    found, tries = two_nodes(synthetic), []

    @cached_per_dataset
    def broken(of: Dataset) -> Estimates:
        of.summary("clock")
        tries.append(1)
        raise ValueError

    for _ in range(2):
        found.used = DataUse()
        with pytest.raises(ValueError):
            broken(found)
        assert found.used.rows == {("clock", "time")}
    assert len(tries) == 2


@pytest.mark.parametrize("share", [0.01, 0.9])
def test_a_percentile_is_that_of_every_round_by_nearest_rank(synthetic: Factory, share: float) -> None:
    node = synthetic("node-a")
    node.point("inference", 1.0, params={"model": "mlp", "batch": 1}, samples=37, spread=0.3)
    node.point("inference", 2.0, params={"model": "cnn", "batch": 1}, samples=5)
    found = nodes_dataset(synthetic, node)
    cases = found.percentile("inference", share, least=10)
    assert list(cases.frame["model"]) == ["mlp"]
    rows = found.samples("inference")
    rows = rows[rows["params"].astype(str).str.contains("mlp")]
    by_round = [np.quantile(one, share, method="inverted_cdf") for _, one in rows.groupby("round")["value"]]
    assert cases.frame["estimate"].iloc[0] == pytest.approx(np.exp(np.mean(np.log(by_round))))
    assert not len(found.percentile("inference", share, least=100))
    assert not len(found.percentile("clock", share, least=1))


MEASURED = {name: one for name, one in quantities().items() if one.experiments}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset]:
    """Of an experiment that nobody knows; and training on a GPU, with nothing on its host."""
    one, other = (Factory(tmp_path_factory.mktemp(name)) for name in ("bare", "gpu"))
    node = add_training(priced_node(other, gpu="Tesla T4"), 9000, device="cuda:0").clock(device="cuda:0")
    return evidence(one, one("node-a").point("unknown", 1.0)), evidence(other, node)


@pytest.mark.parametrize("name", MEASURED)
def test_without_its_experiments_a_quantity_says_nothing_and_asks_for_the_machine(
    others: tuple[Dataset, Dataset], name: str
) -> None:
    (bare, gpu_alone), known = others, MEASURED[name]
    try:
        found = known.estimates(bare)
    except MissingSourceError as lacking:
        assert lacking.what and known.tier == "derived"
        return
    assert not len(found) or known.tier == "derived"
    if "gpu" in known.kinds and not len(found):
        need = find_missing(part("at_least", 1, quantity=name), known, found, bare)
        assert (need.verdict, need.device) == ("awaiting hardware", "gpu")
    if "cpu" in known.kinds and known.tier == "measured":
        assert not len(known.estimates(gpu_alone))
