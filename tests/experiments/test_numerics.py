"""Orders of one product: each computes it, each is the order that it says, and what they differ by is counted right."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.devices.cpu import CpuDevice
from experiments.kernels import orders
from experiments.registry import get, typed
from experiments.suite import numerics
from experiments.work import Unsupported, Work
from tests.experiments.cuda_standin import install, ptx
from tests.experiments.processor import its_instructions_permitting

CPU = CpuDevice()
SIZE = {"m": 12, "n": 20, "k": 40}


def work(method: str, dtype: str = "float32", backend: str = "torch", threads: int = 1, **size: int) -> Work:
    experiment = get("numerics")
    params = {**SIZE, **size, "method": method, "dtype": dtype, "backend": backend, "threads": threads}
    return experiment.function(CPU, **typed(experiment, params))


def observed(made: Work) -> dict[str, float]:
    assert made.observe is not None
    return {metric: value for metric, (value, _) in made.observe().items()}


def right(made: Work) -> bool:
    assert made.check is not None
    assert made.tolerance is not None
    return made.check() <= made.tolerance


def whole(m: int, k: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands of small whole numbers, whose product is exact in any order and format."""
    return torch.randint(-2, 3, (m, k)).to(dtype), torch.randint(-2, 3, (k, n)).to(dtype)


@given(st.permutations(range(12)), st.integers(1, 3), st.sampled_from([torch.float32, torch.float64]))
@settings(deadline=None, max_examples=20)
def test_cells_come_out_the_same_in_any_order(order: list[int], threads: int, dtype: torch.dtype) -> None:
    a, b = torch.randn(3, 50, dtype=dtype), torch.randn(50, 4, dtype=dtype)
    in_rows = orders.visited(a, b, torch.arange(12), 1)
    torch.testing.assert_close(in_rows, a @ b)
    assert torch.equal(orders.visited(a, b, torch.tensor(order), threads), in_rows)


def test_only_the_listed_cells_are_visited() -> None:
    a, b = whole(3, 5, 4, torch.float64)
    c = orders.visited(a, b, torch.tensor([0, 7, 11]), 2)
    assert torch.equal(c.view(-1)[[0, 7, 11]], (a @ b).view(-1)[[0, 7, 11]])


@pytest.mark.parametrize("name", ["rows", "columns", "random"])
def test_an_order_of_cells_holds_each_once(name: str) -> None:
    assert sorted(orders.cell_orders(7, 5)[name].tolist()) == list(range(35))


def test_columns_are_gone_through_from_top_to_bottom() -> None:
    assert orders.cell_orders(3, 2)["columns"].tolist() == [0, 2, 4, 1, 3, 5]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("k", [1, 2, 31, 33, 70])
def test_every_order_of_additions_adds_every_term_once(k: int, dtype: torch.dtype) -> None:
    a, b = whole(3, k, 4, dtype)
    exact = a.double() @ b.double()
    shuffled = torch.randperm(k).tolist()
    found = [orders.summed(a, b, shuffled), orders.pairwise(a, b), orders.blocked(a, b)]
    found += [orders.split(torch.mm, a, b, parts) for parts in (2, 4) if parts <= k]
    for result in found:
        assert result.dtype == dtype
        assert torch.equal(result.double(), exact)


