"""One training script on this device and on the CPU with default settings: agreement of the losses."""

from __future__ import annotations

import copy
import math
import secrets
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from experiments.devices import Device
from experiments.models.network_names import Model
from experiments.registry import experiment
from experiments.suite import training
from experiments.workload import Dtype, Observed, Threads, Unsupported, Workload

if TYPE_CHECKING:
    import torch

RATE = 3e-4
# Tolerated relative error (norm) for the per-sample losses before the first step, against float64.
TOLERANCE = {Dtype.FLOAT32: 1e-5, Dtype.TF32: 2e-3, Dtype.BFLOAT16: 2e-2, Dtype.FLOAT16: 2e-3}
# Deviation that is always accepted, relative to the first loss. Rounding alone usually causes a hundredth of this
# deviation. But if rounding moves a value across a ReLU's kink or decides a tie in max-pooling, a batch's gradients
# jump by a thousandth.
LEAST = {Dtype.FLOAT32: 1e-3, Dtype.TF32: 5e-3, Dtype.BFLOAT16: 2e-2, Dtype.FLOAT16: 5e-3}
# DISTURBED: number of reference runs with perturbed weights.
# FACTOR: multiple of the perturbed runs' deviation by which a device may deviate from the reference. A device may
# deviate more than the perturbed runs because it rounds every result differently, while the perturbation rounds only
# the weights: on the CPU, bfloat16 runs deviated up to 2.5 times as much as the perturbed runs. FACTOR matters for
# models in which a difference between two runs doubles at every step, such as the ResNet with its batch norms.
DISTURBED, FACTOR = 2, 4.0

Curve = tuple[float, ...]


class Run(NamedTuple):
    """Losses of one training run.

    losses: the mean loss per step. first: the loss per sample before the first step, in host memory.
    """

    losses: Curve
    first: torch.Tensor


def memory(model: str, threads: int, **_: Any) -> float:
    """Estimate the bytes for training on the device, for training the reference, and for the check's float64 weights.

    Training holds weights, gradients and Adam's moments in float32. For a GPU, the last two are in host memory.
    """
    from experiments.models.zoo import ZOO

    return ZOO[model].parameters() * (3 if threads else 1) * 16.0


# Seconds to make the model twice.
EXTRA_S = 0.4


@experiment("equivalence", memory=memory, observed=True, extra_s=EXTRA_S, load_s=1.0)
def equivalence(
    device: Device,
    model: Model,
    batch: int,
    steps: int,
    dtype: Dtype,
    backend: Literal["torch", "onednn", "inductor"],
    threads: Threads,
) -> Workload:
    """Take `steps` steps with Adam from the same weights on the same batches, on this device and on the CPU.

    The reference is PyTorch with default settings on the CPU, in float32. Further reference runs perturb every weight
    at each step at random, by up to one rounding of `dtype`: no arithmetic in that format can agree with the reference
    more closely than the perturbed runs do. The device's losses agree with the reference if they deviate at most FACTOR
    times as much as the perturbed runs, or at most by LEAST. Weights and batches are drawn afresh in every round, from
    a seed that all sweep points in the round share.

    Observed: loss and reference_loss, one value per step; loss_deviation, the largest difference between them, and
        loss_tolerance, both relative to the reference's first loss; agrees_share, 1 or 0.
    """
    if dtype not in TOLERANCE:
        raise Unsupported(f"this experiment does not train in {dtype}")
    if steps < 1:
        raise Unsupported("steps must be at least 1")
    # Raises Unsupported if the device would fall back to another format.
    device.torch_dtype(dtype)
    seed = _draw_seed()
    run = cache(lambda: train(model, batch, steps, seed, device, dtype, backend, threads))

    def observe() -> Mapping[str, Observed]:
        expected = reference_losses(model, batch, steps, seed)
        rounding = [
            deviation(reference_losses(model, batch, steps, seed, dtype.unit_roundoff, number), expected)
            for number in range(1, DISTURBED + 1)
        ]
        return curve_metrics(run().losses, expected, max(LEAST[dtype], FACTOR * max(rounding)))

    def check() -> float:
        return relative_error(run().first, exact_losses(model, batch, seed))

    return Workload(observe=observe, check=check, tolerance=TOLERANCE[dtype])


