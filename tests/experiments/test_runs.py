"""Whole training runs: repeatable, learning, on data kept apart, counted, and alike on every device."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.devices.base import Device
from experiments.models import real_data
from experiments.models import training_runs as runs
from experiments.models.trainer import Trainer
from experiments.models.training_jobs import FITS, JOBS, Fit, Learner, passages, run_fit, run_job, split_samples
from experiments.suite import equivalence, time_to_train
from experiments.workload import Dtype
from tests.experiments.point_runs import CPU, GPU, build_work, observe
from tests.experiments.second_device import SecondCpu

LIBRARY = Path(dataclasses.__file__)


def converged(device: Device = CPU, **changed: Any) -> dict[str, Any]:
    return observe(build_work("convergence", device, **changed))


def test_every_seed_has_a_value_and_the_same_seed_the_same_on_every_device() -> None:
    first, again, more = converged(), converged(), converged(seeds=3)
    repeated = ("test_accuracy", "validation_accuracy", "updates")
    assert {name: first[name] for name in repeated} == {name: again[name] for name in repeated}
    assert more["test_accuracy"][:2] == first["test_accuracy"]
    assert first["updates"] == 3 * 1024 / 64
    device = SecondCpu()
    assert converged(device)["test_accuracy"] == pytest.approx(first["test_accuracy"], abs=1e-3)
    assert device.waits


def test_the_target_ends_the_clock() -> None:
    found = converged(batch=32, epochs=12)
    assert found["reached_share"] == 1
    assert all(seconds > 0 for seconds in found["time_to_target"])
    assert max(found["validation_accuracy"]) >= runs.TASKS["digits"].target
    assert min(found["test_accuracy"]) > 0.5
    slower = converged(batch=1024, epochs=1, seeds=1)
    assert slower["reached_share"] == 0
    assert "time_to_target" not in slower


def test_a_run_that_diverges_has_the_accuracy_of_chance() -> None:
    found = converged(rate=1e30, epochs=1, seeds=1)
    assert found["test_accuracy"][0] < 0.2
    assert found["reached_share"] == 0


@pytest.mark.parametrize("name", list(runs.TASKS))
def test_images_of_training_validation_and_test_are_kept_apart(name: str) -> None:
    task, split = runs.TASKS[name], runs.split_images(name, "cpu")
    parts = [split.training, split.validation, split.test]
    assert [len(labels) for _, labels in parts[:2]] == [task.training, task.validation]
    together = torch.cat([images for images, _ in parts]).flatten(1)
    all_images = task.images()[0].flatten(1)
    assert together.shape == all_images.shape
    assert torch.equal(together.double().sum(1).sort()[0], all_images.double().sum(1).sort()[0])
    assert all(len(labels.unique()) == 10 for _, labels in parts)
    order = torch.randperm(len(all_images), generator=torch.Generator().manual_seed(runs.SPLIT_SEED))
    assert torch.equal(split.test[0].flatten(1), all_images[order[task.training + task.validation :]])


@pytest.fixture
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same weights and batches in every run of the tests."""
    monkeypatch.setattr(equivalence, "_draw_seed", lambda: 7)


