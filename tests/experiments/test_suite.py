"""Every experiment: right results pass, wrong ones fail, FLOP and bytes are right, and errors give a reason."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from experiments import worker
from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.kernels import bfloat16_dot, cpu_divergence, dependent_chain, fma
from experiments.kernels.cuda_compile import compile_module
from experiments.kernels.sequential import BITS, cpu_kernels
from experiments.models import layers, work_and_span
from experiments.registry import experiments, get_experiment
from experiments.suite import bandwidth, sustained
from experiments.tabular.table_libraries import LIBRARIES
from experiments.workload import Dtype, Unsupported
from tests.experiments.point_runs import CPU, GPU, SMALL, build_work, passes_check, point_params, run_once
from tests.experiments.processor_files import skip_without_instructions
from tests.experiments.second_device import SecondCpu
from tests.experiments.test_zoo import PARAMETERS

# Experiments that start processes or compile CUDA C have their own tests.
ELSEWHERE = {"language-serving", "serving", "several-devices", "without-cuda"}
FAMILIES = ("mlp", "cnn", "resnet", "lstm-32", "gpt-1m", "nanogpt-cpu")

RIGHT: list[Any] = [
    *(
        (name, CPU, {})
        for name in SMALL
        if name not in {*ELSEWHERE, "libraries"} and "cpu" in get_experiment(name).fits
    ),
    *((name, GPU, {}) for name in SMALL if name not in ELSEWHERE and "cpu" not in get_experiment(name).fits),
    ("peak", CPU, {"threads": 2}),
    ("peak", CPU, {"kernel": "scalar_fma", "dtype": "float64"}),
    pytest.param("peak", CPU, {"dtype": "bfloat16"},
                 marks=pytest.mark.skipif(bool(bfloat16_dot.unsupported_reason()),
                                          reason=bfloat16_dot.unsupported_reason())),
    *(
        ("gemm", CPU, {"backend": backend, "dtype": dtype})
        for backend, dtypes in {
            "torch": ("float64", "bfloat16", "float16"), "onednn": ("float32", "bfloat16"),
            "numpy": ("float32", "float64"), "python": ("float64",), "scalar": ("float32", "float64"),
            "simd": ("float32", "float64"),
        }.items()
        for dtype in dtypes
    ),
    *(
        ("bandwidth", CPU, {"op": op, "backend": backend})
        for op in ("copy", "scale", "add", "triad")
        for backend in ("llvm", "llvm-nt", "torch")
    ),
    *(("training", CPU, {"model": model, "batch": 2, "dtype": dtype}) for model in FAMILIES
      for dtype in ("float32", "bfloat16")),
    *(("training", CPU, {"model": model, "batch": 3, "backend": "onednn"}) for model in ("mlp", "cnn", "nanogpt-cpu")),
    ("training", CPU, {"model": "cnn", "backend": "channels_last"}),
    *(
        ("content", CPU, {"content": content, "dtype": dtype})
        for content in ("zeros", "ones", "integers", "normal", "sparse", "denormal")
        for dtype in ("float64", "float32", "bfloat16", "float16")
    ),
    *(("content", CPU, {"content": "denormal", "backend": backend}) for backend in ("onednn", "numpy")),
    *(("parallelism", CPU, {"paths": paths, "backend": how})
      for paths, how in ((1, "llvm"), (16, "llvm"), (32, "llvm-scalar"))),
    *(("models", CPU, {"model": model}) for model in ("resnet", "lstm-32", "gpt-1m")),
    *(("inference", CPU, {"model": model}) for model in FAMILIES),
    *(
        ("inference", CPU, {"model": model, "backend": backend, "dtype": dtype})
        for model, backend, dtype in (
            ("cnn", "onnx", "float32"), ("gpt-1m", "onnx", "float32"), ("mlp", "onnx", "int8"),
            ("lstm-32", "onnx", "int8"), ("resnet", "openvino", "int8"), ("cnn", "onnx", "int8"),
            ("resnet", "torch", "bfloat16"), ("gpt-1m", "torch", "bfloat16"),
            *(("mobilenet-v2", backend, "float32") for backend in ("torch", "channels_last", "onnx", "openvino")),
            ("minilm-l6", "torch", "float32"), ("minilm-l6", "openvino", "float32"), ("minilm-l6", "onnx", "int8"),
        )
    ),
    *(("inference", GPU, {"model": model, "backend": backend}) for model in ("cnn", "lstm-32", "gpt-1m")
      for backend in ("torch", "graph")),
    *(("training", GPU, {"model": model, "backend": "graph"}) for model in ("mlp", "cnn")),
    ("sustained", CPU, {"load": "triad", "extent": 100_000, "dtype": "float64", "backend": "llvm-nt"}),
    ("sustained", GPU, {"load": "one_block", "extent": 8}),
    ("roofline", GPU, {"model": "cnn", "phase": "forward"}),
    ("roofline", CPU, {"model": "mobilenet-v2", "batch": 1, "phase": "forward"}),
    ("roofline", CPU, {"model": "gpt2-124m", "batch": 3, "phase": "decode", "dtype": "bfloat16"}),
    ("orchestration", CPU, {"model": "gpt-1m", "source": "memory", "workers": 1}),
    ("orchestration", CPU, {"source": "preloaded"}),
    ("time-to-train", CPU, {"job": "digits-cnn", "dtype": "bfloat16"}),
    ("convergence", CPU, {"model": "cnn", "dtype": "bfloat16"}),
    ("equivalence", CPU, {"model": "mlp", "steps": 2, "backend": "onednn"}),
    ("equivalence", CPU, {"steps": 2, "dtype": "bfloat16"}),
    *(
        ("offload", CPU, {"op": op, **shape, "backend": backend})
        for op, shape in (("gemv", {"m": 48, "n": 1, "k": 80}), ("gemm", {}), ("mlp", {"m": 9}))
        for backend in ("torch", "onednn", "numpy")
    ),
]  # fmt: skip


@pytest.fixture(autouse=True)
def short_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put fewer calls in a graph, because the CPU stand-in takes seconds for work that takes a GPU milliseconds."""
    monkeypatch.setattr(sustained, "IN_A_GRAPH", 10)


