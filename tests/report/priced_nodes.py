"""Synthetic nodes whose CPU vendor has a known price, to test quantities with the study's real reference figures."""

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


def figure_value(name: str) -> float:
    """Return the value of a reference entry."""
    return float(REFERENCE[name]["value"])


def priced_node(synthetic: Factory, gpu: str = "", name: str = "node-a", model: str = "", **more: Any) -> SyntheticNode:
    """Start a node with an AMD CPU that has AVX2 and AVX-512, and with a GPU named `gpu` unless `gpu` is empty.

    model: processor model in the CPU record, unless it is empty.
    """
    cpu = {"vendor": "AuthenticAMD", "simd": ["avx2", "avx512f"], **({"model": model} if model else {})}
    return SyntheticNode(synthetic.root / name, [CPU, *([{**GPU, "name": gpu}] if gpu else [])], cpu=cpu, **more)


def evidence(synthetic: Factory, *nodes: SyntheticNode, changed: Mapping[str, dict[str, Any]] | None = None) -> Dataset:
    """Write the nodes and read them as a dataset. changed: fields to override in reference entries, by entry id."""
    reference = {**REFERENCE, **{name: {**REFERENCE[name], **values} for name, values in (changed or {}).items()}}
    return Dataset(read_nodes([synthetic.write(nodes)], True), reference)


def add_training(
    node: SyntheticNode, rate: float, device: str = "cpu", model: str = "gpt", **more: Any
) -> SyntheticNode:
    """Add a training step at exactly `rate` GFLOP/s."""
    about = {"threads": 2, "spread": 0.0, **more}
    return node.point(
        "training", 1 / (rate * GIGA), params={"model": model, "batch": 16}, flop=1.0, device=device, **about
    )
