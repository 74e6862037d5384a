"""The same script on two devices: equal arithmetic agrees, another one is noticed, and what does not run says so."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.models.trainer import Trainer
from experiments.registry import get, typed
from experiments.suite import equivalence as module
from experiments.work import Dtype, Unsupported, Work
from tests.experiments.second_device import SecondCpu

CPU = CpuDevice()
POINT: dict[str, Any] = {
    "model": "tabular", "batch": 8, "steps": 8, "dtype": "float32", "backend": "torch", "threads": 1,
}  # fmt: skip


_drawn = module._seed


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same weights and batches in every run of the tests."""
    monkeypatch.setattr(module, "_seed", lambda: 7)


def work(device: Device = CPU, **changed: Any) -> Work:
    experiment = get("equivalence")
    return experiment.function(device, **typed(experiment, POINT | changed))


def observed(device: Device = CPU, **changed: Any) -> dict[str, Any]:
    made = work(device, **changed)
    assert made.observe
    return {name: values for name, (values, _) in made.observe().items()}


def test_the_reference_agrees_with_itself_to_the_bit() -> None:
    found = observed()
    assert found["loss"] == list(found["reference_loss"])
    assert len(found["loss"]) == 8
    assert (found["loss_deviation"], found["agrees_share"]) == (0, 1)
    assert found["loss"][-1] < found["loss"][0]


@pytest.mark.parametrize(("backend", "dtype"), [("onednn", "float32"), ("torch", "bfloat16")])
def test_another_arithmetic_agrees_within_its_tolerance(backend: str, dtype: str) -> None:
    found = observed(backend=backend, dtype=dtype)
    assert 0 < found["loss_deviation"] <= found["loss_tolerance"]
    assert found["agrees_share"] == 1


def test_a_coarser_format_has_the_wider_tolerance_and_differs_by_more() -> None:
    fine, coarse = observed(backend="onednn"), observed(dtype="bfloat16")
    assert fine["loss_tolerance"] < coarse["loss_tolerance"]
    assert fine["loss_deviation"] < coarse["loss_deviation"] / 10


def test_a_disturbance_moves_the_reference_and_a_larger_one_by_more() -> None:
    of = ("mlp", 8, 8, 3)
    expected = module.reference(*of)
    small, large = (
        module.deviation(module.reference(*of, share, 1), expected)
        for share in (Dtype.FLOAT32.unit_roundoff, Dtype.BFLOAT16.unit_roundoff)
    )
    assert 0 < small < large / 100
    assert module.reference(*of, 1e-3, 1) != module.reference(*of, 1e-3, 2)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda optimiser: [group.update(lr=2 * module.RATE) for group in optimiser.param_groups],
                     id="another learning rate"),
        pytest.param(lambda optimiser: [group.update(betas=(0.0, 0.999)) for group in optimiser.param_groups],
                     id="no momentum"),
        pytest.param(lambda optimiser: optimiser.param_groups[0]["params"].pop(-2), id="weights that do not learn"),
    ],
)  # fmt: skip
def test_a_device_that_trains_otherwise_does_not_agree(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Trainer.step
    seen: set[int] = set()

    def broken(self: Trainer) -> None:
        if id(self.optimiser) not in seen:
            seen.add(id(self.optimiser))
            fault(self.optimiser)
        right(self)

    monkeypatch.setattr(Trainer, "step", broken)
    found = observed(SecondCpu())
    assert found["agrees_share"] == 0
    assert found["loss_deviation"] > found["loss_tolerance"]


def test_a_gpu_in_name_trains_as_the_cpu_does() -> None:
    assert observed(SecondCpu(), model="mlp")["loss_deviation"] < 1e-6


def test_a_loss_that_is_no_number_does_not_agree_and_is_left_out() -> None:
    found = module.compared((2.0, math.nan, math.inf), (2.0, 1.0, 0.5), 1e9)
    assert found["agrees_share"][0] == 0
    assert found["loss"][0] == [2.0]
    assert "loss_deviation" not in found


def test_the_difference_is_the_largest_of_all_steps_over_the_first_loss() -> None:
    found = module.compared((2.0, 1.5, 1.0), (2.0, 1.0, 1.25), 0.2)
    assert found["loss_deviation"][0] == 0.25
    assert found["agrees_share"][0] == 0
    assert module.compared((2.0, 1.5, 1.0), (2.0, 1.0, 1.25), 0.25)["agrees_share"][0] == 1


def test_compiled_it_begins_with_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    # Compiling itself takes half a minute; what it does to the weights is a step.
    monkeypatch.setattr(Trainer, "compile", lambda self, threads: self.step())
    assert observed(backend="inductor")["loss_deviation"] == 0
    assert observed(backend="inductor", model="cnn", batch=4, steps=3)["loss_deviation"] == 0


def test_a_compiler_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Trainer, threads: int) -> None:
        raise Unsupported("torch.compile cannot")

    monkeypatch.setattr(Trainer, "compile", refuse)
    made = work(backend="inductor")
    assert made.check
    with pytest.raises(Unsupported, match="cannot"):
        made.check()


@pytest.mark.parametrize(
    ("device", "changed", "words"),
    [
        (CPU, {"dtype": "tf32"}, "NVIDIA"),
        (CPU, {"dtype": "float16"}, "loss scaling"),
        (CPU, {"steps": 0}, "at least one step"),
    ],
)
def test_what_cannot_be_says_why(device: Device, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        work(device, **changed)


@pytest.mark.parametrize(
    ("device", "changed"), [(SecondCpu(), {"backend": "onednn"}), (CPU, {"backend": "onednn", "dtype": "bfloat16"})]
)
def test_a_library_that_a_device_lacks_is_unsupported(device: Device, changed: dict[str, Any]) -> None:
    made = work(device, **changed)
    assert made.check
    with pytest.raises(Unsupported):
        made.check()


def test_a_wrong_first_loss_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    cross_entropy = torch.nn.functional.cross_entropy
    made = work(SecondCpu())
    monkeypatch.setattr("experiments.models.trainer.cross_entropy", lambda *args: 1.001 * cross_entropy(*args))
    assert made.check
    assert made.tolerance
    assert made.check() > made.tolerance


def test_the_seed_is_drawn_once_in_a_process() -> None:
    drawn = _drawn()
    assert drawn == _drawn()
    torch.manual_seed(drawn)
