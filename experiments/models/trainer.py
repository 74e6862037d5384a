"""Phases of a training step, with metrics for their memory and time, and a gradient check."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, embedding, linear
from torch.overrides import TorchFunctionMode

from contract import running_time
from experiments.devices import Device
from experiments.models import peak_memory, profiling, step_profile
from experiments.models.compiled import compile_call
from experiments.models.zoo import Entry
from experiments.workload import Dtype, Profile

# Number of steps, by device kind, for which `observe` compares a step's operators to the next step's. GPUs get fewer
# steps, because recording costs mostly host time.
TRACED_STEPS = {"cpu": 8, "gpu": 2}
# Steps per profile.
PROFILED_STEPS = 4
# If a step takes more seconds than this, `observe` and `profile` run as few steps as possible.
SLOW_S = 0.05
# Most FLOP for the float64 reference in a gradient check, which computes each different sample once. If a batch of
# only different samples would exceed this limit, the batch repeats a smaller number of samples.
CHECKED_FLOP = 1e10
# If a step takes more than WHOLE_FLOP per sample, the gradient check uses the loss over the first CHECKED_TOKENS tokens
# only. All models of this size are text decoders, in which later tokens do not affect this loss, so the float64
# reference omits them.
WHOLE_FLOP, CHECKED_TOKENS = 1e12, 32


# Formats in which autocast computes a step's products.
HALF = {Dtype.BFLOAT16: torch.bfloat16, Dtype.FLOAT16: torch.float16}
# Factor for the loss in float16, by which the gradients are divided again: without it, gradients below float16's
# smallest number (6e-8) would vanish. The factor is constant, as in Micikevicius et al. 2018, "Mixed precision
# training", ICLR, section 3.2; the check of the gradients shows if they overflow.
LOSS_SCALE = 1024.0


def make_model(entry: Entry, device: Device, dtype: Dtype) -> nn.Module:
    """Make a model for training, and draw its weights on the device, which is fast for large models.

    Trained weights are in float32. Frozen weights, which only models with LoRA adapters have, are in `dtype` if it has
    16 bits, else in float32.
    """
    before = torch.get_default_dtype()
    half = HALF.get(dtype, before) if entry.counts.trained is not None else before
    torch.set_default_dtype(half)
    try:
        with torch.device(device.name):
            return entry.model()
    finally:
        torch.set_default_dtype(before)


# Target value for tokens that do not count in the loss, which is PyTorch's default `ignore_index`.
IGNORED = -100


class Trainer:
    """Model, optimiser and batch on a device, with methods to run the phases of a training step.

    The optimiser is Adam, unless the model names another optimiser. tuned: True to use the fused optimiser, which
    updates all weights in one pass. channels_last: True to use this memory format for the model and its images.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        device: Device,
        dtype: Dtype,
        tuned: bool = False,
        channels_last: bool = False,
    ) -> None:
        self.model, self.device, self.dtype, self.channels_last = model, device, dtype, channels_last
        if channels_last:
            self.model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimiser = getattr(model, "optimiser", torch.optim.Adam)
        self.optimiser: torch.optim.Optimizer = optimiser(weights, lr=1e-4, fused=tuned or None)
        self.call: Callable[[Tensor], Tensor] = self.model
        self.set_batch(inputs, targets)
        self.slow = False  # holds until `observe` has timed a step
        if device.kind == "gpu":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dtype is Dtype.TF32

    def set_batch(self, inputs: Tensor, targets: Tensor) -> None:
        """Move a batch to the device for the next steps."""
        self.inputs, self.targets = inputs.to(self.device.name), targets.to(self.device.name).flatten()
        if self.channels_last:
            self.inputs = self.inputs.contiguous(memory_format=torch.channels_last)

    def compile(self, threads: int) -> None:
        """Compile the model with `torch.compile` for the current batch and `threads` CPU threads.

        Raises Unsupported if the compilation fails.
        """

        def first_step(call: Callable[[Tensor], Tensor]) -> None:
            self.call = call
            self.step()  # compiles the forward and the backward pass

        compile_call(self.model, threads, first_step)

    def autocast(self) -> torch.autocast:
        """Return a context in which products use the trainer's format if it has 16 bits."""
        kind, half = self.device.name.partition(":")[0], HALF.get(self.dtype)
        return torch.autocast(kind, half or torch.bfloat16, half is not None)

    def loss(self) -> Tensor:
        """Compute the batch's cross entropy."""
        with self.autocast():
            return cross_entropy(self.call(self.inputs), self.targets)

    def forward(self) -> None:
        """Compute the loss and keep it for `backward`."""
        self.value = self.loss()

    def backward(self) -> None:
        """Compute the gradients."""
        self.backpropagate(self.value)

    def backpropagate(self, loss: Tensor) -> None:
        """Compute a loss's gradients; in float16, with the loss scaled by LOSS_SCALE meanwhile."""
        if self.dtype is not Dtype.FLOAT16:
            loss.backward()
            return
        (loss * LOSS_SCALE).backward()
        torch._foreach_div_([weight.grad for weight in self.model.parameters() if weight.grad is not None], LOSS_SCALE)

    def update(self) -> None:
        """Update the weights and drop the gradients."""
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Run forward, backward and update."""
        self.forward()
        self.backward()
        self.update()

    def gradients(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return `flat_gradients` for another batch, without changing the weights or the current batch."""
        batch = self.inputs, self.targets
        self.set_batch(inputs, targets)
        self.optimiser.zero_grad(set_to_none=True)
        self.forward()
        self.backward()
        gradients = flat_gradients(self.model)
        self.optimiser.zero_grad(set_to_none=True)
        del self.value
        self.set_batch(*batch)
        return gradients

    def persistent_bytes(self) -> float:
        """Count the bytes that stay in use between steps, for weights, optimiser state and batch."""
        tensors = [*self.model.state_dict().values(), self.inputs, self.targets]
        for state in self.optimiser.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
        return float(sum(tensor.nbytes for tensor in tensors))

    def observe(self, operators: bool) -> Mapping[str, tuple[float, str]]:
        """Return a step's metrics as (value, unit) by name, with `peak_memory` if the system reports it.

        operators: True to add the metrics `repeat_share` and `matmul_flop_share`, which need steps that run PyTorch's
        own operators.
        """
        metrics: dict[str, tuple[float, str]] = {}
        steps: list[step_profile.Step] = []

        def step() -> None:
            if operators:
                steps.append(step_profile.record_step(self.step))
            else:
                self.step()

        begun = running_time.now()
        peak = peak_memory.peak_bytes(step, self.device, self.persistent_bytes())
        self.slow = running_time.now() - begun > SLOW_S
        if peak is not None:
            metrics["peak_memory"] = (peak, "B")
        if operators:
            if not self.slow:
                steps = [step_profile.record_step(self.step) for _ in range(TRACED_STEPS[self.device.kind])]
            steps.append(step_profile.record_step(self.step))
            repeats, flop_share = step_profile.repeat_share(steps)
            metrics |= {"repeat_share": (repeats, "1"), "matmul_flop_share": (flop_share, "1")}
        return metrics

    def profile(self, operators: bool) -> Profile | None:
        """Profile `kernel_time` (on a GPU) and `matmul_time_share` (if `operators` is set).

        `step_profile.profile_metrics` defines these metrics. Return None if the profile would be empty.
        """
        units = {"kernel_time": "s"} if self.device.kind == "gpu" else {}
        if operators:
            units["matmul_time_share"] = "1"

        def measure() -> Mapping[str, float]:
            if self.device.kind == "gpu":
                self.step()  # the model is new, and its first step allocates Adam's moments
            fewest = profiling.FEWEST_CALLS[self.device.kind]
            steps = fewest if self.slow else profiling.call_count(self.step, self.device, PROFILED_STEPS, SLOW_S)
            return step_profile.profile_metrics(self.step, self.device, steps)

        return Profile(units, measure) if units else None


