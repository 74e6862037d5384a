"""Data-parallel training. Each rank is a process with its own device and batch; all ranks average their gradients."""

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
from experiments.models.gradient_tolerance import largest_gradient_error
from experiments.models.trainer import Trainer
from experiments.models.zoo import ZOO
from experiments.point_errors import is_out_of_memory
from experiments.workload import Dtype, Unsupported, largest_error

SEED = 20250
# The weight check runs CHECKED_STEPS steps with CHECKED_SAMPLES samples per rank and the learning rate RATE. It uses
# plain gradient descent, because Adam would turn rounding errors in near-zero gradients into full steps.
CHECKED_STEPS, CHECKED_SAMPLES, RATE = 2, 2, 0.5
# Most attempts at the check. If the error is too large, the check is repeated with other batches, because rounding may
# have moved a value across a ReLU's kink.
TRIES = 3
# Timings of steps with and without gradient averaging alternate. SAMPLES: most timings per kind.
# FEWEST: fewest timings per kind. SPAN_S: planned seconds for all timings together.
SAMPLES, FEWEST, SPAN_S = 12, 4, 2.4
WARM_UP = 3
# Number that stands for a NaN or infinite error, which JSON cannot encode.
BEYOND = 1e300


def train_ranks(
    ranks: int, order: Mapping[str, Any], command: Sequence[str] = ("-m", "experiments.models.ranks")
) -> dict[str, Any]:
    """Train on several ranks, and return a dictionary with `error`, `step_time` and `step_time_alone`.

    step_time: seconds per step in each timing, on the slowest rank. step_time_alone: the same for steps that do not
    average gradients. order: settings to send to every rank: model, batch (samples per rank), dtype, devices (a name
    per rank), threads and interconnect. Raises Unsupported, MemoryError or RuntimeError with the first failed rank's
    reason, ChildError if it gives no reason.
    """
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder, contextlib.ExitStack() as stack:
        children = []
        for rank in range(ranks):
            child = Child(f"process of rank {rank}", [sys.executable, "-u", *command], loopback_variables())
            stack.callback(child.stop)
            child.send({**order, "rank": rank, "ranks": ranks, "meeting": f"file://{folder}/ranks"})
            children.append(child)
        answers = collect_answers(children)
    times = {
        name: [max(turn) for turn in zip(*(answer[name] for answer in answers), strict=True)]
        for name in ("step_time", "step_time_alone")
    }
    return {"error": answers[0]["error"], **times}


def loopback_variables() -> dict[str, str]:
    """Return environment variables to make gloo and NCCL use the loopback interface and look up no host name."""
    name = next((name for name in psutil.net_if_addrs() if name.startswith("lo")), "lo")
    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}


def main() -> None:
    """Run one rank in this process, with the settings that `train_ranks` sends."""
    order, reply = read_order()
    try:
        reply(_train_rank(order))
    except Exception as error:
        traceback.print_exc()
        unsupported = isinstance(error, Unsupported | StudyError)
        kind = "unsupported" if unsupported else "oom" if is_out_of_memory(error) else "raised"
        reply({kind: (str(error).splitlines() or [type(error).__name__])[0]})


def _train_rank(order: Mapping[str, Any]) -> dict[str, Any]:
    device = open_device(order["devices"][order["rank"]])
    device.set_threads(order["threads"])
    dist.init_process_group(
        order["interconnect"], init_method=order["meeting"], rank=order["rank"], world_size=order["ranks"]
    )
    try:
        replica = Replica(device, order["model"], order["batch"], Dtype(order["dtype"]))
        error = replica.error()
        averaged, alone, spread = replica.step_times()
        # Report differing weights between ranks as an error, even if each rank is close to the reference.
        return {"error": max(error, spread), "step_time": averaged, "step_time_alone": alone}
    finally:
        dist.destroy_process_group()


