"""Training runs are repeatable, learn, are tested on held-out data, and are equal on every device."""

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


def convergence_metrics(device: Device = CPU, **changed: Any) -> dict[str, Any]:
    return observe(build_work("convergence", device, **changed))


def test_each_seed_has_a_value_that_is_equal_on_every_device() -> None:
    first, again, more = convergence_metrics(), convergence_metrics(), convergence_metrics(seeds=3)
    repeated = ("test_accuracy", "validation_accuracy", "updates")
    assert {name: first[name] for name in repeated} == {name: again[name] for name in repeated}
    assert more["test_accuracy"][:2] == first["test_accuracy"]
    assert first["updates"] == 3 * 1024 / 64
    device = SecondCpu()
    assert convergence_metrics(device)["test_accuracy"] == pytest.approx(first["test_accuracy"], abs=1e-3)
    assert device.waits


def test_clock_stops_at_the_target() -> None:
    metrics = convergence_metrics(batch=32, epochs=12)
    assert metrics["reached_share"] == 1
    assert all(seconds > 0 for seconds in metrics["time_to_target"])
    assert max(metrics["validation_accuracy"]) >= runs.TASKS["digits"].target
    assert min(metrics["test_accuracy"]) > 0.5
    slower = convergence_metrics(batch=1024, epochs=1, seeds=1)
    assert slower["reached_share"] == 0
    assert "time_to_target" not in slower


def test_diverging_run_has_chance_accuracy() -> None:
    metrics = convergence_metrics(rate=1e30, epochs=1, seeds=1)
    assert metrics["test_accuracy"][0] < 0.2
    assert metrics["reached_share"] == 0


@pytest.mark.parametrize("name", list(runs.TASKS))
def test_training_validation_and_test_images_are_disjoint(name: str) -> None:
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
    """Fix the seed, so that all training runs have the same weights and batches."""
    monkeypatch.setattr(equivalence, "_draw_seed", lambda: 7)


