"""Training steps are right with and without compilation, yield observed metrics, and fail with a reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from experiments.devices.cpu import CpuDevice
from experiments.models import operator_traffic, peak_memory
from experiments.models import trainer as trainer_module
from experiments.models.catalogue import NETWORKS, Counts
from experiments.models.from_transformers import LoraLinear
from experiments.models.gradient_tolerance import largest_gradient_error
from experiments.models.trainer import Trainer, least_error
from experiments.models.zoo import ZOO, Entry, catalogue_entry
from experiments.suite.training import memory
from experiments.workload import Dtype
from tests.experiments import point_runs
from tests.experiments.point_runs import GPU, answer_point, observe, passes_check
from tests.experiments.second_device import SecondCpu

MIB = 1 << 20


@pytest.mark.parametrize("dtype", [Dtype.TF32, Dtype.FLOAT32])
def test_gpu_step_uses_tf32_only_on_request(dtype: Dtype) -> None:
    places = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [place.allow_tf32 for place in places]
    try:
        for place in places:
            place.allow_tf32 = dtype is not Dtype.TF32
        cpu_trainer(dtype=dtype)
        assert all(place.allow_tf32 is (dtype is not Dtype.TF32) for place in places), "a CPU sets nothing"
        Trainer(ZOO["mlp"].model(), *ZOO["mlp"].batch(2), GPU, dtype)
        assert all(place.allow_tf32 is (dtype is Dtype.TF32) for place in places)
    finally:
        for place, allowed in zip(places, before, strict=True):
            place.allow_tf32 = allowed


def cpu_trainer(model: str = "mlp", batch: int = 6, dtype: Dtype = Dtype.FLOAT32, **more: Any) -> Trainer:
    return Trainer(ZOO[model].model(), *ZOO[model].batch(batch), CpuDevice(), dtype, **more)


@pytest.mark.usefixtures("torch_compile")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_compiled_steps_are_right_and_observe_no_operator_shares(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Use a network with one small hidden layer: it has few kernels, and the C++ compiler takes seconds for each.
    small = Entry(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10)),
        ZOO["mlp"].batch, Counts(0, 64 * 8 + 8 * 10, 64 * 8, (1, 10)), ZOO["mlp"].sample, "dense", images=True,
    )  # fmt: skip
    monkeypatch.setitem(ZOO, "mlp", small)
    work = point_runs.build_work("training", batch=3, dtype=dtype, backend="inductor")
    assert passes_check(work)
    assert not any(name.endswith("share") for name in observe(work))


@pytest.mark.parametrize("lost", ["all", "the update"])
def test_captured_step_is_checked_by_a_replay(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def graph(device: SecondCpu, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        """Run a step, and return a graph that loses all its work or, according to `lost`, only the weight update."""
        calls[0]()

        def replay() -> None:
            with monkeypatch.context() as within:
                if lost == "the update":
                    within.setattr(torch.optim.Adam, "step", lambda *_: None)
                    calls[0]()

        return replay

    assert passes_check(point_runs.build_work("training", GPU, backend="graph"))
    monkeypatch.setattr(SecondCpu, "graph", graph)
    assert not passes_check(point_runs.build_work("training", GPU, backend="graph"))


@pytest.mark.usefixtures("torch_compile")
def test_every_point_is_compiled_after_earlier_compilations() -> None:
    from torch._dynamo.utils import counters

    # After as many compilations as its limit allows, torch.compile silently runs the function without compiling it.
    with torch._dynamo.config.patch(recompile_limit=1):
        for _ in range(3):
            counters.clear()
            trainer = cpu_trainer()
            trainer.compile(1)
            assert counters["stats"]["unique_graphs"] == 1


def test_missing_compiler_is_unsupported_and_says_what_to_install() -> None:
    import torch._inductor.config as inductor

    with inductor.patch({"cpp.cxx": (None, "/no/such/c++"), "force_disable_caches": True}):
        reply = answer_point("training", backend="inductor")
    assert reply["status"] == "unsupported"
    assert re.search(r"torch\.compile failed: .*install a C\+\+ compiler", reply["reason"])


def test_out_of_memory_while_compiling_is_oom(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import BackendCompilerFailed

    def full(self: Trainer) -> None:
        raise BackendCompilerFailed(lambda: None, torch.OutOfMemoryError("CUDA out of memory"), None)

    monkeypatch.setattr(Trainer, "step", full)
    assert answer_point("training", backend="inductor")["status"] == "oom"
    assert answer_point("training", GPU, backend="inductor")["status"] == "oom"


@pytest.mark.parametrize("model", ["mlp", "cnn", "gpt-1m"])
def test_large_batch_is_checked_in_small_batches(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, drawn, trainer = ZOO[model], list[int](), cpu_trainer(model, 8)
    own_inputs, forward = trainer.inputs.clone(), trainer.call
    monkeypatch.setattr(trainer_module, "CHECKED_FLOP", 3 * entry.step_flop(1))

    def sampled_error() -> float:
        return least_error(trainer, lambda size: drawn.append(size) or entry.batch(size), entry.step_flop(1), 1e-4)

    assert sampled_error() <= 1e-4
    assert set(drawn) == {2}, "the largest divisor of 8 within three samples"
    assert torch.equal(trainer.inputs, own_inputs), "the trainer keeps its own batch"
    trainer.call = lambda x: torch.cat([forward(x)[:-1], 2 * forward(x)[-1:]])
    assert sampled_error() > 1e-3, "an error in one sample shows"


@pytest.mark.parametrize("model", ["resnet", "wide-resnet", "airbench94"])
def test_rounding_at_kinks_passes_and_scaled_gradients_fail(model: str) -> None:
    entry, trainer = ZOO[model], cpu_trainer(model, 8, Dtype.BFLOAT16)
    limit, forward = largest_gradient_error(model, Dtype.BFLOAT16), trainer.call
    assert 0.1 < least_error(trainer, entry.batch, entry.step_flop(1), limit) <= limit, (
        "more than a smooth model may have"
    )
    trainer.call = lambda x: 3 * forward(x)
    assert least_error(trainer, entry.batch, entry.step_flop(1), limit) > limit


def test_step_must_fit_cpu_memory_and_may_exceed_gpu_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    one_sample, many_samples = (memory("resnet", batch, 2, dtype="float32") for batch in (1, 1024))
    assert many_samples - one_sample == pytest.approx(1023 * ZOO["resnet"].activation_bytes())
    assert memory("resnet", 1024, 0) == memory("resnet", 1, 0)
    monkeypatch.setattr(CpuDevice, "free_bytes", lambda self: 100 * MIB)
    reply = answer_point("training", model="resnet", batch=256)
    assert (reply["status"], reply["reason"][:13]) == ("skipped", "memory: needs")


linux_only = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux reports peak resident memory"
)


@linux_only
def test_peak_resident_memory_is_that_of_the_call() -> None:
    peak = peak_memory.peak_bytes(lambda: torch.ones(64 * MIB // 4).sum(), CpuDevice(), bytes_before=1000.0)
    assert peak is not None
    assert 60 * MIB < peak < 100 * MIB
    assert peak_memory.peak_bytes(lambda: None, CpuDevice(), bytes_before=1000.0) is None, "too little growth to report"


@pytest.mark.parametrize(
    ("growth", "peak"),
    [(None, None), (peak_memory.LEAST_GROWTH - 1, None), (peak_memory.LEAST_GROWTH, peak_memory.LEAST_GROWTH + 7.0)],
)
def test_memory_growth_counts_from_16_mebibytes(
    monkeypatch: pytest.MonkeyPatch, growth: float | None, peak: float | None
) -> None:
    monkeypatch.setattr(peak_memory, "_peak_growth", lambda call: growth)
    assert peak_memory.peak_bytes(lambda: None, CpuDevice(), bytes_before=7.0) == peak


@linux_only
def test_cpu_step_observes_its_peak_memory() -> None:
    entry, trainer = ZOO["gpt-1m"], cpu_trainer("gpt-1m", 16)
    trainer.step()
    metrics = trainer.observe(operators=False)
    assert set(metrics) == {"peak_memory"}
    peak, unit = metrics["peak_memory"]
    assert unit == "B"
    least = 16 * entry.parameters() + 0.5 * 16 * entry.activation_bytes()
    assert least < peak < 3 * (16 * entry.parameters() + 16 * entry.activation_bytes())


def test_allocator_peak_is_read_after_the_device_finishes(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    device = SecondCpu("counting:0")
    module = SimpleNamespace(
        reset_peak_memory_stats=lambda name: order.append(f"reset {name}"),
        max_memory_allocated=lambda name: order.append(f"read after {device.waits} wait") or 12345,
    )
    monkeypatch.setattr(torch, "counting", module, raising=False)
    assert peak_memory.peak_bytes(lambda: order.append("call"), device, bytes_before=7.0) == 12345.0
    assert order == ["reset counting:0", "call", "read after 1 wait"]


# A small Llama with the catalogue's adapters.
SMALL_LLAMA = {
    **NETWORKS["llama-1b-lora"].config, "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


@pytest.fixture
def adapted_llama(monkeypatch: pytest.MonkeyPatch) -> Entry:
    """Replace the catalogue's Llama by a small one with adapters."""
    small = replace(NETWORKS["llama-1b-lora"], config=SMALL_LLAMA, shape=(48,), counts=None, activation_bytes=None)
    monkeypatch.setitem(ZOO, "llama-1b-lora", catalogue_entry(small))
    return ZOO["llama-1b-lora"]


