"""Model properties: size, operations, and depth and width of the operator graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.devices import Device
from experiments.models.network_names import Model
from experiments.registry import experiment
from experiments.workload import Observed, Threads, Workload, relative_error

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from experiments.models.zoo import Entry

# Largest model to instantiate, in bytes of weights in float32 plus float64. A larger model is only traced, on tensors
# without data.
MOST_MADE = 5e8
# Tolerance for some hundred float32 operations, each rounded, against float64.
TOLERANCE = 1e-4


def memory(model: str, threads: int) -> float:
    """Return the size of the check's weights in float32 and float64; 0 if the model is not instantiated."""
    from experiments.models.zoo import ZOO

    weight_bytes = ZOO[model].parameters() * 12.0
    return weight_bytes if weight_bytes <= MOST_MADE else 0.0


@experiment("models", memory=memory, observed=True, fits=("cpu",), load_s=0.7)
def models(device: Device, model: Model, threads: Threads) -> Workload:
    """Count the model's properties for one sample; nothing is timed, since nothing depends on the machine.

    Observed: parameters; forward_flop and step_flop for products and convolutions, by formula; length in tokens or
        steps; activation_bytes that a training step keeps in float32; for the forward graph (see
        `experiments.models.work_and_span`): levels and span, work, width of the widest level and median width
        (median_width).
    """
    from experiments.models.work_and_span import trace_forward
    from experiments.models.zoo import ZOO

    entry = ZOO[model]
    graph = trace_forward(entry)
    instantiated = memory(model, threads) > 0
    return Workload(
        observe=lambda: count(entry) | count_graph(graph),
        check=(lambda: _error(entry, graph)) if instantiated else None,
        tolerance=TOLERANCE if instantiated else None,
    )


def count(entry: Entry) -> dict[str, Observed]:
    """Return the model's counts for one sample, found by formula or on tensors without data."""
    return {
        "parameters": (entry.parameters(), "1"),
        "length": (entry.length, "1"),
        "forward_flop": (entry.forward_flop(1), "FLOP"),
        "step_flop": (entry.step_flop(1), "FLOP"),
        "activation_bytes": (entry.activation_bytes(), "B"),
    }


def count_graph(graph: GraphModule) -> dict[str, Observed]:
    from experiments.models.work_and_span import graph_extent

    size = graph_extent(graph)
    return {
        "levels": (size.levels, "1"),
        "span": (size.span, "1"),
        "work": (size.work, "1"),
        "width": (size.widest, "1"),
        "median_width": (size.median, "1"),
    }


def _error(entry: Entry, graph: GraphModule) -> float:
    """Return the relative error of the traced operators in float32 against the model in float64."""
    import torch

    model, (inputs, _) = entry.model(), entry.batch(1)
    with torch.no_grad():
        traced_output = graph(dict(model.named_parameters()), dict(model.named_buffers()), inputs)
        exact = model.double()(inputs.double() if inputs.is_floating_point() else inputs)
    return relative_error(traced_output.double(), exact)
