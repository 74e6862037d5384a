"""Operators have their analytic FLOP and bytes, and the shares of time, bytes and FLOP below an intensity are right."""

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


def operators_with_traffic(call: Callable[[], object]) -> list[Operator]:
    return [operator for operator in operator_traffic.record_operators(call) if operator.bytes]


def single_operator(call: Callable[[], object]) -> Operator:
    (operator,) = operators_with_traffic(call)
    return operator


def test_product_has_its_analytic_intensity() -> None:
    a, b = torch.randn(M, K), torch.randn(K, N)
    product = single_operator(lambda: a @ b)
    assert (product.flop, product.bytes, product.product) == (2 * M * N * K, 4 * (M * K + K * N + M * N), True)
    assert product.intensity == 2 * M * N * K / (4 * (M * K + K * N + M * N))
    bfloat16_product = operators_with_traffic(lambda: a.bfloat16() @ b.bfloat16())[-1]
    assert bfloat16_product.intensity == 2 * product.intensity


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
def test_other_operators_move_their_inputs_and_outputs(call: Callable[[], object], flop: int, moved: int) -> None:
    assert operator_traffic.total_traffic(call) == (flop, moved)


def test_attention_counts_as_two_products() -> None:
    q = torch.randn(2, 3, 8, 16)
    operator = next(
        operator
        for operator in operators_with_traffic(lambda: functional.scaled_dot_product_attention(q, q, q))
        if operator.product
    )
    assert operator.flop == 2 * 2 * (2 * 3 * 8 * 8 * 16)
    assert 2 * q.nbytes <= operator.bytes <= 3 * q.nbytes


def test_lstm_counts_its_gates_and_three_times_as_much_in_training() -> None:
    layer, x = nn.LSTM(16, 32, 2, batch_first=True), torch.randn(4, 5, 16)
    gates = 2 * 4 * 5 * (4 * 32 * (16 + 32) + 4 * 32 * (32 + 32))
    with torch.no_grad():
        forward = operators_with_traffic(lambda: layer(x))
    assert sum(operator.flop for operator in forward if operator.product) == gates
    both = operators_with_traffic(lambda: layer(x)[0].sum().backward())
    assert sum(operator.flop for operator in both if operator.product) == 3 * gates


def test_every_operator_with_traffic_is_timed() -> None:
    a, b = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64)
    operators = operator_traffic.time_operators(lambda: torch.autograd.grad((a @ b).relu().sum(), a), CPU, 2)
    assert len(operators) % 2 == 0
    assert all(operator.seconds > 0 for operator in operators if operator.bytes)
    assert [operator.name for operator in operators[: len(operators) // 2]] == [
        operator.name for operator in operators[len(operators) // 2 :]
    ]


def make_operator(flop: float, size: float, seconds: float, product: bool = False, place: int = 1) -> Operator:
    return Operator("", (), flop, product, ((place, size),) if size else (), seconds)


def test_shares_sum_operators_below_an_intensity() -> None:
    operators = [make_operator(1, 10, 3.0), make_operator(1600, 100, 6.0, product=True), make_operator(0, 0, 1.0)]
    metrics = {name: value for name, (value, _) in operator_metrics(operators, 1).items()}
    assert [metrics[f"time_below.{x:g}_share"] for x in (0.25, 8, 16, 4096)] == pytest.approx([1 / 3, 1 / 3, 1, 1])
    assert metrics["bytes_below.8_share"] == pytest.approx(10 / 110)
    assert metrics["flop_below.8_share"] == pytest.approx(1 / 1601)
    assert metrics["product_intensity"] == 16
    # The last operator is a view, which takes time but has no intensity and is no kernel.
    assert metrics["matmul_time_share"] == pytest.approx(0.6)
    assert metrics["kernels"] == 2


def test_cache_holds_the_most_recently_used_data() -> None:
    turns = [make_operator(0, 40, 0, place=place) for place in (1, 2, 3)]
    assert operator_traffic.cached_share(turns, 120) == 1
    assert operator_traffic.cached_share(turns, 119) == 0
    again = [turns[0], turns[0], turns[1], turns[2]]
    assert operator_traffic.cached_share(again, 60) == 0.25
    assert operator_traffic.cached_share([], 60) == 0