def least_error(trainer: Trainer, draw: Callable[[int], Any], step_flop: float, tolerance: float) -> float:
    """Return the gradient error on a new batch, or the least error on up to three batches if it exceeds the tolerance.

    Gradients through ReLU and max-pooling jump at a kink, and rounding sometimes moves a value across a kink. This
    happens in about 1 in 10 batches with 256 images and causes an error of about 0.001. A wrong computation exceeds the
    tolerance on every batch.

    draw: returns as many (inputs, targets) as asked for. step_flop: FLOP per sample in a training step.
    """
    error = math.inf
    batch = len(trainer.inputs)
    different = _largest_divisor(batch, CHECKED_FLOP / step_flop)
    tokens = CHECKED_TOKENS if step_flop > WHOLE_FLOP else None
    for _ in range(3):
        inputs, targets = draw(different)
        error = min(error, gradient_error(trainer, inputs, targets, batch // different, tokens))
        if error <= tolerance:
            break
    return error


def _largest_divisor(number: int, most: float) -> int:
    """Return the largest divisor of `number` that is at most `most`, but at least 1."""
    return max((part for part in range(1, number + 1) if number % part == 0 and part <= most), default=1)


def gradient_error(
    trainer: Trainer, inputs: Tensor, targets: Tensor, times: int = 1, tokens: int | None = None
) -> float:
    """Return the trainer's gradient error for these samples, relative to the model in float64.

    The trainer computes a batch that repeats the samples `times` times, to show errors that occur only in large
    batches. The reference computes each sample once, to save work: repetition changes neither the mean loss nor the
    gradients nor the batch norm statistics. The reference runs on the device if the device supports float64, else on
    the CPU. The trainer's weights and its own batch stay the same.
    tokens: number of tokens at the beginning of each text that count in the loss; None for all tokens.
    """
    where = trainer.device.name if trainer.device.supports_float64 else "cpu"
    leading, expected = inputs, targets
    if tokens is not None:
        expected = targets.reshape(inputs.shape)[:, :tokens]
        targets = torch.full_like(inputs, IGNORED)
        targets[:, :tokens], leading = expected, inputs[:, :tokens]
    exact = (leading.double() if leading.is_floating_point() else leading).to(where)
    reference = exact_gradients(trainer.model, exact, expected.to(where).flatten(), where)
    gradients = trainer.gradients(torch.cat([inputs] * times), torch.cat([targets] * times))
    return float(torch.linalg.norm(gradients - reference) / torch.linalg.norm(reference))


def exact_gradients(model: nn.Module, inputs: Tensor, targets: Tensor, where: str) -> Tensor:
    """Compute the gradients of the mean cross entropy in float64 on a copy of the model.

    where: name of the device to compute on. Frozen weights are converted to float64 one by one when they are used,
    because a whole large model in float64 would not fit in memory.
    """
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    if not frozen:
        reference = copy.deepcopy(model)
        reference.zero_grad(set_to_none=True)  # drop the gradients that the copy contains
        reference = reference.to(where).double()
        cross_entropy(reference(inputs), targets).backward()
        return flat_gradients(reference)
    weights = {
        name: weight.detach().to(where, torch.float64).requires_grad_(name not in frozen)
        for name, weight in model.named_parameters()
        if weight.dim() == 1 or name not in frozen
    }
    with Float64Layers():
        cross_entropy(functional_call(model, weights, (inputs,)), targets).backward()
    return torch.cat([weights[name].grad.flatten().cpu() for name in weights if name not in frozen])  # type: ignore[union-attr]


class Float64Layers(TorchFunctionMode):
    """Mode in which embeddings, and linear layers whose weights are not in float64, return results in float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is linear and args[1].dtype is not torch.float64:
            return _Float64Product.apply(*args[:2])
        out = func(*args, **(kwargs or {}))
        return out.double() if func is embedding else out


class _Float64Product(torch.autograd.Function):
    """Function y = x w^T in float64 without bias. Only x gets a gradient, because the weights w are frozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.weight = weight
        return x @ weight.to(x.device, torch.float64).t()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] @ ctx.weight.to(gradients[0].device, torch.float64), None


def flat_gradients(model: nn.Module) -> Tensor:
    """Return all gradients of a model as one float64 vector in host memory."""
    return torch.cat([p.grad.flatten().cpu().double() for p in model.parameters() if p.grad is not None])
