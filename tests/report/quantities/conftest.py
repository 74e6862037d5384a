"""Evidence on synthetic nodes, built once per session."""

from __future__ import annotations

from functools import cache

import pytest

from report.data.dataset import Dataset
from tests.report.conftest import Factory, SyntheticNode
from tests.report.priced_nodes import evidence

from .made_cases import DatasetOf, NodeBuilder


@pytest.fixture(scope="session")
def dataset_of(tmp_path_factory: pytest.TempPathFactory) -> DatasetOf:
    """Return a function that takes a node builder and returns the dataset on its nodes. Each builder runs only once."""

    @cache
    def build_dataset(build: NodeBuilder) -> Dataset:
        synthetic = Factory(tmp_path_factory.mktemp("nodes"))
        nodes = build(synthetic)
        return evidence(synthetic, *([nodes] if isinstance(nodes, SyntheticNode) else nodes))

    return build_dataset
