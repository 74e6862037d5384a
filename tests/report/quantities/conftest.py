"""The evidence of made-up nodes, made once for all tests that ask for it."""

from __future__ import annotations

from functools import cache

import pytest

from report.data.dataset import Dataset
from tests.report.conftest import Factory, SyntheticNode
from tests.report.priced_nodes import evidence

from .made_cases import Build, Made


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The evidence of the nodes that a function builds."""

    @cache
    def of(build: Build) -> Dataset:
        synthetic = Factory(tmp_path_factory.mktemp("nodes"))
        nodes = build(synthetic)
        return evidence(synthetic, *([nodes] if isinstance(nodes, SyntheticNode) else nodes))

    return of