@pytest.mark.parametrize(("name", "device", "changed"), RIGHT)
def test_right_result_passes_its_check_repeatedly(name: str, device: Device, changed: dict[str, Any]) -> None:
    with skip_without_instructions():
        workload = build_work(name, device, **changed)
        run_once(workload)
        assert passes_check(workload)
        assert passes_check(workload), "on other data"


Patch = pytest.MonkeyPatch


def lose_row(patch: Patch) -> None:
    def lossy(make_product: Any) -> Any:
        def matmul(*operands: Any) -> Any:
            product = make_product(*operands)
            return lambda: product().index_fill_(0, torch.tensor(7), 0)

        return matmul

    for kind in (CpuDevice, SecondCpu):
        patch.setattr(kind, "matmul", lossy(kind.matmul))


def scale_activations(patch: Patch) -> None:
    """Scale measured activations, and leave the float64 reference right."""

    def scale_activations(right: Any) -> Any:
        return lambda x, *more, **named: right(x, *more, **named) * (1.0 if x.dtype is torch.float64 else 1.01)

    for name in ("relu", "gelu"):
        patch.setattr(functional, name, scale_activations(getattr(functional, name)))


def add_operation(patch: Patch) -> None:
    kernel, each = dependent_chain.chain()
    patch.setattr(dependent_chain, "chain", lambda: (lambda rounds: kernel(rounds + 1), each))


def double_factors(patch: Patch) -> None:
    make_array = fma.aligned_array

    class Block(type(make_array(1, Dtype.FLOAT32))):  # type: ignore[misc]
        """Array that doubles each float assigned to it. The kernel gets its factors in such an array."""

        def __setitem__(self, at: Any, value: Any) -> None:
            super().__setitem__(at, 2 * value if isinstance(value, float) else value)

    patch.setattr(fma, "aligned_array", lambda *arguments: make_array(*arguments).view(Block))


def change_element(patch: Patch) -> None:
    make_stream = bandwidth.stream

    def stream(op: str, dtype: Dtype, arrays: list[Any], *more: Any) -> Callable[[int], None]:
        kernel = make_stream(op, dtype, arrays, *more)

        def call(passes: int) -> None:
            kernel(passes)
            arrays[0][1000] += 1

        return call

    patch.setattr(bandwidth, "stream", stream)


def skip_steps(patch: Patch) -> None:
    walk = cpu_kernels.CpuChains.walk
    patch.setattr(cpu_kernels.CpuChains, "walk", lambda self, steps: walk(self, steps - BITS))


