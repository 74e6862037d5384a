"""Training steps of real models on real data: forward, backward and update, each timed."""

from __future__ import annotations

import copy
import math
import time
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
# Where a step takes this many seconds, fewer must do.
SLOW_S, FEWEST_STEPS = 0.25, 2
# Relative error of all gradients together that a right step may show against float64:
# rounding of some hundred operations in a row, each bounded as in Dtype.matmul_tolerance.
TOLERANCE = {Dtype.FLOAT32: 1e-4, Dtype.TF32: 2e-2, Dtype.BFLOAT16: 1e-1}


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    """An eighth of the batch, down to one sample."""
    return {**params, "batch": max(1, params["batch"] // 8)} if params["batch"] > 1 else None


def memory(model: str, dtype: str, **_: Any) -> float:
    """Weights, gradients and Adam's two moments in float32; the check's weights and gradients in float64."""
    from experiments.models.zoo import ZOO

    return ZOO[model].parameters() * 8 * 4.0


@experiment("training", smaller=smaller, memory=memory)
def training(
    device: Device,
    model: Literal["mlp", "cnn", "gpt", "gpt2"],
    batch: int,
    dtype: Dtype,
    backend: Literal["torch", "onednn", "python", "scalar", "simd"],
    threads: Threads,
) -> Work:
    """One step of Adam on a batch that lies on the device; bfloat16 means autocast over float32 weights.

    backend: torch as it comes; torch tuned for a CPU (onednn: the products of linear
    layers by oneDNN, Adam fused into one pass); or plain loops, interpreted or compiled
    without or with vectors (MLP, one thread).

    Work: the FLOP of its products and convolutions, by formula (checked against
    `torch.utils.flop_counter` in the tests).
    """
    from experiments.models.zoo import ZOO

    if dtype not in TOLERANCE and backend != "python":
        raise Unsupported(f"training in {dtype} needs loss scaling, which is not part of this experiment")
    # Raises Unsupported where the device would fall back to another format.
    device.torch_dtype(dtype)
    entry = ZOO[model]
    if backend in ("python", "scalar", "simd"):
        return _loops(device, model, batch, dtype, backend, threads)
    built = _built(entry.model(), device, dtype, backend).to(device.name)
    trainer = Trainer(built, *entry.batch(batch), device, dtype, fused=backend == "onednn")
    return Work(
        phases=[("forward", trainer.forward), ("backward", trainer.backward), ("update", trainer.update)],
        flop=entry.step_flop(batch),
        check=lambda: least_error(trainer, lambda: entry.batch(batch), TOLERANCE[dtype]),
        tolerance=TOLERANCE[dtype],
        # oneDNN's products bypass the operators that are counted.
        observe=trainer.observe if backend == "torch" else None,
    )


def _built(model: torch.nn.Module, device: Device, dtype: Dtype, backend: str) -> torch.nn.Module:
    """The model, its linear layers going through the library `backend`. Raises Unsupported."""
    if backend == "torch":
        return model
    if device.kind != "cpu":
        raise device.unsupported(backend)
    if dtype is not Dtype.FLOAT32:
        raise Unsupported(f"in {dtype}, PyTorch goes through oneDNN by itself")
    from experiments.models.onednn import through_onednn

    return through_onednn(model)


def _loops(device: Device, model: str, batch: int, dtype: Dtype, how: str, threads: int) -> Work:
    from experiments.models.loops import LoopTrainer
    from experiments.models.zoo import ZOO, Mlp

    if device.kind != "cpu":
        raise device.unsupported(how)
    if model != "mlp" or threads > 1:
        raise Unsupported("the plain loops train the MLP, on one thread")
    if dtype is not (Dtype.FLOAT64 if how == "python" else Dtype.FLOAT32):
        raise Unsupported("interpreted loops work on Python's float64, compiled ones here on float32")
    entry = ZOO[model]
    trainer = LoopTrainer(how, Mlp(), entry.batch(batch), dtype)
    return Work(
        phases=[("forward", trainer.forward), ("backward", trainer.backward), ("update", trainer.update)],
        flop=entry.step_flop(batch),
        check=lambda: trainer.error(entry.batch(batch)),
        tolerance=TOLERANCE[Dtype.FLOAT32],
    )


class Trainer:
    """A model with its optimiser, one batch on the device, and the three phases of a step."""

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        device: Device,
        dtype: Dtype,
        fused: bool = False,
    ) -> None:
        import torch

        self.model, self.device, self.dtype = model, device, dtype
        self.inputs, self.targets = inputs.to(device.name), targets.to(device.name).flatten()
        self.optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, fused=fused or None)
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

        begun = time.perf_counter()
        self.step()
        slow = time.perf_counter() - begun > SLOW_S
        repeats, flop_share = trace.repeat_share(self.step, FEWEST_STEPS if slow else TRACED_STEPS)
        time_share = trace.product_time_share(self.step, self.device.name, FEWEST_STEPS if slow else PROFILED_STEPS)
        found = {"repeat_share": repeats, "matmul_flop_share": flop_share, "matmul_time_share": time_share}
        return {name: (share, "1") for name, share in found.items() if not math.isnan(share)}


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
        return torch.cat([p.grad.flatten().cpu().double() for p in model.parameters() if p.grad is not None])

    got, right = gradients(trainer.model), gradients(reference)
    trainer.optimiser.zero_grad(set_to_none=True)
    return float(torch.linalg.norm(got - right) / torch.linalg.norm(right))
