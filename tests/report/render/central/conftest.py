"""Gathers synthetic nodes, and gives what a central figure shows of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract.files import read_json
from report.data.gather import gather
from report.render.central.base import Central, Shown
from report.render.measurements import views
from tests.report.conftest import Factory, SyntheticNode

NOTHING_JUDGED: dict[str, Any] = {"verdicts": [], "contradictions": []}
Figure = Callable[..., Shown | None]


@pytest.fixture
def figure_of(synthetic: Factory, tmp_path: Path) -> Figure:
    """`figure_of(FIGURE, node, …, document=…)`."""

    def show(figure: Central, *nodes: SyntheticNode, document: dict[str, Any] | None = None) -> Shown | None:
        gather([synthetic.write(nodes)], tmp_path / "data", allow_synthetic=True)
        given = views(tmp_path / "data", read_json(tmp_path / "data" / "nodes.json"))
        return figure.show(given, document or NOTHING_JUDGED)

    return show
