"""Determine the range in which a point's rate on a GPU is expected, from the rules and rated peaks in ranges.yaml."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.files import read_yaml

FILE = Path(__file__).with_name("ranges.yaml")
# Two memory sizes count as equal if they differ by at most this share, since torch reports slightly less than the card
# has.
_SAME_MEMORY = 0.1


@dataclass(frozen=True)
class Rule:
    """A rule from ranges.yaml: the expected rate or time of the points whose parameters satisfy its conditions.

    where: accepted values of parameters. least, most: limits for numeric parameters.
    of: the rated peak to which `share` refers (flops, memory or link); "seconds" if `range` applies instead.
    share: the lowest and highest expected share of the peak. range: the shortest and longest expected seconds.
    """

    experiment: str
    of: str
    where: Mapping[str, Any] = field(default_factory=dict)
    least: Mapping[str, float] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)
    share: Sequence[float] = ()
    range: Sequence[float] = ()

    @property
    def unit(self) -> str:
        """Unit of the rate or time that the rule expects."""
        return {"seconds": "s", "flops": "FLOP/s"}.get(self.of, "B/s")

    @property
    def key(self) -> str:
        """Key that is equal for rules with equal ranges."""
        return f"{self.of} {self.share} {self.range}"

    def applies_to(self, experiment: str, params: Mapping[str, Any]) -> bool:
        """True if the rule applies to a point with these parameters."""
        return (
            experiment == self.experiment
            and all(params.get(name) in values for name, values in self.where.items())
            and all(params.get(name, 0) >= value for name, value in self.least.items())
            and all(params.get(name, value) <= value for name, value in self.most.items())
        )


@dataclass(frozen=True)
class Peaks:
    """A GPU's rated peaks.

    flops: FLOP/s by number format. memory: the memory's bytes per second. link: bytes per second between host and
    GPU, in each direction. source: the document with the figures.
    """

    flops: Mapping[str, float]
    memory: float
    link: float
    source: str

    def limits(self, rule: Rule, dtype: str) -> tuple[float, float] | None:
        """Return the lowest and highest value that a rule allows; None if no peak is known for this number format."""
        if rule.of == "seconds":
            return rule.range[0], rule.range[1]
        peak = {"memory": self.memory, "link": self.link}.get(rule.of) or self.flops.get(dtype)
        return (rule.share[0] * peak, rule.share[1] * peak) if peak else None


@dataclass(frozen=True)
class Value:
    """A point's rate or time."""

    value: float
    unit: str

    def __str__(self) -> str:
        return format_quantity(self.value, self.unit)


def read_rules() -> list[Rule]:
    return [Rule(**rule) for rule in read_yaml(FILE)["rules"]]


def find_rule(rules: list[Rule], experiment: str, params: Mapping[str, Any]) -> Rule | None:
    """Find the rule for a point with these parameters, if any."""
    return next((rule for rule in rules if rule.applies_to(experiment, params)), None)


def rated_peaks(name: str, memory_bytes: float | None = None) -> Peaks | None:
    """Return the rated peaks for the GPU that torch calls `name`; None if ranges.yaml has none.

    memory_bytes: the GPU's memory size, which distinguishes cards with the same name.
    """
    table = read_yaml(FILE)
    for gpu in table["gpus"]:
        if name not in gpu["names"]:
            continue
        if "memory" in gpu and abs((memory_bytes or 0) / (gpu["memory"] * 1e9) - 1) > _SAME_MEMORY:
            continue
        source = table["sources"][gpu["source"]]
        multiples = table["multiples"].get(gpu["source"], {})
        flops = gpu["flops"] | {dtype: times * gpu["flops"]["float32"] for dtype, times in multiples.items()}
        return Peaks(
            {dtype: rate * 1e12 for dtype, rate in flops.items()},
            gpu["memory_rate"] * 1e9,
            table["link"][gpu["link"]],
            source["title"] + ("" if source["verified"] else "; figures not yet compared with it"),
        )
    return None


def speed(answer: Mapping[str, Any], rule: Rule | None) -> Value | None:
    """Return the value of a measured point to compare with its rule; None if the answer contains no value.

    The value is a rate if the point's operations or bytes are known and the rule does not expect seconds; otherwise it
    is the first measured value. If the point was also timed in a device graph (such as a CUDA graph), the rate is from
    that time, since launches dominate the time of short calls without a graph.
    """
    good = [part for part in answer.get("parts", []) if part["status"] == "ok" and part["series"]]
    for metric in ("graph_time", "time"):
        for part in good:
            series = part["series"][0]
            work = part["flop"] or part["bytes"]
            if rule and rule.of in ("memory", "link"):
                work = part["bytes"]
            if series["metric"] == metric and work and not (rule and rule.of == "seconds"):
                unit = "FLOP/s" if work == part["flop"] else "B/s"
                return Value(work / statistics.median(series["values"]), unit)
    if good:
        series = good[0]["series"][0]
        return Value(statistics.median(series["values"]), series["unit"])
    for values, unit in answer.get("observed", {}).values():
        return Value(statistics.median(values) if isinstance(values, list) else values, unit)
    return None


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def format_quantity(value: float, unit: str) -> str:
    """Format a number with three digits and its unit: `612 TFLOP/s`, `5.20 µs`.

    Numbers with the unit "1" (shares and counts) get no unit and no prefix such as T.
    """
    if unit == "1" or not value:
        return f"{value:.3g}{'' if unit == '1' else f' {unit}'}"
    size, prefix = next((prefix for prefix in _PREFIXES if abs(value) >= 0.9995 * prefix[0]), _PREFIXES[-1])
    return f"{value / size:#.3g}".rstrip(".") + f" {prefix}{unit}"