def curve_metrics(losses: Curve, expected: Curve, tolerance: float) -> dict[str, Observed]:
    """Compare a loss curve with the expected curve; return the metrics (see `equivalence`).

    tolerance: largest `deviation` at which the curves agree. They disagree if a loss is nan or infinite.
    """
    metrics: dict[str, Observed] = {
        "loss": ([loss for loss in losses if math.isfinite(loss)], "1"),
        "reference_loss": (expected, "1"),
        "loss_tolerance": (tolerance, "1"),
    }
    if not all(map(math.isfinite, losses)):
        return {**metrics, "agrees_share": (0.0, "1")}
    difference = deviation(losses, expected)
    return {**metrics, "loss_deviation": (difference, "1"), "agrees_share": (float(difference <= tolerance), "1")}


def deviation(losses: Curve, expected: Curve) -> float:
    """Return the largest difference between two curves, relative to the first value expected."""
    return max(abs(a - b) for a, b in zip(losses, expected, strict=True)) / expected[0]


@cache
def _draw_seed() -> int:
    """Draw one seed per process; a process runs one round, so all points in a round share the seed."""
    return secrets.randbits(31)


def _make_model_and_batches(model: str, batch: int, steps: int, seed: int) -> tuple[torch.nn.Module, list[Any]]:
    """Return a model and its batches on the CPU, drawn from `seed`."""
    import torch

    from experiments.models.zoo import ZOO

    torch.manual_seed(seed)
    return ZOO[model].model(), [ZOO[model].batch(batch) for _ in range(steps)]


def train(
    model: str, batch: int, steps: int, seed: int, device: Device, dtype: Dtype, backend: str, threads: int
) -> Run:
    """Train on a device and return the losses. Raises Unsupported if the device lacks the library."""
    import torch
    from torch.nn.functional import cross_entropy

    from experiments.models.trainer import Trainer

    network, batches = _make_model_and_batches(model, batch, steps, seed)
    network = training.route_linear_layers(backend, network, device, dtype)
    inputs, targets = batches[0]
    trainer = Trainer(network.to(device.name), inputs, targets, device, dtype)
    if backend == "inductor":
        initial_weights = copy.deepcopy(network.state_dict())
        trainer.compile(threads)  # compiling takes a training step, so restore the weights
        network.load_state_dict(initial_weights)
    trainer.optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    trainer.set_batch(*batches[0])
    with trainer.autocast():
        first = cross_entropy(trainer.call(trainer.inputs), trainer.targets, reduction="none").detach().cpu()
    losses = []
    for inputs, targets in batches:
        trainer.set_batch(inputs, targets)
        trainer.step()
        losses.append(trainer.value.detach())
    return Run(tuple(map(float, losses)), first)


@cache
def reference_losses(model: str, batch: int, steps: int, seed: int, disturbance: float = 0.0, number: int = 0) -> Curve:
    """Return the losses on the CPU in float32, from a plain PyTorch script.

    disturbance: largest relative change to each weight at each step, drawn with seed `number`.
    """
    import torch
    from torch.nn.functional import cross_entropy

    network, batches = _make_model_and_batches(model, batch, steps, seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    draw, losses = torch.Generator().manual_seed(number), []
    for inputs, targets in batches:
        if disturbance:
            with torch.no_grad():
                for weight in network.parameters():
                    weight.mul_(1 + disturbance * (2 * torch.rand(weight.shape, generator=draw) - 1))
        loss = cross_entropy(network(inputs), targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return tuple(losses)


def exact_losses(model: str, batch: int, seed: int) -> torch.Tensor:
    """Return the loss per sample before the first step, in float64."""
    import torch
    from torch.nn.functional import cross_entropy

    network, [(inputs, targets)] = _make_model_and_batches(model, batch, 1, seed)
    images = inputs.double() if inputs.is_floating_point() else inputs
    with torch.no_grad():
        return cross_entropy(network.double()(images), targets.flatten(), reduction="none")


def relative_error(losses: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the norm of the difference relative to the norm of the exact losses."""
    return float((losses.double() - exact).norm() / exact.norm())
