"""Layers with a library and without: really switched, right both ways, and nothing stays switched afterwards."""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import Any, get_args

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from experiments import switches
from experiments.devices.cpu import CpuDevice
from experiments.kernels import products
from experiments.models import layers
from experiments.registry import get, typed
from experiments.suite import libraries
from experiments.sweep import read_preset, sweep
from experiments.work import Dtype, Unsupported, Work
from tests.experiments.processor import its_instructions_permitting

from . import cuda_standin
from .second_device import SecondCpu

CPU, GPU = CpuDevice(), SecondCpu()
POINT = {
    "layer": "convolution", "shape": "conv5-3x3", "batch": 2, "passes": "forward", "variant": "library",
    "dtype": "float32", "threads": 1,
}  # fmt: skip
LSTM = {"layer": "lstm", "shape": "256-cells"}
PRODUCT: dict[str, Any] = {"layer": "product", "shape": "768x3072", "batch": 9}


@pytest.fixture(autouse=True)
def threads() -> None:
    """On one thread PyTorch leaves small convolutions to its own kernels."""
    torch.set_num_threads(2)


def work(device: Any = GPU, **params: Any) -> Work:
    experiment = get("libraries")
    made = experiment.function(device, **typed(experiment, {**POINT, **params}))
    assert isinstance(made, Work)
    return made


def right(made: Work) -> bool:
    assert made.check is not None
    assert made.tolerance is not None
    return made.check() <= made.tolerance


def calls_a_library(made: Work) -> bool:
    with torch.autograd.profiler.profile() as seen:
        made.calls[0]()
    return any(libraries.LIBRARY_OPERATOR.match(event.name) for event in seen.function_events or ())


