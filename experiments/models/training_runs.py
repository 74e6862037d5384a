"""Training runs from scratch on small real image sets, with a constant batch size and learning rate.

The optimiser is stochastic gradient descent with momentum 0.9, as in the batch size studies repeated here:
Keskar et al. 2017 ("On large-batch training for deep learning"),
Goyal et al. 2017 ("Accurate, large minibatch SGD", which introduced linear rate scaling) and
Shallue et al. 2019 ("Measuring the effects of data parallelism on neural network training").
There is no batch norm, dropout or weight decay, so the batch size acts only through the gradients.
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

# BASE_RATE: learning rate that is the unit for each `rate` in this module. MOMENTUM: the optimiser's momentum.
BASE_RATE, MOMENTUM = 0.05, 0.9
SPLIT_SEED = 1
HIDDEN, CHANNELS = 64, (1, 8, 16)


@dataclass(frozen=True)
class Task:
    """Image set with a target accuracy for training runs.

    training: number of images to train on. validation: number of images to validate on; the remaining images are for
    testing. target: accuracy to reach on the validation images; `Run.target_s` is the time until then.
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
    """Images and labels for training, validation and testing."""

    training: Images
    validation: Images
    test: Images


@dataclass(frozen=True)
class Run:
    """Results of a training run.

    training_s: seconds of training, without the validation after each epoch. updates: number of training steps.
    target_s: `training_s` at the end of the first epoch that reached the target accuracy; None if no epoch reached it.
    """

    test_accuracy: float = 0.0
    validation_accuracy: float = 0.0
    training_s: float = 0.0
    updates: int = 0
    target_s: float | None = None


@cache
def split_images(name: str, device: str) -> Split:
    """Split the images for the task `name`, and move them to the device with torch's name `device`."""
    task = TASKS[name]
    images, labels = task.images()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    rest = len(labels) - task.training - task.validation
    parts = order.split([task.training, task.validation, rest])
    return Split(*((images[part].to(device), labels[part].to(device)) for part in parts))


def make_network(model: str, pixels: int) -> nn.Module:
    """Make a network for square grey images with `pixels` pixels.

    The network is an MLP with two hidden layers if `model` is "mlp", else two convolutions with pooling.
    """
    if model == "mlp":
        widths = [pixels, HIDDEN, HIDDEN]
        hidden = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(HIDDEN, 10))
    layers = [
        layer for i, o in pairwise(CHANNELS) for layer in (nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    ]
    side = math.isqrt(pixels) // 4
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(CHANNELS[-1] * side * side, 10))


def make_trainer(name: str, model: str, rate: float, device: Device, dtype: Dtype, seed: int) -> Trainer:
    """Make a trainer for a model and a task, with weights drawn from `seed`.

    name: the task's name. rate: learning rate, in multiples of BASE_RATE.
    """
    images, labels = split_images(name, device.name).training
    torch.manual_seed(seed)
    network = make_network(model, images[0].numel()).to(device.name)
    trainer = Trainer(network, images[:1], labels[:1], device, dtype)
    # Update all weights in one fused call on CPUs, where the interpreter's overhead would take most of the time.
    fused = device.kind == "cpu" or None
    trainer.optimiser = torch.optim.SGD(network.parameters(), lr=BASE_RATE * rate, momentum=MOMENTUM, fused=fused)
    return trainer


def train(name: str, model: str, batch: int, rate: float, epochs: int, device: Device, dtype: Dtype, seed: int) -> Run:
    """Train for `epochs` passes over a task's training images, and return the results.

    name: the task's name. batch: images per step. rate: learning rate, in multiples of BASE_RATE. seed: for the initial
    weights and the image order.
    """
    data, target = split_images(name, device.name), TASKS[name].target
    trainer = make_trainer(name, model, rate, device, dtype, seed)
    images, labels = data.training
    order, run = torch.Generator().manual_seed(seed), Run()
    for _ in range(epochs):
        device.synchronise()
        begun = running_time.now()
        for chosen in torch.randperm(len(labels), generator=order).to(device.name).split(batch):
            trainer.set_batch(images[chosen], labels[chosen])
            trainer.step()
            run = replace(run, updates=run.updates + 1)
        device.synchronise()
        run = replace(run, training_s=run.training_s + running_time.now() - begun)
        run = replace(run, validation_accuracy=accuracy(trainer.model, data.validation))
        if run.target_s is None and run.validation_accuracy >= target:
            run = replace(run, target_s=run.training_s)
    return replace(run, test_accuracy=accuracy(trainer.model, data.test))


@torch.no_grad()
def accuracy(model: nn.Module, samples: Images) -> float:
    """Return the fraction of images that the model classifies correctly.

    If training fails and makes the weights nan, the model always predicts the same class, so this is about 1 in 10.
    """
    images, labels = samples
    return float((model(images).argmax(1) == labels).double().mean())
