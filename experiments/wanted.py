"""Compare this machine with the machines that would decide open claims (`wanted`), without measuring."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from contract.machine_needs import WANTED, Row, claim_texts, format_table, machine_rows, read_wanted
from experiments import counters, gpus, hardware


@dataclass(frozen=True)
class ThisMachine:
    """This machine, and the rows for the machines that would decide open claims.

    record: the keys in a node record that `Machine.matches` reads. energy: kinds of devices whose energy this machine
    counts. file: the file with the list.
    """

    record: dict[str, Any]
    energy: frozenset[str]
    rows: tuple[Row, ...]
    file: Path

    @property
    def rows_here(self) -> list[Row]:
        """Rows that this machine meets."""
        return [row for row in self.rows if row.machine.matches(self.record, self.energy)]

    @property
    def as_json(self) -> dict[str, Any]:
        """Return JSON data: this machine's kind, and an entry per row; `here` tells if this machine meets it."""
        here = self.rows_here
        entries = [
            {
                "machine": row.machine.text,
                "here": row in here,
                "open": claim_texts(row, is_open=True),
                "on_others_runs": claim_texts(row, is_open=False),
                "experiments": row.experiments,
                "preset": row.preset.name,
                "minutes": row.minutes,
            }
            for row in self.rows
        ]
        return {"machine": self.record["kind"], "wanted": entries}


def describe_wanted(file: Path | None = None) -> ThisMachine:
    """Read the list and describe this machine. Raises StudyError if the list is missing or invalid.

    file: the list, instead of the study's own.
    """
    file = file or WANTED
    rows, cards = machine_rows(read_wanted(file).needs), gpus.list_gpus()
    record = {
        "kind": hardware.machine_kind(),
        "hardware": {"cpu": hardware.cpu(), "gpus": cards},
        "devices": [{"kind": "cpu"}, *({"kind": "gpu"} for _ in cards)],
    }
    return ThisMachine(record, _counted_energy(cards), tuple(rows), file)


def _counted_energy(cards: list[gpus.Card]) -> frozenset[str]:
    """Return the kinds of devices whose energy this machine counts: a CPU by RAPL, a GPU by NVML."""
    has_rapl = counters.cpu_counters(psutil.Process()).joules() is not None
    has_nvml = any(card.get("known_by") != "torch" for card in cards)
    return frozenset(kind for kind, counts in (("cpu", has_rapl), ("gpu", has_nvml)) if counts)


def format_wanted(described: ThisMachine) -> str:
    """Format the table, and the claims and the command for this machine."""
    here = described.rows_here
    lines = format_table(described.rows, {row.machine for row in here})
    if not described.rows:
        return f"No open claim waits for a machine ({described.file})."
    claims = sorted({need.claim for row in here for need in row.needs})
    if not claims:
        return "\n".join([*lines, "", f"* none: this machine, {described.record['kind']}, decides no open claim."])
    preset = max((row.preset for row in here), key=lambda preset: preset.gpu)
    minutes = preset.gpu if described.record["hardware"]["gpus"] else preset.cpu
    # Further rounds may take as long as the first ones.
    config = f"preset={preset.name}" + f" until_decided={minutes:g}" * any(row.is_further for row in here)
    return "\n".join(
        [
            *lines,
            "",
            f"* This machine, {described.record['kind']}, would decide {', '.join(claims)} or a part of them, unless a "
            f"result is too close to a threshold. Measure it in about {minutes:g} minutes:",
            f"make study CONFIG='{config}'",
        ]
    )