def state() -> tuple[Any, ...]:
    """All switches that some point may turn."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return (
        cudnn.enabled, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32,
        matmul.allow_bf16_reduced_precision_reduction, torch.backends.mkldnn.enabled, torch._C._get_nnpack_enabled(),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("passes", ["forward", "both"])
@pytest.mark.parametrize("variant", ["library", "native"])
@pytest.mark.parametrize("layer", [{}, {"shape": "conv2-1x1", "batch": 1}, LSTM])
def test_layers_are_right_with_the_library_and_without(
    layer: dict[str, Any], variant: str, passes: str, dtype: str
) -> None:
    before = state()
    with its_instructions_permitting():
        made = work(**layer, variant=variant, passes=passes, dtype=dtype)
    assert right(made)
    assert calls_a_library(made) == (variant == "library")
    assert state() == before


def test_a_switch_that_changes_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switches.Switches, "__enter__", lambda _: None)
    monkeypatch.setattr(switches.Switches, "__exit__", lambda *_: None)
    with pytest.raises(Unsupported, match="goes on calling"):
        work(variant="native")


def test_a_layer_that_no_library_computes_is_told() -> None:
    with pytest.raises(Unsupported, match="calls no library"):
        work(dtype="float64")  # oneDNN has no float64


def test_an_error_leaves_the_switches_as_they_were() -> None:
    before = state()
    with pytest.raises(RuntimeError), switches.switches("cpu", Dtype.FLOAT32, library=False):
        raise RuntimeError
    assert state() == before


def test_a_gpus_switches_are_those_of_its_libraries() -> None:
    before = state()
    with switches.switches("cuda:0", Dtype.TF32, library=False, search=True, float32_sums=True):
        assert state()[:5] == (False, True, True, True, False)
    with switches.switches("cuda:0", Dtype.FLOAT32):
        assert state()[:4] == (True, False, False, False)
    assert state() == before
    with pytest.raises(Unsupported):
        switches.switches("mps", Dtype.FLOAT32)


@pytest.mark.parametrize("layer", [{}, LSTM])
@pytest.mark.parametrize("variant", ["library", "native"])
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda y, *gradients: [y * 1.001, *gradients], id="scaled by a thousandth"),
        pytest.param(lambda y, *gradients: [y.bfloat16().float(), *gradients], id="rounded to bfloat16"),
        pytest.param(lambda y, x, w, *rest: [y, x, w.index_fill(0, torch.tensor(0), 0), *rest], id="a lost gradient"),
        pytest.param(lambda y, x, *rest: [y, x.index_fill(1, torch.tensor(1), torch.nan), *rest], id="nan"),
    ],
)
def test_a_wrong_layer_fails_its_check(
    monkeypatch: pytest.MonkeyPatch, layer: dict[str, Any], variant: str, fault: Any
) -> None:
    correct = layers.results

    def broken(module: Any, x: torch.Tensor, above: Any) -> Any:
        found = correct(module, x, above)
        return fault(*found) if x.dtype is torch.float32 and above is not None else found

    monkeypatch.setattr(layers, "results", broken)
    assert not right(work(**layer, variant=variant, passes="both"))


@pytest.mark.parametrize("layer", [{}, {"shape": "conv1-7x7", "batch": 1}, LSTM])
def test_matrix_units_that_should_be_off_are_noticed(monkeypatch: pytest.MonkeyPatch, layer: dict[str, Any]) -> None:
    correct = layers.results

    def rounded(x: torch.Tensor) -> torch.Tensor:
        """To the 10 bits after the leading one that TF32 keeps."""
        return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

    def reduced(module: Any, x: torch.Tensor, above: Any) -> Any:
        if x.dtype is torch.float32:
            module, x = deepcopy(module), rounded(x)
            for weights in module.parameters():
                weights.data = rounded(weights.data)
        return correct(module, x, above)

    monkeypatch.setattr(layers, "results", reduced)
    assert not right(work(**layer))


@pytest.mark.parametrize("layer", [{}, {"shape": "conv1-7x7"}, {"shape": "conv4-1x1"}, LSTM])
def test_the_formula_agrees_with_torchs_flop_counter(layer: dict[str, Any]) -> None:
    params = {**POINT, **layer, "variant": "native"}
    one_pass, both = work(**params), work(**{**params, "passes": "both"})
    kind = layers.find(params["layer"], params["shape"])
    assert isinstance(kind, layers.Convolution | layers.Lstm)
    x = torch.randn(kind.inputs(2), requires_grad=True)
    with switches.switches("cpu", Dtype.FLOAT32, library=False), FlopCounterMode(display=False) as counter:
        y = layers.forward(kind.module(), x)
        assert counter.get_total_flops() == one_pass.flop
        y.sum().backward()
    # Nobody asks for the gradient of an LSTM's first state, which the formula counts with the others.
    unasked = 2 * 2 * 4 * kind.hidden**2 if isinstance(kind, layers.Lstm) else 0
    assert counter.get_total_flops() + unasked == both.flop == libraries.flop(**{**params, "passes": "both"})


def test_operands_and_results_take_turns_in_memory() -> None:
    made = work(CPU, **PRODUCT)
    assert len({call().data_ptr() for call in made.calls}) == len(made.calls) > 1  # type: ignore[attr-defined]
    assert len(work(CPU, **LSTM).calls) > 1


@pytest.mark.parametrize("variant", ["naive", "tiled"])
def test_this_projects_products_are_right(monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    cuda_standin.install(monkeypatch)
    monkeypatch.setitem(layers.PRODUCTS, PRODUCT["shape"], layers.Product(20, 18))
    assert right(work(**PRODUCT, variant=variant))


@pytest.mark.parametrize("fault", [0.0, float("nan")])
@pytest.mark.parametrize("variant", ["library", "naive"])
def test_one_wrong_entry_of_a_product_is_noticed(monkeypatch: pytest.MonkeyPatch, variant: str, fault: float) -> None:
    def multiply(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        torch.mm(a, b, out=out)
        out[-1, -1] = fault
        return out

    monkeypatch.setattr(products, "product", lambda *_: multiply)
    monkeypatch.setattr(SecondCpu, "matmul", lambda _, __, a, b, ___: lambda: multiply(a, b, a.new_empty(9, 3072)))
    assert not right(work(**PRODUCT, variant=variant))


@pytest.mark.parametrize(
    ("device", "params"),
    [
        (CPU, {"dtype": "tf32"}),
        (CPU, {"variant": "searched"}),
        (CPU, {**PRODUCT, "variant": "tiled"}),
        (CPU, {"layer": "none", "shape": "loaded", "batch": 0}),
        (GPU, {"dtype": "int8"}),
        (GPU, {"variant": "naive"}),
        (GPU, {"shape": "256-cells"}),
        (GPU, {**PRODUCT, "variant": "native"}),
        (GPU, {**PRODUCT, "variant": "float32_sums"}),
        (GPU, {**PRODUCT, "variant": "naive", "dtype": "bfloat16"}),
        (GPU, {**PRODUCT, "passes": "both"}),
        (GPU, {"layer": "none", "shape": "loaded", "batch": 0}),
    ],
)
def test_what_is_not_there_is_unsupported(device: Any, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(Unsupported):
        made = work(device, **params)
        assert made.observe is not None
        made.observe()


def test_probes_do_not_search() -> None:
    probe = libraries.smaller({**POINT, "batch": 256, "variant": "searched"})
    assert probe == {**POINT, "batch": 32, "variant": "library"}


def test_shapes_are_those_of_the_layers() -> None:
    named = [*layers.CONVOLUTIONS, *layers.LSTMS, *layers.PRODUCTS]
    assert sorted(get_args(libraries.Shape)) == sorted([*named, "loaded", "operators"])


@pytest.mark.parametrize(("preset", "kind"), [("quick", "gpu"), ("full", "gpu"), ("full", "cpu")])
def test_every_point_of_a_preset_has_its_other_side(preset: str, kind: str) -> None:
    """Without the library against with it, and TF32 against float32: all other parameters equal."""
    points = [dict(point.params) for point in sweep(read_preset(preset), "libraries", preset).points(kind)]
    assert points
    for point in points:
        if point["layer"] == "none":
            continue
        assert layers.find(point["layer"], point["shape"]) is not None, point
        if point["variant"] != "library":
            assert {**point, "variant": "library"} in points, point
        if point["dtype"] == "tf32":
            assert {**point, "dtype": "float32"} in points, point
