"""Operators land where arithmetic says: their FLOP, their bytes, and what of a step lies below an intensity."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from experiments.models import operator_traffic
from experiments.models.operator_traffic import Operator
from experiments.suite.roofline import operator_metrics
from tests.experiments.point_runs import CPU

M, N, K = 12, 20, 36


def moving(call: Callable[[], object]) -> list[Operator]:
    return [one for one in operator_traffic.record_operators(call) if one.bytes]


def only(call: Callable[[], object]) -> Operator:
    (one,) = moving(call)
    return one


def test_a_product_has_its_analytic_intensity() -> None:
    a, b = torch.randn(M, K), torch.randn(K, N)
    one = only(lambda: a @ b)
    assert (one.flop, one.bytes, one.product) == (2 * M * N * K, 4 * (M * K + K * N + M * N), True)
    assert one.intensity == 2 * M * N * K / (4 * (M * K + K * N + M * N))
    half = moving(lambda: a.bfloat16() @ b.bfloat16())[-1]
    assert half.intensity == 2 * one.intensity


X, ROW, OTHER = torch.randn(M, N), torch.randn(1, N), torch.randn(M, N)
TABLE, PICKED = torch.randn(1000, 8), torch.tensor([[3, 5], [3, 999]])


@pytest.mark.parametrize(
    ("call", "flop", "moved"),
    [
        pytest.param(lambda: X + OTHER, M * N, 3 * M * N * 4, id="two operands and a result"),
        pytest.param(lambda: X * X, M * N, 2 * M * N * 4, id="the same operand twice is read once"),
        pytest.param(lambda: X.clone().add_(OTHER), 2 * M * N, 5 * M * N * 4, id="in place: read and written"),
        pytest.param(lambda: X + ROW.expand(M, N), M * N, (2 * M * N + N) * 4, id="a row that is seen many times"),
        pytest.param(lambda: torch.zeros(M, N).copy_(X), 2 * M * N, 3 * M * N * 4, id="written over: not read"),
        pytest.param(lambda: torch.add(X, OTHER, out=torch.empty(M, N)), M * N, 3 * M * N * 4, id="into a given place"),
        pytest.param(lambda: X[:, ::2].sum(), 1, (M * N // 2 + 1) * 4, id="every other column"),
        pytest.param(lambda: X.t().unsqueeze(0).detach(), 0, 0, id="another view"),
        pytest.param(lambda: torch.empty(M, N), 0, 0, id="room alone"),
        pytest.param(
            lambda: functional.embedding(PICKED, TABLE), 4 * 8, 4 * 8 + 2 * 4 * 8 * 4, id="the rows that are looked up"
        ),
        pytest.param(
            lambda: torch._foreach_add([X.clone(), OTHER.clone()], 1.0), 4 * M * N, 8 * M * N * 4, id="lists of tensors"
        ),
    ],
)
def test_other_operators_move_what_they_read_and_write(call: Callable[[], object], flop: int, moved: int) -> None:
    assert operator_traffic.total_traffic(call) == (flop, moved)


def test_attention_is_a_product_of_both_its_parts() -> None:
    q = torch.randn(2, 3, 8, 16)
    one = next(one for one in moving(lambda: functional.scaled_dot_product_attention(q, q, q)) if one.product)
    assert one.flop == 2 * 2 * (2 * 3 * 8 * 8 * 16)
    assert 2 * q.nbytes <= one.bytes <= 3 * q.nbytes


def test_a_recurrent_layer_counts_its_gates_and_three_times_as_much_in_training() -> None:
    layer, x = nn.LSTM(16, 32, 2, batch_first=True), torch.randn(4, 5, 16)
    gates = 2 * 4 * 5 * (4 * 32 * (16 + 32) + 4 * 32 * (32 + 32))
    with torch.no_grad():
        forward = moving(lambda: layer(x))
    assert sum(one.flop for one in forward if one.product) == gates
    both = moving(lambda: layer(x)[0].sum().backward())
    assert sum(one.flop for one in both if one.product) == 3 * gates


def test_every_operator_that_moves_something_is_timed() -> None:
    a, b = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64)
    found = operator_traffic.time_operators(lambda: torch.autograd.grad((a @ b).relu().sum(), a), CPU, 2)
    assert len(found) % 2 == 0
    assert all(one.seconds > 0 for one in found if one.bytes)
    assert [one.name for one in found[: len(found) // 2]] == [one.name for one in found[len(found) // 2 :]]


def operator(flop: float, size: float, seconds: float, product: bool = False, place: int = 1) -> Operator:
    return Operator("", (), flop, product, ((place, size),) if size else (), seconds)


def test_shares_lie_below_the_intensity_of_their_operators() -> None:
    found = [operator(1, 10, 3.0), operator(1600, 100, 6.0, product=True), operator(0, 0, 1.0)]
    told = {name: value for name, (value, _) in operator_metrics(found, 1).items()}
    assert [told[f"time_below.{x:g}_share"] for x in (0.25, 8, 16, 4096)] == pytest.approx([1 / 3, 1 / 3, 1, 1])
    assert told["bytes_below.8_share"] == pytest.approx(10 / 110)
    assert told["flop_below.8_share"] == pytest.approx(1 / 1601)
    assert told["product_intensity"] == 16
    # A view takes time and is no product, but it has no intensity.
    assert told["matmul_time_share"] == pytest.approx(0.6)
    assert told["kernels"] == 2


def test_a_cache_holds_what_was_touched_last() -> None:
    turns = [operator(0, 40, 0, place=place) for place in (1, 2, 3)]
    assert operator_traffic.cached_share(turns, 120) == 1
    assert operator_traffic.cached_share(turns, 119) == 0
    again = [turns[0], turns[0], turns[1], turns[2]]
    assert operator_traffic.cached_share(again, 60) == 0.25
    assert operator_traffic.cached_share([], 60) == 0
