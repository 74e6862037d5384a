"""The evidence of some synthetic nodes."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.data.node_reader import read_nodes

from .conftest import Factory, SyntheticNode


def data(synthetic: Factory, *nodes: SyntheticNode) -> Dataset:
    """The evidence of these nodes."""
    return Dataset(read_nodes([synthetic.write(nodes)], True))
