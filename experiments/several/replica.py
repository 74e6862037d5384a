"""A rank's copy of a model: trained together with the others' through DistributedDataParallel, or alone."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from experiments.devices import Device
from experiments.models.tolerance import of_gradients
from experiments.models.trainer import Trainer
from experiments.models.zoo import ZOO
from experiments.work import Dtype, largest

SEED = 20250
# The check: so many steps of plain gradient descent at this rate, on so many samples of each rank. Adam would
# turn the rounding of a gradient near zero into a step of full size.
CHECKED_STEPS, CHECKED_SAMPLES, RATE = 2, 2, 0.5
# A batch on which rounding makes ReLU take its other branch is drawn again, as for `training`.
TRIES = 3
# Samples of each kind, in turns, over about so many seconds in all; of slow steps fewer.
SAMPLES, FEWEST, SPAN_S = 12, 4, 2.4
WARM_UP = 3
# Further than any tolerance: for what has no number, which JSON could not hold either.
BEYOND = 1e300


class Replica:
    """The model of one rank on its device, with the same weights in every rank to begin with."""

    def __init__(self, device: Device, model: str, batch: int, dtype: Dtype) -> None:
        self.device, self.dtype, self.entry = device, dtype, ZOO[model]
        self.tolerance = of_gradients(model, dtype)
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        # What is agreed upon beside the steps goes its own way, by the host.
        self.control = dist.new_group(backend="gloo")
        torch.manual_seed(SEED)
        self.plain = self.entry.model().to(device.name)
        self.model = DistributedDataParallel(self.plain, device_ids=[device.name] if device.kind == "gpu" else None)
        self.trainer = Trainer(self.model, *self._drawn(batch, 0, self.rank), device, dtype)

    def _drawn(self, size: int, number: int, rank: int) -> tuple[Tensor, Tensor]:
        """Batch `number` of a rank: any rank can draw it."""
        torch.manual_seed(SEED + 1 + number * self.ranks + rank)
        return self.entry.batch(size)

    def error(self) -> float:
        """Relative error of what some steps change in the weights, against one process on all batches in float64.

        BEYOND where a rank ends up with other weights than rank 0. The least of up to
        TRIES errors, if the first exceeds the tolerance; the weights stay as they were.
        """
        least = math.inf
        for number in range(1, 1 + TRIES):
            error, spread = self._descended(number * CHECKED_STEPS)
            least = min(least, error)
            if spread:
                return BEYOND
            if least <= self.tolerance:
                break
        return least

    def _descended(self, number: int) -> tuple[float, float]:
        """The error after steps on the batches from `number` on, and by how much the ranks' weights differ; to all."""
        before = [weights.detach().clone() for weights in self.plain.parameters()]
        reference = copy.deepcopy(self.plain).cpu().double()
        kept = self.trainer.inputs, self.trainer.targets
        for step in range(CHECKED_STEPS):
            self.trainer.take(*self._drawn(CHECKED_SAMPLES, number + step, self.rank))
            self.trainer.forward()
            self.trainer.backward()
            _descend(self.plain)
        self.trainer.take(*kept)
        spread, error = self.spread(), 0.0
        if self.rank == 0:
            for step in range(CHECKED_STEPS):
                every = [self._drawn(CHECKED_SAMPLES, number + step, rank) for rank in range(self.ranks)]
                inputs, targets = (torch.cat(parts) for parts in zip(*every, strict=True))
                exact = inputs.double() if inputs.is_floating_point() else inputs
                cross_entropy(reference(exact), targets.flatten()).backward()
                _descend(reference)
            got, right = _changes(self.plain, before), _changes(reference, before)
            error = float(torch.linalg.norm(got - right) / torch.linalg.norm(right))
        with torch.no_grad():
            for weights, old in zip(self.plain.parameters(), before, strict=True):
                weights.copy_(old)
        return self._agreed(error if math.isfinite(error) else BEYOND), spread

    def _agreed(self, value: float) -> float:
        """Rank 0's value."""
        box: list[Any] = [value]
        dist.broadcast_object_list(box, group=self.control)
        return float(box[0])

    def spread(self) -> float:
        """Largest difference of any weight of any rank from rank 0's, over the largest weight; to all ranks."""
        worst, most = 0.0, 0.0
        for weights in self.plain.parameters():
            first = weights.detach().cpu().clone()
            dist.broadcast(first, 0, group=self.control)
            worst = largest(worst, float((weights.detach().cpu() - first).abs().max()))
            most = largest(most, float(first.abs().max()))
        share = worst / most if most else worst
        found = torch.tensor([share if math.isfinite(share) else BEYOND], dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.control)
        return float(found[0])

    def times(self) -> tuple[list[float], list[float], float]:
        """Seconds of a step together with the others and of the same step alone, in turns; and how the weights differ.

        A sample is that of the slowest rank, for whom the others wait. The weights are
        compared after the first steps together: later, steps alone have moved them apart.
        """
        self.seconds(WARM_UP, together=True)
        first = self._agreed(self.seconds(1, together=True))
        spread = self.spread()
        self.seconds(1, together=False)
        turns = min(SAMPLES, max(FEWEST, int(SPAN_S / 2 / first)))
        count = max(1, int(SPAN_S / (2 * turns) / first))
        mine = [[self.seconds(count, together) for together in (True, False)] for _ in range(turns)]
        every: list[Any] = [None] * self.ranks
        dist.all_gather_object(every, mine, group=self.control)
        slowest = [[max(turn) for turn in zip(*turns, strict=True)] for turns in zip(*every, strict=True)]
        together, alone = (list(column) for column in zip(*slowest, strict=True))
        return together, alone, spread

    def seconds(self, count: int, together: bool) -> float:
        """Mean time of some steps in a row, all ranks beginning at once."""
        dist.barrier(group=self.control)
        self.device.synchronise()
        begun = time.perf_counter()
        for _ in range(count):
            with contextlib.nullcontext() if together else self.model.no_sync():
                self.trainer.forward()
                self.trainer.backward()
            self.trainer.update()
        self.device.synchronise()
        return (time.perf_counter() - begun) / count


def _changes(model: torch.nn.Module, before: Sequence[Tensor]) -> Tensor:
    """What has changed in all weights, one after the other, in float64."""
    pairs = zip(model.parameters(), before, strict=True)
    return torch.cat([(weights.detach().cpu().double() - old.cpu().double()).flatten() for weights, old in pairs])


def _descend(model: torch.nn.Module) -> None:
    """One step of plain gradient descent; the gradients are dropped."""
    with torch.no_grad():
        for weights in model.parameters():
            if weights.grad is not None:
                weights.sub_(RATE * weights.grad)
            weights.grad = None
