"""Matrix products as a GPU does them: number formats, rotation, batches, graphs and the search, on a stand-in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from experiments import worker
from experiments.devices import eight_bit
from experiments.devices.base import nothing
from experiments.devices.cuda import CudaDevice
from experiments.registry import get, typed
from experiments.state import Watch
from experiments.suite import gemm, gemm_search
from experiments.work import Dtype, Unsupported, Work, relative_error
from tests.experiments.second_device import SecondCpu


class Nvidia(SecondCpu):
    """An NVIDIA GPU whose libraries are those of the CPU: PyTorch has the 8-bit products there too."""

    matmul = CudaDevice.matmul

    def __init__(self, capability: tuple[int, int] = (9, 0)) -> None:
        super().__init__()
        cuda = SimpleNamespace(get_device_capability=lambda name: capability)
        self._torch = SimpleNamespace(cuda=cuda, backends=torch.backends, empty=torch.empty, mm=torch.mm)


H100 = Nvidia()


def work(name: str, device: Any = H100, **params: Any) -> Work:
    experiment = get(name)
    return experiment.function(device, **typed(experiment, {"backend": "torch", "threads": 0, **params}))


def product(dtype: str, m: int = 48, n: int = 80, k: int = 96, device: Any = H100) -> Work:
    return work("gemm", device, m=m, n=n, k=k, dtype=dtype)


def verdict(made: Work) -> bool:
    """Whether the work's own check finds its result right."""
    assert made.check is not None
    assert made.tolerance is not None
    return made.check() <= made.tolerance


@pytest.mark.parametrize("dtype", list(Dtype))
def test_a_product_in_every_format_passes_its_check(dtype: Dtype) -> None:
    made = product(dtype)
    for call in made.calls:
        call()
    assert verdict(made)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_a_matrix_by_a_vector_is_not_called_wrong_by_chance(dtype: str) -> None:
    made = product(dtype, m=1)
    assert all(verdict(made) for _ in range(100))


@pytest.mark.parametrize("dtype", list(Dtype))
@pytest.mark.parametrize("fault", ["rows lost", "the last step of the sum lost"])
def test_a_wrong_product_in_any_format_fails_its_check(monkeypatch: Any, dtype: Dtype, fault: str) -> None:
    right = Nvidia.matmul

    def broken(self: Any, backend: str, a: torch.Tensor, b: torch.Tensor, kind: Dtype) -> Any:
        if fault == "the last step of the sum lost":
            a = a.clone()
            a[:, -16:] = torch.zeros(a.shape[0], 16).to(a.dtype)
        call = right(self, backend, a, b, kind)
        return (lambda: call().index_fill_(0, torch.arange(32, 48), 0)) if fault == "rows lost" else call

    monkeypatch.setattr(Nvidia, "matmul", broken)
    assert not verdict(product(dtype))


def test_an_int8_product_off_by_one_in_one_cell_fails_its_check(monkeypatch: Any) -> None:
    right = Nvidia.matmul

    def broken(self: Any, *operands: Any) -> Any:
        call = right(self, *operands)

        def once() -> torch.Tensor:
            out = call()
            out[40, :16] += 1
            return out

        return once

    monkeypatch.setattr(Nvidia, "matmul", broken)
    assert not verdict(product("int8"))


def test_fp8_may_lose_what_its_units_cut_off_and_no_more() -> None:
    # 14 bits kept of a sum that grows by 32 products at a time, cut off towards zero.
    torch.manual_seed(1)
    k = 4096
    a, b = (H100.normal(shape, Dtype.FLOAT8) for shape in ((64, k), (k, 64)))
    parts = torch.einsum("mik,ikn->imn", a.double().view(64, -1, 32), b.double().view(-1, 32, 64))
    total = torch.zeros(64, 64, dtype=torch.float64)
    for part in parts:
        total = total + part
        unit = 2.0 ** (torch.frexp(total).exponent - 14)
        total = torch.trunc(total / unit) * unit
    exact = a.double() @ b.double()
    error = relative_error(total.bfloat16().double(), exact)
    assert Dtype.FLOAT32.matmul_tolerance(k) < error < Dtype.FLOAT8.matmul_tolerance(k)
    assert Dtype.FLOAT8.matmul_tolerance(k) < 0.04


