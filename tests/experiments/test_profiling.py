"""A GPU profile is complete, or it gives no number and says why."""

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


def profile_events(monkeypatch: pytest.MonkeyPatch, events: list[FunctionEvent], count: int = 4) -> dict[str, float]:
    install(monkeypatch, lambda: events)
    return step_profile.profile_metrics(lambda: None, DEVICE, count)


@pytest.mark.parametrize("lost", [0, 1, 15, profiling.HEAD_KERNELS - 1])
def test_only_kernels_after_the_mark_are_summed(monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    product, other = host_event("aten::addmm", CALL_US), host_event("aten::relu", CALL_US + 5)
    product.append_kernel("gemm", 0, 6.0)
    other.append_kernel("relu", 0, 2.0)
    spanning = kernel_event("Optimizer.step", CALL_US, 500.0, is_user_annotation=True)
    before = host_event("aten::mm", 50.0)
    before.append_kernel("gemm", 0, 1000.0)
    metrics = profile_events(
        monkeypatch, [before, *head_events(lost), product, other, *step_kernels(4, STEP), spanning]
    )
    assert metrics["kernel_time"] == pytest.approx(3 * 2e-6)
    assert metrics["matmul_time_share"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "recorded no kernel of cuda:0"),
        ([host_event(profiling.MARK, 1.0), host_event("aten::mm", CALL_US)], "recorded no kernel of cuda:0"),
        ([*head_events(), host_event("aten::mm", CALL_US)], "no kernel after the mark"),
        ([*head_events(profiling.HEAD_KERNELS), *step_kernels(4, STEP)], "lost all 100 kernels before the mark"),
        ([*head_events(profiling.HEAD_KERNELS), *step_kernels(4, STEP)[1:]], "lost all 100 kernels before the mark"),
        ([*head_events(), *step_kernels(4, STEP)[1:]], "11 in 4 equal calls, 7 of them gemm"),
        # Four of the 12 kernels are lost. The other 8 divide evenly into 4 calls, but the 3 named relu do not.
        ([*head_events(), *step_kernels(4, STEP)[4:]], "8 in 4 equal calls, 3 of them relu"),
        (
            [event for event in head_events() if event.name != profiling.MARK] + step_kernels(4, STEP),
            "lost its own mark",
        ),
    ],
)
def test_incomplete_profile_is_an_error(
    monkeypatch: pytest.MonkeyPatch, events: list[FunctionEvent], words: str
) -> None:
    with pytest.raises(ProfileError, match=re.escape(words)):
        profile_events(monkeypatch, events)


@given(st.data(), st.lists(st.sampled_from("abc"), min_size=1, max_size=8), st.integers(2, 5))
def test_fewer_lost_kernels_than_calls_are_always_detected(data: st.DataObject, names: list[str], calls: int) -> None:
    kernels = names * calls
    profiling.require_all_kernels(kernels, calls)
    lost = data.draw(st.sets(st.integers(0, len(kernels) - 1), min_size=1, max_size=calls - 1))
    with pytest.raises(ProfileError):
        profiling.require_all_kernels([name for index, name in enumerate(kernels) if index not in lost], calls)


def marked_operators(kernels: list[list[str]], missing: int | None = None) -> list[FunctionEvent]:
    """Return the events of operators: a range and kernels for each list in `kernels`.

    The range of operator number `missing` is left out.
    """
    events = []
    for number, names in enumerate(kernels):
        start = CALL_US + 10 * number
        mark, inner = host_event(f"operator {number}", start, 5.0), host_event("aten::add", start + 1)
        mark.append_cpu_child(inner)
        for name in names:
            inner.append_kernel(name, 0, 3.0)
            events.append(kernel_event(name, start + 2))
        if number != missing:
            events.append(mark)
    return events


