"""Synthetic nodes whose makers are known, so that machines like them can be hired; and the study's own reference."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report.data.dataset import Dataset
from report.data.nodes import read_nodes
from report.data.reference import read_reference

from .conftest import CPU, GPU, Factory, SyntheticNode

REFERENCE = read_reference(Path(__file__).resolve().parents[2] / "data" / "reference")
GIGA = 1e9


@dataclass
class Priced(SyntheticNode):
    """A node whose processor tells its maker and its instructions."""

    vendor: str = "AuthenticAMD"

    def record(self) -> dict[str, Any]:
        record = super().record()
        record["hardware"]["cpu"] |= {"vendor": self.vendor, "simd": ["avx2", "avx512f"]}
        return record


def priced(synthetic: Factory, gpu: str = "", cores: int = 2, vendor: str = "AuthenticAMD") -> Priced:
    """A node of that maker, with a GPU of that name if one is given."""
    cards = [{**GPU, "name": gpu}] if gpu else []
    return Priced(synthetic.root / "node-a", [CPU, *cards], cores=cores, vendor=vendor)


def evidence(synthetic: Factory, *nodes: SyntheticNode, changed: Mapping[str, dict[str, Any]] | None = None) -> Dataset:
    """The evidence of nodes, with entries of the reference changed as given, by their ids."""
    reference = copy.deepcopy(REFERENCE)
    for name, values in (changed or {}).items():
        reference[name].update(values)
    return Dataset(read_nodes([synthetic.write(nodes)], True), reference)


def trained(node: SyntheticNode, rate: float, device: str = "cpu", model: str = "gpt", **more: Any) -> SyntheticNode:
    """A training step at so many GFLOP/s, exactly."""
    about = {"threads": 2, "spread": 0.0, **more}
    return node.point(
        "training", 1 / (rate * GIGA), params={"model": model, "batch": 16}, flop=1.0, device=device, **about
    )
