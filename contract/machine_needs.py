"""Machines that would decide open claims: the file `data/wanted.json`, its table, and the test for one machine.

`python -m report wanted` writes the file from the verdicts, `python -m experiments wanted` reads it.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from contract.errors import StudyError
from contract.files import read_json
from contract.machine_kinds import KINDS

WANTED = Path(__file__).parents[1] / "data" / "wanted.json"
AGAIN = "python -m report wanted --verdicts FILE"
# Device kinds in words.
_DEVICES = {"cpu": "CPU", "gpu": "GPU"}


class Preset(Struct, frozen=True, forbid_unknown_fields=True):
    """A preset with its planned minutes on a machine without a GPU (cpu) and with one (gpu)."""

    name: str
    cpu: float
    gpu: float


class Machine(Struct, frozen=True, forbid_unknown_fields=True):
    """Properties that a machine needs.

    kind: key in KINDS; '' for any. devices: device kinds that it needs beside its CPU. energy: device kinds whose
    energy it needs to count. like: a node's kind and label, if only this kind of node will do. rounds: how many rounds
    to measure; 0 for the preset's.
    """

    kind: str = ""
    devices: tuple[str, ...] = ()
    energy: tuple[str, ...] = ()
    like: tuple[str, str] | None = None
    rounds: int = 0

    @property
    def has_gpu(self) -> bool:
        return "gpu" in self.devices

    @property
    def text(self) -> str:
        """Return the properties in words: 'machine with a GPU, with energy counters for its CPU'."""
        if self.like:
            name = self.like[1]
        elif self.kind:
            name = KINDS[self.kind].name
        else:
            name = "machine with a GPU" if self.has_gpu else "any machine"
        counters = " and ".join(_DEVICES[kind] for kind in self.energy)
        name += f", with energy counters for its {counters}" if counters else ""
        return name + (f", in {self.rounds} rounds" if self.rounds else "")

    def matches(self, record: Mapping[str, Any], energy: Collection[str]) -> bool:
        """Tell if a machine has these properties.

        record: a node record, of which `kind`, `devices` and `hardware` are read. energy: device kinds whose energy the
        machine counts.
        """
        there = {device["kind"] for device in record["devices"]}
        return (
            (not self.kind or KINDS[self.kind].matches(record))
            and there.issuperset(self.devices)
            and set(self.energy).issubset(energy)
            and (self.like is None or self.like[0] == record["kind"])
        )


class Need(Struct, frozen=True, forbid_unknown_fields=True):
    """Machine that would decide a claim, or some parts.

    parts: the parts' names, if other parts need other machines; else empty. is_open: False if published measurements
    by others decide the claim until then. preset: the shortest preset that measures the experiments.
    """

    claim: str
    is_open: bool
    machine: Machine
    experiments: tuple[str, ...]
    preset: Preset
    parts: tuple[str, ...] = ()


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """Content to write to `data/wanted.json`. nodes: the judged nodes' ids."""

    nodes: tuple[str, ...]
    needs: tuple[Need, ...]


class Row(Struct, frozen=True):
    """All needs that one kind of machine meets. preset: the needs' longest preset."""

    machine: Machine
    needs: tuple[Need, ...]

    @property
    def experiments(self) -> list[str]:
        return sorted({name for need in self.needs for name in need.experiments})

    @property
    def preset(self) -> Preset:
        return max((need.preset for need in self.needs), key=lambda preset: preset.gpu)

    @property
    def is_further(self) -> bool:
        """True if the machine needs more rounds than the preset has."""
        return self.machine.rounds > 0

    @property
    def minutes(self) -> float:
        """Planned minutes for the preset, with a GPU if the machine needs it."""
        return self.preset.gpu if self.machine.has_gpu else self.preset.cpu


def read_wanted(path: Path = WANTED) -> Wanted:
    """Read the file. Raises StudyError if it is missing or invalid."""
    if not path.exists():
        raise StudyError(f"{path}: no such file. Make it with: {AGAIN}")
    try:
        return msgspec.convert(read_json(path), Wanted)
    except msgspec.ValidationError as fault:
        raise StudyError(f"{path}: {fault}. Make it with: {AGAIN}") from None


def machine_rows(needs: Iterable[Need]) -> list[Row]:
    """Group needs by machine: from the machine with most open claims to the one with fewest."""
    groups: dict[Machine, list[Need]] = {}
    for need in needs:
        groups.setdefault(need.machine, []).append(need)
    rows = [Row(machine, tuple(group)) for machine, group in groups.items()]
    return sorted(rows, key=lambda row: (-sum(need.is_open for need in row.needs), -len(row.needs), row.machine.text))


def claim_texts(row: Row, is_open: bool) -> list[str]:
    """Format a row's open or other claims, with the parts that the machine decides: 'W01 (laptop over GPU)'."""
    return [
        need.claim + (f" ({'; '.join(need.parts)})" if need.parts else "")
        for need in row.needs
        if need.is_open == is_open
    ]


def format_table(rows: Sequence[Row], here: Collection[Machine] = (), width: int = 0) -> list[str]:
    """Format a paragraph per machine; `*` marks the machines in `here`. width: columns; 0 for the terminal's."""
    width = width or shutil.get_terminal_size((100, 24)).columns
    lines: list[str] = []
    for row in rows:
        lines.append(f"{'*' if row.machine in here else '-'} {row.machine.text}")
        facts = {
            "open": ", ".join(claim_texts(row, is_open=True)),
            "on others' runs": ", ".join(claim_texts(row, is_open=False)),
            "to measure": ", ".join(row.experiments),
            "preset": f"{row.preset.name}{' with until_decided' * row.is_further}, about {row.minutes:g} min",
        }
        for name, text in facts.items():
            if text:
                lines += textwrap.wrap(text, width, initial_indent=f"  {name:<17}", subsequent_indent=" " * 19)
    return lines
