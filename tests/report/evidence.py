"""What every test of quantities asks: the evidence of some synthetic nodes, a quantity's cells, the value of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from report.data.dataset import Dataset
from report.data.nodes import read_nodes
from report.estimates import Estimates
from report.judging.filters import select
from report.quantities import quantities
from report.render.measurements import Exhibit, sections

from .conftest import Factory, SyntheticNode


def data(synthetic: Factory, *nodes: SyntheticNode) -> Dataset:
    """The evidence of these nodes."""
    return Dataset(read_nodes([synthetic.write(nodes)], True))


def of(name: str, found: Dataset, **scope: Any) -> Estimates:
    """The cells of a quantity that are in scope."""
    return select(quantities()[name].compute(found), scope)


def value(cells: Estimates) -> float:
    """The estimate of the only cell."""
    assert len(cells) == 1
    return float(cells.frame["estimate"].iloc[0])


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