def test_operator_time_is_its_kernel_time_without_the_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The kernel in the first of the three calls is lost, but the operator's time excludes this call.
    install(monkeypatch, lambda: [*head_events(1), *marked_operators([[], ["add"], ["add"]])])
    timed_operators = operator_traffic.time_operators(lambda: X + Y, DEVICE, 2)
    assert [timed.seconds for timed in timed_operators] == [pytest.approx(3e-6)] * 2


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (
            [*head_events(), *marked_operators([["add"]] * 3, missing=2)],
            "lost 1 of 2 operators, for example aten.add.Tensor",
        ),
        ([*head_events(), *marked_operators([["add"], [], ["add"]])], "1 in 2 equal calls"),
        ([*head_events(), *marked_operators([[], [], []])], "no kernel after the mark"),
        ([*marked_operators([[], [], []])], "recorded no kernel of cuda:0"),
        ([*head_events(100), *marked_operators([["add"]] * 3)], "lost all 100 kernels before the mark"),
    ],
)
def test_operators_without_events_or_kernels_are_an_error(
    monkeypatch: pytest.MonkeyPatch, events: list[FunctionEvent], words: str
) -> None:
    install(monkeypatch, lambda: events)
    with pytest.raises(ProfileError, match=re.escape(words)):
        operator_traffic.time_operators(lambda: X + Y, DEVICE, 2)


def test_profile_is_unsupported_on_mps_and_counted_metrics_remain() -> None:
    apple = SecondCpu("mps")
    for take in (
        lambda: step_profile.profile_metrics(lambda: None, apple, 4),
        lambda: roofline.timed_metrics(lambda: X + Y, apple),
    ):
        with pytest.raises(Unsupported, match="does not see mps"):
            take()
    metrics = roofline.counted_metrics(lambda: X + Y, apple)
    assert metrics["kernels"] == (1.0, "1")
    assert metrics["bytes_below.1_share"] == (1.0, "1")
    assert not set(metrics) & set(roofline.TIMED)


@pytest.mark.parametrize("name", ["training", "roofline"])
def test_gpu_profile_needs_its_own_order_and_a_cpu_profile_does_not(name: str) -> None:
    timed = answer_point(name, GPU)
    assert timed["status"] == "ok" and "profiled" not in timed
    at_once = {row["metric"]: row for row in answer_point(name, CPU)["profiled"]}
    assert all(row["value"] > 0 for row in at_once.values() if not row["metric"].startswith("time_below"))
    later = answer_point(name, GPU, order={"profile": True})
    assert later["status"] == "ok" and "parts" not in later
    assert {row["metric"]: row["unit"] for row in later["profiled"]} == timed["profile"]
    assert set(at_once) <= set(timed["profile"])


def profile_rows(take: Any) -> list[dict[str, Any]]:
    rows = worker._profile(Profile({"kernel_time": "s", "matmul_time_share": "1"}, take))["profiled"]
    assert isinstance(rows, list)
    return rows


def failing_profile(error: Exception) -> Any:
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
def test_failed_profile_is_an_outcome_for_each_metric(error: Exception, status: str, words: str) -> None:
    for row in profile_rows(failing_profile(error)):
        assert (row["status"], words in row["reason"], "value" in row) == (status, True, False)


def test_nan_metric_fails_alone() -> None:
    good, bad = profile_rows(lambda: {"kernel_time": 1e-3, "matmul_time_share": float("nan")})
    assert (good["value"], bad["status"]) == (1e-3, "failed")
    assert "does not contain this metric" in bad["reason"]


def test_steps_repeat_with_equal_operators_and_shapes() -> None:
    first, wider, other = [("mm", ((2, 3),))], [("mm", ((2, 4),))], [("relu", ((2, 3),))]
    steps: list[step_profile.Step] = [(first, 0.5), (first, 0.25), (wider, 0.25), (other, 0.75), (other, 0.0)]
    assert step_profile.repeat_share(steps) == (0.5, 0.0)
    assert step_profile.repeat_share(steps[:2]) == (1.0, 0.25)