def scale_layer(patch: Patch) -> None:
    results = layers.output_and_gradients
    patch.setattr(layers, "output_and_gradients", lambda module, x, above: [
        y if x.dtype is torch.float64 else 1.001 * y for y in results(module, x, above)
    ])  # fmt: skip


def scale_graph(patch: Patch) -> None:
    traced = work_and_span.trace_forward
    patch.setattr(work_and_span, "trace_forward", lambda entry: lambda *arguments: 1.01 * traced(entry)(*arguments))


def corrupt_copy(patch: Patch) -> None:
    copy_ = torch.Tensor.copy_

    def copy(to: torch.Tensor, sent: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        copy_(to, sent, non_blocking)
        if len(to) == 5000:
            to[-1] += 1
        return to

    patch.setattr(torch.Tensor, "copy_", copy)


SPOILT: dict[str, tuple[Callable[[Patch], None], dict[str, Any]]] = {
    **dict.fromkeys(("gemm", "content", "numerics", "offload", "sustained"), (lose_row, {})),
    **dict.fromkeys(
        ("convergence", "equivalence", "inference", "orchestration", "roofline", "training"),
        (scale_activations, {}),
    ),
    "bandwidth": (change_element, {}),
    "clock": (add_operation, {}),
    "libraries": (scale_layer, {"shape": "256-cells", "layer": "lstm", "variant": "native"}),
    "models": (scale_graph, {}),
    "parallelism": (
        lambda patch: patch.setattr(cpu_divergence, "MULTIPLIERS", (*cpu_divergence.MULTIPLIERS[:-1], 1)),
        {},
    ),
    "peak": (double_factors, {}),
    "sequential": (skip_steps, {}),
    "tabular": (lambda patch: patch.setattr(LIBRARIES["pandas"], "sort", lambda _, table: table), {}),
    "time-to-train": (scale_activations, {}),
    "transfer": (corrupt_copy, {}),
}


def test_every_experiment_is_spoilt_here_or_has_its_own_tests() -> None:
    files = {name: f"test_{name.replace('-', '_')}.py" for name in experiments()}
    assert [name for name in files if name not in SPOILT and not Path(__file__).with_name(files[name]).exists()] == []


@pytest.mark.parametrize("name", sorted(SPOILT))
def test_spoilt_result_fails_its_check(name: str, monkeypatch: Patch) -> None:
    spoil, changed = SPOILT[name]
    device = CPU if "cpu" in get_experiment(name).fits else GPU
    assert passes_check(build_work(name, device, **changed))
    spoil(monkeypatch)
    assert not passes_check(build_work(name, device, **changed))


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda out: out.index_fill_(0, torch.tensor(40), 0.0), id="a row past the sampled ones lost"),
        pytest.param(lambda out: out.mul_(1.001), id="scaled by a thousandth"),
        pytest.param(lambda out: out.index_fill_(1, torch.tensor(3), torch.nan), id="nan"),
        pytest.param(lambda out: out.index_fill_(0, torch.tensor(40), torch.nan), id="nan past the sampled rows"),
        pytest.param(lambda out: out.bfloat16().float(), id="rounded to bfloat16"),
    ],
)
@pytest.mark.parametrize("name", ["gemm", "content", "sustained", "numerics"])
def test_faulty_product_fails_its_check(monkeypatch: Patch, name: str, fault: Any) -> None:
    matmul = CpuDevice.matmul

    def break_product(self: CpuDevice, *operands: Any) -> Any:
        product = matmul(self, *operands)
        return lambda: fault(product().clone())

    monkeypatch.setattr(CpuDevice, "matmul", break_product)
    shape: dict[str, Any] = {"extent": 64} if name == "sustained" else {"m": 64, "n": 64, "k": 64}
    assert not passes_check(build_work(name, **shape))