class Replica:
    """One rank's model on its device; all ranks' models start with the same weights."""

    def __init__(self, device: Device, model: str, batch: int, dtype: Dtype) -> None:
        self.device, self.dtype, self.entry = device, dtype, ZOO[model]
        self.tolerance = largest_gradient_error(model, dtype)
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        # Make a separate group on the CPU for control messages.
        self.control = dist.new_group(backend="gloo")
        torch.manual_seed(SEED)
        self.unwrapped = self.entry.model().to(device.name)
        self.model = DistributedDataParallel(self.unwrapped, device_ids=[device.name] if device.kind == "gpu" else None)
        self.trainer = Trainer(self.model, *self._draw_batch(batch, 0, self.rank), device, dtype)

    def _draw_batch(self, size: int, number: int, rank: int) -> tuple[Tensor, Tensor]:
        """Draw batch number `number` for the rank `rank`.

        The seed depends only on these two numbers, to let each rank draw all ranks' batches.
        """
        torch.manual_seed(SEED + 1 + number * self.ranks + rank)
        return self.entry.batch(size)

    def error(self) -> float:
        """Return the relative error of the weight changes, and restore the weights.

        The weight changes are compared to those of one process that trains on all ranks' batches in float64. If the
        error exceeds the tolerance, the check is tried up to TRIES times with other batches, and the least error is
        returned. If weights differ between ranks, BEYOND is returned.
        """
        least = math.inf
        for number in range(1, 1 + TRIES):
            error, spread = self._compare_descent(number * CHECKED_STEPS)
            least = min(least, error)
            if spread:
                return BEYOND
            if least <= self.tolerance:
                break
        return least

    def _compare_descent(self, number: int) -> tuple[float, float]:
        """Train CHECKED_STEPS steps, beginning with batch `number`; return (error of weight changes, weight spread)."""
        before = [weights.detach().clone() for weights in self.unwrapped.parameters()]
        reference = copy.deepcopy(self.unwrapped).cpu().double()
        batch = self.trainer.inputs, self.trainer.targets
        for step in range(CHECKED_STEPS):
            self.trainer.set_batch(*self._draw_batch(CHECKED_SAMPLES, number + step, self.rank))
            self.trainer.forward()
            self.trainer.backward()
            _descend(self.unwrapped)
            batches = [self._draw_batch(CHECKED_SAMPLES, number + step, rank) for rank in range(self.ranks)]
            inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
            exact = inputs.double() if inputs.is_floating_point() else inputs
            cross_entropy(reference(exact), targets.flatten()).backward()
            _descend(reference)
        self.trainer.set_batch(*batch)
        changes, expected = _weight_changes(self.unwrapped, before), _weight_changes(reference, before)
        error = self._largest_of_ranks(float(torch.linalg.norm(changes - expected) / torch.linalg.norm(expected)))
        spread = self.weight_spread()
        with torch.no_grad():
            for weights, old in zip(self.unwrapped.parameters(), before, strict=True):
                weights.copy_(old)
        return error, spread

    def _largest_of_ranks(self, value: float) -> float:
        """Return the largest `value` on any rank; a value that is not finite counts as BEYOND."""
        maximum = torch.tensor([value if math.isfinite(value) else BEYOND], dtype=torch.float64)
        dist.all_reduce(maximum, dist.ReduceOp.MAX, group=self.control)
        return float(maximum[0])

    def weight_spread(self) -> float:
        """Return the largest difference between a rank's weight and rank 0's weight, relative to the largest weight."""
        difference, magnitude = 0.0, 0.0
        for weights in self.unwrapped.parameters():
            first = weights.detach().cpu().clone()
            dist.broadcast(first, 0, group=self.control)
            difference = largest_error(difference, float((weights.detach().cpu() - first).abs().max()))
            magnitude = largest_error(magnitude, float(first.abs().max()))
        return self._largest_of_ranks(difference / magnitude if magnitude else difference)

    def step_times(self) -> tuple[list[float], list[float], float]:
        """Return (step times with averaging, step times without averaging, weight spread); times are in seconds.

        Timings with and without averaging alternate. The weight spread is computed before the first step without
        averaging, because these steps make the ranks' weights diverge.
        """
        self.mean_seconds(WARM_UP, averaged=True)
        first = self._largest_of_ranks(self.mean_seconds(1, averaged=True))
        spread = self.weight_spread()
        self.mean_seconds(1, averaged=False)
        turns = min(SAMPLES, max(FEWEST, int(SPAN_S / 2 / first)))
        count = max(1, int(SPAN_S / (2 * turns) / first))
        pairs = [[self.mean_seconds(count, averaged) for averaged in (True, False)] for _ in range(turns)]
        averaged, alone = (list(column) for column in zip(*pairs, strict=True))
        return averaged, alone, spread

    def mean_seconds(self, count: int, averaged: bool) -> float:
        """Start all ranks together, run `count` steps, and return the mean seconds per step."""
        dist.barrier(group=self.control)
        self.device.synchronise()
        begun = time.perf_counter()
        for _ in range(count):
            with contextlib.nullcontext() if averaged else self.model.no_sync():
                self.trainer.forward()
                self.trainer.backward()
            self.trainer.update()
        self.device.synchronise()
        return (time.perf_counter() - begun) / count


def _weight_changes(model: torch.nn.Module, before: Sequence[Tensor]) -> Tensor:
    """Return the changes of all weights since `before`, in float64 with shape (parameters,)."""
    pairs = zip(model.parameters(), before, strict=True)
    return torch.cat([(weights.detach().cpu().double() - old.cpu().double()).flatten() for weights, old in pairs])


def _descend(model: torch.nn.Module) -> None:
    """Take one plain gradient descent step and drop the gradients."""
    with torch.no_grad():
        for weights in model.parameters():
            if weights.grad is not None:
                weights.sub_(RATE * weights.grad)
            weights.grad = None


if __name__ == "__main__":
    main()
