"""Whole jobs, small enough to run whole: real data, a model, and the accuracy on held-out data that ends it.

A job does everything that a person's script would: it reads and prepares its data,
makes the model, draws shuffled batches, steps, and tests as it goes. Only imports
are left out, for the process has made them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from contract import running_time
from experiments.devices import Device
from experiments.models import real_data
from experiments.models.trainer import Trainer
from experiments.models.zoo import ZOO, Entry
from experiments.workload import Dtype

Samples = tuple[Tensor, Tensor]

# Which samples are held out is part of the task: the same ones in every run.
SPLIT_SEED = 0
# Pixels of a side of what networks of ImageNet take.
PHOTOGRAPH = 224


def passages(length: int) -> Samples:
    """Passages (n, length) of the text, one after the other, and the same shifted by one, to be predicted."""
    tokens = real_data.text.__wrapped__()
    cut = tokens[: (len(tokens) - 1) // length * length].view(-1, length)
    following = tokens[1 : cut.numel() + 1].view(-1, length)
    return cut, following


@dataclass(frozen=True)
class Job:
    """A network that learns until its accuracy on held-out samples reaches the target.

    samples: reads and prepares (inputs, targets), all of them, afresh. rate: Adam's step size.
    held: samples held out. every: steps between two tests. most: steps after which it gives up.
    enter: what is done to the inputs of a batch before the network takes them.
    """

    model: str
    samples: Callable[[], Samples]
    batch: int
    rate: float
    target: float
    held: int
    every: int
    most: int
    enter: Callable[[Tensor], Tensor] = lambda inputs: inputs

    @property
    def entry(self) -> Entry:
        return ZOO[self.model]

    @property
    def test_batches(self) -> int:
        """Batches of one test."""
        return -(-self.held // self.batch)


@dataclass(frozen=True)
class Fit:
    """A model of scikit-learn that is fitted once. model: makes it; target: accuracy on the `held` samples."""

    model: Callable[[], Any]
    samples: Callable[[], Samples]
    target: float
    held: int


def enlarge(images: Tensor) -> Tensor:
    """Grey images (n, 1, height, width) at the size and with the three channels of networks of ImageNet."""
    return interpolate(images, size=PHOTOGRAPH, mode="bilinear").expand(-1, 3, -1, -1)


# Words of a passage, and their numbers: BERT's.
origins = partial(real_data.origins, 128, 30_522)
JOBS: dict[str, Job] = {
    "digits-mlp": Job("mlp", real_data.digits.__wrapped__, 32, 1e-3, 0.96, held=360, every=45, most=1500),
    "digits-cnn": Job("cnn", real_data.digits.__wrapped__, 32, 2e-3, 0.98, held=360, every=45, most=1500),
    "mnist-resnet": Job("resnet", real_data.mnist.__wrapped__, 64, 3e-3, 0.93, held=500, every=35, most=490),
    "mnist-wide-resnet": Job("wide-resnet", real_data.mnist.__wrapped__, 64, 1e-3, 0.93, held=500, every=35, most=490),
    "bytes-nanogpt-cpu": Job("nanogpt-cpu", partial(passages, 64), 12, 3e-3, 0.45, held=128, every=100, most=2000),
    "mnist-resnet-50": Job(
        "resnet-50", real_data.mnist.__wrapped__, 16, 2e-4, 0.85, held=200, every=20, most=400, enter=enlarge
    ),
    "origin-minilm-l6": Job("minilm-l6-classifier", origins, 16, 1e-4, 0.90, held=200, every=20, most=400),
    "bytes-nanogpt": Job("nanogpt", partial(passages, 256), 64, 2e-3, 0.40, held=64, every=10, most=150),
}  # fmt: skip


def boosting() -> Any:
    """Gradient-boosted trees (scikit-learn's histogram method, with its own settings)."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier()


def logistic() -> Any:
    """Logistic regression on standardised columns."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


FITS: dict[str, Fit] = {
    "table-boosting": Fit(boosting, real_data.table.__wrapped__, 0.95, held=114),
    "digits-boosting": Fit(boosting, real_data.digits.__wrapped__, 0.95, held=360),
    "digits-logistic": Fit(logistic, real_data.digits.__wrapped__, 0.95, held=360),
}


def split(samples: Samples, held: int) -> tuple[Samples, Samples]:
    """(training samples, those held out)."""
    inputs, targets = samples
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(SPLIT_SEED))
    kept, out = order[held:], order[:held]
    return (inputs[kept], targets[kept]), (inputs[out], targets[out])


class Learner:
    """A job on a device: its data, its model, and the way from one batch to the next."""

    def __init__(self, job: Job, device: Device, dtype: Dtype) -> None:
        self.job, self.device = job, device
        learnt, out = split(job.samples(), job.held)
        self.inputs, self.targets = (one.to(device.name) for one in learnt)
        self.held = [one.to(device.name) for one in out]
        model = job.entry.model().to(device.name)
        self.trainer = Trainer(model, job.enter(self.inputs[: job.batch]), self.targets[: job.batch], device, dtype)
        for group in self.trainer.optimiser.param_groups:
            group["lr"] = job.rate
        self.order = self._orders()

    def _orders(self) -> Iterator[Tensor]:
        """Numbers of a batch's samples: all samples in a random order, then all in another; what is left over waits."""
        while True:
            order = torch.randperm(len(self.targets), device=self.device.name)
            for begin in range(0, len(order) - self.job.batch + 1, self.job.batch):
                yield order[begin : begin + self.job.batch]

    def draw(self) -> None:
        """Take the next batch."""
        chosen = next(self.order)
        self.trainer.take(self.job.enter(self.inputs[chosen]), self.targets[chosen])

    def accuracy(self) -> float:
        """Share of the held-out answers that are right."""
        model = self.trainer.model
        model.eval()
        right = torch.zeros((), device=self.device.name)
        with torch.no_grad(), self.trainer.autocast():
            for begin in range(0, self.job.held, self.job.batch):
                inputs, targets = (one[begin : begin + self.job.batch] for one in self.held)
                right += (model(self.job.enter(inputs)).argmax(1) == targets.flatten()).sum()
        model.train()
        return float(right) / self.held[1].numel()


def learn(job: Job, device: Device, dtype: Dtype) -> dict[str, float]:
    """Run a job from its data on disk to its target: seconds, steps, tests and the accuracy that it ended with."""
    device.synchronise()
    begun = running_time.now()
    learner = Learner(job, device, dtype)
    steps, accuracy = 0, 0.0
    while accuracy < job.target and steps < job.most:
        for _ in range(job.every):
            learner.draw()
            learner.trainer.step()
        steps += job.every
        accuracy = learner.accuracy()
    device.synchronise()
    return {
        "job_time": running_time.now() - begun, "steps": steps, "tests": steps // job.every, "accuracy": accuracy,
    }  # fmt: skip


def fit(task: Fit) -> dict[str, float]:
    """Run a fit from its data on disk to its accuracy on held-out samples."""
    begun = running_time.now()
    (inputs, targets), (held, right) = (
        (one.flatten(1).numpy(), labels.numpy()) for one, labels in split(task.samples(), task.held)
    )
    model = task.model().fit(inputs, targets)
    accuracy = float((model.predict(held) == right).mean())
    return {"job_time": running_time.now() - begun, "accuracy": accuracy}
