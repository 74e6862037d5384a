"""Matrix products: number formats, contents of the matrices, summation orders, and GPU limits on a stand-in."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.devices.cpu import CpuDevice
from experiments.devices.cuda import CudaDevice
from experiments.kernels import summation_orders
from experiments.suite import content, gemm, numerics
from experiments.workload import Dtype, Unsupported, relative_error
from tests.experiments.cuda_standin import compile_to_ptx, install
from tests.experiments.point_runs import CPU, build_work, check_error, observe, passes_check, run_once
from tests.experiments.processor_files import skip_without_instructions
from tests.experiments.second_device import SecondCpu


class Nvidia(SecondCpu):
    """An NVIDIA GPU stand-in that computes with the CPU's libraries, which include PyTorch's 8-bit products."""

    matmul, refusal = CudaDevice.matmul, CudaDevice.refusal

    def __init__(self, capability: tuple[int, int] = (9, 0)) -> None:
        super().__init__()
        self._module = SimpleNamespace(get_device_capability=lambda name: capability)
        self._torch = SimpleNamespace(backends=torch.backends, empty=torch.empty, mm=torch.mm)


H100 = Nvidia()


def corrupt_products(patch: pytest.MonkeyPatch, kind: Any, fault: Any) -> None:
    """Replace every product that the device class `kind` computes by `fault(product, call number)`."""
    matmul, calls = kind.matmul, itertools.count()

    def corrupt_product(*operands: Any) -> Any:
        product = matmul(*operands)
        return lambda: fault(product().clone(), next(calls))

    patch.setattr(kind, "matmul", corrupt_product)


@pytest.mark.parametrize("dtype", list(Dtype))
def test_products_in_every_format_are_right_and_wrong_ones_fail(dtype: Dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = build_work("gemm", H100, dtype=dtype)
    run_once(workload)
    assert passes_check(workload)
    assert workload.bytes == (48 * 96 + 96 * 80) * dtype.itemsize + 48 * 80 * dtype.result_itemsize
    vector = build_work("gemm", H100, dtype=dtype, m=17 if dtype is Dtype.INT8 else 1)
    assert all(passes_check(vector) for _ in range(30)), "a product with a vector never fails by chance"
    matmul = Nvidia.matmul

    def truncate_rows(self: Any, backend: str, a: torch.Tensor, b: torch.Tensor, kind: Dtype) -> Any:
        a = torch.cat([a[:, :-16], torch.zeros(a.shape[0], 16).to(a.dtype)], 1)
        return matmul(self, backend, a, b, kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Nvidia, "matmul", truncate_rows)
        assert not passes_check(build_work("gemm", H100, dtype=dtype)), "the last terms lost"
    corrupt_products(monkeypatch, Nvidia, lambda out, _: out.index_fill_(0, torch.arange(32, 48), 0))
    assert not passes_check(build_work("gemm", H100, dtype=dtype)), "rows lost"


def test_int8_product_off_by_one_in_a_few_cells_fails_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    corrupt_products(
        monkeypatch, Nvidia, lambda out, _: out.index_put_((torch.tensor(40), torch.arange(16)), out[40, :16] + 1)
    )
    # Freivalds' check multiplies by a random vector. Fix it, because one vector in 300 lets the sixteen errors cancel.
    torch.manual_seed(1)
    assert not passes_check(build_work("gemm", H100, dtype="int8"))


def test_fp8_tolerance_covers_truncated_accumulation() -> None:
    # Compute like hardware that adds 32 products at a time and truncates the sum to 14 bits.
    torch.manual_seed(1)
    k = 4096
    a, b = (H100.random_normal(shape, Dtype.FLOAT8) for shape in ((64, k), (k, 64)))
    parts = torch.einsum("mik,ikn->imn", a.double().view(64, -1, 32), b.double().view(-1, 32, 64))
    total = torch.zeros(64, 64, dtype=torch.float64)
    for part in parts:
        total = total + part
        unit = 2.0 ** (torch.frexp(total).exponent - 14)
        total = torch.trunc(total / unit) * unit
    lost = relative_error(total.bfloat16().double(), a.double() @ b.double())
    assert Dtype.FLOAT32.matmul_tolerance(k) < lost < Dtype.FLOAT8.matmul_tolerance(k) < 0.04


@pytest.mark.parametrize(
    ("name", "capability", "changed", "words"),
    [
        ("gemm", (9, 0), {"dtype": "float8_e4m3fn", "k": 90}, "multiples of 16"),
        ("gemm", (9, 0), {"dtype": "float8_e4m3fn", "n": 1000}, "multiples of 16"),
        ("gemm", (9, 0), {"dtype": "int8", "m": 16}, "at least 17 rows"),
        ("gemm", (9, 0), {"dtype": "int8", "k": 90}, "multiples of 8"),
        ("gemm", (8, 0), {"dtype": "float8_e4m3fn"}, "capability 8.9"),
        ("gemm", (7, 0), {"dtype": "int8"}, "capability 7.5"),
        ("gemm", (7, 5), {"dtype": "tf32"}, "capability 8.0"),
    ],
)
def test_unsupported_gpu_products_say_why(
    name: str, capability: tuple[int, int], changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(Unsupported, match=words):
        build_work(name, Nvidia(capability), **changed)


def test_gpu_operands_rotate_over_twice_a_large_cache() -> None:
    each = gemm.least_traffic(256, 256, 256, Dtype.BFLOAT16)
    gpu: Any = SimpleNamespace(kind="gpu", last_level_cache_bytes=50 << 20)
    cpu: Any = SimpleNamespace(kind="cpu", last_level_cache_bytes=50 << 20)
    assert gemm.copy_count(gpu, each) * each > 2 * gpu.last_level_cache_bytes
    assert gemm.copy_count(cpu, each) == gemm.MOST_COPIES
    assert gemm.copy_count(gpu, 1000.0) == gemm.MOST_COPIES_GPU
    assert gemm.copy_count(gpu, 1e9) == 1


DTYPES = ["float64", "float32", "bfloat16", "float16"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_contents_match_their_names(dtype: str) -> None:
    operands = {name: content.make_operand(CPU, name, (100, 100), Dtype(dtype)) for name in get_args(content.Content)}
    assert {data.dtype for data in operands.values()} == {CPU.torch_dtype(Dtype(dtype))}
    filled = {name: (data != 0).double().mean().item() for name, data in operands.items()}
    assert filled["zeros"] == 0
    assert set(operands["ones"].unique().tolist()) == {1.0}
    assert set(operands["integers"].unique().tolist()) == {0.0, 1.0, 2.0, 3.0}
    # Among 10,000 draws, the fraction of numbers that are not 0 may be off by six standard deviations.
    assert abs(filled["sparse"] - content.DENSITY) < 6 * math.sqrt(content.DENSITY * (1 - content.DENSITY) / 10_000)
    assert filled["normal"] > 0.99
    small = operands["denormal"]
    assert small.abs().max().double() < torch.finfo(small.dtype).tiny
    assert filled["denormal"] > 0.9


@pytest.mark.parametrize("name", get_args(content.Content))
def test_wrong_product_fails_its_check_for_every_content(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for fault in (
        lambda out, _: out.index_fill_(0, torch.tensor(30), 9.0),  # only rows 0 to 15 are compared cell by cell
        lambda out, _: out.index_fill_(0, torch.tensor(30), torch.nan),
        lambda out, _: out.index_fill_(1, torch.tensor(3), torch.nan),
    ):
        with pytest.MonkeyPatch.context() as patch:
            corrupt_products(patch, CpuDevice, fault)
            assert not passes_check(build_work("content", content=name))
    corrupt_products(monkeypatch, CpuDevice, lambda out, _: out.zero_())
    workload = build_work("content", content=name)
    assert passes_check(workload) == (name in ("zeros", "denormal")), "hardware may flush denormal numbers to zero"
    if name == "denormal":
        assert observe(workload) == {"flushed_share": 1.0}


def integer_operands(m: int, k: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return operands with small integers, whose product is exact in any order and format."""
    return torch.randint(-2, 3, (m, k)).to(dtype), torch.randint(-2, 3, (k, n)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("k", [1, 2, 33, 70])
def test_every_summation_order_adds_each_term_once(k: int, dtype: torch.dtype) -> None:
    a, b = integer_operands(3, k, 4, dtype)
    exact = a.double() @ b.double()
    products = [
        summation_orders.sequential_product(a, b, torch.randperm(k).tolist()),
        summation_orders.pairwise_product(a, b),
        summation_orders.blocked_product(a, b),
    ]
    products += [summation_orders.split_product(torch.mm, a, b, parts) for parts in (2, 4) if parts <= k]
    for result in products:
        assert result.dtype == dtype
        assert torch.equal(result.double(), exact)


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)), min_size=1, max_size=30))
@settings(max_examples=50)
def test_float64_reference_has_twice_the_precision(pairs: list[tuple[float, float]]) -> None:
    # Leave out numbers with subnormal products, which lose digits.
    pairs = [(x, y) for x, y in pairs if min(abs(x), abs(y)) > 1e-100] or [(1.0, 1.0)]
    a = torch.tensor([[x for x, _ in pairs]], dtype=torch.float64)
    b = torch.tensor([[y] for _, y in pairs], dtype=torch.float64)
    computed = Fraction(summation_orders.dot2(a, b).item())
    terms = [Fraction(a[0, p].item()) * Fraction(b[p, 0].item()) for p in range(len(pairs))]
    unit, k = Fraction(2) ** -53, len(pairs)
    # This bound is proposition 5.5 in Ogita, Rump & Oishi 2005.
    bound = unit * abs(sum(terms)) + (2 * k * unit) ** 2 * sum(abs(term) for term in terms)
    assert abs(computed - sum(terms)) <= bound


