"""Devices of every maker are told apart from the CPU by their names, and named in the report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.estimates import device_kind, exact
from report.formatting import node_label
from report.render.nodes import describe

GPUS = [("cuda:0", "NVIDIA H100"), ("cuda:1", "AMD Instinct MI300X"), ("xpu:0", "Intel Arc A770"), ("mps", "Apple M3")]


@pytest.mark.parametrize(("name", "card"), GPUS)
def test_a_gpu_of_any_maker_is_a_gpu(name: str, card: str) -> None:
    assert device_kind(name) == "gpu"
    cells = exact([{"device": name, "estimate": 2.0}, {"device": "cpu", "estimate": 1.0}])
    assert list(cells.only(device="gpu").frame["device"]) == [name]
    gpu = {"id": name, "kind": "gpu", "name": card, "maker": "some", "memory_bytes": 10**9, "unified_memory": True}
    record = {"id": "node", "hardware": {"cpu": {"model": "Some CPU", "usable_cores": 2}}, "devices": [gpu]}
    assert node_label(record) == f"Some, 2 cores + {card}"
    assert describe(record)["devices"][0]["id"] == name


@given(st.text(max_size=400))
def test_a_label_has_room_in_a_figure_whatever_a_machine_calls_itself(name: str) -> None:
    record = {"id": "some-2c", "hardware": {"cpu": {"model": name, "usable_cores": 2}}, "devices": []}
    label = node_label(record)
    assert len(label) <= 60
    assert label.endswith(", 2 cores")
