"""Read and check declared pairs. A pair is a measured quantity with the published figures for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_yaml, yaml_place
from contract.schema import did_you_mean
from report import PACKAGE
from report.formatting import format_exact
from report.quantities import Quantity, quantities

DECLARED = PACKAGE / "triangulation.yaml"
SCHEMA = json.loads((PACKAGE / "schemas" / "triangulation.schema.json").read_text(encoding="utf-8"))

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """Published figure for one device kind.

    host: another device kind that the node must have too; '' for none.
    entries: the reference entries' ids.
    value, low, high: numbers in the unit `Pair.unit`; None if unknown.
    worked_out: the arithmetic to derive the value from the entries; '' if an entry gives the value itself.
    """

    device: str
    host: str
    entries: tuple[str, ...]
    value: float | None
    low: float | None
    high: float | None
    verified: bool
    worked_out: str


@dataclass(frozen=True)
class Pair:
    """Measured quantity with the scope that selects its cases, and the published figures to compare them with."""

    id: str
    title: str
    quantity: Quantity
    scope: Mapping[str, Any]
    scale: float
    scale_why: str
    sockets: str
    unit: str
    figures: tuple[Figure, ...]
    differs: str
    explained: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Triangulation:
    """All declared pairs. devices: for each device kind, the properties by which to recognize it."""

    devices: Mapping[str, Record]
    pairs: tuple[Pair, ...]


def read_triangulation(path: Path, reference: Mapping[str, Record]) -> Triangulation:
    """Read the declared pairs. Raises StudyError with file and line for a mistake, such as an unknown name."""
    raw = read_yaml(path, SCHEMA)
    for name, device in raw["devices"].items():
        try:
            re.compile(device.get("name", ""))
        except re.error as fault:
            where = yaml_place(path, "devices", name, "name")
            raise StudyError(f"{where}: devices.{name}: not a regular expression ({fault})") from None
    ids = [pair["id"] for pair in raw["pairs"]]
    for number, name in enumerate(ids):
        if name in ids[:number]:
            raise StudyError(f"{yaml_place(path, 'pairs', number, 'id')}: the id {name!r} is used twice")
    pairs = [
        _PairReader(path, number, declared, raw["devices"], reference).parse()
        for number, declared in enumerate(raw["pairs"])
    ]
    return Triangulation(raw["devices"], tuple(pairs))


@dataclass(frozen=True)
class _PairReader:
    """Parser for one declared pair; `at` is the pair's position in the file."""

    path: Path
    at: int
    raw: Record
    devices: Mapping[str, Record]
    reference: Mapping[str, Record]

    def parse(self) -> Pair:
        raw, scale = self.raw, self.raw.get("scale", {})
        self._check_known(raw["quantity"], quantities(), "quantity", "quantity")
        quantity = quantities()[raw["quantity"]]
        for label in raw["scope"]:
            self._check_known(label, quantity.labels, f"label of {quantity.name}", "scope", label)
        for explanation in raw.get("explained", []):
            self._check_known(explanation["shown_by"], quantities(), "quantity", "explained")
        unit = str(scale.get("unit", quantity.unit))
        return Pair(
            id=raw["id"],
            title=raw["title"],
            quantity=quantity,
            scope=raw["scope"],
            scale=float(scale.get("by", 1.0)),
            scale_why=str(scale.get("why", "")),
            sockets=str(raw.get("sockets", "")),
            unit=unit,
            figures=tuple(
                figure
                for number, raw_figure in enumerate(raw["figures"])
                for figure in self._parse_figures(raw_figure, unit, number)
            ),
            differs=raw["differs"],
            explained=tuple(raw.get("explained", [])),
        )

    def _parse_figures(self, raw: str | Record, unit: str, number: int) -> list[Figure]:
        """Parse one figure, or a pattern that stands for several figures.

        A pattern is an entry id with `*` in place of the device. It gives a figure for each device that has such an
        entry and is of the kind (cpu or gpu) in the pair's scope.
        """
        steps = ("figures", number)
        if not isinstance(raw, str):
            return [self._parse_figure(raw, unit, steps)]
        kind = self.raw["scope"]["device"]
        own = {name: raw.replace("*", name) for name, device in self.devices.items() if device["kind"] == kind}
        expanded = [{"device": name, "entry": entry} for name, entry in own.items() if entry in self.reference]
        if not expanded:
            raise self._error(f"no device of this kind has an entry {raw!r} in the reference", *steps)
        return [self._parse_figure(item, unit, steps) for item in expanded]

    def _parse_figure(self, raw: Record, unit: str, steps: tuple[str | int, ...]) -> Figure:
        host, below = str(raw.get("host", "")), raw.get("over")
        for device in filter(None, (raw["device"], host)):
            self._check_known(device, self.devices, "device", *steps)
        sides = [raw, below] if below else [raw]
        for side in sides:
            self._check_known(side["entry"], self.reference, "reference entry", *steps)
        entries = [self.reference[side["entry"]] for side in sides]
        units = list(dict.fromkeys(str(entry["unit"]) for entry in entries))
        entry_unit = (
            "1" if below and len(units) == 1 else "/".join([*units, *([self.raw["per"]] if "per" in self.raw else [])])
        )
        if entry_unit != unit:
            raise self._error(f"{raw['entry']} is in {entry_unit}, the measured value in {unit}", *steps)
        counts = [float(side.get("count", 1)) for side in sides]
        value, low, high = _figure_range(entries, counts)
        return Figure(
            device=raw["device"],
            host=host,
            entries=tuple(side["entry"] for side in sides),
            value=value,
            low=low,
            high=high,
            verified=value is not None and all(entry["status"] == "verified" for entry in entries),
            worked_out=_calculation_text(entries, counts)
            if value is not None and raw.keys() & {"over", "count"}
            else "",
        )

    def _check_known(self, word: str, allowed: Iterable[str], kind: str, *steps: str | int) -> None:
        if word not in allowed:
            raise self._error(f"there is no {kind} {word!r}.{did_you_mean(word, list(allowed))}", *steps)

    def _error(self, what: str, *steps: str | int) -> StudyError:
        return StudyError(f"{yaml_place(self.path, 'pairs', self.at, *steps)}: {self.raw['id']}: {what}")


def _figure_range(
    entries: Sequence[Record], counts: Sequence[float]
) -> tuple[float | None, float | None, float | None]:
    """Calculate a figure's value, low and high from one or two entries.

    Each entry is divided by its count, the number of devices behind it. If there are two entries, the first is then
    divided by the second: low is the first low over the second high, and high is the first high over the second low.
    All are None if an entry has no value.
    """
    if any(entry.get("value") is None for entry in entries):
        return None, None, None

    def end(name: str, other: str) -> float:
        each = [
            float(item.get(key, item["value"])) / n
            for item, n, key in zip(entries, counts, (name, other), strict=False)
        ]
        return each[0] / each[1] if len(each) > 1 else each[0]

    return end("value", "value"), end("low", "high"), end("high", "low")


def _calculation_text(entries: Sequence[Record], counts: Sequence[float]) -> str:
    """Format the calculation: '756,960 / 8 over 25,204.5 / 2'."""
    pairs = zip((format_exact(float(entry["value"])) for entry in entries), counts, strict=True)
    return " over ".join(value if n == 1 else f"{value} / {format_exact(n)}" for value, n in pairs)
