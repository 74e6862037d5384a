"""Formulas for derived quantities. Each is declared once with its symbols, and is evaluated with units.

A formula is one line of arithmetic in Pint's notation, with a meaning and a unit for each symbol and for the result.
Inputs are published figures, measurements or declared assumptions, each in its own unit. Pint converts them to the
symbols' units and rejects units that do not fit. `report.derived_estimates` applies formulas to cases.
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

# Units for counts and money that Pint lacks. FLOP, MAC and USD are dimensions of their own, so that operation counts
# cannot pass for seconds or dollars. Plain counts are dimensionless, like the counts in reference entries (unit 1).
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
    """Return Pint's registry, imported on first use because the import takes a third of a second."""
    import pint

    registry: Any = pint.UnitRegistry()
    for definition in _DEFINED:
        registry.define(definition)
    return registry


@cache
def _conversion_factor(unit: str, wanted: str) -> float:
    """Return the factor to convert one unit to another. Raises ValueError if they do not fit."""
    import pint

    units = _unit_registry()
    try:
        return float(units.Quantity(1.0, unit).to(wanted).magnitude)
    except pint.DimensionalityError as fault:
        raise ValueError(f"{unit!r} cannot be converted to {wanted!r}") from fault
    except (pint.UndefinedUnitError, pint.DefinitionSyntaxError, AssertionError) as fault:
        raise ValueError(f"there is no unit {unit!r}") from fault


@dataclass(frozen=True)
class Input:
    """Value of one symbol, with its range and source.

    kind: documented (from reference `entries`), measured (from `source_rows`) or assumed.
    source: the sources' titles, or the reason for an assumption.
    se, df: standard error and degrees of freedom of the value's logarithm; se is 0 unless the value was measured on the
    log scale.
    in_interval: True if the range extends the result's interval; False if it is used for the sensitivity table only.
    single_case: True if the input belongs to one case alone; False if all cases with this symbol have it in common.
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
        """True if low or high is known and differs from the value."""
        return any(math.isfinite(end) and end != self.value for end in (self.low, self.high))


def documented_input(
    data: Dataset,
    name: str,
    alternatives: Sequence[str] = (),
    low: float | None = None,
    high: float | None = None,
    what: str = "",
) -> Input:
    """Return a verified reference entry as an input.

    alternatives: entries in the same unit that could replace this entry; only verified alternatives are used.
    low, high: further ends for the range.

    The range spans the value, low and high in the entry, the alternatives, and the arguments `low` and `high`. If an
    alternative or one of these arguments is used, the range is for the sensitivity table only; otherwise it extends the
    result's interval. Raises MissingSourceError if the entry is missing or unverified.
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
    """Return True if an entry is verified and has a value. The entry is not recorded as used."""
    entry = data.reference.get(name, {})
    return entry.get("status") == "verified" and entry.get("value") is not None


def computed_input(data: Dataset, names: Sequence[str], value: float, unit: str, what: str, **more: Any) -> Input:
    """Return an input that was computed from several reference entries.

    Raises MissingSourceError if an entry is missing or unverified.
    """
    titles = dict.fromkeys(str(data.entry(name)["source"]["title"]) for name in names)
    return Input(value, unit, "documented", "; ".join(titles), entries=tuple(names), what=what, **more)


def assumed_input(value: float, unit: str, why: str, low: float = math.nan, high: float = math.nan) -> Input:
    """Return an assumption or a definition, with the range in which a sceptic may vary it."""
    return Input(value, unit, "assumed", why, low, high)


def measured_input(cases: Estimates, row: int, unit: str, what: str) -> Input:
    """Return one case's estimate and interval as input."""
    case = cases.frame.iloc[row]
    se, df = (float(case["se"]), float(case["df"])) if cases.log else (0.0, math.inf)
    return Input(
        float(case["estimate"]), unit, "measured", "measured by this study", float(case["low"]), float(case["high"]),
        (), what, se, df, int(case["n_rounds"]), int(case["n_samples"]),
        tuple(case["source_rows"]), not cases.log, True,
    )  # fmt: skip


@dataclass(frozen=True)
class Formula:
    """Formula with units.

    text: the formula in Pint's notation, such as 'T = G / n'.
    symbols: each symbol's meaning and unit.
    unit: the result's unit.
    rounded_up: True to round the result up to a whole number.
    """

    text: str
    unit: str
    symbols: Mapping[str, tuple[str, str]]
    rounded_up: bool = False

    @property
    def result(self) -> str:
        """Symbol for the result."""
        return self.text.partition(" = ")[0]

    def evaluate(self, values: Mapping[str, Any]) -> Floats:
        """Return the result in the formula's unit.

        values: a number for each symbol, in the symbol's unit, or an array; the arrays must broadcast. Raises
        StudyError if the formula's units do not match its result.
        """
        import pint

        units = _unit_registry()
        operands = {
            name: units.Quantity(np.asarray(values[name], float), unit) for name, (_, unit) in self.symbols.items()
        }
        try:
            result = units.parse_expression(self.text.partition(" = ")[2], **operands)
            magnitude: Floats = np.asarray(units.Quantity(result).to(self.unit).magnitude, float)
        except (pint.DimensionalityError, pint.UndefinedUnitError) as fault:
            raise StudyError(f"formula {self.text!r}: the result is not in {self.unit!r}: {fault}") from None
        return np.ceil(magnitude - 1e-9) if self.rounded_up else magnitude

    def convert(self, symbol: str, value: float, operand: Input) -> float:
        """Convert a value from an input's unit to its symbol's unit. Raises StudyError if the two units do not fit."""
        try:
            return value * _conversion_factor(operand.unit, self.symbols[symbol][1])
        except ValueError as fault:
            name = ", ".join(operand.entries) or operand.what or operand.source
            raise StudyError(f"{name}: its unit does not fit {symbol} in {self.text!r}: {fault}") from None

    def check_units(self) -> None:
        """Evaluate the formula with 1 for each symbol, to check that its units match its result.

        Raises StudyError if they do not match.
        """
        self.evaluate(dict.fromkeys(self.symbols, 1.0))
