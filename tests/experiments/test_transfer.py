"""Copies between a device and its host, on a device that is none: what is copied, checked, counted and timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from experiments import worker
from experiments.registry import get
from experiments.state import Watch
from experiments.suite import transfer
from experiments.work import Unsupported, Work
from tests.experiments.second_device import SecondCpu

WAYS = [
    ("host_to_device", "pinned"),
    ("host_to_device", "pageable"),
    ("device_to_host", "pinned"),
    ("device_to_host", "pageable"),
    ("both", "pinned"),
    ("device_to_device", "none"),
    ("peer", "none"),
]


class OneOfTwo(SecondCpu):
    """A device that has another of its kind, and remembers what was launched together."""

    at_once: tuple[int, ...] = ()

    @classmethod
    def peers(cls, name: str) -> list[str]:
        return [name]

    def together(self, calls: Sequence[Callable[[], object]]) -> None:
        self.at_once += (len(calls),)
        super().together(calls)


def point(direction: str, host_memory: str, size: int = 5000, device: Any = None) -> Work:
    made = get("transfer").function(device or OneOfTwo(), direction, size, host_memory, "torch", 0)
    assert isinstance(made, Work)
    return made


def error(made: Work) -> float:
    assert made.check is not None
    return made.check()


@pytest.mark.parametrize("size", [1, 4, 5000])
@pytest.mark.parametrize(("direction", "host_memory"), WAYS)
def test_what_arrives_is_what_was_sent(
    monkeypatch: pytest.MonkeyPatch, direction: str, host_memory: str, size: int
) -> None:
    monkeypatch.setattr(transfer, "PART", 1024)
    device = OneOfTwo()
    made = point(direction, host_memory, size, device)
    assert error(made) == made.tolerance == 0.0
    assert device.waits >= 1, "pinned copies are on their way when the call returns"
    assert device.at_once == ((2,) if direction == "both" else ())


@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize(("direction", "host_memory"), WAYS)
def test_a_part_that_does_not_arrive_is_seen(
    monkeypatch: pytest.MonkeyPatch, direction: str, host_memory: str, part: int
) -> None:
    monkeypatch.setattr(transfer, "PART", 1000)
    made = point(direction, host_memory)
    right = torch.Tensor.copy_

    def spoilt(to: torch.Tensor, sent: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        right(to, sent, non_blocking)
        if len(to) == 5000:
            to[1000 * part + 7] += 1
        return to

    monkeypatch.setattr(torch.Tensor, "copy_", spoilt)
    assert error(made) == pytest.approx(1 / 5)


def test_parts_that_change_places_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PART", 1000)
    made = point("host_to_device", "pinned")
    right = torch.Tensor.copy_

    def swapped(to: torch.Tensor, sent: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        if len(to) == 5000:
            sent = torch.cat([sent[1000:2000], sent[:1000], sent[2000:]])
        return right(to, sent, non_blocking)

    monkeypatch.setattr(torch.Tensor, "copy_", swapped)
    assert error(made) == pytest.approx(2 / 5)


@pytest.mark.parametrize(
    ("direction", "host_memory", "words"),
    [
        ("both", "pageable", "one way at a time"),
        ("host_to_device", "none", "has some host memory"),
        ("peer", "pinned", "has no host memory"),
        ("peer", "none", "the only GPU"),
    ],
)
def test_what_cannot_be_is_unsupported(direction: str, host_memory: str, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        point(direction, host_memory, device=SecondCpu())


@pytest.mark.parametrize(("direction", "host_memory"), WAYS)
def test_bytes_are_those_that_cross_the_link_or_that_the_device_reads_and_writes(
    direction: str, host_memory: str
) -> None:
    made = point(direction, host_memory)
    assert made.bytes == 5000 * (2 if direction in ("both", "device_to_device") else 1)
    needed = get("transfer").memory
    assert needed is not None
    assert needed(direction=direction, size=5000) == 5000 * (2 if direction in ("both", "device_to_device") else 1)


@pytest.mark.parametrize(
    ("host_memory", "metrics"),
    [
        ("pinned", {"time", "graph_time", "request_time", "request_time.enqueue", "request_time.wait"}),
        ("pageable", {"time", "request_time", "request_time.enqueue", "request_time.wait"}),
    ],
)
def test_a_copy_is_timed_on_the_link_and_as_somebody_waits_for_it(host_memory: str, metrics: set[str]) -> None:
    params = {"direction": "host_to_device", "size": 4, "host_memory": host_memory, "backend": "torch", "threads": 0}
    order = {
        "experiment": "transfer", "device": "cpu", "params": params,
        "policy": {"target": 0.5, "budget_s": 0.05, "max_samples": 6},
    }  # fmt: skip
    reply = worker.answer_to(order, SecondCpu(), Watch("cpu"))
    assert reply["status"] == "ok"
    assert {series["metric"] for part in reply["parts"] for series in part["series"]} == metrics
