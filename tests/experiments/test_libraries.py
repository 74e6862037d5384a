"""Layers are right and run in a library exactly if requested; loaded libraries are counted by their origin."""

from __future__ import annotations

import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from experiments import library_paths, torch_switches
from experiments.devices.base import Device
from experiments.kernels import naive_products
from experiments.models import layers
from experiments.suite import libraries
from experiments.workload import Dtype, Unsupported, Workload
from tests.experiments import point_runs
from tests.experiments.point_runs import GPU, observe, passes_check
from tests.experiments.processor_files import skip_without_instructions
from tests.experiments.second_device import SecondCpu

LSTM = {"layer": "lstm", "shape": "256-cells"}
PRODUCT: dict[str, Any] = {"layer": "product", "shape": "768x3072", "batch": 9}


def build_layer(device: Device = GPU, **params: Any) -> Workload:
    # Use two threads, because PyTorch runs small convolutions on one thread in its native kernels, not in a library.
    torch.set_num_threads(1 if params.get("layer") == "lstm" else 2)
    return point_runs.build_work("libraries", device, **params)


def calls_library(work: Workload) -> bool:
    with torch.autograd.profiler.profile() as profile:
        work.calls[0]()
    return any(libraries.LIBRARY_OPERATOR.match(event.name) for event in profile.function_events or ())


def switch_state() -> tuple[Any, ...]:
    """Return the values of all PyTorch switches that points may change."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return (
        cudnn.enabled, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32,
        torch.backends.mkldnn.enabled, torch._C._get_nnpack_enabled(),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("variant", ["library", "native"])
@pytest.mark.parametrize("layer", [{}, {"shape": "conv2-1x1", "batch": 1}, LSTM])
def test_layers_are_right_with_and_without_the_library(layer: dict[str, Any], variant: str, dtype: str) -> None:
    before = switch_state()
    for passes in ("forward", "both"):
        with skip_without_instructions():
            work = build_layer(**layer, variant=variant, passes=passes, dtype=dtype)
        assert passes_check(work)
        assert calls_library(work) == (variant == "library")
        assert switch_state() == before


def test_switch_without_effect_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_switches.Switches, "__enter__", lambda _: None)
    monkeypatch.setattr(torch_switches.Switches, "__exit__", lambda *_: None)
    with pytest.raises(Unsupported, match="still calls a library"):
        build_layer(variant="native")


def test_first_line_from_pytorchs_error_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise NotImplementedError("no kernel for Half\nat line 7\nof a file")

    monkeypatch.setattr(torch.nn.functional, "conv2d", refuse)
    with pytest.raises(Unsupported) as raised:
        build_layer(passes="forward")
    assert str(raised.value) == "PyTorch: no kernel for Half"


def test_switches_match_the_device_and_are_restored() -> None:
    before = switch_state()
    with torch_switches.switches("cuda:0", Dtype.TF32, library=False):
        assert switch_state()[:4] == (False, False, True, True)
    with torch_switches.switches("cuda:0", Dtype.FLOAT32):
        assert switch_state()[:4] == (True, False, False, False)
    with pytest.raises(RuntimeError), torch_switches.switches("cpu", Dtype.FLOAT32, library=False):
        raise RuntimeError
    assert switch_state() == before
    with pytest.raises(Unsupported):
        torch_switches.switches("mps", Dtype.FLOAT32)


@pytest.mark.parametrize("layer", [{}, LSTM])
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda y, *gradients: [y.bfloat16().float(), *gradients], id="rounded to bfloat16"),
        pytest.param(lambda y, x, w, *rest: [y, x, w.index_fill(0, torch.tensor(0), 0), *rest], id="a lost gradient"),
        pytest.param(lambda y, x, *rest: [y, x.index_fill(1, torch.tensor(1), torch.nan), *rest], id="nan"),
    ],
)
def test_wrong_layer_fails_its_check(monkeypatch: pytest.MonkeyPatch, layer: dict[str, Any], fault: Any) -> None:
    correct = layers.output_and_gradients

    def with_fault(module: Any, x: torch.Tensor, above: Any) -> Any:
        results = correct(module, x, above)
        return fault(*results) if x.dtype is torch.float32 and above is not None else results

    monkeypatch.setattr(layers, "output_and_gradients", with_fault)
    for variant in ("library", "native"):
        assert not passes_check(build_layer(**layer, variant=variant, passes="both"))


@pytest.mark.parametrize("layer", [{}, {"shape": "conv1-7x7", "batch": 1}, LSTM])
def test_check_detects_matrix_units_that_should_be_off(monkeypatch: pytest.MonkeyPatch, layer: dict[str, Any]) -> None:
    correct = layers.output_and_gradients

    def round_to_tf32(x: torch.Tensor) -> torch.Tensor:
        """Round to TF32's 10 mantissa bits."""
        return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

    def at_reduced_precision(module: Any, x: torch.Tensor, above: Any) -> Any:
        if x.dtype is torch.float32:
            module, x = deepcopy(module), round_to_tf32(x)
            for weights in module.parameters():
                weights.data = round_to_tf32(weights.data)
        return correct(module, x, above)

    monkeypatch.setattr(layers, "output_and_gradients", at_reduced_precision)
    assert not passes_check(build_layer(**layer))