def test_terms_are_added_in_the_order_given_and_rounded_each_time() -> None:
    a, b = torch.tensor([[1e8, 1.0, -1e8, 1.0]]), torch.ones(4, 1)
    assert orders.summed(a, b, [0, 1, 2, 3]).item() == 1.0  # the first 1 is lost beside 1e8
    assert orders.summed(a, b, [0, 2, 1, 3]).item() == 2.0
    assert orders.pairwise(a, b).item() == 0.0  # each 1 is lost in its half
    assert orders.blocked(a, b, block=3).item() == 1.0


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)), min_size=1, max_size=30))
def test_the_reference_for_float64_is_as_good_as_twice_its_precision(pairs: list[tuple[float, float]]) -> None:
    # Numbers so small that their products lose digits below the smallest normal number are left out.
    pairs = [(x, y) for x, y in pairs if min(abs(x), abs(y)) > 1e-100] or [(1.0, 1.0)]
    a = torch.tensor([[x for x, _ in pairs]], dtype=torch.float64)
    b = torch.tensor([[y] for _, y in pairs], dtype=torch.float64)
    found = Fraction(orders.dot2(a, b).item())
    terms = [Fraction(a[0, p].item()) * Fraction(b[p, 0].item()) for p in range(len(pairs))]
    unit, k = Fraction(2) ** -53, len(pairs)
    # Ogita, Rump & Oishi 2005, proposition 5.5.
    bound = unit * abs(sum(terms)) + (2 * k * unit) ** 2 * sum(abs(term) for term in terms)
    assert abs(found - sum(terms)) <= bound


@pytest.mark.parametrize(
    ("size", "form", "unit"),
    [
        (1.0, torch.float32, 2.0**-23),
        (3.9, torch.float32, 2.0**-22),
        (1.0, torch.bfloat16, 2.0**-7),
        (0.3, torch.float64, 2.0**-54),
    ],
)
def test_the_unit_is_that_of_the_root_mean_square(size: float, form: torch.dtype, unit: float) -> None:
    values = torch.full((4, 4), size, dtype=torch.float64)
    values[0] *= -1
    assert numerics.ulp(values, form) == unit


def test_equal_results_have_no_spread() -> None:
    result = torch.randn(5, 7)
    assert {value for value, _ in numerics.spread([result, result.clone()], 1.0).values()} == {0.0}


def test_spread_is_the_largest_difference_of_any_two_orders() -> None:
    results = [torch.ones(2, 2) for _ in range(3)]
    results[1][0, 0] += 3
    results[2][0, 0] -= 1
    results[2][0, 1] += 2
    found = {metric: value for metric, (value, _) in numerics.spread(results, 0.5).items()}
    assert found == {
        "spread_ulp": 8.0,
        "spread_median_ulp": 0.0,
        "spread_relative": math.sqrt(4**2 + 2**2) / 2,
        "differing_share": 0.5,
    }


def test_bits_may_differ_where_numbers_are_equal() -> None:
    found = numerics.spread([torch.zeros(2, 2), -torch.zeros(2, 2)], 1.0)
    assert found["spread_ulp"][0] == 0.0
    assert found["differing_share"][0] == 1.0


def test_a_digest_tells_a_single_bit_and_nothing_else() -> None:
    result = torch.randn(6, 4)
    turned = result.clone()
    turned.view(torch.int32)[3, 2] ^= 1
    assert numerics.digest(result) == numerics.digest(result.t().contiguous().t()) != numerics.digest(turned)
    assert float(numerics.digest(result)) == numerics.digest(result) < 2**53


POINTS = [
    *(("cell_order", dtype, "scalar", 2) for dtype in ("float64", "float32")),
    *(
        (method, dtype, "torch", 2)
        for method in ("permuted", "summation", "split_k", "threads", "repeat")
        for dtype in ("float64", "float32", "bfloat16", "float16")
    ),
    ("libraries", "float64", "numpy", 1),
    ("libraries", "bfloat16", "onednn", 1),
]


@pytest.mark.parametrize(("method", "dtype", "backend", "threads"), POINTS)
def test_every_method_observes_right_results(method: str, dtype: str, backend: str, threads: int) -> None:
    with its_instructions_permitting():
        made = work(method, dtype, backend, threads)
    assert right(made)
    found = observed(made)
    json.dumps(found, allow_nan=False)
    assert {"spread_ulp", "spread_median_ulp", "spread_relative", "differing_share", "error_ulp"} <= set(found)
    assert found["spread_median_ulp"] <= found["spread_ulp"] <= 2 * found["error_ulp"]
    assert (found["spread_ulp"] == 0) or (found["differing_share"] > 0)