def test_weights_are_disturbed_as_much_upwards_as_downwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draw from the middle moves no weight."""
    calm = equivalence.reference_losses("mlp", 8, 3, seed=11)
    monkeypatch.setattr(torch, "rand", lambda shape, generator: torch.full(shape, 0.5))
    assert equivalence.reference_losses("mlp", 8, 3, seed=11, disturbance=0.1, number=97) == calm


def compared(device: Device = CPU, **changed: Any) -> dict[str, Any]:
    return observe(build_work("equivalence", device, **changed))


@pytest.mark.usefixtures("seed")
def test_the_reference_agrees_with_itself_to_the_bit_and_another_arithmetic_within_its_tolerance() -> None:
    same, fine, coarse = compared(), compared(backend="onednn"), compared(dtype="bfloat16")
    assert same["loss"] == list(same["reference_loss"])
    assert len(same["loss"]) == 8
    assert (same["loss_deviation"], same["agrees_share"]) == (0, 1)
    assert same["loss"][-1] < same["loss"][0]
    for found in (fine, coarse):
        assert 0 < found["loss_deviation"] <= found["loss_tolerance"]
        assert found["agrees_share"] == 1
    assert fine["loss_tolerance"] < coarse["loss_tolerance"]
    assert fine["loss_deviation"] < coarse["loss_deviation"] / 10
    assert compared(GPU, model="mlp")["loss_deviation"] < 1e-6


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda optimiser: optimiser.param_groups[0].update(lr=2 * equivalence.RATE), id="another rate"),
        pytest.param(lambda optimiser: optimiser.param_groups[0].update(betas=(0.0, 0.999)), id="no momentum"),
        pytest.param(lambda optimiser: optimiser.param_groups[0]["params"].pop(-2), id="weights that do not learn"),
    ],
)
def test_a_device_that_trains_otherwise_does_not_agree(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Trainer.step
    seen: set[int] = set()

    def broken(self: Trainer) -> None:
        if id(self.optimiser) not in seen:
            seen.add(id(self.optimiser))
            fault(self.optimiser)
        right(self)

    monkeypatch.setattr(Trainer, "step", broken)
    found = compared(GPU)
    assert found["agrees_share"] == 0
    assert found["loss_deviation"] > found["loss_tolerance"]


def test_the_difference_is_the_largest_of_all_steps_over_the_first_loss() -> None:
    found = equivalence.curve_metrics((2.0, 1.5, 1.0), (2.0, 1.0, 1.25), 0.2)
    assert (found["loss_deviation"][0], found["agrees_share"][0]) == (0.25, 0)
    assert equivalence.curve_metrics((2.0, 1.5, 1.0), (2.0, 1.0, 1.25), 0.25)["agrees_share"][0] == 1
    lost = equivalence.curve_metrics((2.0, math.nan, math.inf), (2.0, 1.0, 0.5), 1e9)
    assert (lost["agrees_share"][0], lost["loss"][0]) == (0, [2.0])
    assert "loss_deviation" not in lost


@pytest.mark.usefixtures("seed")
def test_compiled_it_begins_with_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    # Compiling itself takes half a minute; what it does to the weights is a step.
    monkeypatch.setattr(Trainer, "compile", lambda self, threads: self.step())
    assert compared(backend="inductor")["loss_deviation"] == 0
    assert compared(backend="inductor", model="cnn", batch=4, steps=3)["loss_deviation"] == 0


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little time for the parts, and a small job."""
    monkeypatch.setattr(time_to_train, "STEP_S", 0.05)
    monkeypatch.setattr(time_to_train, "DRAW_S", 0.05)
    job = dataclasses.replace(JOBS["digits-mlp"], target=0.8, held=114, every=20, most=400)
    monkeypatch.setitem(JOBS, "digits-mlp", job)


@pytest.mark.parametrize("device", [CPU, GPU])
@pytest.mark.usefixtures("brief")
def test_a_job_tells_its_time_and_its_parts(device: Device) -> None:
    job, found = JOBS["digits-mlp"], observe(build_work("time-to-train", device))
    assert {"prepare_time", "step_time", "forward_time", "draw_time", "job_time"} < found.keys()
    assert all(value > 0 for value in found.values())
    assert found["forward_time"] < found["step_time"]
    tests = found["steps"] / job.every
    assert found["reached_share"] == 1.0
    assert found["accuracy"] >= 0.8
    # 114 images in batches of 32 are four forward passes.
    assert found["forward_passes"] == 4 * tests
    assert found["job_flop"] == tests * (20 * job.entry.step_flop(32) + job.entry.forward_flop(114))


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("name", JOBS)
def test_targets_are_shares_better_than_chance_and_tests_come_before_the_end(name: str) -> None:
    job = JOBS[name]
    assert 1 / job.entry.classes < job.target < 1 and 0 < job.rate < 0.01
    assert job.batch <= job.held and 0 < job.every <= job.most / 10


def test_a_job_that_cannot_reach_its_target_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(JOBS, "digits-mlp", dataclasses.replace(JOBS["digits-mlp"], target=1.01, every=5, most=12))
    did = run_job(JOBS["digits-mlp"], CPU, Dtype.FLOAT32)
    assert did["steps"] == 15 and did["accuracy"] <= 1.0
    assert observe(build_work("time-to-train"))["reached_share"] == 0.0


