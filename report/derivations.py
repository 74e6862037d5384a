"""Formulas of derived quantities: declared once with their symbols, evaluated with units.

A formula is a line of arithmetic that Pint reads, the symbols in it with what they mean and their units, and the unit
of the result. What goes into it is a published figure, a measurement or a declared assumption, each with a unit of its
own; Pint converts them, and what does not fit is refused by name. Cases of them: `report.derived_estimates`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from contract.errors import StudyError
from report.data.dataset import Dataset
from report.estimates import Estimates

Floats = NDArray[np.float64]
Labels = Mapping[str, Any]
Kind = Literal["documented", "measured", "assumed"]

# What is counted or paid, beside the units that Pint knows. FLOP, MAC and USD are dimensions of their own, so that
# operations cannot pass for seconds or dollars; what is merely counted has none, as in the entries (unit 1).
_DEFINED = (
    "FLOP = [operation]",
    "MAC = [multiply_add]",
    "USD = [money]",
    "server = []",
    "node = []",
    "request = []",
    "sample = []",
)


@cache
def _unit_registry() -> Any:
    """Pint's registry. Imported when arithmetic is done, for the import takes a third of a second."""
    import pint

    registry: Any = pint.UnitRegistry()
    for definition in _DEFINED:
        registry.define(definition)
    return registry


@cache
def _conversion_factor(unit: str, wanted: str) -> float:
    """What a number in one unit is multiplied with to be in another. Raises ValueError if they do not fit."""
    import pint

    units = _unit_registry()
    try:
        return float(units.Quantity(1.0, unit).to(wanted).magnitude)
    except pint.DimensionalityError as fault:
        raise ValueError(f"{wanted!r} cannot be made of {unit!r}") from fault
    except (pint.UndefinedUnitError, pint.DefinitionSyntaxError, AssertionError) as fault:
        raise ValueError(f"there is no unit {unit!r}") from fault


@dataclass(frozen=True)
class Input:
    """What stands for one symbol: a value, the range that it may move in, and where it comes from.

    kind: documented (`entries` of the reference), measured (`source_rows`) or assumed. source: title of the sources, or
    why the assumption. se, df: of the logarithm, where the input was measured on that scale. spans: whether its range
    is part of the result's interval, and not only of the sensitivity table. each: for one case alone, not for all
    that have the same symbol.
    """

    value: float
    unit: str
    kind: Kind
    source: str
    low: float = math.nan
    high: float = math.nan
    entries: tuple[str, ...] = ()
    what: str = ""
    se: float = 0.0
    df: float = math.inf
    n_rounds: int = 0
    n_samples: int = 0
    source_rows: tuple[int, ...] = ()
    in_interval: bool = False
    single_case: bool = False

    @property
    def has_range(self) -> bool:
        """Whether there is anything to move it to."""
        return any(math.isfinite(end) and end != self.value for end in (self.low, self.high))


def documented_input(
    data: Dataset,
    name: str,
    alternatives: Sequence[str] = (),
    low: float | None = None,
    high: float | None = None,
    what: str = "",
) -> Input:
    """A verified entry; its own range, if it has one, is part of the result's interval.

    beside: other entries that could stand in its place, in the same unit (of these the verified ones count), which
    bound its range in the sensitivity table, as do low and high. Raises MissingSourceError.
    """
    entry = data.entry(name)
    value, ends = float(entry["value"]), [end for end in (low, high) if end is not None]
    used = [name]
    for other in alternatives:
        if is_verified(data, other):
            ends.append(data.figure(other))
            used.append(other)
    own = [float(entry[end]) for end in ("low", "high") if end in entry]
    spread = [value, *own, *ends]
    return Input(
        value, str(entry["unit"]), "documented", str(entry["source"]["title"]), min(spread), max(spread), tuple(used),
        what or f"{entry['subject']}: {entry['what']}", in_interval=bool(own) and not ends,
    )  # fmt: skip


def is_verified(data: Dataset, name: str) -> bool:
    """Whether an entry is there and was verified; asking does not count as use."""
    entry = data.reference.get(name, {})
    return entry.get("status") == "verified" and entry.get("value") is not None


def computed_input(data: Dataset, names: Sequence[str], value: float, unit: str, what: str, **more: Any) -> Input:
    """A figure that is worked out of several verified entries before it enters. Raises MissingSourceError."""
    titles = dict.fromkeys(str(data.entry(name)["source"]["title"]) for name in names)
    return Input(value, unit, "documented", "; ".join(titles), entries=tuple(names), what=what, **more)


def assumed_input(value: float, unit: str, why: str, low: float = math.nan, high: float = math.nan) -> Input:
    """A declared assumption, or what is so by definition, and the range that a sceptic may move it in."""
    return Input(value, unit, "assumed", why, low, high)


def measured_input(cases: Estimates, row: int, unit: str, what: str) -> Input:
    """The estimate of one case with its interval."""
    held = cases.frame.iloc[row]
    se, df = (float(held["se"]), float(held["df"])) if cases.log else (0.0, math.inf)
    return Input(
        float(held["estimate"]), unit, "measured", "measured by this study", float(held["low"]), float(held["high"]),
        (), what, se, df, int(held["n_rounds"]), int(held["n_samples"]),
        tuple(held["source_rows"]), not cases.log, True,
    )  # fmt: skip


@dataclass(frozen=True)
class Formula:
    """`text`: 'T = G / n', in Pint's notation; symbols: what each means and its unit; unit: that of the result.

    rounded_up: the result is the next whole number.
    """

    text: str
    unit: str
    symbols: Mapping[str, tuple[str, str]]
    rounded_up: bool = False

    @property
    def result(self) -> str:
        """The symbol of what is worked out."""
        return self.text.partition(" = ")[0]

    def evaluate(self, values: Mapping[str, Any]) -> Floats:
        """The result in its unit. values: by symbol, in the symbol's unit, numbers or arrays that fit each other.

        Raises StudyError if the units of the two sides do not agree.
        """
        import pint

        units = _unit_registry()
        given = {
            name: units.Quantity(np.asarray(values[name], float), unit) for name, (_, unit) in self.symbols.items()
        }
        try:
            made = units.parse_expression(self.text.partition(" = ")[2], **given)
            found: Floats = np.asarray(units.Quantity(made).to(self.unit).magnitude, float)
        except (pint.DimensionalityError, pint.UndefinedUnitError) as fault:
            raise StudyError(f"formula {self.text!r}: the result is not in {self.unit!r}: {fault}") from None
        return np.ceil(found - 1e-9) if self.rounded_up else found

    def convert(self, symbol: str, value: float, given: Input) -> float:
        """A value of an input in the unit of its symbol. Raises StudyError naming the input if that cannot be."""
        try:
            return value * _conversion_factor(given.unit, self.symbols[symbol][1])
        except ValueError as fault:
            name = ", ".join(given.entries) or given.what or given.source
            raise StudyError(f"{name}: its unit does not fit {symbol} in {self.text!r}: {fault}") from None

    def check_units(self) -> None:
        """Evaluate it with ones. Raises StudyError if the units do not agree."""
        self.evaluate(dict.fromkeys(self.symbols, 1.0))
