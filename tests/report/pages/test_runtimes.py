"""The runtime ladder: the fastest runtime on each rung, and its time per request. All measurements are synthetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from experiments.models.catalogue import NETWORKS as CATALOGUE
from report.data.network_labels import GROUPS, INPUTS, NETWORKS, group
from report.estimates import Estimates, exact_estimates
from report.pages import front_page
from report.pages.families import runtimes
from report.pages.figure_data import Evidence, View
from report.pages.front_statements import Statements, read_front
from report.quantities import inference as ladder
from tests.report.conftest import Factory, SyntheticNode
from tests.report.figure_evidence import nodes_dataset

# RESNET, BERT: median ms per request to a synthetic ResNet-50 or BERT-base on all threads, by backend and number
# format.
RESNET = {
    ("torch", "float32"): 85.0, ("torch", "bfloat16"): 56.0, ("channels_last", "float32"): 70.0,
    ("onnx", "float32"): 41.0, ("openvino", "float32"): 42.0, ("openvino", "bfloat16"): 22.0,
}  # fmt: skip
BERT = {
    ("torch", "float32"): 215.0, ("onnx", "float32"): 161.0, ("onnx", "int8"): 47.0, ("openvino", "bfloat16"): 59.0,
}  # fmt: skip


def add_requests(node: SyntheticNode, model: str, times: Mapping[tuple[str, str], float], **more: Any) -> None:
    """Add inference points for one network to `node`. times: ms per request, by backend and number format."""
    params = {"model": model, "batch": more.pop("batch", 1)}
    for (backend, dtype), time in times.items():
        about = {"threads": 2, **more, "backend": backend, "dtype": dtype, "params": params}
        node.point("inference", time / 1e3, **about)


def rung_times(ladder_estimates: Estimates) -> dict[str, tuple[str, str, float]]:
    """Map each rung to its runtime, number format and time in ms."""
    return {
        rung: (runtime, dtype, round(1e3 * value))
        for rung, runtime, dtype, value in ladder_estimates.rows("rung", "runtime", "dtype", "estimate")
    }


def make_evidence(synthetic: Factory, *nodes: SyntheticNode, published: Sequence[str] = ()) -> Evidence:
    """Return evidence for pages on these nodes. published: ids of published nodes; other nodes count as the user's."""
    dataset = nodes_dataset(synthetic, *nodes)
    records = [
        {**node.record(), "label": f"CPU {node.id}", "source": "data/nodes" if node.id in published else "here"}
        for node in nodes
    ]
    evidence = Evidence({"nodes": records, "verdicts": []}, None)
    evidence.__dict__["data"] = dataset
    return evidence


def single_view(synthetic: Factory, node: SyntheticNode) -> View:
    """Return the only `View` (the evidence from one node) in a study with one node."""
    (only_view,) = make_evidence(synthetic, node).views
    return only_view


def test_each_rung_names_its_fastest_runtime(synthetic: Factory) -> None:
    node = synthetic("node-a")
    add_requests(node, "resnet-50", RESNET, spread=0)
    dataset = nodes_dataset(synthetic, node)
    assert rung_times(ladder.runtime_ladder(dataset)) == {
        ladder.DEFAULT: ("torch", "float32", 85),
        ladder.TUNED: ("channels_last", "float32", 70),
        ladder.TUNED_FORMAT: ("torch", "bfloat16", 56),
        ladder.RUNTIME: ("onnx", "float32", 41),
        ladder.FLOAT: ("openvino", "bfloat16", 22),
        ladder.BEST: ("openvino", "bfloat16", 22),
    }
    (equal,) = ladder.runtime_gain(dataset).rows("estimate", "runtime", "dtype")
    assert equal == (pytest.approx(85 / 41), "onnx", "float32")
    (format_alone,) = ladder.format_gain(dataset).rows("estimate", "runtime", "dtype")
    assert format_alone == (pytest.approx(41 / 22), "openvino", "bfloat16")


