"""The ladder of runtimes: which rungs a request has, and which runtime each is. All measurements are synthetic."""

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

# Median times in ms of single requests to a synthetic ResNet-50 and BERT-base with all threads, by backend and format.
RESNET = {
    ("torch", "float32"): 85.0, ("torch", "bfloat16"): 56.0, ("channels_last", "float32"): 70.0,
    ("onnx", "float32"): 41.0, ("openvino", "float32"): 42.0, ("openvino", "bfloat16"): 22.0,
}  # fmt: skip
BERT = {
    ("torch", "float32"): 215.0, ("onnx", "float32"): 161.0, ("onnx", "int8"): 47.0, ("openvino", "bfloat16"): 59.0,
}  # fmt: skip


def measured(node: SyntheticNode, model: str, times: Mapping[tuple[str, str], float], **more: Any) -> None:
    """Add requests of one network that took so many milliseconds."""
    params = {"model": model, "batch": more.pop("batch", 1)}
    for (backend, dtype), time in times.items():
        about = {"threads": 2, **more, "backend": backend, "dtype": dtype, "params": params}
        node.point("inference", time / 1e3, **about)


def rungs_of(found: Estimates) -> dict[str, tuple[str, str, float]]:
    """Runtime, format and milliseconds of each rung, of one request."""
    return {
        rung: (runtime, dtype, round(1e3 * value))
        for rung, runtime, dtype, value in found.rows("rung", "runtime", "dtype", "estimate")
    }


def evidence_of(synthetic: Factory, *nodes: SyntheticNode, published: Sequence[str] = ()) -> Evidence:
    """The evidence of these nodes as pages have it. published: ids of nodes that are not the user's own."""
    dataset = nodes_dataset(synthetic, *nodes)
    records = [
        {**node.record(), "label": f"CPU {node.id}", "source": "data/nodes" if node.id in published else "here"}
        for node in nodes
    ]
    evidence = Evidence({"nodes": records, "verdicts": []}, None)
    evidence.__dict__["data"] = dataset
    return evidence


def view(synthetic: Factory, node: SyntheticNode) -> View:
    """The evidence of one node."""
    (found,) = evidence_of(synthetic, node).views
    return found


def test_a_rung_takes_the_fastest_of_what_it_names_and_says_which_it_was(synthetic: Factory) -> None:
    node = synthetic("node-a")
    measured(node, "resnet-50", RESNET, spread=0)
    found = nodes_dataset(synthetic, node)
    assert rungs_of(ladder.runtime_ladder(found)) == {
        ladder.DEFAULT: ("torch", "float32", 85),
        ladder.TUNED: ("channels_last", "float32", 70),
        ladder.TUNED_FORMAT: ("torch", "bfloat16", 56),
        ladder.RUNTIME: ("onnx", "float32", 41),
        ladder.FLOAT: ("openvino", "bfloat16", 22),
        ladder.BEST: ("openvino", "bfloat16", 22),
    }
    (equal,) = ladder.runtime_gain(found).rows("estimate", "runtime", "dtype")
    assert equal == (pytest.approx(85 / 41), "onnx", "float32")
    (format_alone,) = ladder.format_gain(found).rows("estimate", "runtime", "dtype")
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
def test_no_rung_is_slower_than_one_that_it_contains(
    monkeypatch: pytest.MonkeyPatch, times: dict[tuple[str, str], float]
) -> None:
    node = {"node": "a", "device": "cpu", "model": "m", "parameters": 1.0, "batch": 1, "threads": 2}
    rows = [{**node, "backend": backend, "dtype": dtype, "estimate": t} for (backend, dtype), t in times.items()]
    points = Estimates.from_estimates(exact_estimates(rows).label(se=0.0).frame)
    monkeypatch.setattr(ladder, "request_times", lambda _: points)
    found = rungs_of(ladder.runtime_ladder.__wrapped__(cast(Any, None)))
    if ("torch", "float32") not in times or len(times) == 1:
        assert not found
        return
    values = {rung: 1e-3 * value for rung, (*_, value) in found.items()}
    for low, high in (("DEFAULT", "TUNED"), ("TUNED", "TUNED_FORMAT"), ("TUNED", "RUNTIME"), ("RUNTIME", "FLOAT"),
                      ("TUNED_FORMAT", "FLOAT"), ("FLOAT", "BEST")):  # fmt: skip
        below, above = getattr(ladder, low), getattr(ladder, high)
        assert below not in values or above not in values or values[above] <= values[below]
    assert values[ladder.BEST] == pytest.approx(min(times.values()), abs=1e-3)


def test_networks_are_grouped_by_what_they_take_and_no_catalogued_one_is_forgotten() -> None:
    assert {name: network.kind for name, network in CATALOGUE.items()} == {
        name: kind for name, (_, kind) in NETWORKS.items()
    }
    assert set(INPUTS) == {kind for _, kind in NETWORKS.values()}
    assert group("a network of a user's own") == GROUPS[-1]


def test_a_network_whose_weights_were_not_counted_comes_first_in_its_group() -> None:
    cases = [{"model": "bert-base", "parameters": 1e8}, {"model": "mlp", "parameters": 3e5},
             {"model": "minilm-l6", "parameters": float("nan")}, {"model": "resnet-50", "parameters": 2e7},
             {"model": "cnn"}]  # fmt: skip
    names = [case["model"] for case in sorted(cases, key=runtimes.network_order)]
    assert names == ["resnet-50", "minilm-l6", "bert-base", "cnn", "mlp"]


def finding(evidence: Evidence) -> str | None:
    """What the front page says of the ladder."""
    (declared,) = [one for one in read_front()["findings"] if one.get("figure") == "ladder"]
    return Statements(evidence.document, dict(front_page._runtime_facts(evidence)), marks=False).first_that_holds(
        declared["says"]
    )


def test_the_front_page_says_nothing_of_small_networks_or_of_gains_that_are_not_sure(synthetic: Factory) -> None:
    node = synthetic("node-a")
    measured(node, "mlp", {("torch", "float32"): 50.0, ("onnx", "float32"): 1.0})
    measured(node, "resnet-50", {("torch", "float32"): 50.0, ("onnx", "float32"): 49.0}, spread=0.3)
    evidence = evidence_of(synthetic, node)
    assert finding(evidence) is None and front_page.front_charts(evidence) == []


def test_the_front_page_tells_of_a_readers_own_machine_first_and_of_sure_gains(synthetic: Factory) -> None:
    own, other = synthetic("node-a"), synthetic("node-b")
    measured(own, "resnet-50", {("torch", "float32"): 60.0, ("onnx", "float32"): 20.0})
    measured(own, "vit-b-16", {("torch", "float32"): 90.0, ("onnx", "float32"): 91.0})
    measured(own, "mlp", {("torch", "float32"): 50.0, ("onnx", "float32"): 1.0})
    measured(other, "resnet-50", RESNET)
    measured(other, "bert-base", BERT)
    told = finding(evidence_of(synthetic, own, other, published=["node-b"]))
    assert told is not None and "took 3 times as long" in told
    assert "for 1 of 2 networks that people know; in float32 on both sides, 3 times." in told