@pytest.mark.parametrize("whole", [1e12, 1.0], ids=["whole texts", "their first tokens"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_only_adapters_are_trained_and_checked(
    dtype: str, whole: float, adapted_llama: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_module, "WHOLE_FLOP", whole)
    workload = point_runs.build_work("training", model="llama-1b-lora", batch=2, dtype=dtype)
    assert passes_check(workload)
    point_runs.run_once(workload)
    assert passes_check(workload), "after a step, which leaves the frozen weights"
    whole_forward = LoraLinear.forward

    def spoilt(self: LoraLinear, x: torch.Tensor) -> torch.Tensor:
        return whole_forward(self, x) if x.dtype is torch.float64 else 2 * self.base(x) - whole_forward(self, x)

    monkeypatch.setattr(LoraLinear, "forward", spoilt)
    assert not passes_check(point_runs.build_work("training", model="llama-1b-lora", batch=2, dtype=dtype))


def test_catalogue_networks_use_adamw_without_dropout() -> None:
    model = ZOO["minilm-l6"].model()
    inputs, _ = ZOO["minilm-l6"].batch(1)
    assert model.training
    with torch.no_grad():
        assert torch.equal(model(inputs), model(inputs))
    trainer = Trainer(model, *ZOO["minilm-l6"].batch(1), CpuDevice(), Dtype.FLOAT32)
    assert type(trainer.optimiser) is torch.optim.AdamW
    assert type(cpu_trainer().optimiser) is torch.optim.Adam


def test_grouped_convolution_gradients_are_counted_like_their_results() -> None:
    layer, inputs = nn.Conv2d(8, 8, 3, groups=8), torch.ones(2, 8, 6, 6, requires_grad=True)
    forward = operator_traffic.total_traffic(lambda: layer(inputs))[0]
    operators = operator_traffic.record_operators(lambda: layer(inputs).sum().backward())
    products = [operator.flop for operator in operators if operator.product]
    assert products == [2 * 2 * 8 * 4 * 4 * 9, 2 * 2 * 2 * 8 * 4 * 4 * 9]
    assert forward >= products[0]


@pytest.mark.parametrize("model", ["mlp", "gpt-1m"])
def test_float16_step_scales_the_loss_and_returns_unscaled_gradients(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, limit = ZOO[model], largest_gradient_error(model, Dtype.FLOAT16)
    trainer = cpu_trainer(model, 8, Dtype.FLOAT16)
    with trainer.autocast():
        assert trainer.call(trainer.inputs).dtype is torch.float16
    assert least_error(trainer, entry.batch, entry.step_flop(1), limit) <= limit
    monkeypatch.setattr(trainer_module, "LOSS_SCALE", 1e9)  # gradients overflow
    assert not least_error(trainer, entry.batch, entry.step_flop(1), limit) <= limit
    monkeypatch.setattr(trainer_module, "LOSS_SCALE", 1e-5)  # gradients vanish
    assert not least_error(trainer, entry.batch, entry.step_flop(1), limit) <= limit


def test_captured_float16_step_has_the_same_gradients() -> None:
    work = point_runs.build_work("training", GPU, backend="graph", dtype="float16")
    assert passes_check(work)
