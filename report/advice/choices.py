"""Examples, machines and models that the adviser offers, and how it chooses the cheapest machine to meet a wish."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from contract.files import read_yaml
from report import PACKAGE
from report.advice.answers import Answer, answer
from report.advice.chips import Machine
from report.advice.jobs import WORK, Job, UnclearJobError
from report.advice.units import LONG, item_time

WORDS = PACKAGE / "advice" / "advice.yaml"
# Hours to spread the price over when a chip is bought: three years.
OWNED_HOURS = 3 * 365 * 24


@cache
def read_words() -> Mapping[str, Any]:
    """Read advice.yaml."""
    words: Mapping[str, Any] = read_yaml(WORDS)
    return words


def kind_words(kind: str) -> Mapping[str, Any]:
    """Return the words for a kind; a prompt shares the words for a chat."""
    kinds: Mapping[str, Mapping[str, Any]] = read_words()["kinds"]
    return kinds.get(kind) or {**kinds["decode"], "verb": "reads a prompt with"}


@dataclass(frozen=True)
class Wish:
    """A wish: a rate no lower than `amount`, or a time no longer than `amount` hours."""

    kind: str
    amount: float

    @property
    def is_rate(self) -> bool:
        return bool(kind_words(self.kind)["wish"] == "rate")

    def value(self, answered: Answer) -> tuple[float, float, float] | None:
        """Return the low, middle and high end in the wish's unit."""
        if answered.value is None:
            return None
        scale = 1.0 if self.is_rate else 1 / LONG["hours"]
        return answered.value.low * scale, answered.value.middle * scale, answered.value.high * scale

    def is_met(self, answered: Answer) -> bool:
        """Tell whether a range's middle meets the wish, and the memory suffices."""
        value = self.value(answered)
        if value is None or answered.fits == "no":
            return False
        return value[1] >= self.amount if self.is_rate else value[1] <= self.amount


@dataclass(frozen=True)
class OwnResult:
    """A reader's own result. unit: one of `report.advice.units.UNITS` for the kind; text: as the reader wrote it."""

    amount: float
    unit: str
    text: str

    def item_seconds(self, answered: Answer) -> float | None:
        """Return the seconds for one item; None for a whole run whose size is not told, or a job without an answer."""
        if answered.situation is None or answered.time is None:
            return None
        try:
            return item_time(answered.situation, self.amount, self.unit)
        except UnclearJobError:
            return None


@dataclass(frozen=True)
class Advice:
    """Advice on a job.

    best: the cheapest machine that meets the wish, else the nearest to it; met: it does; cheaper: the next cheaper.
    """

    wish: Wish
    answers: Sequence[Answer]
    best: Answer | None
    met: bool
    cheaper: Answer | None


def hourly_cost(machine: Machine, usd_per_hour: float | None) -> float | None:
    """Return what an hour on a machine costs in USD; None if no price is known.

    A rented machine has its price; a chip that is bought is spread over OWNED_HOURS; laptops and desktops, which people
    have, cost nothing.
    """
    if usd_per_hour is not None:
        return usd_per_hour
    if machine.usd is not None:
        return machine.usd * machine.count / OWNED_HOURS
    return 0.0 if machine.kind in ("cpu-laptop", "cpu-desktop", "gpu-integrated") else None


def example_job(example: Mapping[str, Any], hardware: str) -> Job:
    """Return an example from advice.yaml as a job on a machine."""
    kind = kind_words(str(example["kind"]))
    return Job(
        id=str(example["id"]),
        kind=str(example["kind"]),
        model=str(example["model"]),
        hardware=hardware,
        precision=example.get("precision"),
        software=example.get("software"),
        work={name: float(example["work"][name]) if name in example["work"] else None for name in WORK},
        unit=str(kind["unit"]),
    )


def compare(job: Job, wish: Wish, machines: Iterable[str], calibration: Mapping[str, Any]) -> Advice:
    """Answer a job on several machines, and choose the cheapest that meets a wish."""
    answers = [answer(replace(job, hardware=name), calibration) for name in machines]
    priced = []
    for each in answers:
        if each.situation is None or each.value is None:
            continue
        cost = hourly_cost(each.situation.machine, each.usd_per_hour)
        if cost is not None:
            priced.append((cost, each))
    # Equal costs keep the table's order, in which weaker machines come first.
    priced.sort(key=lambda item: item[0])
    ordered = [each for _, each in priced]
    meeting = [each for each in ordered if wish.is_met(each)]
    if meeting:
        best = meeting[0]
        before = ordered[: ordered.index(best)]
        return Advice(wish, answers, best, True, before[-1] if before else None)
    fitting = [each for each in ordered if each.fits != "no"]
    values = [(wish.value(each), each) for each in fitting]
    known = [(value[1], place, each) for place, (value, each) in enumerate(values) if value is not None]
    if not known:
        return Advice(wish, answers, None, False, None)
    nearest = max(known)[2] if wish.is_rate else min(known)[2]
    return Advice(wish, answers, nearest, False, None)
