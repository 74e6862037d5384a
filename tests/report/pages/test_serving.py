"""Services behind a server: the page names runtimes, and tells new services from old ones. All data is synthetic."""

from __future__ import annotations

from report.formatting import label_value
from report.pages.families import serving
from tests.report.conftest import Factory, SyntheticNode
from tests.report.pages.test_runtimes import view
from tests.report.quantities.builders import tails, under


def texts(node: SyntheticNode) -> SyntheticNode:
    tails(node, {5: 0.01, 20: 0.02}, service="text-classifier", backend="onnx", dtype="int8")
    tails(node, {5: 0.05, 20: 0.3}, service="text-classifier")
    return under(
        node, 5, service="text-classifier", backend="onnx", dtype="int8", client_delay=2e-4, cpu_per_request=8e-3
    )


def test_a_runtime_is_told_with_each_network(synthetic: Factory) -> None:
    loads, costs = serving._machine(view(synthetic, texts(synthetic("node-a"))), 1)
    assert loads.chart.title == (
        "20 requests a second of the text classifier (ONNX Runtime, int8) are answered within 0.1 s"
    )
    assert loads.table
    assert {row[0] for row in loads.table.rows} == {
        "text classifier (ONNX Runtime, int8)", "text classifier (PyTorch, float32)",
    }  # fmt: skip
    assert "MiniLM-L6" in loads.says[0] and "ResNet" not in loads.says[0] and "vectors" not in loads.says[0]
    assert "The client sent 99% of them within 200 µs of when they were due, which counts." in loads.says
    loads.chart.draw(6.8)
    assert costs.table and costs.table.rows[0][0] == "text classifier (ONNX Runtime, int8)"


def test_services_of_old_nodes_keep_their_names(synthetic: Factory) -> None:
    node = tails(tails(texts(synthetic("node-a")), {5: 0.004}), {5: 0.03}, service="int8", dtype="int8")
    loads, *_ = serving._machine(view(synthetic, node), 1)
    assert loads.table
    assert {"image classifier", "8-bit language model"} < {row[0] for row in loads.table.rows}
    words = [label_value("service", name) for name in serving.NAMES]
    assert len(set(words)) == len(words) and not set(words) & set(serving.NAMES)
