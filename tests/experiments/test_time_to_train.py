"""Jobs run whole: they end at their target, on held-out data, and count what they did."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import pytest
import torch

from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.models import jobs
from experiments.models.jobs import FITS, JOBS, Fit, Learner, fit, learn, passages, sources, split
from experiments.registry import get, typed
from experiments.suite import time_to_train
from experiments.suite.time_to_train import Name
from experiments.work import Dtype, Unsupported, Work
from tests.experiments.second_device import SecondCpu

CPU = CpuDevice()
PARTS = {"prepare_time", "step_time", "forward_time", "draw_time"}


def work(job: str, device: Device = CPU, **more: Any) -> Work:
    experiment = get("time-to-train")
    params = {"job": job, "dtype": "float32", "backend": "torch", "threads": 1, **more}
    return experiment.function(device, **typed(experiment, params))


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little time for the parts, and a small job."""
    monkeypatch.setattr(time_to_train, "STEP_S", 0.05)
    monkeypatch.setattr(time_to_train, "DRAW_S", 0.05)
    monkeypatch.setitem(JOBS, "table-net", dataclasses.replace(JOBS["table-net"], target=0.9, every=5, most=200))
    CPU.set_threads(1)


def test_the_names_are_those_of_the_jobs() -> None:
    assert set(get_args(Name)) == JOBS.keys() | FITS.keys()


@pytest.mark.parametrize("device", [CPU, SecondCpu()], ids=["cpu", "second"])
@pytest.mark.usefixtures("brief")
def test_a_job_tells_its_time_and_its_parts(device: Device) -> None:
    made = work("table-net", device)
    assert made.observe is not None
    found = {name: value for name, (value, _) in made.observe().items()}
    assert found.keys() == PARTS | {
        "job_time", "accuracy", "target", "reached_share", "steps", "forward_passes", "job_flop"
    }  # fmt: skip
    assert all(isinstance(value, float | int) and value > 0 for value in found.values())
    job = JOBS["table-net"]
    tests = float(found["steps"]) / job.every  # type: ignore[arg-type]
    assert found["reached_share"] == 1.0
    assert float(found["accuracy"]) >= 0.9  # type: ignore[arg-type]
    # 114 rows in batches of 32 are four forward passes.
    assert found["forward_passes"] == 4 * tests
    assert found["job_flop"] == tests * (5 * job.entry.step_flop(32) + job.entry.forward_flop(114))


@pytest.mark.usefixtures("brief")
def test_a_job_that_cannot_reach_its_target_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(JOBS, "table-net", dataclasses.replace(JOBS["table-net"], target=1.01, every=5, most=12))
    did = learn(JOBS["table-net"], CPU, Dtype.FLOAT32)
    assert did["steps"] == 15 and did["accuracy"] <= 1.0
    made = work("table-net")
    assert made.observe is not None
    assert made.observe()["reached_share"] == (0.0, "1")


def test_a_fit_learns_and_its_answers_are_tested_on_held_out_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    made = work("digits-logistic", dtype="float64", backend="sklearn")
    assert made.observe is not None
    found = made.observe()
    assert found["reached_share"] == (1.0, "1")
    assert found["job_time"][0] > 0  # type: ignore[operator]

    class Parrot:
        """Knows what it was taught, and nothing else."""

        def fit(self, inputs: Any, targets: Any) -> Parrot:
            self.known = {row.tobytes(): label for row, label in zip(inputs, targets, strict=True)}
            return self

        def predict(self, inputs: Any) -> Any:
            import numpy as np

            return np.array([self.known.get(row.tobytes(), -1) for row in inputs])

    assert fit(Fit(Parrot, FITS["digits-logistic"].samples, 0.5, held=360))["accuracy"] == 0.0


def test_held_out_samples_are_the_same_in_every_run_and_not_learnt_from() -> None:
    numbers = torch.arange(100)
    (learnt, _), (out, _) = split((numbers, numbers), 20)
    again, _ = split((numbers, numbers), 20)
    assert len(out) == 20 and not set(learnt.tolist()) & set(out.tolist())
    assert again[0].tolist() == learnt.tolist()


@pytest.mark.parametrize("name", JOBS)
def test_every_job_learns_from_batches_of_its_own_samples(name: str) -> None:
    learner = Learner(JOBS[name], CPU, Dtype.FLOAT32)
    first = learner.trainer.loss().item()
    for _ in range(6):
        learner.trainer.step()
    assert learner.trainer.loss().item() < first
    learner.draw()
    assert len(learner.trainer.inputs) == JOBS[name].batch
    assert len(learner.trainer.targets) == JOBS[name].batch * JOBS[name].entry.length
    assert 0 <= learner.accuracy() <= 1
    assert learner.trainer.model.training


def test_an_epoch_draws_every_sample_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(JOBS["table-net"], CPU, Dtype.FLOAT32)
    batches = len(learner.targets) // 32
    drawn = torch.cat([next(learner.order) for _ in range(batches)])
    assert len(set(drawn.tolist())) == 32 * batches
    assert drawn.tolist() != sorted(drawn.tolist())


def test_accuracy_counts_right_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(JOBS["table-net"], CPU, Dtype.FLOAT32)
    share = float((learner.held[1] == 1).float().mean())
    always_one = torch.nn.Linear(30, 2)
    torch.nn.init.zeros_(always_one.weight)
    always_one.bias.data = torch.tensor([0.0, 1.0])
    learner.trainer.model = always_one
    assert learner.accuracy() == pytest.approx(share)


def test_passages_are_followed_by_what_comes_next() -> None:
    inputs, targets = passages(128)
    assert inputs.shape == targets.shape and inputs.shape[1] == 128
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(inputs[1:, 0], targets[:-1, -1])


def test_every_module_has_passages() -> None:
    inputs, labels = sources()
    assert inputs.shape == (len(labels), jobs.PASSAGE - 2)
    assert set(labels.tolist()) == set(range(64))


@pytest.mark.parametrize(
    ("job", "device", "more", "why"),
    [
        ("digits-logistic", CPU, {}, "a job for scikit-learn"),
        ("digits-mlp", CPU, {"backend": "sklearn"}, "a job for torch"),
        ("digits-logistic", CPU, {"backend": "sklearn"}, "works in float64"),
        ("digits-logistic", SecondCpu(), {"backend": "sklearn", "dtype": "float64"}, "does not run on"),
        ("digits-mlp", CPU, {"dtype": "float16"}, "needs loss scaling"),
    ],
)
def test_what_cannot_be_is_unsupported(job: str, device: Device, more: dict[str, Any], why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        work(job, device, **more)


def test_memory_grows_with_the_model() -> None:
    memory = get("time-to-train").memory
    assert memory is not None
    assert memory(job="digits-logistic") < memory(job="digits-mlp") < memory(job="bytes-gpt")
