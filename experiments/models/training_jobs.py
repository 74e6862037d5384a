"""Small complete training jobs on real data that end at a target accuracy on held-out data.

A job does everything that a training script does: it reads and prepares the data, makes the model, draws shuffled
batches, takes training steps, and tests the accuracy. Only imports do not count, because the process has imported all
modules before.
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

SPLIT_SEED = 0
# Width and height in pixels of the images that ImageNet networks take.
PHOTOGRAPH = 224


def passages(length: int) -> Samples:
    """Cut the text from `real_data` into consecutive passages (n, length), with each byte's next byte as target."""
    tokens = real_data.text_tokens.__wrapped__()
    cut = tokens[: (len(tokens) - 1) // length * length].view(-1, length)
    following = tokens[1 : cut.numel() + 1].view(-1, length)
    return cut, following


@dataclass(frozen=True)
class Job:
    """Job that trains a network until the accuracy on held-out samples reaches the target.

    samples: function that reads and prepares all (inputs, targets) anew. batch: samples per step.
    rate: Adam's learning rate. target: required accuracy. test_size: number of held-out samples.
    every: steps between accuracy tests. most: steps after which the job ends in any case.
    enter: function that transforms a batch's inputs before they enter the model.
    """

    model: str
    samples: Callable[[], Samples]
    batch: int
    rate: float
    target: float
    test_size: int
    every: int
    most: int
    enter: Callable[[Tensor], Tensor] = lambda inputs: inputs

    @property
    def entry(self) -> Entry:
        return ZOO[self.model]

    @property
    def test_batches(self) -> int:
        """Held-out batches in each accuracy test."""
        return -(-self.test_size // self.batch)


@dataclass(frozen=True)
class Fit:
    """Job that fits a scikit-learn model once.

    model: function that makes the model. samples: function that reads and prepares all (inputs, targets) anew.
    target: required accuracy on held-out samples. test_size: number of held-out samples.
    """

    model: Callable[[], Any]
    samples: Callable[[], Samples]
    target: float
    test_size: int


def enlarge_images(images: Tensor) -> Tensor:
    """Enlarge grey images (n, 1, height, width) to (n, 3, PHOTOGRAPH, PHOTOGRAPH), with three equal channels."""
    return interpolate(images, size=PHOTOGRAPH, mode="bilinear").expand(-1, 3, -1, -1)


# Passages have 128 words; 30,522 is the size of BERT's vocabulary.
passages_by_library = partial(real_data.library_passages, 128, 30_522)
JOBS: dict[str, Job] = {
    "digits-mlp": Job("mlp", real_data.digits.__wrapped__, 32, 1e-3, 0.96, test_size=360, every=45, most=1500),
    "digits-cnn": Job("cnn", real_data.digits.__wrapped__, 32, 2e-3, 0.98, test_size=360, every=45, most=1500),
    "mnist-resnet": Job("resnet", real_data.mnist.__wrapped__, 64, 3e-3, 0.93, test_size=500, every=35, most=490),
    "mnist-wide-resnet": Job(
        "wide-resnet", real_data.mnist.__wrapped__, 64, 1e-3, 0.93, test_size=500, every=35, most=490
    ),
    "bytes-nanogpt-cpu": Job("nanogpt-cpu", partial(passages, 64), 12, 3e-3, 0.45, test_size=128, every=100, most=2000),
    "mnist-resnet-50": Job(
        "resnet-50", real_data.mnist.__wrapped__, 16, 2e-4, 0.85, test_size=200, every=20, most=400,
        enter=enlarge_images,
    ),
    "origin-minilm-l6": Job(
        "minilm-l6-classifier", passages_by_library, 16, 1e-4, 0.90, test_size=200, every=20, most=400
    ),
    "bytes-nanogpt": Job("nanogpt", partial(passages, 256), 64, 2e-3, 0.40, test_size=64, every=10, most=150),
    "bytes-nanogpt-hour": Job(
        "nanogpt", partial(passages, 256), 64, 2e-3, 0.60, test_size=64, every=40, most=720
    ),
}  # fmt: skip


def make_boosting() -> Any:
    """Make a gradient-boosted tree model, by scikit-learn's histogram method with its default settings."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier()


def make_logistic() -> Any:
    """Make a model that standardises all columns and then fits a logistic regression."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


FITS: dict[str, Fit] = {
    "table-boosting": Fit(make_boosting, real_data.breast_cancer.__wrapped__, 0.95, test_size=114),
    "digits-boosting": Fit(make_boosting, real_data.digits.__wrapped__, 0.95, test_size=360),
    "digits-logistic": Fit(make_logistic, real_data.digits.__wrapped__, 0.95, test_size=360),
}


def split_samples(samples: Samples, test_size: int) -> tuple[Samples, Samples]:
    """Split samples at random, with a fixed seed, into (training samples, `test_size` held-out samples)."""
    inputs, targets = samples
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(SPLIT_SEED))
    training, held_out = order[test_size:], order[:test_size]
    return (inputs[training], targets[training]), (inputs[held_out], targets[held_out])


class Learner:
    """State of a job on a device: its data, trainer and batch order."""

    def __init__(self, job: Job, device: Device, dtype: Dtype) -> None:
        self.job, self.device = job, device
        training, held_out = split_samples(job.samples(), job.test_size)
        self.inputs, self.targets = (tensor.to(device.name) for tensor in training)
        self.held_out = [tensor.to(device.name) for tensor in held_out]
        model = job.entry.model().to(device.name)
        self.trainer = Trainer(model, job.enter(self.inputs[: job.batch]), self.targets[: job.batch], device, dtype)
        for group in self.trainer.optimiser.param_groups:
            group["lr"] = job.rate
        self.order = self._batch_indices()

    def _batch_indices(self) -> Iterator[Tensor]:
        """Yield the sample indices for each batch, endlessly.

        Each pass over the samples shuffles them anew, and drops a last batch that would be incomplete.
        """
        while True:
            order = torch.randperm(len(self.targets), device=self.device.name)
            for begin in range(0, len(order) - self.job.batch + 1, self.job.batch):
                yield order[begin : begin + self.job.batch]

    def draw(self) -> None:
        """Give the next batch to the trainer."""
        chosen = next(self.order)
        self.trainer.set_batch(self.job.enter(self.inputs[chosen]), self.targets[chosen])

    def accuracy(self) -> float:
        """Return the accuracy on held-out samples."""
        model = self.trainer.model
        model.eval()
        right = torch.zeros((), device=self.device.name)
        with torch.no_grad(), self.trainer.autocast():
            for begin in range(0, self.job.test_size, self.job.batch):
                inputs, targets = (part[begin : begin + self.job.batch] for part in self.held_out)
                right += (model(self.job.enter(inputs)).argmax(1) == targets.flatten()).sum()
        model.train()
        return float(right) / self.held_out[1].numel()


def run_job(job: Job, device: Device, dtype: Dtype) -> dict[str, float]:
    """Run a job, from reading the data to the test that reaches the target accuracy or follows the last step.

    Return the metrics job_time (seconds), steps, tests (number of accuracy tests) and accuracy (in the last test).
    """
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


def run_fit(task: Fit) -> dict[str, float]:
    """Read the data, fit the model and test it; return the metrics job_time (seconds) and accuracy."""
    begun = running_time.now()
    (inputs, targets), (held_out, labels) = (
        (rows.flatten(1).numpy(), classes.numpy()) for rows, classes in split_samples(task.samples(), task.test_size)
    )
    model = task.model().fit(inputs, targets)
    accuracy = float((model.predict(held_out) == labels).mean())
    return {"job_time": running_time.now() - begun, "accuracy": accuracy}
