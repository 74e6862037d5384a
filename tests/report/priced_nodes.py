"""Synthetic nodes whose makers are known, so that machines like them can be hired; and the study's own reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from report.data.dataset import Dataset
from report.data.node_reader import read_nodes
from report.data.reference_figures import read_reference

from .conftest import CPU, GPU, Factory, SyntheticNode

REFERENCE = read_reference(Path(__file__).resolve().parents[2] / "data" / "reference")
GIGA = 1e9


def figure(name: str) -> float:
    """The value of an entry of the reference."""
    return float(REFERENCE[name]["value"])


def priced(synthetic: Factory, gpu: str = "", name: str = "node-a", model: str = "", **more: Any) -> SyntheticNode:
    """A node whose processor tells its maker, its instructions and, if given, its name; and a GPU of that name."""
    cpu = {"vendor": "AuthenticAMD", "simd": ["avx2", "avx512f"], **({"model": model} if model else {})}
    return SyntheticNode(synthetic.root / name, [CPU, *([{**GPU, "name": gpu}] if gpu else [])], cpu=cpu, **more)


def evidence(synthetic: Factory, *nodes: SyntheticNode, changed: Mapping[str, dict[str, Any]] | None = None) -> Dataset:
    """The evidence of nodes, with entries of the reference changed as given, by their ids."""
    reference = {**REFERENCE, **{name: {**REFERENCE[name], **values} for name, values in (changed or {}).items()}}
    return Dataset(read_nodes([synthetic.write(nodes)], True), reference)


def trained(node: SyntheticNode, rate: float, device: str = "cpu", model: str = "gpt", **more: Any) -> SyntheticNode:
    """A training step at so many GFLOP/s, exactly."""
    about = {"threads": 2, "spread": 0.0, **more}
    return node.point(
        "training", 1 / (rate * GIGA), params={"model": model, "batch": 16}, flop=1.0, device=device, **about
    )
