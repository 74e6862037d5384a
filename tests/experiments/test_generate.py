"""A GPT that continues texts from its cache says what its forward pass says, and counts what it does."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.models.generate import Generator, exact_logits, weights_on
from experiments.models.zoo import ZOO, Gpt
from experiments.registry import get, typed
from experiments.suite.generation import Name
from experiments.suite.inference import TOLERANCE
from experiments.work import Dtype, Unsupported, Work

from .second_device import SecondCpu

PHASES = ("prefill", "decode")


def generator(dtype: str = "float64", batch: int = 2, context: int = 24, name: str = "gpt-1m") -> Generator:
    device = CpuDevice()
    with weights_on(device, Dtype(dtype)):
        model = ZOO[name].model()
    assert isinstance(model, Gpt)
    return Generator(model, device, Dtype(dtype), batch, context)


def work(device: Device | None = None, **more: Any) -> Work:
    experiment = get("generation")
    params = {
        "model": "gpt-1m", "phase": "decode", "context": 16, "batch": 2, "dtype": "float32", "backend": "torch",
        "threads": 0, **more,
    }  # fmt: skip
    return experiment.function(device or SecondCpu(), **typed(experiment, params))


@pytest.mark.parametrize("context", [2, 24, 128])
@pytest.mark.parametrize("phase", PHASES)
def test_either_phase_gives_the_logits_of_the_whole_forward_pass(phase: str, context: int) -> None:
    assert generator(context=context).error(phase) < 1e-13


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("phase", PHASES)
def test_rounding_stays_within_the_formats_tolerance(phase: str, dtype: str) -> None:
    assert generator(dtype).error(phase) <= TOLERANCE[Dtype(dtype)]


def test_block_by_block_in_float64_is_the_model_in_float64() -> None:
    made = generator()
    with torch.no_grad():
        whole = made.model(torch.arange(2 * 128).reshape(2, 128))
    torch.testing.assert_close(exact_logits(made.model, torch.arange(2 * 128).reshape(2, 128), CpuDevice()), whole)


def test_every_call_is_the_same_work_in_the_same_memory() -> None:
    made = generator()
    before = [part.data_ptr() for pair in made.cache for part in pair]
    first = made.decode().clone()
    made.decode()
    torch.testing.assert_close(made.decode(), first)
    assert [part.data_ptr() for pair in made.cache for part in pair] == before


@pytest.mark.parametrize("phase", PHASES)
def test_a_cache_that_is_not_kept_is_noticed(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    made = generator()
    copy = torch.Tensor.copy_

    def forgetful(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self if self.dim() == 4 and self.shape[2] > 1 else copy(self, other)

    monkeypatch.setattr(torch.Tensor, "copy_", forgetful)
    assert not made.error(phase) < 1e-3


@pytest.mark.parametrize("phase", PHASES)
def test_operations_by_formula_are_those_that_are_counted(phase: str) -> None:
    made = generator("float32")
    # The counter does not know the kernel that a CPU takes for attention otherwise.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counted:
        made.call(phase)()
    assert counted.get_total_flops() == made.flop(phase)
    near = get("generation").flop
    assert near is not None
    assert near(model="gpt-1m", phase=phase, batch=2, context=24) == pytest.approx(made.flop(phase), rel=0.25)


def test_bytes_are_those_of_weights_rows_and_cache() -> None:
    made = generator("bfloat16", batch=3, context=24)
    width, blocks = 128, 5
    weights = sum(p.numel() for p in made.model.parameters()) - 256 * width - 128 * width
    cache = 3 * 24 * 2 * width * blocks
    assert made.bytes("decode") == 2 * (weights + cache + 4 * width)
    assert made.bytes("prefill") == 2 * (weights + cache + 4 * 24 * width)


@pytest.mark.parametrize(("dtype", "context"), [("float32", 1), ("float32", 129), ("int8", 24)])
def test_what_the_model_cannot_do_is_unsupported(dtype: str, context: int) -> None:
    model = ZOO["gpt-1m"].model()
    assert isinstance(model, Gpt)
    with pytest.raises(Unsupported):
        Generator(model, CpuDevice(), Dtype(dtype), 1, context)


def test_the_experiment_knows_all_gpts_of_the_zoo() -> None:
    with torch.device("meta"):
        assert set(get_args(Name)) == {name for name, entry in ZOO.items() if isinstance(entry.model(), Gpt)}


@pytest.mark.parametrize("backend", ["torch", "graph"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_point_is_right_and_says_what_it_moves(phase: str, backend: str) -> None:
    made = work(phase=phase, backend=backend)
    made.calls[0]()
    assert made.check is not None
    assert made.tolerance is not None
    assert made.check() <= made.tolerance
    assert made.flop is not None
    assert made.bytes is not None


class Stale(SecondCpu):
    """Replays nothing: what a graph gives whose buffers are others than those that are read."""

    def graph(self, calls: Any) -> Any:
        super().graph(calls)
        return lambda: None


def test_a_graph_that_does_nothing_fails_its_check() -> None:
    made = work(Stale(), backend="graph")
    assert made.check is not None
    assert made.tolerance is not None
    assert not made.check() <= made.tolerance


def test_a_cpu_has_no_graphs() -> None:
    with pytest.raises(Unsupported, match="no graphs"):
        work(CpuDevice(), backend="graph", threads=1)


def test_memory_covers_weights_and_cache() -> None:
    memory = get("generation").memory
    assert memory is not None
    weights = ZOO["gpt-1m"].parameters() * 4
    held = memory(model="gpt-1m", phase="decode", context=64, batch=8, dtype="float32", backend="torch", threads=1)
    assert held > weights + 2 * 5 * 128 * 64 * 8 * 4
    assert held < 4 * weights + 2 * 5 * 128 * 64 * 8 * 4