def test_spread_is_the_largest_difference_between_orders_in_ulps() -> None:
    for size, form, unit in (
        (1.0, torch.float32, 2.0**-23), (3.9, torch.float32, 2.0**-22), (1.0, torch.bfloat16, 2.0**-7),
        (0.3, torch.float64, 2.0**-54),
    ):  # fmt: skip
        assert numerics.ulp(torch.tensor([-size, size, size]), form) == unit
    results = [torch.ones(2, 2) for _ in range(3)]
    assert {value for value, _ in numerics.spread_metrics(results, 1.0).values()} == {0.0}
    results[1][0, 0] += 3
    results[2][0] += torch.tensor([-1, 2])
    assert {metric: value for metric, (value, _) in numerics.spread_metrics(results, 0.5).items()} == {
        "spread_ulp": 8.0,
        "spread_median_ulp": 0.0,
        "spread_relative": math.sqrt(4**2 + 2**2) / 2,
        "differing_share": 0.5,
    }
    # 0 and -0 are equal numbers, but their bits differ.
    metrics = numerics.spread_metrics([torch.zeros(2, 2), -torch.zeros(2, 2)], 1.0)
    assert (metrics["spread_ulp"][0], metrics["differing_share"][0]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("method", "dtype", "backend", "threads"),
    [
        ("cell_order", "float32", "scalar", 2),
        *((method, dtype, "torch", 2) for method in ("permuted", "split_k", "threads", "repeat", "summation")
          for dtype in ("float64", "bfloat16")),
        ("libraries", "float64", "numpy", 1),
        ("libraries", "bfloat16", "onednn", 1),
    ],
)  # fmt: skip
def test_every_method_reports_consistent_metrics(method: str, dtype: str, backend: str, threads: int) -> None:
    with skip_without_instructions():
        workload = build_work("numerics", method=method, dtype=dtype, backend=backend, threads=threads)
        assert passes_check(workload)
        metrics = observe(workload)
    json.dumps(metrics, allow_nan=False)
    assert metrics["spread_median_ulp"] <= metrics["spread_ulp"] <= 2 * metrics["error_ulp"]
    assert (metrics["spread_ulp"] == 0) or (metrics["differing_share"] > 0)
    assert method != "cell_order" or metrics["differing_share"] == 0
    assert method != "summation" or metrics["differing_share"] > 0.1


