"""Data-parallel training: ranks, each a process with a device and a batch of its own, that average their gradients."""

from __future__ import annotations

import contextlib
import copy
import math
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from contract.errors import StudyError
from experiments.children import Child, collect_answers, read_order
from experiments.devices import Device, open_device
from experiments.models.gradient_tolerance import of_gradients
from experiments.models.trainer import Trainer
from experiments.models.zoo import ZOO
from experiments.point_errors import is_out_of_memory
from experiments.workload import Dtype, Unsupported, largest_error

SEED = 20250
# The check: steps of plain gradient descent at this rate, on so many samples of each rank. Adam would turn the rounding
# of a gradient near zero into a step of full size.
CHECKED_STEPS, CHECKED_SAMPLES, RATE = 2, 2, 0.5
# A batch on which rounding makes ReLU take its other branch is drawn again, as for `training`.
TRIES = 3
# Take up to SAMPLES of each kind, alternating, within SPAN_S; at least FEWEST if steps are slow.
SAMPLES, FEWEST, SPAN_S = 12, 4, 2.4
WARM_UP = 3
# Error value for NaN or infinity, which JSON cannot encode.
BEYOND = 1e300


def train(
    ranks: int, order: Mapping[str, Any], command: Sequence[str] = ("-m", "experiments.models.ranks")
) -> dict[str, Any]:
    """Train on so many ranks: {error, step_time, step_time_alone}, the times being the slowest rank's.

    order: model, batch (samples of one rank), dtype, devices (a name for each rank), threads, interconnect. Raises
    Unsupported, MemoryError or RuntimeError with the reason of the rank that failed first, ChildError if it gives none.
    """
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder, contextlib.ExitStack() as stack:
        children = []
        for rank in range(ranks):
            child = Child(f"process of rank {rank}", [sys.executable, "-u", *command], loopback())
            stack.callback(child.stop)
            child.send({**order, "rank": rank, "ranks": ranks, "meeting": f"file://{folder}/ranks"})
            children.append(child)
        found = collect_answers(children)
    times = {
        name: [max(turn) for turn in zip(*(one[name] for one in found), strict=True)]
        for name in ("step_time", "step_time_alone")
    }
    return {"error": found[0]["error"], **times}


def loopback() -> dict[str, str]:
    """Variables by which gloo and NCCL connect ranks over the loopback, without looking up names of machines."""
    name = next((name for name in psutil.net_if_addrs() if name.startswith("lo")), "lo")
    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}


def main() -> None:
    """Train as one rank, by the orders of `train`."""
    order, tell = read_order()
    try:
        tell(_trained(order))
    except Exception as error:
        traceback.print_exc()
        lacks = isinstance(error, Unsupported | StudyError)
        kind = "unsupported" if lacks else "oom" if is_out_of_memory(error) else "raised"
        tell({kind: (str(error).splitlines() or [type(error).__name__])[0]})


def _trained(order: Mapping[str, Any]) -> dict[str, Any]:
    device = open_device(order["devices"][order["rank"]])
    device.set_threads(order["threads"])
    dist.init_process_group(
        order["interconnect"], init_method=order["meeting"], rank=order["rank"], world_size=order["ranks"]
    )
    try:
        replica = Replica(device, order["model"], order["batch"], Dtype(order["dtype"]))
        error = replica.error()
        together, alone, spread = replica.times()
        # Ranks with different weights are wrong, however close to the reference each is.
        return {"error": max(error, spread), "step_time": together, "step_time_alone": alone}
    finally:
        dist.destroy_process_group()


class Replica:
    """The model of one rank on its device. All ranks begin with the same weights."""

    def __init__(self, device: Device, model: str, batch: int, dtype: Dtype) -> None:
        self.device, self.dtype, self.entry = device, dtype, ZOO[model]
        self.tolerance = of_gradients(model, dtype)
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        # Control messages use a separate group on the CPU.
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
        """Relative error of the weights' changes in some steps, against one process on all batches in float64.

        BEYOND if the ranks' weights differ. The least of up to TRIES errors, if the first exceeds the tolerance; the
        weights stay as they were.
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
        """The error after steps on the batches from `number` on, and the difference of the ranks' weights."""
        before = [weights.detach().clone() for weights in self.plain.parameters()]
        reference = copy.deepcopy(self.plain).cpu().double()
        kept = self.trainer.inputs, self.trainer.targets
        for step in range(CHECKED_STEPS):
            self.trainer.take(*self._drawn(CHECKED_SAMPLES, number + step, self.rank))
            self.trainer.forward()
            self.trainer.backward()
            _descend(self.plain)
            every = [self._drawn(CHECKED_SAMPLES, number + step, rank) for rank in range(self.ranks)]
            inputs, targets = (torch.cat(parts) for parts in zip(*every, strict=True))
            exact = inputs.double() if inputs.is_floating_point() else inputs
            cross_entropy(reference(exact), targets.flatten()).backward()
            _descend(reference)
        self.trainer.take(*kept)
        got, right = _changes(self.plain, before), _changes(reference, before)
        error = self._largest(float(torch.linalg.norm(got - right) / torch.linalg.norm(right)))
        spread = self.spread()
        with torch.no_grad():
            for weights, old in zip(self.plain.parameters(), before, strict=True):
                weights.copy_(old)
        return error, spread

    def _largest(self, value: float) -> float:
        """The largest value of any rank; BEYOND if one is not finite."""
        found = torch.tensor([value if math.isfinite(value) else BEYOND], dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.control)
        return float(found[0])

    def spread(self) -> float:
        """Largest difference of any weight of any rank from rank 0's, over the largest weight."""
        worst, most = 0.0, 0.0
        for weights in self.plain.parameters():
            first = weights.detach().cpu().clone()
            dist.broadcast(first, 0, group=self.control)
            worst = largest_error(worst, float((weights.detach().cpu() - first).abs().max()))
            most = largest_error(most, float(first.abs().max()))
        return self._largest(worst / most if most else worst)

    def times(self) -> tuple[list[float], list[float], float]:
        """Seconds of a step with averaging and without, in turns; and the difference of the ranks' weights.

        The weights are compared after the first steps with averaging: steps without it move them apart.
        """
        self.seconds(WARM_UP, together=True)
        first = self._largest(self.seconds(1, together=True))
        spread = self.spread()
        self.seconds(1, together=False)
        turns = min(SAMPLES, max(FEWEST, int(SPAN_S / 2 / first)))
        count = max(1, int(SPAN_S / (2 * turns) / first))
        pairs = [[self.seconds(count, together) for together in (True, False)] for _ in range(turns)]
        together, alone = (list(column) for column in zip(*pairs, strict=True))
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
    """Changes of all weights, one after the other, in float64: shape (parameters,)."""
    pairs = zip(model.parameters(), before, strict=True)
    return torch.cat([(weights.detach().cpu().double() - old.cpu().double()).flatten() for weights, old in pairs])


def _descend(model: torch.nn.Module) -> None:
    """One step of plain gradient descent; the gradients are dropped."""
    with torch.no_grad():
        for weights in model.parameters():
            if weights.grad is not None:
                weights.sub_(RATE * weights.grad)
            weights.grad = None


if __name__ == "__main__":
    main()
