"""Whole training runs from scratch on small sets of real images, at one batch and one learning rate.

Stochastic gradient descent with momentum 0.9 and a constant learning rate, as in the studies of the
batch's size that this one repeats: Keskar et al. 2017 ("On large-batch training for deep learning"),
Goyal et al. 2017 ("Accurate, large minibatch SGD", from which the linear scaling of the rate is) and
Shallue et al. 2019 ("Measuring the effects of data parallelism on neural network training").
Nothing in the models depends on the batch besides: no batch norm, no dropout, no weight decay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor, nn

from contract import running_time
from experiments.devices import Device
from experiments.models import real_data
from experiments.models.trainer import Trainer
from experiments.workload import Dtype

Images = tuple[Tensor, Tensor]

# The rate of the rule "fixed", and of the rule "linear" at this batch; rates are multiples of it.
BASE_RATE, MOMENTUM = 0.05, 0.9
# Which images are for training is drawn once, from this seed, and the same for every run.
SPLIT_SEED = 1
HIDDEN, CHANNELS = 64, (1, 8, 16)


@dataclass(frozen=True)
class Task:
    """A set of images, how many of them are for training and for validation (the rest is for the test).

    target: share of the validation images that a run is to tell rightly; how long that takes is told.
    """

    images: Callable[[], Images]
    training: int
    validation: int
    target: float


TASKS = {
    "digits": Task(real_data.digits, training=1024, validation=256, target=0.93),
    "mnist": Task(real_data.mnist, training=2048, validation=952, target=0.90),
}


@dataclass(frozen=True)
class Split:
    """Images and labels for training, validation and test."""

    training: Images
    validation: Images
    test: Images


@dataclass(frozen=True)
class Run:
    """Results of one run.

    training_s: seconds of training, without the tests between the epochs.
    target_s: those until the target was first seen reached, at the end of an epoch; None if it never was.
    """

    test_accuracy: float = 0.0
    validation_accuracy: float = 0.0
    training_s: float = 0.0
    updates: int = 0
    target_s: float | None = None


@cache
def split(name: str, device: str) -> Split:
    """The images of a task on a device (torch's name of it)."""
    task = TASKS[name]
    images, labels = task.images()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    rest = len(labels) - task.training - task.validation
    parts = order.split([task.training, task.validation, rest])
    return Split(*((images[part].to(device), labels[part].to(device)) for part in parts))


def network(model: str, pixels: int) -> nn.Module:
    """An MLP with two hidden layers, or two convolutions with pooling, for square images of so many pixels."""
    if model == "mlp":
        widths = [pixels, HIDDEN, HIDDEN]
        hidden = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(HIDDEN, 10))
    layers = [
        layer for i, o in pairwise(CHANNELS) for layer in (nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    ]
    side = math.isqrt(pixels) // 4
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(CHANNELS[-1] * side * side, 10))


def prepare(name: str, model: str, rate: float, device: Device, dtype: Dtype, seed: int) -> Trainer:
    """A model whose weights come from `seed`, with its optimiser; rate: in multiples of BASE_RATE."""
    images, labels = split(name, device.name).training
    torch.manual_seed(seed)
    made = network(model, images[0].numel()).to(device.name)
    trainer = Trainer(made, images[:1], labels[:1], device, dtype)
    # In one pass over the weights where it is the interpreter that takes the time.
    fused = device.kind == "cpu" or None
    trainer.optimiser = torch.optim.SGD(made.parameters(), lr=BASE_RATE * rate, momentum=MOMENTUM, fused=fused)
    return trainer


def train(name: str, model: str, batch: int, rate: float, epochs: int, device: Device, dtype: Dtype, seed: int) -> Run:
    """One run: `epochs` passes over the training images in batches of `batch`, in an order drawn from `seed`."""
    data, target = split(name, device.name), TASKS[name].target
    trainer = prepare(name, model, rate, device, dtype, seed)
    images, labels = data.training
    order, run = torch.Generator().manual_seed(seed), Run()
    for _ in range(epochs):
        device.synchronise()
        begun = running_time.now()
        for chosen in torch.randperm(len(labels), generator=order).to(device.name).split(batch):
            trainer.take(images[chosen], labels[chosen])
            trainer.step()
            run = replace(run, updates=run.updates + 1)
        device.synchronise()
        run = replace(run, training_s=run.training_s + running_time.now() - begun)
        run = replace(run, validation_accuracy=accuracy(trainer.model, data.validation))
        if run.target_s is None and run.validation_accuracy >= target:
            run = replace(run, target_s=run.training_s)
    return replace(run, test_accuracy=accuracy(trainer.model, data.test))


@torch.no_grad()
def accuracy(model: nn.Module, of: Images) -> float:
    """Share of the images that are told rightly. A model whose weights are no numbers names the same digit always."""
    images, labels = of
    return float((model(images).argmax(1) == labels).double().mean())
