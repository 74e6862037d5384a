"""A model in training: the three phases of a step, what is observed of it, and whether its gradients are right."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from contract import running_time
from experiments.devices import Device
from experiments.models import attention, profiling, trace, usage
from experiments.models.compiled import compiled
from experiments.work import Dtype, Profile

# Steps in each round whose operators are compared, by kind of device, and those that are profiled: on a GPU it is the
# host that takes the time, and a few tell as much.
TRACED_STEPS = {"cpu": 8, "gpu": 2}
PROFILED_STEPS = 4
# Where a step takes this many seconds, fewer must do.
SLOW_S = 0.05
# FLOP of the float64 reference of a check: of a larger batch so many samples are different as that allows.
CHECKED_FLOP = 1e10


class Trainer:
    """A model with its optimiser, one batch on the device, and the three phases of a step.

    tuned: PyTorch set up for speed: Adam in one pass, and images with channels last where the
    model takes images. compiled: by `torch.compile` as well, for this shape alone (`compile`).
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
        self.optimiser: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=tuned or None)
        self.call: Callable[[Tensor], Tensor] = self.model
        self.take(inputs, targets)
        if device.kind == "gpu":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dtype is Dtype.TF32

    def take(self, inputs: Tensor, targets: Tensor) -> None:
        """Go on with this batch."""
        self.inputs, self.targets = inputs.to(self.device.name), targets.to(self.device.name).flatten()
        if self.channels_last:
            self.inputs = self.inputs.contiguous(memory_format=torch.channels_last)

    def compile(self, threads: int) -> None:
        """Have `torch.compile` make kernels for this batch, threads and format. Raises Unsupported if it cannot."""

        def first(call: Callable[[Tensor], Tensor]) -> None:
            self.call = call
            self.step()  # forward is compiled at the first call, backward at the first gradient

        compiled(self.model, threads, first)

    def autocast(self) -> torch.autocast:
        """A context in which products are computed in the trainer's format."""
        return torch.autocast(self.device.name.partition(":")[0], torch.bfloat16, self.dtype is Dtype.BFLOAT16)

    def loss(self) -> Tensor:
        """Cross entropy of the batch."""
        with self.autocast():
            return cross_entropy(self.call(self.inputs), self.targets)

    def forward(self) -> None:
        """Compute the loss."""
        self.value = self.loss()

    def backward(self) -> None:
        """Compute the gradients."""
        self.value.backward()

    def update(self) -> None:
        """Change the weights, and drop the gradients."""
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def step(self) -> None:
        """All three."""
        self.forward()
        self.backward()
        self.update()

    def gradients(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The gradients on another batch, by `flat_gradients`; the weights and the trainer's batch stay."""
        kept = self.inputs, self.targets
        self.take(inputs, targets)
        self.optimiser.zero_grad(set_to_none=True)
        self.forward()
        self.backward()
        found = flat_gradients(self.model)
        self.optimiser.zero_grad(set_to_none=True)
        del self.value
        self.take(*kept)
        return found

    def held_bytes(self) -> float:
        """Bytes that stay from step to step: weights, Adam's two moments, the batch."""
        tensors = [*self.model.state_dict().values(), self.inputs, self.targets]
        for state in self.optimiser.state.values():
            tensors += [one for one in state.values() if isinstance(one, Tensor)]
        return float(sum(one.nbytes for one in tensors))

    def observe(self, operators: bool) -> Mapping[str, tuple[float, str]]:
        """Memory at the peak of a step, where something tells it.

        operators: also how alike the steps are, the products' share of operations and, on a GPU, the kernels of
        attention, which only PyTorch's own operators tell.
        """
        found: dict[str, tuple[float, str]] = {}
        begun = running_time.now()
        peak = usage.peak_bytes(self.step, self.device, self.held_bytes())
        slow = running_time.now() - begun > SLOW_S
        if peak is not None:
            found["peak_memory"] = (peak, "B")
        if operators:
            steps = 1 if slow else TRACED_STEPS[self.device.kind]
            repeats, flop_share = trace.repeat_share(self.step, steps)
            found |= {"repeat_share": (repeats, "1"), "matmul_flop_share": (flop_share, "1")}
            found |= attention.metrics(self.step, self.device)
        return found

    def profile(self, operators: bool) -> Profile | None:
        """The time of a step's kernels on a GPU and, of PyTorch's own operators, the products' share of their time."""
        units = {"kernel_time": "s"} if self.device.kind == "gpu" else {}
        if operators:
            units["matmul_time_share"] = "1"

        def take() -> Mapping[str, float]:
            if self.device.kind == "gpu":
                self.step()  # the model is new: its first step makes Adam's moments
            steps = profiling.number_of_calls(self.step, self.device, PROFILED_STEPS, SLOW_S)
            return trace.profile_metrics(self.step, self.device, steps)

        return Profile(units, take) if units else None


def least_error(trainer: Trainer, fresh: Callable[[int], Any], step_flop: float, tolerance: float) -> float:
    """Error of the gradients on a fresh batch; of up to three batches if the first exceeds the tolerance.

    The gradients of ReLU and max-pooling jump: a value within rounding of the kink
    takes the other path now and then (about one batch of 256 images in ten, with an
    error of a thousandth). What is computed wrongly is wrong on every batch.

    fresh: draws so many samples. step_flop: of one sample.
    """
    error = math.inf
    batch = len(trainer.inputs)
    different = _divisor(batch, CHECKED_FLOP / step_flop)
    for _ in range(3):
        inputs, targets = fresh(different)
        error = min(error, gradient_error(trainer, inputs, targets, batch // different))
        if error <= tolerance:
            break
    return error


def _divisor(number: int, most: float) -> int:
    """The largest divisor that is at most `most`, or 1."""
    return max((one for one in range(1, number + 1) if number % one == 0 and one <= most), default=1)


def gradient_error(trainer: Trainer, inputs: Tensor, targets: Tensor, times: int = 1) -> float:
    """Relative error of the gradients on a fresh batch against the same model in float64.

    The batch is these samples `times` times over: the mean loss, and its gradients, are those of
    the samples once (batch norm, which has the same mean and variance, included), which spares
    the reference most of the work; whatever of a large batch is computed wrongly still shows.
    The reference is computed where float64 is: on the device, or on the CPU. The weights and
    the batch of the trainer stay as they were.
    """
    where = trainer.device.name if trainer.device.float64 else "cpu"
    reference = copy.deepcopy(trainer.model)
    reference.zero_grad(set_to_none=True)  # a copy has the gradients of the last step
    reference = reference.to(where).double()
    images = (inputs.double() if inputs.is_floating_point() else inputs).to(where)
    cross_entropy(reference(images), targets.to(where).flatten()).backward()
    right = flat_gradients(reference)
    del reference, images
    got = trainer.gradients(torch.cat([inputs] * times), torch.cat([targets] * times))
    return float(torch.linalg.norm(got - right) / torch.linalg.norm(right))


def flat_gradients(model: nn.Module) -> Tensor:
    """All gradients in float64, one after the other, in host memory."""
    return torch.cat([p.grad.flatten().cpu().double() for p in model.parameters() if p.grad is not None])
