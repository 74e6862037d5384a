"""Whole training runs: repeatable, learning, on images kept apart, with a noise scale that is what it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.models import convergence as runs
from experiments.registry import get, typed
from experiments.work import Dtype, Unsupported, Work
from tests.experiments.second_device import SecondCpu

CPU = CpuDevice()
POINT: dict[str, Any] = {
    "data": "digits", "model": "mlp", "batch": 64, "rate": 1.0, "epochs": 3, "seeds": 2, "dtype": "float32",
    "backend": "torch", "threads": 1,
}  # fmt: skip


def work(device: Device = CPU, **changed: Any) -> Work:
    experiment = get("convergence")
    return experiment.function(device, **typed(experiment, POINT | changed))


def observed(device: Device = CPU, **changed: Any) -> dict[str, Any]:
    made = work(device, **changed)
    assert made.observe
    return {name: values for name, (values, _) in made.observe().items()}


def test_every_seed_has_a_value_and_the_same_seed_the_same() -> None:
    first, again, more = observed(), observed(), observed(seeds=3)
    repeated = ("test_accuracy", "validation_accuracy", "train_loss", "updates")
    assert {name: first[name] for name in repeated} == {name: again[name] for name in repeated}
    assert more["test_accuracy"][:2] == first["test_accuracy"]
    assert more["train_loss"][2] != more["train_loss"][1]
    assert first["updates"] == 3 * 1024 / 64
    assert all(seconds > 0 for seconds in first["training_time"])


def test_a_second_device_runs_the_same_script() -> None:
    device = SecondCpu()
    assert observed(device)["train_loss"] == pytest.approx(observed()["train_loss"], rel=1e-5)
    assert device.waits


@pytest.mark.parametrize(("data", "model"), [("digits", "mlp"), ("digits", "cnn"), ("mnist", "mlp")])
def test_a_run_learns(data: str, model: str) -> None:
    found = observed(data=data, model=model, epochs=4, rate=2.0, seeds=1)
    assert found["train_loss"][0] < 1.5 < math.log(10)
    assert found["test_accuracy"][0] > 0.5


def test_the_target_ends_the_clock_and_the_gradient_is_looked_at_there() -> None:
    found = observed(batch=32, epochs=12, seeds=2)
    assert found["reached_share"] == 1
    assert all(1 <= epochs < 12 for epochs in found["epochs_to_target"])
    assert all(a < b for a, b in zip(found["time_to_target"], found["training_time"], strict=True))
    assert all(value > 0 for value in [*found["gradient_variance"], *found["gradient_square"]])
    assert max(found["validation_accuracy"]) >= runs.TASKS["digits"].target
    # The accuracy that was seen is that of the model, which the look at its gradient left alone.
    slower = observed(batch=1024, epochs=1, seeds=1)
    assert slower["reached_share"] == 0
    assert not {"time_to_target", "epochs_to_target", "gradient_variance", "gradient_square"} & set(slower)


def test_a_look_at_the_gradient_does_not_change_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = runs.prepare("digits", "mlp", 1.0, CPU, Dtype.FLOAT32, seed=1)
    before = [weight.clone() for weight in trainer.model.parameters()]
    runs.noise(trainer, runs.split("digits", "cpu").training, torch.Generator().manual_seed(1))
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    assert all(weight.grad is None for weight in trainer.model.parameters())


def test_the_noise_of_the_gradient_is_that_of_single_images(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = (part[:40] for part in runs.split("digits", "cpu").training)
    trainer = runs.prepare("digits", "mlp", 1.0, CPU, Dtype.FLOAT32, seed=1)
    single = []
    for place in range(40):
        trainer.take(images[place : place + 1], labels[place : place + 1])
        trainer.forward()
        trainer.backward()
        single.append(torch.cat([weight.grad.flatten() for weight in trainer.model.parameters()]))  # type: ignore[union-attr]
        trainer.optimiser.zero_grad(set_to_none=True)
    every = torch.stack(single)
    monkeypatch.setattr(runs, "NOISE_DRAWS", 1500)
    monkeypatch.setattr(runs, "NOISE_BATCH", 4)
    variance, square = runs.noise(trainer, (images, labels), torch.Generator().manual_seed(1))
    assert square == pytest.approx(float(every.mean(0).square().sum()), rel=1e-4)
    assert variance == pytest.approx(float(every.var(0, correction=0).sum()), rel=0.05)


def test_a_run_that_diverges_has_the_accuracy_of_chance_and_no_loss() -> None:
    found = observed(rate=1e30, epochs=1, seeds=1)
    assert "train_loss" not in found
    assert found["test_accuracy"][0] < 0.2
    assert found["reached_share"] == 0


@pytest.mark.parametrize("name", list(runs.TASKS))
def test_images_of_training_validation_and_test_are_kept_apart(name: str) -> None:
    task, split = runs.TASKS[name], runs.split(name, "cpu")
    parts = [split.training, split.validation, split.test]
    assert [len(labels) for _, labels in parts[:2]] == [task.training, task.validation]
    together = torch.cat([images for images, _ in parts]).flatten(1)
    all_images = task.images()[0].flatten(1)
    assert together.shape == all_images.shape
    assert torch.equal(together.double().sum(1).sort()[0], all_images.double().sum(1).sort()[0])
    assert all(len(labels.unique()) == 10 for _, labels in parts)
    order = torch.randperm(len(all_images), generator=torch.Generator().manual_seed(runs.SPLIT_SEED))
    assert torch.equal(split.test[0].flatten(1), all_images[order[task.training + task.validation :]])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"batch": 1025}, "1024 images"),
        ({"batch": 0}, "one of 1 to 1024"),
        ({"seeds": 0}, "at least one"),
        ({"dtype": "float16"}, "loss scaling"),
        ({"dtype": "tf32"}, "NVIDIA"),
    ],
)
def test_what_cannot_be_says_why(changed: Mapping[str, Any], words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        work(**changed)


def test_a_wrong_gradient_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    made = work(batch=16)
    right: Callable[[torch.Tensor], torch.Tensor] = torch.nn.functional.relu

    def broken(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        return right(x) if x.dtype == torch.float64 else 1.01 * right(x)

    assert made.check
    assert made.tolerance
    assert made.check() <= made.tolerance
    monkeypatch.setattr(torch.nn.functional, "relu", broken)
    assert made.check() > made.tolerance