def test_the_order_of_cells_changes_no_bit_and_that_of_additions_does() -> None:
    assert observed(work("cell_order", backend="scalar", threads=2))["differing_share"] == 0
    within = observed(work("summation", k=300))
    assert within["spread_ulp"] >= 1
    assert within["differing_share"] > 0.5


@pytest.mark.parametrize(
    ("method", "dtype", "backend", "threads", "why"),
    [
        ("cell_order", "float32", "torch", 1, "backend scalar"),
        ("cell_order", "bfloat16", "scalar", 1, "no bfloat16"),
        ("cell_order", "tf32", "scalar", 1, "TF32"),
        ("summation", "float32", "numpy", 1, "backend torch"),
        ("summation", "tf32", "torch", 1, "TF32"),
        ("threads", "float32", "torch", 1, "second number of threads"),
        ("libraries", "float32", "torch", 1, "held against"),
        ("permuted", "float64", "onednn", 1, "no float64"),
    ],
)
def test_what_cannot_be_compared_says_why(method: str, dtype: str, backend: str, threads: int, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        work(method, dtype, backend, threads)


def broken(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    """Let every product of the device pass through `fault`, with the number of the call."""
    matmul, calls = CpuDevice.matmul, itertools.count()

    def passed(self: CpuDevice, *args: Any) -> Any:
        product = matmul(self, *args)
        return lambda: fault(product().clone(), next(calls))

    monkeypatch.setattr(CpuDevice, "matmul", passed)


@pytest.mark.parametrize("method", ["permuted", "split_k", "repeat"])
@pytest.mark.parametrize("lost", [0.0, float("nan")])
def test_a_library_that_loses_a_cell_in_one_order_is_wrong(
    monkeypatch: pytest.MonkeyPatch, method: str, lost: float
) -> None:
    def fault(out: torch.Tensor, call: int) -> torch.Tensor:
        if call == 2:
            out[3] = lost
        return out

    broken(monkeypatch, fault)
    made = work(method)
    assert not right(made)
    json.dumps(observed(made), allow_nan=False)


def test_results_that_change_from_call_to_call_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, lambda out, call: out.nextafter(out + 1) if call % 3 == 2 else out)
    made = work("repeat")
    assert right(made)
    assert observed(made)["distinct_results"] == 2


def test_the_fingerprint_is_of_the_product_and_not_of_the_draw() -> None:
    first, second = (observed(work("repeat")) for _ in range(2))
    assert first["error_ulp"] != second["error_ulp"]
    assert first["fingerprint"] == second["fingerprint"]
    assert first["fingerprint"] != observed(work("repeat", k=41))["fingerprint"]


@pytest.mark.parametrize("architecture", ["compute_80", "compute_90", "compute_100"])
@pytest.mark.parametrize(("real", "kind"), [("float", "f32"), ("double", "f64")])
def test_nvidias_compiler_takes_the_loop_over_the_cells(architecture: str, real: str, kind: str) -> None:
    (body,) = ptx(orders.VISIT_CUDA, architecture, (f"-DREAL={real}",)).values()
    # One sum per cell, in one order: multiply-adds of the operands' own format, and no atomic additions.
    assert f"fma.rn.{kind}" in body
    assert "atom" not in body and "red." not in body


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_loop_over_the_cells_on_a_gpu_computes_the_product(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = install(monkeypatch)
    a, b = torch.randn(9, 21, dtype=dtype), torch.randn(21, 17, dtype=dtype)
    c = torch.empty(9, 17, dtype=dtype)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda _: 0)
    orders._visit_on_gpu(a, b.t().contiguous(), c, torch.randperm(9 * 17), "float" if dtype.itemsize == 4 else "double")
    assert fake.launches == [(2, 128)]
    torch.testing.assert_close(c, a @ b)
