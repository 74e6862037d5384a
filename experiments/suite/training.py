"""Training steps of real models on real data: forward, backward and update, each timed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.work import Dtype, Threads, Unsupported, Work

if TYPE_CHECKING:
    import torch

# Steps in each round whose operators are compared, and those that are profiled.
TRACED_STEPS = 8
PROFILED_STEPS = 4
# Relative error of all gradients together that a right step may show against float64:
# rounding of some hundred operations in a row, each bounded as in Dtype.matmul_tolerance.
TOLERANCE = {Dtype.FLOAT32: 1e-4, Dtype.TF32: 2e-2, Dtype.BFLOAT16: 1e-1}


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    """An eighth of the batch, down to one sample."""
    return {**params, "batch": max(1, params["batch"] // 8)} if params["batch"] > 1 else None


@experiment("training", smaller=smaller)
def training(
    device: Device,
    model: Literal["mlp", "cnn", "gpt"],
    batch: int,
    dtype: Dtype,
    backend: Literal["torch"],
    threads: Threads,
) -> Work:
    """One step of Adam on a batch that lies on the device; bfloat16 means autocast over float32 weights.

    Work: the FLOP of its products and convolutions, by formula (checked against
    `torch.utils.flop_counter` in the tests).
    """
    from experiments.models.zoo import ZOO

    if dtype not in TOLERANCE:
        raise Unsupported(f"training in {dtype} needs loss scaling, which is not part of this experiment")
    entry = ZOO[model]
    trainer = Trainer(entry.model().to(device.name), *entry.batch(batch), device, dtype)
    return Work(
        phases=[("forward", trainer.forward), ("backward", trainer.backward), ("update", trainer.update)],
        flop=entry.step_flop(batch),
        check=lambda: least_error(trainer, lambda: entry.batch(batch), TOLERANCE[dtype]),
        tolerance=TOLERANCE[dtype],
        observe=trainer.observe,
    )


class Trainer:
    """A model with its optimiser, one batch on the device, and the three phases of a step."""

    def __init__(
        self, model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor, device: Device, dtype: Dtype
    ) -> None:
        import torch

        self.model, self.device, self.dtype = model, device, dtype
        self.inputs, self.targets = inputs.to(device.name), targets.to(device.name).flatten()
        self.optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
        if device.kind == "gpu":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dtype is Dtype.TF32

    def loss(self) -> torch.Tensor:
        """Cross entropy of the batch."""
        import torch
        from torch.nn.functional import cross_entropy

        with torch.autocast(self.device.name.partition(":")[0], torch.bfloat16, self.dtype is Dtype.BFLOAT16):
            return cross_entropy(self.model(self.inputs), self.targets)

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

    def observe(self) -> dict[str, tuple[float, str]]:
        """How alike the steps are, and the products' share of operations and of time."""
        from experiments.models import trace

        repeats, flop_share = trace.repeat_share(self.step, TRACED_STEPS)
        time_share = trace.product_time_share(self.step, self.device.kind, PROFILED_STEPS)
        return {
            "repeat_share": (repeats, "1"),
            "matmul_flop_share": (flop_share, "1"),
            "matmul_time_share": (time_share, "1"),
        }


def least_error(trainer: Trainer, fresh: Callable[[], Any], tolerance: float) -> float:
    """Error of the gradients on a fresh batch; of up to three batches if the first exceeds the tolerance.

    The gradients of ReLU and max-pooling jump: a value within rounding of the kink
    takes the other path now and then (about one batch of 256 images in ten, with an
    error of a thousandth). What is computed wrongly is wrong on every batch.
    """
    error = math.inf
    for _ in range(3):
        error = min(error, gradient_error(trainer, *fresh()))
        if error <= tolerance:
            break
    return error


def gradient_error(trainer: Trainer, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Relative error of the gradients on a fresh batch against the same model in float64 on the CPU.

    The rest of the point goes on with that batch; the weights stay as they were.
    """
    import torch

    trainer.inputs, trainer.targets = inputs.to(trainer.device.name), targets.to(trainer.device.name).flatten()
    reference = copy.deepcopy(trainer.model).to("cpu").double()
    images = inputs.double() if inputs.is_floating_point() else inputs
    torch.nn.functional.cross_entropy(reference(images), targets.flatten()).backward()
    trainer.optimiser.zero_grad(set_to_none=True)
    trainer.forward()
    trainer.backward()

    def gradients(model: torch.nn.Module) -> torch.Tensor:
        return torch.cat([p.grad.flatten().double().cpu() for p in model.parameters() if p.grad is not None])

    got, right = gradients(trainer.model), gradients(reference)
    trainer.optimiser.zero_grad(set_to_none=True)
    return float(torch.linalg.norm(got - right) / torch.linalg.norm(right))