# FLOP and bytes per call, computed by hand; None if the experiment does not count them.
COUNTED: list[tuple[str, Device, dict[str, Any], float | None, float | None]] = [
    ("gemm", CPU, {}, 2 * 48 * 80 * 96, 4 * (48 * 96 + 96 * 80 + 48 * 80)),
    ("gemm", CPU, {"dtype": "bfloat16"}, 2 * 48 * 80 * 96, 2 * (48 * 96 + 96 * 80 + 48 * 80)),
    ("content", CPU, {"content": "zeros"}, 2 * 48 * 80 * 96, 4 * (48 * 96 + 96 * 80 + 48 * 80)),
    ("bandwidth", CPU, {"op": "copy", "backend": "torch"}, None, 2 * 6250 * 8),
    ("bandwidth", CPU, {"op": "triad", "backend": "torch"}, None, 3 * 4166 * 8),
    ("sustained", GPU, {}, 2 * 64**3, 3 * 64**2 * 4),
    ("sustained", GPU, {"load": "triad", "extent": 12000}, None, 12000),
    ("sustained", GPU, {"load": "one_block", "extent": 8}, 10 * 2 * 8**3, None),
    ("sustained", GPU, {"load": "idle", "extent": 1}, None, None),
    *(
        ("offload", device, {**shape, "op": op, "host_memory": where, "dtype": dtype}, flop and 2 * flop, size * moved)
        for op, shape, flop, moved in (
            ("elementwise", {"m": 1000, "n": 1, "k": 1}, None, 2000),
            ("gemv", {"m": 48, "n": 1, "k": 80}, 2 * 48 * 80, 80 + 48),
            ("gemm", {"m": 40, "n": 24, "k": 56}, 2 * 40 * 24 * 56, 40 * 56 + 56 * 24 + 40 * 24),
            ("mlp", {"m": 9, "n": 48, "k": 32}, 4 * 9 * 48 * 32, 9 * 32 * 2),
        )
        for device, where in ((CPU, "none"), (GPU, "pinned"))
        for dtype, size in (("float64", 8), ("bfloat16", 2))
    ),
    *(
        ("transfer", GPU, {"direction": direction, "host_memory": memory}, None, moved)
        for direction, memory, moved in (
            ("host_to_device", "pageable", 5000), ("device_to_host", "pinned", 5000), ("both", "pinned", 10_000),
            ("device_to_device", "none", 10_000),
        )
    ),
    ("inference", CPU, {"batch": 3}, 3 * 2 * (64 * 512 + 512 * 512 + 512 * 10), 4 * (301_066 + 3 * 64 + 3 * 10)),
    # Of the embedding table, only the rows that are looked up count.
    ("inference", CPU, {"model": "lstm-32", "batch": 3}, 3 * 2 * 32 * (16 * 256 * 256 + 256 * 256),
     4 * (PARAMETERS["lstm-32"] - 256 * 256) + 3 * 32 * (256 * 4 + 8) + 3 * 32 * 256 * 4),
    ("libraries", CPU, {"layer": "product", "shape": "768x3072", "batch": 9}, 2 * 9 * 768 * 3072, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "device", "changed", "flop", "moved"), COUNTED)
def test_call_counts_its_flop_and_bytes(
    name: str, device: Device, changed: dict[str, Any], flop: float | None, moved: float | None
) -> None:
    with skip_without_instructions():
        workload = build_work(name, device, **changed)
    assert (workload.flop, workload.bytes) == (flop, moved)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        *((name, {}) for name in ("gemm", "content", "inference", "offload", "orchestration")),
        *(("training", {"model": model, "batch": batch}) for model in ("mlp", "cnn") for batch in (1, 5)),
        *(("inference", {"model": model, "batch": 3}) for model in ("cnn", "resnet", "gpt-1m")),
        ("offload", {"op": "mlp"}),
        ("sustained", {}),
    ],
)
def test_flop_formulas_match_torch(name: str, changed: dict[str, Any]) -> None:
    workload = build_work(name, **changed)
    # The counter does not know the CPU's default attention kernel, so attention must use plain products.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        for call in workload.calls[:1] or [phase for _, phase in workload.phases]:
            call()
    assert counter.get_total_flops() == workload.flop
    # The plan's formula for FLOP is close to the workload's number.
    if formula := get_experiment(name).flop:
        assert formula(**point_params(name, **changed)) == pytest.approx(workload.flop, rel=0.25)


LAYER: dict[str, Any] = {"layer": "product", "shape": "768x3072", "batch": 9}


@pytest.mark.parametrize(("name", "changed"), [("gemm", {}), ("libraries", LAYER)])
def test_operands_rotate_in_memory(name: str, changed: dict[str, Any]) -> None:
    workload = build_work(name, **changed)
    assert len({call().data_ptr() for call in workload.calls}) == len(workload.calls) > 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in SMALL if get_experiment(name).smaller])