@pytest.mark.parametrize(("accuracy", "reached"), [(0.9, 1.0), (0.895, 0.0)])
def test_an_accuracy_of_just_the_target_is_enough(
    accuracy: float, reached: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    did = {"job_time": 1.0, "accuracy": accuracy}
    monkeypatch.setattr("experiments.models.training_jobs.run_fit", lambda _: did)
    monkeypatch.setitem(FITS, "digits-logistic", dataclasses.replace(FITS["digits-logistic"], target=0.9))
    found = observe(build_work("time-to-train", job="digits-logistic", dtype="float64", backend="sklearn"))
    assert found["reached_share"] == reached


class Parrot:
    """Knows what it was taught, and nothing else."""

    def fit(self, inputs: Any, targets: Any) -> Parrot:
        self.known = {row.tobytes(): label for row, label in zip(inputs, targets, strict=True)}
        return self

    def predict(self, inputs: Any) -> Any:
        return np.array([self.known.get(row.tobytes(), -1) for row in inputs])


def test_a_fit_learns_and_its_answers_are_tested_on_held_out_rows() -> None:
    found = observe(build_work("time-to-train", job="digits-logistic", dtype="float64", backend="sklearn"))
    assert found["reached_share"] == 1.0
    assert found["job_time"] > 0
    assert run_fit(Fit(Parrot, FITS["digits-logistic"].samples, 0.5, held=360))["accuracy"] == 0.0
    numbers = torch.arange(100)
    (learnt, _), (out, _) = split_samples((numbers, numbers), 20)
    again, _ = split_samples((numbers, numbers), 20)
    assert len(out) == 20 and not set(learnt.tolist()) & set(out.tolist())
    assert again[0].tolist() == learnt.tolist(), "the same in every run"


# Seven steps and a test of the largest take minutes, and are run by the same lines.
@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if job.entry.step_flop(job.batch) < 1e11])
def test_every_job_learns_from_batches_of_its_own_samples(name: str) -> None:
    job, learner = JOBS[name], Learner(JOBS[name], CPU, Dtype.FLOAT32)
    first = learner.trainer.loss().item()
    for _ in range(6):
        learner.trainer.step()
    assert learner.trainer.loss().item() < first
    learner.draw()
    assert (len(learner.trainer.inputs), len(learner.trainer.targets)) == (job.batch, job.batch * job.entry.length)
    assert 0 <= learner.accuracy() <= 1
    assert learner.trainer.model.training


def test_an_epoch_draws_every_sample_once_and_accuracy_counts_right_answers() -> None:
    learner = Learner(JOBS["digits-mlp"], CPU, Dtype.FLOAT32)
    batches = len(learner.targets) // 32
    drawn = torch.cat([next(learner.order) for _ in range(batches)]).tolist()
    assert len(set(drawn)) == 32 * batches
    assert drawn != sorted(drawn)
    always_one = torch.nn.Linear(64, 10)
    torch.nn.init.zeros_(always_one.weight)
    always_one.bias.data = torch.eye(10)[1]
    learner.trainer.model = torch.nn.Sequential(torch.nn.Flatten(), always_one)
    assert learner.accuracy() == pytest.approx(float((learner.held_out[1] == 1).float().mean()))


def test_passages_bear_the_library_that_they_come_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("fit transform " * 8)
    monkeypatch.setattr(real_data, "_standard_library", lambda: [LIBRARY])
    monkeypatch.setattr(real_data, "_package_folder", lambda package: {"sklearn": tmp_path}[package])
    passages, labels = real_data.library_passages(4, 1000)
    theirs = real_data.hash_words(b"fit transform fit transform", 1000)
    assert passages.shape[1] == 4 and len(passages) == len(labels)
    assert torch.equal(passages[labels == 1], theirs.repeat(4, 1))
    assert torch.equal(passages[labels == 0].flatten()[:3], real_data.hash_words(LIBRARY.read_bytes(), 1000)[:3])


def test_grey_images_enter_a_network_of_photographs_at_its_size() -> None:
    job, images = JOBS["mnist-resnet-50"], torch.rand(2, 1, 28, 28)
    entered = job.enter(images)
    assert entered.shape == (2, *job.entry.sample)
    assert torch.equal(entered[:, 0], entered[:, 2])
    assert entered.mean().item() == pytest.approx(images.mean().item(), abs=0.02)


def test_passages_are_followed_by_what_comes_next() -> None:
    inputs, targets = passages(128)
    assert inputs.shape == targets.shape and inputs.shape[1] == 128
    text = torch.cat([inputs.flatten(), targets[-1, -1:]])
    assert torch.equal(targets.flatten(), text[1:])
