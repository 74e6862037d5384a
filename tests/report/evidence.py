"""The evidence of some synthetic nodes, and what they show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from report.data.dataset import Dataset
from report.data.nodes import read_nodes
from report.render.measurements import Exhibit, sections

from .conftest import Factory, SyntheticNode


def data(synthetic: Factory, *nodes: SyntheticNode) -> Dataset:
    """The evidence of these nodes."""
    return Dataset(read_nodes([synthetic.write(nodes)], True))


class Shown(Mapping[str, list[Exhibit]]):
    """What gathered nodes show, by family; a family is made when it is asked for. records: of the nodes."""

    def __init__(self, data: Path, records: Sequence[Mapping[str, Any]]) -> None:
        self.data, self.records = data, records

    def __getitem__(self, key: str) -> list[Exhibit]:
        for section in sections(self.data, self.records, [key]):
            return section.exhibits
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (section.key for section in sections(self.data, self.records))

    def __len__(self) -> int:
        return sum(1 for _ in self)
