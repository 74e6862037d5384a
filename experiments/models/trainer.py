"""A model in training: the three phases of a step, what is observed of it, and whether its gradients are right."""

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
from experiments.models.compiled import compiled
from experiments.models.zoo import Entry
from experiments.workload import Dtype, Profile

# Steps in each round whose operators are compared, by kind of device, and those that are profiled: on a GPU it is the
# host that takes the time, and a few tell as much.
TRACED_STEPS = {"cpu": 8, "gpu": 2}
PROFILED_STEPS = 4
# Where a step takes this many seconds, fewer must do.
SLOW_S = 0.05
# FLOP of the float64 reference of a check: of a larger batch so many samples are different as that allows.
CHECKED_FLOP = 1e10
# Of a sample that takes more FLOP than this, which is a text for a decoder, the loss of the first tokens is checked: it
# does not depend on those that follow, which the reference leaves out.
WHOLE_FLOP, CHECKED_TOKENS = 1e12, 32


def make_model(entry: Entry, device: Device, dtype: Dtype) -> nn.Module:
    """A model to be trained, on the device, where large ones are made quickly.

    Weights that are trained are in float32; those that are not (LoRA) in bfloat16, if that is what is computed in.
    """
    before = torch.get_default_dtype()
    half = dtype is Dtype.BFLOAT16 and entry.counts.trained is not None
    torch.set_default_dtype(torch.bfloat16 if half else before)
    try:
        with torch.device(device.name):
            return entry.model()
    finally:
        torch.set_default_dtype(before)


# Targets without a part in the loss: PyTorch's `ignore_index`.
IGNORED = -100


class Trainer:
    """A model with its optimiser (Adam where it names no other), one batch on the device, and the phases of a step.

    tuned: PyTorch set up for speed: the optimiser in one pass, and images with channels last where the
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
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        optimiser = getattr(model, "optimiser", torch.optim.Adam)
        self.optimiser: torch.optim.Optimizer = optimiser(trained, lr=1e-4, fused=tuned or None)
        self.call: Callable[[Tensor], Tensor] = self.model
        self.take(inputs, targets)
        self.slow = False  # as far as is known
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
        return float(sum(tensor.nbytes for tensor in tensors))

    def observe(self, operators: bool) -> Mapping[str, tuple[float, str]]:
        """Memory at the peak of a step, where something tells it.

        operators: also how alike the steps are and the products' share of operations, which only PyTorch's own
        operators tell.
        """
        found: dict[str, tuple[float, str]] = {}
        steps: list[step_profile.Step] = []

        def step() -> None:
            if operators:
                steps.append(step_profile.operators(self.step))
            else:
                self.step()

        begun = running_time.now()
        peak = peak_memory.peak_bytes(step, self.device, self.held_bytes())
        self.slow = running_time.now() - begun > SLOW_S
        if peak is not None:
            found["peak_memory"] = (peak, "B")
        if operators:
            if not self.slow:
                steps = [step_profile.operators(self.step) for _ in range(TRACED_STEPS[self.device.kind])]
            steps.append(step_profile.operators(self.step))
            repeats, flop_share = step_profile.repeat_share(steps)
            found |= {"repeat_share": (repeats, "1"), "matmul_flop_share": (flop_share, "1")}
        return found

    def profile(self, operators: bool) -> Profile | None:
        """The time of a step's kernels on a GPU and, of PyTorch's own operators, the products' share of their time."""
        units = {"kernel_time": "s"} if self.device.kind == "gpu" else {}
        if operators:
            units["matmul_time_share"] = "1"

        def take() -> Mapping[str, float]:
            if self.device.kind == "gpu":
                self.step()  # the model is new: its first step makes Adam's moments
            fewest = profiling.FEWEST_CALLS[self.device.kind]
            steps = fewest if self.slow else profiling.number_of_calls(self.step, self.device, PROFILED_STEPS, SLOW_S)
            return step_profile.profile_metrics(self.step, self.device, steps)

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
    tokens = CHECKED_TOKENS if step_flop > WHOLE_FLOP else None
    for _ in range(3):
        inputs, targets = fresh(different)
        error = min(error, gradient_error(trainer, inputs, targets, batch // different, tokens))
        if error <= tolerance:
            break
    return error


def _divisor(number: int, most: float) -> int:
    """The largest divisor that is at most `most`, or 1."""
    return max((one for one in range(1, number + 1) if number % one == 0 and one <= most), default=1)


def gradient_error(
    trainer: Trainer, inputs: Tensor, targets: Tensor, times: int = 1, tokens: int | None = None
) -> float:
    """Relative error of the gradients on a fresh batch against the same model in float64.

    The batch is these samples `times` times over: the mean loss, and its gradients, are those of
    the samples once (batch norm, which has the same mean and variance, included), which spares
    the reference most of the work; whatever of a large batch is computed wrongly still shows.
    The reference is computed where float64 is: on the device, or on the CPU. The weights and
    the batch of the trainer stay as they were. tokens: those at the beginning of each text whose loss counts.
    """
    where = trainer.device.name if trainer.device.float64 else "cpu"
    first, wanted = inputs, targets
    if tokens is not None:
        wanted = targets.reshape(inputs.shape)[:, :tokens]
        targets = torch.full_like(inputs, IGNORED)
        targets[:, :tokens], first = wanted, inputs[:, :tokens]
    exact = (first.double() if first.is_floating_point() else first).to(where)
    right = exact_gradients(trainer.model, exact, wanted.to(where).flatten(), where)
    got = trainer.gradients(torch.cat([inputs] * times), torch.cat([targets] * times))
    return float(torch.linalg.norm(got - right) / torch.linalg.norm(right))


def exact_gradients(model: nn.Module, inputs: Tensor, targets: Tensor, where: str) -> Tensor:
    """The gradients of the mean cross entropy in float64, by `flat_gradients`; the model stays as it is.

    Weights that are not trained are converted one by one as they are used: in float64 all of a large model's would not
    fit the memory.
    """
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    if not frozen:
        reference = copy.deepcopy(model)
        reference.zero_grad(set_to_none=True)  # a copy has the gradients of the last step
        reference = reference.to(where).double()
        cross_entropy(reference(inputs), targets).backward()
        return flat_gradients(reference)
    weights = {
        name: weight.detach().to(where, torch.float64).requires_grad_(name not in frozen)
        for name, weight in model.named_parameters()
        if weight.dim() == 1 or name not in frozen
    }
    with Widened():
        cross_entropy(functional_call(model, weights, (inputs,)), targets).backward()
    return torch.cat([weights[name].grad.flatten().cpu() for name in weights if name not in frozen])  # type: ignore[union-attr]


class Widened(TorchFunctionMode):
    """Within it, linear layers and tables whose weights are in another format than their data compute in float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is linear and args[1].dtype is not torch.float64:
            return _WidenedProduct.apply(*args[:2])
        out = func(*args, **(kwargs or {}))
        return out.double() if func is embedding else out


class _WidenedProduct(torch.autograd.Function):
    """y = x w^T in float64, and the gradient of x; the weights are not trained, and without a bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.weight = weight
        return x @ weight.to(x.device, torch.float64).t()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] @ ctx.weight.to(gradients[0].device, torch.float64), None


def flat_gradients(model: nn.Module) -> Tensor:
    """All gradients in float64, one after the other, in host memory."""
    return torch.cat([p.grad.flatten().cpu().double() for p in model.parameters() if p.grad is not None])