POINTS = st.dictionaries(
    st.tuples(
        st.sampled_from(["torch", "channels_last", "inductor", "graph", "onnx", "openvino", "tvm"]),
        st.sampled_from(["float32", "bfloat16", "float16", "tf32", "int8"]),
    ),
    st.floats(1e-4, 1e3),
    min_size=1,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example({("torch", "float32"): 9.0})
@given(POINTS)
def test_no_rung_is_slower_than_a_rung_it_contains(
    monkeypatch: pytest.MonkeyPatch, times: dict[tuple[str, str], float]
) -> None:
    node = {"node": "a", "device": "cpu", "model": "m", "parameters": 1.0, "batch": 1, "threads": 2}
    rows = [{**node, "backend": backend, "dtype": dtype, "estimate": t} for (backend, dtype), t in times.items()]
    points = Estimates.from_estimates(exact_estimates(rows).label(se=0.0).frame)
    monkeypatch.setattr(ladder, "request_times", lambda _: points)
    rungs = rung_times(ladder.runtime_ladder.__wrapped__(cast(Any, None)))
    if ("torch", "float32") not in times or len(times) == 1:
        assert not rungs
        return
    values = {rung: 1e-3 * value for rung, (*_, value) in rungs.items()}
    for low, high in (("DEFAULT", "TUNED"), ("TUNED", "TUNED_FORMAT"), ("TUNED", "RUNTIME"), ("RUNTIME", "FLOAT"),
                      ("TUNED_FORMAT", "FLOAT"), ("FLOAT", "BEST")):  # fmt: skip
        below, above = getattr(ladder, low), getattr(ladder, high)
        assert below not in values or above not in values or values[above] <= values[below]
    assert values[ladder.BEST] == pytest.approx(min(times.values()), abs=1e-3)


def test_all_catalogued_networks_are_grouped_by_input() -> None:
    assert {name: network.kind for name, network in CATALOGUE.items()} == {
        name: kind for name, (_, kind) in NETWORKS.items()
    }
    assert set(INPUTS) == {kind for _, kind in NETWORKS.values()}
    assert group("a network of a user's own") == GROUPS[-1]


def test_networks_are_ordered_by_group_and_weight_count() -> None:
    cases = [{"model": "bert-base", "parameters": 1e8}, {"model": "mlp", "parameters": 3e5},
             {"model": "minilm-l6", "parameters": float("nan")}, {"model": "resnet-50", "parameters": 2e7},
             {"model": "cnn"}]  # fmt: skip
    names = [case["model"] for case in sorted(cases, key=runtimes.network_order)]
    assert names == ["resnet-50", "minilm-l6", "bert-base", "cnn", "mlp"]


def ladder_finding(evidence: Evidence) -> str | None:
    """Return the front page's sentence on the runtime ladder, or None if the measurements support none."""
    (declared,) = [statement for statement in read_front()["findings"] if statement.get("figure") == "ladder"]
    return Statements(evidence.document, dict(front_page._runtime_facts(evidence)), marks=False).first_that_holds(
        declared["says"]
    )


def test_front_page_omits_small_networks_and_unsure_gains(synthetic: Factory) -> None:
    node = synthetic("node-a")
    add_requests(node, "mlp", {("torch", "float32"): 50.0, ("onnx", "float32"): 1.0})
    add_requests(node, "resnet-50", {("torch", "float32"): 50.0, ("onnx", "float32"): 49.0}, spread=0.3)
    evidence = make_evidence(synthetic, node)
    assert ladder_finding(evidence) is None and front_page.front_charts(evidence) == []


def test_front_page_reports_sure_gains_on_the_readers_own_machine(synthetic: Factory) -> None:
    own, other = synthetic("node-a"), synthetic("node-b")
    add_requests(own, "resnet-50", {("torch", "float32"): 60.0, ("onnx", "float32"): 20.0})
    add_requests(own, "vit-b-16", {("torch", "float32"): 90.0, ("onnx", "float32"): 91.0})
    add_requests(own, "mlp", {("torch", "float32"): 50.0, ("onnx", "float32"): 1.0})
    add_requests(other, "resnet-50", RESNET)
    add_requests(other, "bert-base", BERT)
    sentence = ladder_finding(make_evidence(synthetic, own, other, published=["node-b"]))
    assert sentence is not None and "took 3 times as long" in sentence
    assert "for 1 of 2 networks that people know; in float32 on both sides, 3 times." in sentence