def test_probes_get_smaller_and_end(name: str) -> None:
    smaller: Any = get_experiment(name).smaller
    large = {"m": 4096, "n": 4096, "k": 4096, "batch": 512, "rows": 10**6}
    step: dict[str, Any] | None = {key: large.get(key, value) for key, value in point_params(name).items()}
    sizes = []
    while step is not None:
        sizes.append(worker._work_size(**step))
        step = smaller(step)
    # `sizes` has the size of the point, then the sizes of its probes. There must be at least one probe if the
    # experiment predicts the seconds per call, and at least two probes otherwise.
    assert len(sizes) > (1 if get_experiment(name).call_s else 2)
    assert sizes == sorted(set(sizes), reverse=True)
    # The smallest probe is cheap for any budget.
    assert sizes[-1] < sizes[0] / 50


LARGER: dict[str, dict[str, Any]] = {
    **{name: {"m": 4096} for name in ("gemm", "content", "numerics", "offload")},
    **{name: {"batch": 256} for name in ("training", "orchestration", "roofline", "libraries")},
    **{name: {"model": "gpt-1m"} for name in ("inference", "models", "equivalence")},
    "bandwidth": {"footprint": 10**9},
    "boosting": {"rows": 10**6},
    "language-models": {"model": "llama-1b"},
    "language-serving": {"model": "llama-1b"},
    "parallelism": {"in_flight": 10**6},
    "sequential": {"footprint": 10**8},
    "serving": {"service": "embedding"},
    "several-devices": {"ranks": 4},
    "sustained": {"load": "triad", "extent": 10**9},
    "tabular": {"rows": 10**8},
    "time-to-train": {"job": "bytes-nanogpt"},
    "transfer": {"direction": "both"},
    "without-cuda": {"kernel": "naive"},
}


@pytest.mark.parametrize("name", [name for name in SMALL if get_experiment(name).memory])
def test_memory_grows_with_the_point_and_covers_the_bytes_per_call(name: str) -> None:
    memory: Any = get_experiment(name).memory
    here = memory(**point_params(name))
    assert memory(**point_params(name, **LARGER[name])) > here >= 0
    if name in ("gemm", "content", "offload", "transfer"):
        assert here >= (build_work(name, CPU if "cpu" in get_experiment(name).fits else GPU).bytes or 0.0) > 0