def test_whole_numbers_use_their_range_and_cannot_overflow() -> None:
    data = H100.normal((1000, 100), Dtype.INT8)
    assert data.dtype is torch.int8
    assert 25 < float(data.double().std()) < 35
    assert int(data.abs().max()) <= 127
    assert 127 * 127 * 100_000 < 2**31


def test_what_8_bit_products_read_and_write_is_counted() -> None:
    assert product("float8_e4m3fn").bytes == 48 * 96 + 96 * 80 + 2 * 48 * 80
    assert product("int8").bytes == 48 * 96 + 96 * 80 + 4 * 48 * 80
    assert product("int8").flop == 2 * 48 * 80 * 96


@pytest.mark.parametrize(
    ("dtype", "shape", "words"),
    [
        ("float8_e4m3fn", (48, 80, 90), "multiples of 16"),
        ("float8_e4m3fn", (48, 1000, 96), "multiples of 16"),
        ("int8", (16, 80, 96), "at least 17 rows"),
        ("int8", (48, 80, 90), "multiples of 8"),
    ],
)
def test_shapes_that_8_bit_products_refuse_are_unsupported(dtype: str, shape: tuple[int, int, int], words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        product(dtype, *shape)


@pytest.mark.parametrize(
    ("capability", "dtype", "words"),
    [((8, 0), "float8_e4m3fn", "8.9"), ((7, 0), "int8", "7.5"), ((7, 5), "tf32", "8.0")],
)
def test_formats_that_older_gpus_lack_are_unsupported(capability: tuple[int, int], dtype: str, words: str) -> None:
    with pytest.raises(Unsupported, match=f"needs compute capability {words}"):
        product(dtype, device=Nvidia(capability))


def test_the_second_operand_of_8_bit_products_lies_by_columns(monkeypatch: Any) -> None:
    seen = []
    for name in ("_scaled_mm", "_int_mm"):
        monkeypatch.setattr(torch, name, lambda a, b, out, **_: seen.append((a.stride(), b.stride())))
    for dtype in (Dtype.FLOAT8, Dtype.INT8):
        a, b = H100.normal((32, 64), dtype), H100.normal((64, 48), dtype)
        eight_bit.product(a, b, dtype)()
    assert seen == [((64, 1), (1, 64))] * 2


def test_a_probe_of_an_8_bit_product_is_one_that_the_library_takes() -> None:
    shape = {"m": 512, "n": 11008, "k": 4096, "dtype": "float8_e4m3fn", "backend": "torch", "threads": 0}
    steps = []
    while (shape := gemm.smaller(shape)) is not None:
        steps.append((shape["m"], shape["n"], shape["k"]))
    assert steps[-1] == (64, 64, 64)
    assert all(size % 16 == 0 for step in steps for size in step)


def test_operands_rotate_over_twice_a_large_cache_and_only_a_gpus_rule_goes_beyond_64() -> None:
    each = gemm.traffic(256, 256, 256, Dtype.BFLOAT16)
    gpu = SimpleNamespace(kind="gpu", last_level_cache_bytes=50 << 20)
    cpu = SimpleNamespace(kind="cpu", last_level_cache_bytes=50 << 20)
    assert gemm.copies(gpu, each) * each > 2 * gpu.last_level_cache_bytes  # type: ignore[arg-type]
    assert gemm.copies(cpu, each) == gemm.MOST_COPIES  # type: ignore[arg-type]
    assert gemm.copies(gpu, 1000.0) == gemm.MOST_COPIES_GPU  # type: ignore[arg-type]
    assert gemm.copies(gpu, 1e9) == 1  # type: ignore[arg-type]


def measured(experiment: str, **params: Any) -> dict[str, Any]:
    order = {
        "experiment": experiment,
        "params": {"backend": "torch", "threads": 0, **params},
        "policy": {"target": 0.5, "budget_s": 0.1, "max_samples": 6},
    }
    return worker.answer_to(order, H100, Watch("cpu"))


def test_a_short_product_is_timed_in_a_graph_of_all_its_operands_too(monkeypatch: Any) -> None:
    monkeypatch.setattr(worker, "GRAPH_BELOW_S", 1.0)  # a busy machine is slow
    answer = measured("gemm", m=32, n=32, k=32, dtype="float32")
    assert answer["status"] == "ok"
    assert [series["metric"] for part in answer["parts"] for series in part["series"]] == ["time", worker.GRAPH_METRIC]
    assert {part["flop"] for part in answer["parts"]} == {2 * 32**3}


def batch(dtype: str = "float32", device: Any = H100, backend: str = "torch") -> Work:
    return work("batched", device, batch=5, m=24, n=40, k=16, dtype=dtype, backend=backend)


@pytest.mark.parametrize("dtype", ["float64", "float32", "tf32", "bfloat16", "float16"])
def test_a_batch_of_products_is_right_and_counted(dtype: str) -> None:
    made = batch(dtype)
    shapes = {tuple(call().shape) for call in made.calls}  # type: ignore[attr-defined]
    assert shapes == {(5, 24, 40)}
    assert verdict(made)
    assert made.flop == 5 * 2 * 24 * 40 * 16
    assert made.bytes == 5 * (24 * 16 + 16 * 40 + 24 * 40) * Dtype(dtype).itemsize


def test_one_wrong_product_of_a_batch_fails_its_check(monkeypatch: Any) -> None:
    right = torch.bmm

    def broken(a: Any, b: Any, out: Any) -> Any:
        right(a, b, out=out)
        return out.index_fill_(0, torch.tensor(3), 0.0)

    monkeypatch.setattr(torch, "bmm", broken)
    assert not verdict(batch())


@pytest.mark.parametrize(
    ("dtype", "backend", "device", "words"),
    [
        ("int8", "torch", H100, "no batched product in int8"),
        ("float32", "numpy", H100, "not by numpy"),
        ("tf32", "torch", Nvidia((7, 5)), "8.0"),
    ],
)
def test_batches_that_nothing_multiplies_are_unsupported(dtype: str, backend: str, device: Any, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        batch(dtype, device, backend)


class Timed(Nvidia):
    """A GPU that takes as long as a product of its tiles does: 256 wide, 12 at a time, none of them shared."""

    def matmul(self, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Any:
        (m, k), n = a.shape, b.shape[1]
        waves = -(-(m // 256) * (n // 256) // 12)
        return SimpleNamespace(seconds=waves * (k + 50) * 1e-9)

    def time(self, work: Work, calls: int, meanwhile: Any = nothing) -> list[float]:
        return [work.run.seconds]  # type: ignore[union-attr]


def test_the_search_finds_the_shape_whose_tiles_fill_the_device(monkeypatch: Any) -> None:
    monkeypatch.setattr(gemm_search, "Work", lambda run: SimpleNamespace(run=run))
    shapes = gemm_search.candidates(1024, 1024, 256, span=2)
    assert len(shapes) == len(set(shapes)) == 5 * 5 * 2  # half of a depth of one step is that step
    tried = gemm_search._search(Timed(), shapes, "torch", Dtype.FLOAT32)
    m, n, k = tried[0]
    assert (m * n) % (12 * 256 * 256) == 0
    assert k == 512
    assert sorted(tried) == sorted(shapes)


def test_the_search_ends_when_its_time_is_spent(monkeypatch: Any) -> None:
    monkeypatch.setattr(gemm_search, "Work", lambda run: SimpleNamespace(run=run))
    monkeypatch.setattr(gemm_search, "SEARCH_S", 1e-5)
    shapes = gemm_search.candidates(1024, 1024, 256, span=2)
    tried = gemm_search._search(Timed(), shapes, "torch", Dtype.FLOAT32)
    assert 1 <= len(tried) < len(shapes)
    assert set(tried) <= set(shapes[: len(tried)])


def test_the_search_publishes_fresh_samples_of_the_shape_it_found() -> None:
    answer = measured("gemm-search", m=256, n=256, k=256, span=0, dtype="bfloat16")
    assert answer["status"] == "ok"
    ((series,),) = (part["series"] for part in answer["parts"])
    assert (series["metric"], series["unit"]) == ("rate", "FLOP/s")
    found = {name: value for name, (value, _) in answer["observed"].items()}
    assert found["shapes_tried"] == 2
    assert (found["best_m"], found["best_n"]) == (256, 256)
    assert answer["flop"] == 2 * 256 * 256 * found["best_k"]
    assert all(value > 0 for value in series["values"])
