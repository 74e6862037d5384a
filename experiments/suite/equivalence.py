"""The same training script on this device and on the CPU as it comes: whether the losses agree."""

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
# Relative error, by norm, of the samples' losses at the first step against float64.
TOLERANCE = {Dtype.FLOAT32: 1e-5, Dtype.TF32: 2e-3, Dtype.BFLOAT16: 2e-2}
# How far apart curves may always be, over the first loss. Rounding alone moves most by a hundredth of this,
# but where a value lies within a rounding of a ReLU's kink or of another one in max-pooling, the other path
# is taken, and the gradients of some batches jump by a thousandth.
LEAST = {Dtype.FLOAT32: 1e-3, Dtype.TF32: 5e-3, Dtype.BFLOAT16: 2e-2}
# Runs of the reference that are disturbed, and how many times further off than these a curve may be. A
# device rounds all results otherwise, where the disturbance rounds the weights alone; on the CPU, runs in
# bfloat16 were up to 2.5 times as far off. It matters to a model that doubles differences at every step, as
# the ResNet does behind its batch norms.
DISTURBED, FACTOR = 2, 4.0

Curve = tuple[float, ...]


class Run(NamedTuple):
    """losses: the mean loss of each step. first: the loss of each sample before the first step, in host memory."""

    losses: Curve
    first: torch.Tensor


def memory(model: str, **_: Any) -> float:
    """Weights, gradients and Adam's moments in float32, on the device, in the reference, and in the check's float64."""
    from experiments.models.zoo import ZOO

    return ZOO[model].parameters() * 3 * 16.0


# Making the model twice.
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
    """`steps` steps of Adam from the same weights and with the same batches, here and on the CPU.

    The reference is PyTorch as it comes, on the CPU, in float32. It is also run with every weight
    moved at every step by up to one rounding of `dtype`, at random: as far as that moves the loss, no
    arithmetic in that format can agree. A curve agrees if it keeps within FACTOR times as far, or within LEAST.
    The weights and the batches are drawn afresh in every round, by a seed that is the same for its points.

    Observed: loss and reference_loss, a value for every step; loss_deviation, the largest difference
    between them, and loss_tolerance, both over the reference's first loss; agrees_share, 1 or 0.
    """
    if dtype not in TOLERANCE:
        raise Unsupported(f"training in {dtype} needs loss scaling, which is not part of this experiment")
    if steps < 1:
        raise Unsupported("a curve has at least one step")
    # Raises Unsupported where the device would fall back to another format.
    device.torch_dtype(dtype)
    seed = _seed()
    run = cache(lambda: train(model, batch, steps, seed, device, dtype, backend, threads))

    def observe() -> Mapping[str, Observed]:
        expected = reference(model, batch, steps, seed)
        rounding = [
            deviation(reference(model, batch, steps, seed, dtype.unit_roundoff, number), expected)
            for number in range(1, DISTURBED + 1)
        ]
        return compared(run().losses, expected, max(LEAST[dtype], FACTOR * max(rounding)))

    def check() -> float:
        return relative_error(run().first, exact_losses(model, batch, seed))

    return Workload(observe=observe, check=check, tolerance=TOLERANCE[dtype])


def compared(losses: Curve, expected: Curve, tolerance: float) -> dict[str, Observed]:
    """What is observed of a curve beside the one that is expected; a loss that is no number is left out."""
    found: dict[str, Observed] = {
        "loss": ([loss for loss in losses if math.isfinite(loss)], "1"),
        "reference_loss": (expected, "1"),
        "loss_tolerance": (tolerance, "1"),
    }
    if not all(map(math.isfinite, losses)):
        return {**found, "agrees_share": (0.0, "1")}
    apart = deviation(losses, expected)
    return {**found, "loss_deviation": (apart, "1"), "agrees_share": (float(apart <= tolerance), "1")}


def deviation(losses: Curve, expected: Curve) -> float:
    """The largest difference of two curves, over where the second one begins."""
    return max(abs(a - b) for a, b in zip(losses, expected, strict=True)) / expected[0]


@cache
def _seed() -> int:
    """The seed of this process, that is of its round."""
    return secrets.randbits(31)


def _begin(model: str, batch: int, steps: int, seed: int) -> tuple[torch.nn.Module, list[Any]]:
    """A model and its batches, on the CPU, from a seed."""
    import torch

    from experiments.models.zoo import ZOO

    torch.manual_seed(seed)
    return ZOO[model].model(), [ZOO[model].batch(batch) for _ in range(steps)]


def train(
    model: str, batch: int, steps: int, seed: int, device: Device, dtype: Dtype, backend: str, threads: int
) -> Run:
    """Train on a device. Raises Unsupported if it lacks the library."""
    import torch
    from torch.nn.functional import cross_entropy

    from experiments.models.trainer import Trainer

    made, batches = _begin(model, batch, steps, seed)
    made = training.through(backend, made, device, dtype)
    inputs, targets = batches[0]
    trainer = Trainer(made.to(device.name), inputs, targets, device, dtype)
    if backend == "inductor":
        begun = copy.deepcopy(made.state_dict())
        trainer.compile(threads)  # which makes a step
        made.load_state_dict(begun)
    trainer.optimiser = torch.optim.Adam(made.parameters(), lr=RATE)
    trainer.take(*batches[0])
    with trainer.autocast():
        first = cross_entropy(trainer.call(trainer.inputs), trainer.targets, reduction="none").detach().cpu()
    losses = []
    for inputs, targets in batches:
        trainer.take(inputs, targets)
        trainer.step()
        losses.append(trainer.value.detach())
    return Run(tuple(map(float, losses)), first)


@cache
def reference(model: str, batch: int, steps: int, seed: int, disturbance: float = 0.0, number: int = 0) -> Curve:
    """Losses on the CPU in float32: the script as anybody would write it.

    disturbance: every weight is moved at every step, at random (from `number`), by at most
    this share of itself.
    """
    import torch
    from torch.nn.functional import cross_entropy

    made, batches = _begin(model, batch, steps, seed)
    optimiser = torch.optim.Adam(made.parameters(), lr=RATE)
    draw, losses = torch.Generator().manual_seed(number), []
    for inputs, targets in batches:
        if disturbance:
            with torch.no_grad():
                for weight in made.parameters():
                    weight.mul_(1 + disturbance * (2 * torch.rand(weight.shape, generator=draw) - 1))
        loss = cross_entropy(made(inputs), targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return tuple(losses)


def exact_losses(model: str, batch: int, seed: int) -> torch.Tensor:
    """The loss of each sample before the first step, in float64."""
    import torch
    from torch.nn.functional import cross_entropy

    made, [(inputs, targets)] = _begin(model, batch, 1, seed)
    images = inputs.double() if inputs.is_floating_point() else inputs
    with torch.no_grad():
        return cross_entropy(made.double()(images), targets.flatten(), reduction="none")


def relative_error(losses: torch.Tensor, exact: torch.Tensor) -> float:
    """The norm of the difference over the norm of the exact losses."""
    return float((losses.double() - exact).norm() / exact.norm())
