"""A GPU's profile is whole, or it gives no number and says why."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd.profiler_util import FunctionEvent

from experiments import worker
from experiments.models import operator_traffic, profiling, step_profile
from experiments.suite import roofline
from experiments.workload import Profile, ProfileError, Unsupported
from tests.experiments.point_runs import CPU, GPU, answer_point
from tests.experiments.profile_standin import (
    CALL_US,
    Profiled,
    head_events,
    host_event,
    install,
    kernel_event,
    step_kernels,
)
from tests.experiments.second_device import SecondCpu

DEVICE = Profiled()
STEP = ["gemm", "relu", "gemm"]
X, Y = torch.randn(8, 8), torch.randn(8, 8)


def profiled(monkeypatch: pytest.MonkeyPatch, events: list[FunctionEvent], count: int = 4) -> dict[str, float]:
    install(monkeypatch, lambda: events)
    return step_profile.profile_metrics(lambda: None, DEVICE, count)


@pytest.mark.parametrize("lost", [0, 1, 15, profiling.HEAD_KERNELS - 1])
def test_only_kernels_after_the_mark_are_added_up(monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    product, other = host_event("aten::addmm", CALL_US), host_event("aten::relu", CALL_US + 5)
    product.append_kernel("gemm", 0, 6.0)
    other.append_kernel("relu", 0, 2.0)
    spanning = kernel_event("Optimizer.step", CALL_US, 500.0, is_user_annotation=True)
    before = host_event("aten::mm", 50.0)
    before.append_kernel("gemm", 0, 1000.0)
    found = profiled(monkeypatch, [before, *head_events(lost), product, other, *step_kernels(4, STEP), spanning])
    assert found["kernel_time"] == pytest.approx(3 * 2e-6)
    assert found["matmul_time_share"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "recorded no kernel of cuda:0"),
        ([host_event(profiling.MARK, 1.0), host_event("aten::mm", CALL_US)], "recorded no kernel of cuda:0"),
        ([*head_events(), host_event("aten::mm", CALL_US)], "no kernel after the mark"),
        ([*head_events(profiling.HEAD_KERNELS), *step_kernels(4, STEP)], "lost all 100 kernels before the mark"),
        ([*head_events(profiling.HEAD_KERNELS), *step_kernels(4, STEP)[1:]], "lost all 100 kernels before the mark"),
        ([*head_events(), *step_kernels(4, STEP)[1:]], "11 in 4 equal calls, 7 of them gemm"),
        # As many in all as would make whole steps: 3 of 4 steps' first two kernels are lost, and one more.
        ([*head_events(), *step_kernels(4, STEP)[4:]], "8 in 4 equal calls, 3 of them relu"),
        ([one for one in head_events() if one.name != profiling.MARK] + step_kernels(4, STEP), "lost its own mark"),
    ],
)
def test_a_profile_that_is_not_whole_gives_no_number(
    monkeypatch: pytest.MonkeyPatch, events: list[FunctionEvent], words: str
) -> None:
    with pytest.raises(ProfileError, match=re.escape(words)):
        profiled(monkeypatch, events)


@given(st.data(), st.lists(st.sampled_from("abc"), min_size=1, max_size=8), st.integers(2, 5))
def test_fewer_lost_kernels_than_calls_are_always_noticed(data: st.DataObject, names: list[str], calls: int) -> None:
    every = names * calls
    profiling.require_all_kernels(every, calls)
    gone = data.draw(st.sets(st.integers(0, len(every) - 1), min_size=1, max_size=calls - 1))
    with pytest.raises(ProfileError):
        profiling.require_all_kernels([name for at, name in enumerate(every) if at not in gone], calls)


def operators(kernels: list[list[str]], missing: int | None = None) -> list[FunctionEvent]:
    """Marked operators, numbered from 0, with the kernels that each launches; without the event of one of them."""
    found = []
    for number, names in enumerate(kernels):
        start = CALL_US + 10 * number
        mark, inner = host_event(f"operator {number}", start, 5.0), host_event("aten::add", start + 1)
        mark.append_cpu_child(inner)
        for name in names:
            inner.append_kernel(name, 0, 3.0)
            found.append(kernel_event(name, start + 2))
        if number != missing:
            found.append(mark)
    return found


def test_an_operators_time_is_that_of_its_kernels_and_the_first_call_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first call has lost its kernel.
    install(monkeypatch, lambda: [*head_events(1), *operators([[], ["add"], ["add"]])])
    found = operator_traffic.time_operators(lambda: X + Y, DEVICE, 2)
    assert [one.seconds for one in found] == [pytest.approx(3e-6)] * 2


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([*head_events(), *operators([["add"]] * 3, missing=2)], "lost 1 of 2 operators, for example aten.add.Tensor"),
        ([*head_events(), *operators([["add"], [], ["add"]])], "1 in 2 equal calls"),
        ([*head_events(), *operators([[], [], []])], "no kernel after the mark"),
        ([*operators([[], [], []])], "recorded no kernel of cuda:0"),
        ([*head_events(100), *operators([["add"]] * 3)], "lost all 100 kernels before the mark"),
    ],
)
def test_operators_without_an_event_or_without_their_kernels_are_told(
    monkeypatch: pytest.MonkeyPatch, events: list[FunctionEvent], words: str
) -> None:
    install(monkeypatch, lambda: events)
    with pytest.raises(ProfileError, match=re.escape(words)):
        operator_traffic.time_operators(lambda: X + Y, DEVICE, 2)


def test_a_device_that_the_profiler_does_not_know_is_unsupported_and_counted_metrics_stay() -> None:
    apple = SecondCpu("mps")
    for take in (
        lambda: step_profile.profile_metrics(lambda: None, apple, 4),
        lambda: roofline.timed_metrics(lambda: X + Y, apple),
    ):
        with pytest.raises(Unsupported, match="does not see mps"):
            take()
    told = roofline.counted_metrics(lambda: X + Y, apple)
    assert told["kernels"] == (1.0, "1")
    assert told["bytes_below.1_share"] == (1.0, "1")
    assert not set(told) & set(roofline.TIMED)


@pytest.mark.parametrize("name", ["training", "roofline"])
def test_a_gpus_profile_waits_for_its_own_order_and_a_cpu_answers_at_once(name: str) -> None:
    timed = answer_point(name, GPU)
    assert timed["status"] == "ok" and "profiled" not in timed
    at_once = {one["metric"]: one for one in answer_point(name, CPU)["profiled"]}
    assert all(one["value"] > 0 for one in at_once.values() if not one["metric"].startswith("time_below"))
    later = answer_point(name, GPU, order={"profile": True})
    assert later["status"] == "ok" and "parts" not in later
    assert {one["metric"]: one["unit"] for one in later["profiled"]} == timed["profile"]
    assert set(at_once) <= set(timed["profile"])


def taken(take: Any) -> list[dict[str, Any]]:
    told = worker._profile(Profile({"kernel_time": "s", "matmul_time_share": "1"}, take))["profiled"]
    assert isinstance(told, list)
    return told


def failing(error: Exception) -> Any:
    def take() -> None:
        raise error

    return take


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ProfileError("lost"), "failed", "lost"),
        (Unsupported("not seen"), "unsupported", "not seen"),
        (MemoryError(), "oom", "out of memory"),
        (RuntimeError("MPS backend out of memory (MPS allocated: 18 GB)"), "oom", "MPS backend out of memory"),
        (RuntimeError("CUDA error: out of memory"), "oom", "CUDA error: out of memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), "oom", "CUBLAS_STATUS_ALLOC_FAILED"),
        (RuntimeError("failed: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"), "oom", "UR_RESULT_ERROR_OUT_OF"),
        (ZeroDivisionError("odd"), "failed", "ZeroDivisionError: odd"),
    ],
)
def test_a_profile_that_fails_is_an_outcome_of_each_of_its_metrics(error: Exception, status: str, words: str) -> None:
    for one in taken(failing(error)):
        assert (one["status"], words in one["reason"], "value" in one) == (status, True, False)


def test_a_metric_that_is_no_number_costs_no_other() -> None:
    good, bad = taken(lambda: {"kernel_time": 1e-3, "matmul_time_share": float("nan")})
    assert (good["value"], bad["status"]) == (1e-3, "failed")
    assert "does not contain this metric" in bad["reason"]


def test_steps_repeat_that_call_the_same_operators_on_the_same_shapes() -> None:
    first, wider, other = [("mm", ((2, 3),))], [("mm", ((2, 4),))], [("relu", ((2, 3),))]
    steps: list[step_profile.Step] = [(first, 0.5), (first, 0.25), (wider, 0.25), (other, 0.75), (other, 0.0)]
    assert step_profile.repeat_share(steps) == (0.5, 0.0)
    assert step_profile.repeat_share(steps[:2]) == (1.0, 0.25)
