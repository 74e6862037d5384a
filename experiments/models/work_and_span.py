"""Work and span of a model's forward pass, from its traced graph of operators.

The model is traced at batch size 1 on tensors without data, down to PyTorch's own
operators; attention as its two products and a softmax, a recurrence step by step.
What only moves, selects or makes data is no level of its own.

Source of the terms: Blelloch 1996, "Programming parallel algorithms", section 2.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import flop_registry

from experiments.models.zoo import Entry, without_data

aten = torch.ops.aten

# Views that do not call themselves so, copies, look-ups, selections and constants.
_MOVES = {
    aten._unsafe_view, aten.clone, aten._to_copy, aten.copy_, aten.cat, aten.stack, aten.embedding, aten.tril,
    aten.where, aten.zeros, aten.ones, aten.full, aten.arange, aten.scalar_tensor, aten.empty, aten.zeros_like,
    aten.full_like, aten.constant_pad_nd, aten.gather, aten.index, aten._unsafe_index, aten.repeat,
    aten.lift_fresh_copy,
}  # fmt: skip


@dataclass(frozen=True)
class Extent:
    """How deep and how wide a graph is, for one sample.

    A calculation is one multiply-add of a product, or one element of another operator.

    levels: operators in the longest chain of which each needs the last one's result.
    span: the same where an operator that sums k terms counts as 1 + log2(k) levels, rounded
        up: what is left if every sum is a tree of additions.
    work: calculations in all.
    widest, median: calculations in the widest level, and in the median one: none needs another's result.
    """

    levels: int
    span: int
    work: float
    widest: float
    median: float


@contextmanager
def _taken_apart() -> Iterator[None]:
    """Within it, attention and recurrences run as the operators that they consist of."""
    with warnings.catch_warnings():
        # Switching oneDNN off and on again warns of GPUs that this has nothing to do with.
        warnings.simplefilter("ignore")
        with (
            sdpa_kernel(SDPBackend.MATH),
            torch.backends.mkldnn.flags(enabled=False),
            enable_python_dispatcher(),
            torch.no_grad(),
        ):
            yield


def traced(entry: Entry) -> GraphModule:
    """The model's forward pass on one sample, as a function of (parameters, buffers, inputs)."""
    with without_data(entry) as model, _taken_apart():

        def forward(parameters: Any, buffers: Any, inputs: Any) -> Any:
            return torch.func.functional_call(model, (parameters, buffers), (inputs,))

        kind = torch.int64 if entry.first_input_has_gradient else torch.float32
        inputs = torch.zeros(1, *entry.sample, dtype=kind)
        # A residual branch may be added in place.
        without_mutations = torch.func.functionalize(forward, remove="mutations")
        return make_fx(without_mutations)(dict(model.named_parameters()), dict(model.named_buffers()), inputs)


def extent(graph: GraphModule) -> Extent:
    """Levels and widths of a traced graph. Raises TypeError at an operator whose work is not known."""
    wanted = _needed(graph)
    level: dict[Node, int] = {}
    depth: dict[Node, int] = {}
    widths: defaultdict[int, float] = defaultdict(float)
    for node in graph.graph.nodes:
        if node not in wanted:
            continue
        level[node] = max((level[source] for source in node.all_input_nodes), default=0)
        depth[node] = max((depth[source] for source in node.all_input_nodes), default=0)
        calculations, terms = _cost(node)
        if calculations:
            level[node] += 1
            depth[node] += 1 + math.ceil(math.log2(terms))
            widths[level[node]] += calculations
    return Extent(
        levels=max(level.values()),
        span=max(depth.values()),
        work=sum(widths.values()),
        widest=max(widths.values()),
        median=statistics.median(widths.values()),
    )


def _needed(graph: GraphModule) -> set[Node]:
    """The nodes that the output depends on."""
    found: set[Node] = set()
    ahead = [node for node in graph.graph.nodes if node.op == "output"]
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead.extend(node.all_input_nodes)
    return found


def _shape(node: Any) -> torch.Size:
    """Shape of a node's result; of the first of several."""
    value = node.meta["val"]
    first = value[0] if isinstance(value, tuple | list) else value
    return torch.Size(first.shape)


def _cost(node: Node) -> tuple[float, float]:
    """Calculations of an operator, and the terms of each of its sums; (0, 1) for what only moves data."""
    function: Any = node.target
    if node.op != "call_function" or not isinstance(function, torch._ops.OpOverload):
        return 0.0, 1.0
    packet: Any = function._overloadpacket
    if function.is_view or packet in _MOVES:
        return 0.0, 1.0
    size = float(_shape(node).numel())
    if packet in flop_registry:
        given = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
        multiply_adds = flop_registry[packet](*given[0], **given[1], out_val=node.meta["val"]) / 2
        return multiply_adds, multiply_adds / size
    if torch.Tag.pointwise in function.tags:
        return size, 1.0
    return _summing(packet, node, size)


def _summing(packet: Any, node: Node, size: float) -> tuple[float, float]:
    """The same of an operator that sums or compares, but is no product."""
    args: Any = node.args
    inputs = _shape(args[0])
    if packet is aten.native_layer_norm:
        return size, float(math.prod(args[1]))
    if packet is aten._native_batch_norm_legit:
        return size, size / inputs[1]
    if packet in (aten._softmax, aten._safe_softmax):
        return size, float(inputs[args[1]])
    if packet in (aten.mean, aten.sum):
        return float(inputs.numel()), inputs.numel() / size
    if packet is aten.max_pool2d_with_indices:
        terms = float(math.prod(args[1]))
        return size * terms, terms
    raise TypeError(f"{node.target}: how many calculations it takes is not known here")
