"""Turn synthetic nodes into a dataset."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.data.node_reader import read_nodes

from .conftest import Factory, SyntheticNode


def nodes_dataset(synthetic: Factory, *nodes: SyntheticNode) -> Dataset:
    """Write the nodes and read them as a dataset."""
    return Dataset(read_nodes([synthetic.write(nodes)], True))
