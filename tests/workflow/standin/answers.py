"""What a point is answered with, in the shape of `experiments.worker`, from how long its work takes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.workflow.standin.chips import Chip

BETWEEN, WITHIN = 0.015, 0.008
SAMPLES = 15
# Of a point's seconds: warming up, and samples; and what comes before.
WARM_UP, TIMED, SET_UP_S = 0.2, 0.6, 0.15
# As in `experiments.worker`: what is shorter is also timed in a graph, of what takes longer the energy is counted.
GRAPH_BELOW_S, ENERGY_AFTER_S = 50e-6, {"cpu": 0.5, "gpu": 3.0}


@dataclass
class Series:
    """A work that is timed.

    seconds: of one call, by phase ('' where there is one alone). per: steps of a call, of which one is told.
    """

    seconds: dict[str, float]
    metric: str = "time"
    per: float = 1.0
    single: bool = False

    @property
    def call_s(self) -> float:
        """Seconds of a call."""
        return sum(self.seconds.values())


Observed = dict[str, tuple[Any, str]]


@dataclass
class Answer:
    """What a point measures: works, of FLOP and bytes a call, and what is observed once."""

    series: list[Series] = field(default_factory=list)
    observed: Observed = field(default_factory=dict)
    flop: float | None = None
    bytes: float | None = None


def timed(
    seconds: float, chip: Chip, flop: float | None = None, moved: float | None = None, graph: bool = False
) -> Answer:
    """A work of one phase; graph: also in one where it is short."""
    series = [Series({"": seconds})]
    if graph and chip.kind == "gpu" and seconds < GRAPH_BELOW_S:
        series.append(Series({"": max(1e-6, seconds - chip.launch_s)}, "graph_time"))
    return Answer(series, {}, flop, moved)


def shares(**values: float) -> Observed:
    """Observed numbers without a unit."""
    return {name: (value, "1") for name, value in values.items()}


@dataclass
class Teller:
    """Tells answers as JSON, in the shape of `experiments.worker`.

    reading: what that tells of the machine beside a sample, empty. now: seconds since the process was ready.
    """

    chip: Chip
    chance: random.Random
    reading: dict[str, Any]
    now: float
    shows_energy: bool = False

    def tell(self, answer: Answer, policy: dict[str, Any]) -> dict[str, Any]:
        """The answer, measured within a policy from now on."""
        self.now += SET_UP_S
        # What one round has in common, and no other.
        luck = self.chance.lognormvariate(0, BETWEEN)
        budget_s = policy["budget_s"] / max(1, len(answer.series))
        parts = [self._part(one, answer, budget_s, int(policy["max_samples"]), luck) for one in answer.series]
        observed = {name: (self._seen(values, unit, name), unit) for name, (values, unit) in answer.observed.items()}
        return {
            "status": "ok", "reason": "ok", "parts": parts, "observed": observed, "flop": answer.flop,
            "bytes": answer.bytes, "error": 1e-9, "tolerance": 1e-6,
        }  # fmt: skip

    def _seen(self, values: Any, unit: str, name: str) -> Any:
        """Times and shares of them vary; what is counted does not."""
        if isinstance(values, Sequence):
            return [self._seen(one, unit, name) for one in values]
        if unit not in ("s", "1/s") and not name.endswith(("time_share", "busy_share")) and "time_below" not in name:
            return values
        shaken = values * self.chance.lognormvariate(0, BETWEEN)
        return min(1.0, shaken) if name.endswith("_share") else shaken

    def _part(self, series: Series, answer: Answer, budget_s: float, most: int, luck: float) -> dict[str, Any]:
        call_s = series.call_s
        warm_up_s, room = max(WARM_UP * budget_s, 2 * call_s), TIMED * budget_s
        number = max(1, min(most if series.single else SAMPLES, most, int(room / call_s)))
        calls = 1 if series.single else max(1, int(room / number / call_s))
        self.now += warm_up_s
        begun, slower, readings = self.now, [], []
        for at in range(number):
            slower.append(luck * self.chance.lognormvariate(0, WITHIN))
            self.now += calls * call_s * slower[-1] * 1.02
            readings.append(self._state(at / number))
        phases = {"": call_s, **series.seconds} if len(series.seconds) > 1 else series.seconds
        timed_s = self.now - begun
        return {
            "status": "ok",
            "series": [
                {
                    "metric": f"{series.metric}.{name}" if name else series.metric,
                    "unit": "s",
                    "values": [seconds * one / series.per for one in slower],
                }
                for name, seconds in phases.items()
            ],
            "energy": self._energy(series, luck) if timed_s >= ENERGY_AFTER_S[self.chip.kind] else None,
            "stop_reason": "samples" if number == most else "converged",
            "readings": readings,
            "calls": calls,
            "warmup_s": warm_up_s,
            "timed_s": timed_s,
            "flop": answer.flop,
            "bytes": answer.bytes,
        }

    def _energy(self, series: Series, luck: float) -> dict[str, Any] | None:
        """Of a call; a rented machine does not show its CPU's."""
        if self.chip.kind == "cpu" and not self.shows_energy:
            return None
        name = "energy" if series.metric == "time" else f"{series.metric}.energy"
        return {"metric": name, "unit": "J", "value": luck * self.chip.power_w * series.call_s / series.per}

    def _state(self, gone: float) -> dict[str, Any]:
        found = {**self.reading, "elapsed_s": self.now, "other_load": 0.001, "steal": 0.0}
        if self.chip.kind == "gpu":
            power = self.chip.power_w
            found |= {
                "clock_mhz": 1980.0 - 0.3 * power, "memory_clock_mhz": 2619.0, "temperature_c": 42.0 + 18 * gone,
                "power_w": power, "utilisation": 1.0,
            }  # fmt: skip
        return found
