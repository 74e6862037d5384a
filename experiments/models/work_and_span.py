"""Work and span of a forward pass, counted in its traced operator graph.

The work is the number of calculations; the span is the length of the longest chain of dependent calculations (Blelloch
1996, "Programming parallel algorithms", section 2).

The trace uses fake tensors for one sample, and splits layers into PyTorch's elementary operators: attention becomes two
products and a softmax, and a recurrent layer becomes its single steps. Operators that only move, select or create data
do not lengthen a chain.
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

from experiments.models.zoo import Entry, model_without_data

aten = torch.ops.aten

# Operators without calculations: copies, look-ups, selections, constants, and views that PyTorch does not mark as such.
_MOVES = {
    aten._unsafe_view, aten.clone, aten._to_copy, aten.copy_, aten.cat, aten.stack, aten.embedding, aten.tril,
    aten.where, aten.zeros, aten.ones, aten.full, aten.arange, aten.scalar_tensor, aten.empty, aten.zeros_like,
    aten.full_like, aten.constant_pad_nd, aten.gather, aten.index, aten._unsafe_index, aten.repeat,
    aten.lift_fresh_copy,
}  # fmt: skip


@dataclass(frozen=True)
class Extent:
    """Depth and width of an operator graph for one sample.

    A calculation is one multiply-add in a product, or one output element in most other operators. An operator's level
    is the number of operators in the longest dependency chain that ends with it. Operators in the same level do not
    depend on each other, so they could run in parallel.

    levels: number of levels, which is the number of operators in the longest dependency chain.
    span: length of the longest dependency chain, if an operator that sums k terms counts as 1 + log2(k) operators
        (rounded up), because a tree that adds k terms has the depth log2(k).
    work: calculations in all operators.
    widest: calculations in the largest level.
    median: median calculations per level.
    """

    levels: int
    span: int
    work: float
    widest: float
    median: float


@contextmanager
def _decomposing_attention() -> Iterator[None]:
    """Make attention and recurrent layers run as elementary operators inside this context."""
    with warnings.catch_warnings():
        # Ignore the GPU warnings that PyTorch shows when oneDNN is switched off and on.
        warnings.simplefilter("ignore")
        with (
            sdpa_kernel(SDPBackend.MATH),
            torch.backends.mkldnn.flags(enabled=False),
            enable_python_dispatcher(),
            torch.no_grad(),
        ):
            yield


def trace_forward(entry: Entry) -> GraphModule:
    """Trace the forward pass on one sample as a function of (parameters, buffers, inputs)."""
    with model_without_data(entry) as model, _decomposing_attention():

        def forward(parameters: Any, buffers: Any, inputs: Any) -> Any:
            return torch.func.functional_call(model, (parameters, buffers), (inputs,))

        kind = torch.int64 if entry.first_input_has_gradient else torch.float32
        inputs = torch.zeros(1, *entry.sample, dtype=kind)
        # Replace in-place operators, by which some models add residual branches, by operators that make a new tensor.
        without_mutations = torch.func.functionalize(forward, remove="mutations")
        return make_fx(without_mutations)(dict(model.named_parameters()), dict(model.named_buffers()), inputs)


def graph_extent(graph: GraphModule) -> Extent:
    """Compute a traced graph's extent. Raises TypeError if an operator has no cost formula."""
    needed = _needed_nodes(graph)
    level: dict[Node, int] = {}
    depth: dict[Node, int] = {}
    widths: defaultdict[int, float] = defaultdict(float)
    for node in graph.graph.nodes:
        if node not in needed:
            continue
        level[node] = max((level[source] for source in node.all_input_nodes), default=0)
        depth[node] = max((depth[source] for source in node.all_input_nodes), default=0)
        calculations, terms = _operator_cost(node)
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


def _needed_nodes(graph: GraphModule) -> set[Node]:
    """Return the nodes on which the graph's output depends."""
    needed: set[Node] = set()
    ahead = [node for node in graph.graph.nodes if node.op == "output"]
    while ahead:
        node = ahead.pop()
        if node not in needed:
            needed.add(node)
            ahead.extend(node.all_input_nodes)
    return needed


def _result_shape(node: Any) -> torch.Size:
    """Return the shape of a node's result, or of its first result if it has several."""
    value = node.meta["val"]
    first = value[0] if isinstance(value, tuple | list) else value
    return torch.Size(first.shape)


def _operator_cost(node: Node) -> tuple[float, float]:
    """Return (calculations, terms per sum); (0, 1) if the operator does not calculate."""
    function: Any = node.target
    if node.op != "call_function" or not isinstance(function, torch._ops.OpOverload):
        return 0.0, 1.0
    packet: Any = function._overloadpacket
    if function.is_view or packet in _MOVES:
        return 0.0, 1.0
    size = float(_result_shape(node).numel())
    if packet in flop_registry:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
        multiply_adds = flop_registry[packet](*args, **kwargs, out_val=node.meta["val"]) / 2
        return multiply_adds, multiply_adds / size
    if torch.Tag.pointwise in function.tags:
        return size, 1.0
    return _reduction_cost(packet, node, size)


def _reduction_cost(packet: Any, node: Node, size: float) -> tuple[float, float]:
    """Return (calculations, terms per sum) for reductions other than products."""
    args: Any = node.args
    inputs = _result_shape(args[0])
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
    raise TypeError(f"no cost formula for the operator {node.target}")