FIT = {"job": "digits-logistic", "backend": "sklearn"}
# Each entry is an unsupported point and words from the reason.
UNSUPPORTED: list[tuple[str, Device, dict[str, Any], str]] = [
    ("bandwidth", CPU, {"backend": "cupy"}, "does not run on cpu"),
    ("bandwidth", CPU, {"footprint": 8}, "too small"),
    ("bandwidth", GPU, {}, "does not run"),
    ("bandwidth", GPU, {"footprint": 8, "backend": "torch"}, "too small"),
    ("boosting", CPU, {"rows": 999}, "1,000 rows"),
    ("boosting", CPU, {"trees": 0}, "at least 1 tree"),
    ("content", CPU, {"dtype": "tf32"}, "TF32"),
    ("convergence", CPU, {"batch": 1025}, "1024 training images"),
    ("convergence", CPU, {"batch": 0}, "batch must be 1 to 1024"),
    ("convergence", CPU, {"seeds": 0}, "seeds must be at least 1"),
    ("convergence", CPU, {"dtype": "float64"}, "does not train in"),
    ("convergence", CPU, {"dtype": "tf32"}, "NVIDIA"),
    ("equivalence", CPU, {"dtype": "float64"}, "does not train in"),
    ("equivalence", CPU, {"steps": 0}, "steps must be at least 1"),
    ("equivalence", GPU, {"backend": "onednn"}, "onednn"),
    ("equivalence", CPU, {"backend": "onednn", "dtype": "bfloat16"}, "oneDNN"),
    *(("gemm", CPU, {"backend": backend, "dtype": dtype}, f"no {dtype}|TF32|in int8") for backend, dtype in (
        ("numpy", "bfloat16"), ("onednn", "float64"), ("torch", "tf32"), ("numpy", "float16"), ("torch", "int8"),
    )),
    ("inference", CPU, {"dtype": "int8"}, "int8 needs ONNX Runtime"),
    ("inference", CPU, {"dtype": "float8_e4m3fn"}, "does not support"),
    ("inference", CPU, {"backend": "onnx", "dtype": "bfloat16"}, "computes in float32 and int8 here, not in bfloat16"),
    ("inference", GPU, {"backend": "onnx"}, "backend onnx does not run on"),
    ("inference", CPU, {"backend": "graph"}, "no graphs"),
    ("inference", CPU, {"batch": 0}, "batch must be at least 1"),
    ("language-serving", CPU, {"users": 257}, "256 users at a time"),
    ("language-serving", CPU, {"new_tokens": 1}, "new_tokens at least 2"),
    ("language-serving", CPU, {"prompt_tokens": 510}, "this model takes 512"),
    ("language-serving", CPU, {"threads": 4097}, "more than the 1 cores"),
    ("libraries", CPU, {"dtype": "tf32"}, "TF32"),
    ("libraries", CPU, {"dtype": "float64"}, "calls no library"),
    ("libraries", CPU, {**LAYER, "variant": "tiled"}, "backends of gemm"),
    ("libraries", GPU, {"dtype": "int8"}, "int8"),
    ("libraries", GPU, {"variant": "naive"}, "applies to products"),
    ("libraries", GPU, {"shape": "256-cells"}, "no convolution"),
    ("libraries", GPU, {**LAYER, "variant": "native"}, "applies to layers"),
    ("libraries", GPU, {**LAYER, "variant": "naive", "dtype": "bfloat16"}, "no naive product"),
    ("libraries", GPU, {**LAYER, "passes": "both"}, "forward only"),
    ("libraries", GPU, {"layer": "none", "shape": "loaded", "batch": 0}, "NVIDIA's driver"),
    ("numerics", CPU, {"method": "cell_order"}, "backend scalar"),
    ("numerics", CPU, {"method": "cell_order", "backend": "scalar", "dtype": "bfloat16"}, "no bfloat16"),
    ("numerics", CPU, {"method": "summation", "backend": "numpy"}, "backend torch"),
    ("numerics", CPU, {"method": "threads"}, "threads must be at least 2"),
    ("numerics", CPU, {"method": "libraries"}, "is the baseline"),
    ("offload", GPU, {"host_memory": "none"}, "a GPU pinned or pageable"),
    ("offload", CPU, {"host_memory": "pinned"}, "a CPU takes none"),
    ("offload", CPU, {"launch": "graph"}, "pinned memory only"),
    ("offload", GPU, {"host_memory": "pinned", "uses": 0}, "uses must be at least 1"),
    ("offload", CPU, {"op": "elementwise"}, "set n and k to 1"),
    ("offload", CPU, {"op": "gemv"}, "n must be 1"),
    ("offload", GPU, {"host_memory": "pinned", "op": "elementwise", "n": 1, "k": 1, "dtype": "int8"}, "support int8"),
    ("offload", GPU, {"host_memory": "pinned", "op": "mlp", "backend": "onednn"}, "onednn does not"),
    ("offload", CPU, {"op": "mlp", "backend": "onednn", "dtype": "float64"}, "no float64"),
    ("orchestration", CPU, {"source": "preloaded", "workers": 1}, "need no workers"),
    ("orchestration", CPU, {"model": "gpt-1m", "source": "photographs"}, "need a model for images"),
    ("orchestration", CPU, {"model": "minilm-l6", "source": "encoded"}, "a text classifier or causal network"),
    ("orchestration", CPU, {"model": "resnet-50", "source": "encoded", "batch": 1}, "a text classifier or causal"),
    ("parallelism", CPU, {"backend": "cupy"}, "cupy"),
    ("parallelism", CPU, {"threads": 2}, "one core"),
    ("parallelism", CPU, {"paths": 3}, "must be a power of 2"),
    ("parallelism", GPU, {}, "llvm"),
    ("parallelism", GPU, {"kernel": "chains", "in_flight": 32}, "does not run"),
    ("peak", CPU, {"dtype": "float16"}, "no float16 kernel"),
    ("roofline", CPU, {"phase": "decode"}, "generates no text"),
    ("roofline", CPU, {"model": "minilm-l6", "phase": "decode"}, "generates no text"),
    ("roofline", CPU, {"dtype": "float8_e4m3fn", "phase": "forward"}, "answers in float8_e4m3fn"),
    ("roofline", CPU, {"dtype": "tf32"}, "TF32|tf32"),
    ("sequential", CPU, {"kernel": "chain", "footprint": 4, "threads": 2}, "one thread"),
    ("sequential", CPU, {"backend": "cupy"}, "does not run on cpu"),
    ("sequential", CPU, {"kernel": "chain", "footprint": 4, "data": "text"}, "random data"),
    ("sequential", CPU, {"kernel": "chain", "footprint": 64}, "is 4"),
    ("sequential", CPU, {"footprint": 64}, "too small"),
    ("sequential", CPU, {"footprint": 2**34 + 64}, "16 GiB"),
    ("sequential", CPU, {"kernel": "branches", "footprint": 1000}, "a power of two"),
    ("sequential", CPU, {"kernel": "states", "data": "text", "footprint": 2**40}, "footprint must be over"),
    ("serving", CPU, {"dtype": "int8"}, "does not support int8 here: use onnx"),
    ("serving", CPU, {"service": "image-classifier", "dtype": "int8", "backend": "onnx"}, "not int8"),
    ("serving", CPU, {"service": "lookup", "backend": "onnx"}, "supports torch"),
    ("serving", CPU, {"cores": 4096}, "4096 cores"),
    ("serving", CPU, {"threads": 2}, "more than the 1 cores"),
    ("serving", CPU, {"requests_per_s": 0}, "must be at least 1"),
    ("several-devices", CPU, {"ranks": 4, "threads": 1000}, "4000 cores"),
    ("several-devices", CPU, {"interconnect": "nccl"}, "does not join cpu"),
    ("several-devices", CPU, {"ranks": 0}, "ranks must be at least 1"),
    ("several-devices", CPU, {"model": "cnn"}, "batch norm"),
    ("several-devices", GPU, {"ranks": 2}, "this node has 1"),
    ("sustained", CPU, {"load": "one_block"}, "no graphs"),
    ("sustained", CPU, {"load": "triad", "backend": "onednn"}, "onednn"),
    ("sustained", CPU, {"backend": "llvm-nt"}, "llvm-nt"),
    ("tabular", CPU, {"op": "parse_csv", "backend": "torch"}, "reads no text"),
    ("tabular", CPU, {"threads": 1000}, "not with 1000"),
    ("tabular", CPU, {"transfers": "included"}, "a CPU has none"),
    ("tabular", GPU, {"backend": "torch"}, "transfers none"),
    ("tabular", GPU, {"backend": "pandas", "transfers": "included"}, "does not run"),
    ("tabular", CPU, {"rows": 0}, "rows must be at least 1"),
    ("time-to-train", CPU, {"job": "digits-logistic"}, "a job for scikit-learn"),
    ("time-to-train", CPU, {"backend": "sklearn"}, "a job for torch"),
    ("time-to-train", CPU, FIT, "works in float64"),
    ("time-to-train", GPU, {**FIT, "dtype": "float64"}, "does not run on"),
    ("training", CPU, {"model": "gpt-1m", "backend": "channels_last"}, "takes no images"),
    ("training", CPU, {"backend": "graph"}, "graph does not run on cpu"),
    ("training", CPU, {"dtype": "float64"}, "does not train in"),
    ("training", GPU, {"backend": "onednn"}, "onednn"),
    ("training", CPU, {"backend": "onednn", "dtype": "bfloat16"}, "by itself"),
    ("transfer", GPU, {"direction": "both", "host_memory": "pageable"}, "one way at a time"),
    ("transfer", GPU, {"host_memory": "none"}, "takes host memory pinned or pageable"),
    ("transfer", GPU, {"direction": "peer"}, "takes host memory none"),
    ("without-cuda", GPU, {}, "pip install cupy"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "device", "changed", "why"), UNSUPPORTED)
def test_unsupported_point_says_why(name: str, device: Device, changed: Any, why: str, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    compile_module.cache_clear()
    torch.set_num_threads(2)  # with one thread, PyTorch calls no library for a small convolution
    with pytest.raises(Unsupported, match=why) as caught:
        workload = build_work(name, device, **changed)
        # Some points are refused only when called.
        (workload.check or workload.observe or workload.calls[0])()
    assert len(str(caught.value)) > 10


def test_tolerances_are_far_below_the_next_coarser_format() -> None:
    assert Dtype.FLOAT32.matmul_tolerance(4096) < Dtype.BFLOAT16.unit_roundoff / 100
    assert Dtype.FLOAT64.matmul_tolerance(4096) < Dtype.FLOAT32.unit_roundoff / 100