def test_weight_disturbance_is_symmetric(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every random draw is 0.5, the middle between 0 and 1, the disturbance changes no weight."""
    calm = equivalence.reference_losses("mlp", 8, 3, seed=11)
    monkeypatch.setattr(torch, "rand", lambda shape, generator: torch.full(shape, 0.5))
    assert equivalence.reference_losses("mlp", 8, 3, seed=11, disturbance=0.1, number=97) == calm


def equivalence_metrics(device: Device = CPU, **changed: Any) -> dict[str, Any]:
    return observe(build_work("equivalence", device, **changed))


@pytest.mark.usefixtures("seed")
def test_reference_repeats_exactly_and_other_arithmetic_is_within_tolerance() -> None:
    same, fine, coarse = (
        equivalence_metrics(),
        equivalence_metrics(backend="onednn"),
        equivalence_metrics(dtype="bfloat16"),
    )
    assert same["loss"] == list(same["reference_loss"])
    assert len(same["loss"]) == 8
    assert (same["loss_deviation"], same["agrees_share"]) == (0, 1)
    assert same["loss"][-1] < same["loss"][0]
    for metrics in (fine, coarse):
        assert 0 < metrics["loss_deviation"] <= metrics["loss_tolerance"]
        assert metrics["agrees_share"] == 1
    assert fine["loss_tolerance"] < coarse["loss_tolerance"]
    assert fine["loss_deviation"] < coarse["loss_deviation"] / 10
    assert equivalence_metrics(GPU, model="mlp")["loss_deviation"] < 1e-6


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda optimiser: optimiser.param_groups[0].update(lr=2 * equivalence.RATE), id="another rate"),
        pytest.param(lambda optimiser: optimiser.param_groups[0].update(betas=(0.0, 0.999)), id="no momentum"),
        pytest.param(lambda optimiser: optimiser.param_groups[0]["params"].pop(-2), id="weights that do not learn"),
    ],
)
def test_different_training_does_not_agree(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Trainer.step
    patched: set[int] = set()

    def break_step(self: Trainer) -> None:
        if id(self.optimiser) not in patched:
            patched.add(id(self.optimiser))
            fault(self.optimiser)
        step(self)

    monkeypatch.setattr(Trainer, "step", break_step)
    metrics = equivalence_metrics(GPU)
    assert metrics["agrees_share"] == 0
    assert metrics["loss_deviation"] > metrics["loss_tolerance"]


def test_deviation_is_the_largest_difference_over_the_first_loss() -> None:
    metrics = equivalence.curve_metrics((2.0, 1.5, 1.0), (2.0, 1.0, 1.25), 0.2)
    assert (metrics["loss_deviation"][0], metrics["agrees_share"][0]) == (0.25, 0)
    assert equivalence.curve_metrics((2.0, 1.5, 1.0), (2.0, 1.0, 1.25), 0.25)["agrees_share"][0] == 1
    lost = equivalence.curve_metrics((2.0, math.nan, math.inf), (2.0, 1.0, 0.5), 1e9)
    assert (lost["agrees_share"][0], lost["loss"][0]) == (0, [2.0])
    assert "loss_deviation" not in lost


@pytest.mark.usefixtures("seed")
def test_compiled_training_starts_with_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    # To compile, a trainer runs a step, which changes the weights. Run only this step, because compiling takes half a
    # minute.
    monkeypatch.setattr(Trainer, "compile", lambda self, threads: self.step())
    assert equivalence_metrics(backend="inductor")["loss_deviation"] == 0
    assert equivalence_metrics(backend="inductor", model="cnn", batch=4, steps=3)["loss_deviation"] == 0


@pytest.fixture
def short_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the timed parts and the job."""
    monkeypatch.setattr(time_to_train, "STEP_S", 0.05)
    monkeypatch.setattr(time_to_train, "DRAW_S", 0.05)
    job = dataclasses.replace(JOBS["digits-mlp"], target=0.8, test_size=114, every=20, most=400)
    monkeypatch.setitem(JOBS, "digits-mlp", job)


@pytest.mark.parametrize("device", [CPU, GPU])
@pytest.mark.usefixtures("short_job")
def test_job_reports_its_time_and_parts(device: Device) -> None:
    job, metrics = JOBS["digits-mlp"], observe(build_work("time-to-train", device))
    assert {"prepare_time", "step_time", "forward_time", "draw_time", "job_time"} < metrics.keys()
    assert all(value > 0 for value in metrics.values())
    assert metrics["forward_time"] < metrics["step_time"]
    tests = metrics["steps"] / job.every
    assert metrics["reached_share"] == 1.0
    assert metrics["accuracy"] >= 0.8
    # 114 images in batches of 32 are four forward passes.
    assert metrics["forward_passes"] == 4 * tests
    assert metrics["job_flop"] == tests * (20 * job.entry.step_flop(32) + job.entry.forward_flop(114))


@pytest.mark.usefixtures("short_job")
@pytest.mark.parametrize("name", JOBS)
def test_job_targets_exceed_chance_and_tests_precede_the_end(name: str) -> None:
    job = JOBS[name]
    assert 1 / job.entry.classes < job.target < 1 and 0 < job.rate < 0.01
    assert job.batch <= job.test_size and 0 < job.every <= job.most / 10


def test_job_that_misses_its_target_ends_and_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(JOBS, "digits-mlp", dataclasses.replace(JOBS["digits-mlp"], target=1.01, every=5, most=12))
    result = run_job(JOBS["digits-mlp"], CPU, Dtype.FLOAT32)
    assert result["steps"] == 15 and result["accuracy"] <= 1.0
    assert observe(build_work("time-to-train"))["reached_share"] == 0.0


@pytest.mark.parametrize(("accuracy", "reached"), [(0.9, 1.0), (0.895, 0.0)])
def test_accuracy_equal_to_the_target_reaches_it(
    accuracy: float, reached: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {"job_time": 1.0, "accuracy": accuracy}
    monkeypatch.setattr("experiments.models.training_jobs.run_fit", lambda _: result)
    monkeypatch.setitem(FITS, "digits-logistic", dataclasses.replace(FITS["digits-logistic"], target=0.9))
    metrics = observe(build_work("time-to-train", job="digits-logistic", dtype="float64", backend="sklearn"))
    assert metrics["reached_share"] == reached


class MemorisingClassifier:
    """A classifier that memorises its training rows and fails on others."""

    def fit(self, inputs: Any, targets: Any) -> MemorisingClassifier:
        self.known = {row.tobytes(): label for row, label in zip(inputs, targets, strict=True)}
        return self

    def predict(self, inputs: Any) -> Any:
        return np.array([self.known.get(row.tobytes(), -1) for row in inputs])


def test_fit_learns_and_is_tested_on_held_out_rows() -> None:
    metrics = observe(build_work("time-to-train", job="digits-logistic", dtype="float64", backend="sklearn"))
    assert metrics["reached_share"] == 1.0
    assert metrics["job_time"] > 0
    assert run_fit(Fit(MemorisingClassifier, FITS["digits-logistic"].samples, 0.5, test_size=360))["accuracy"] == 0.0
    numbers = torch.arange(100)
    (learnt, _), (held_out, _) = split_samples((numbers, numbers), 20)
    again, _ = split_samples((numbers, numbers), 20)
    assert len(held_out) == 20 and not set(learnt.tolist()) & set(held_out.tolist())
    assert again[0].tolist() == learnt.tolist(), "the same in every run"


# Leave out the largest jobs, which take minutes and run the same code.
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


def test_epoch_draws_each_sample_once_and_accuracy_counts_right_answers() -> None:
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


def test_passages_are_labelled_with_their_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("fit transform " * 8)
    monkeypatch.setattr(real_data, "_standard_library", lambda: [LIBRARY])
    monkeypatch.setattr(real_data, "_package_folder", lambda package: {"sklearn": tmp_path}[package])
    passages, labels = real_data.library_passages(4, 1000)
    expected = real_data.hash_words(b"fit transform fit transform", 1000)
    assert passages.shape[1] == 4 and len(passages) == len(labels)
    assert torch.equal(passages[labels == 1], expected.repeat(4, 1))
    assert torch.equal(passages[labels == 0].flatten()[:3], real_data.hash_words(LIBRARY.read_bytes(), 1000)[:3])


def test_grey_images_are_resized_for_a_photograph_network() -> None:
    job, images = JOBS["mnist-resnet-50"], torch.rand(2, 1, 28, 28)
    resized = job.enter(images)
    assert resized.shape == (2, *job.entry.sample)
    assert torch.equal(resized[:, 0], resized[:, 2])
    assert resized.mean().item() == pytest.approx(images.mean().item(), abs=0.02)


def test_passage_targets_are_the_next_tokens() -> None:
    inputs, targets = passages(128)
    assert inputs.shape == targets.shape and inputs.shape[1] == 128
    text = torch.cat([inputs.flatten(), targets[-1, -1:]])
    assert torch.equal(targets.flatten(), text[1:])