@pytest.mark.parametrize("layer", [{}, {"shape": "conv1-7x7"}, {"shape": "conv4-1x1"}, LSTM])
def test_flop_formula_agrees_with_torchs_counter(layer: dict[str, Any]) -> None:
    params = {**point_runs.SMALL["libraries"], **layer, "variant": "native"}
    one_pass, both = build_layer(**params), build_layer(**{**params, "passes": "both"})
    kind = layers.find_layer(params["layer"], params["shape"])
    assert isinstance(kind, layers.Convolution | layers.Lstm)
    x = torch.randn(kind.inputs(2), requires_grad=True)
    with torch_switches.switches("cpu", Dtype.FLOAT32, library=False), FlopCounterMode(display=False) as counter:
        y = layers.layer_output(kind.module(), x)
        assert counter.get_total_flops() == one_pass.flop
        y.sum().backward()
    # Torch does not compute the gradient for an LSTM's first state, but the formula counts it.
    skipped = 2 * 2 * 4 * kind.hidden**2 if isinstance(kind, layers.Lstm) else 0
    assert counter.get_total_flops() + skipped == both.flop == libraries.flop(**{**params, "passes": "both"})


@pytest.mark.parametrize("fault", [0.0, float("nan")])
@pytest.mark.parametrize("variant", ["library", "naive"])
def test_check_detects_one_wrong_entry_in_a_product(
    monkeypatch: pytest.MonkeyPatch, variant: str, fault: float
) -> None:
    def multiply(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        torch.mm(a, b, out=out)[-1, -1] = fault
        return out

    monkeypatch.setattr(naive_products, "product", lambda *_: multiply)
    monkeypatch.setattr(SecondCpu, "matmul", lambda _, __, a, b, ___: lambda: multiply(a, b, a.new_empty(9, 3072)))
    assert not passes_check(build_layer(**PRODUCT, variant=variant))


FOLDERS = [Path("/home/someone/venv/lib/python3.12/site-packages")]
IN_PACKAGES = ["nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9", "torch/lib/libcudart-9335f6a2.so.12"]
DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06"
OTHERS = ["/usr/lib/x86_64-linux-gnu/libc.so.6", "/dev/nvidia0", f"{FOLDERS[0]}/torch/lib/libtorch_cuda.so"]
SYSTEMS = ["/usr/local/cuda-13.0/targets/x86_64-linux/lib/libcudart.so.13.0.48", "/opt/nvidia/libnvJitLink.so.13"]


@pytest.mark.parametrize("from_system", [0, 1, 2])
def test_system_libraries_are_distinguished_from_packaged_libraries(from_system: int) -> None:
    paths = [DRIVER, *OTHERS, *(f"{FOLDERS[0]}/{name}" for name in IN_PACKAGES), *SYSTEMS[:from_system]]
    counts = {metric: value for metric, (value, _) in library_paths.count_origins(paths, FOLDERS).items()}
    assert counts == {
        "system_driver_loaded": 1,
        "system_toolkit_loaded": float(from_system > 0),
        "toolkit_libraries_loaded": len(IN_PACKAGES) + from_system,
        "toolkit_libraries_from_system": from_system,
    }
    bundled = library_paths.count_origins([f"{FOLDERS[0]}/stubs/libcuda.so.1"], FOLDERS)
    assert bundled["system_driver_loaded"][0] == 0.0


def test_libraries_are_counted_after_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any(Path(torch.__file__).resolve().is_relative_to(folder) for folder in library_paths.package_folders())
    monkeypatch.setattr(
        library_paths, "mapped_files", lambda: {DRIVER, f"{library_paths.package_folders()[0]}/nvidia/libcublas.so.13"}
    )
    monkeypatch.setitem(sys.modules, "cupy", None)
    waits = GPU.waits
    counts = observe(build_layer(layer="none", shape="loaded", batch=0))
    assert GPU.waits > waits
    assert (counts["system_driver_loaded"], counts["system_toolkit_loaded"]) == (1, 0)