@pytest.mark.parametrize("method", ["permuted", "split_k", "repeat"])
@pytest.mark.parametrize("lost", [0.0, float("nan")])
def test_wrong_row_in_one_order_fails_the_check(monkeypatch: pytest.MonkeyPatch, method: str, lost: float) -> None:
    corrupt_products(
        monkeypatch, CpuDevice, lambda out, call: out.index_fill_(0, torch.tensor(3), lost) if call == 2 else out
    )
    workload = build_work("numerics", method=method)
    assert not passes_check(workload)
    json.dumps(observe(workload), allow_nan=False)


def test_distinct_results_are_counted_and_the_fingerprint_ignores_random_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = (observe(build_work("numerics")) for _ in range(2))
    assert first["error_ulp"] != second["error_ulp"]
    assert first["fingerprint"] == second["fingerprint"] != observe(build_work("numerics", k=41))["fingerprint"]
    assert first["distinct_results"] == 1
    corrupt_products(monkeypatch, CpuDevice, lambda out, call: out.nextafter(out + 1) if call % 3 == 2 else out)
    workload = build_work("numerics")
    assert 0 < check_error(workload) <= (workload.tolerance or 0.0)
    assert observe(workload)["distinct_results"] == 2


@pytest.mark.parametrize(("real", "kind", "dtype"), [("float", "f32", torch.float32), ("double", "f64", torch.float64)])
def test_gpu_loop_over_cells_computes_the_product(
    real: str, kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    (body,) = compile_to_ptx(summation_orders.VISIT_CUDA, "compute_90", (f"-DREAL={real}",)).values()
    # The kernel sums each cell in order, by multiply-adds in the operands' format and without atomic operations.
    assert f"fma.rn.{kind}" in body and "atom" not in body and "red." not in body
    fake = install(monkeypatch)
    a, b = torch.randn(9, 21, dtype=dtype), torch.randn(21, 17, dtype=dtype)
    c = torch.empty(9, 17, dtype=dtype)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda _: 0)
    summation_orders._visit_on_gpu(a, b.t().contiguous(), c, torch.randperm(9 * 17), real)
    assert fake.launches == [(2, 128)]
    torch.testing.assert_close(c, a @ b)
