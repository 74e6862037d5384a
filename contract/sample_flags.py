"""Flags for disturbed samples: a closed list of names, each with a detail.

A sample's flags are one text, `busy: 31% other load; throttled: power cap`. The earliest data has bare names,
separated by spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

FLAGS = {
    "busy": "other processes took a share of all cores",
    "crowded": "other processes had cores that the work's threads needed",
    "stopped": "the measuring process stood still (stopped, frozen or asleep), and went on",
    "queued": "the measuring process, or another, waited for a core",
    "steal": "the hypervisor withheld CPU time",
    "throttled": "heat, a power limit (usual for a GPU at full work) or a quota held the device back",
    "memory": "work stalled on a shortage of memory",
    "clock": "the device's clock fell below the highest seen for this point (usual at the power limit)",
    "unreadable": "readings of the device's clock were no time (0, negative, no number), and were dropped",
}
# Flags for disturbances by other processes and the hypervisor.
DISTURBING = frozenset(("busy", "queued", "steal"))
# A point is disturbed in a round from this share of disturbed samples on.
DISTURBED_SHARE = 0.5
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True)
class Flag:
    """Disturbance of a sample: a name from FLAGS, and a detail with at most one number."""

    name: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}" if self.detail else self.name

    @property
    def figure(self) -> float:
        """Return the first number in the detail, or 0 if the detail has no number."""
        match = _NUMBER.search(self.detail)
        return float(match[0].replace(",", "")) if match else 0.0

    @property
    def amount(self) -> float | None:
        """Return the first number in the detail, a percentage as a share; None if the detail has no number."""
        match = _NUMBER.search(self.detail)
        if match is None:
            return None
        return self.figure / 100 if self.detail[match.end() :].startswith("%") else self.figure


def parse_sample_flags(text: str) -> list[Flag]:
    """Parse flags with details, or the bare names in the earliest data. Raises ValueError for a name outside FLAGS."""
    flags = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, colon, detail = part.partition(":")
        flags += [Flag(name.strip(), detail.strip())] if colon else [Flag(word) for word in part.split()]
    unknown = next((flag.name for flag in flags if flag.name not in FLAGS), None)
    if unknown is not None:
        raise ValueError(f"no flag {unknown!r}")
    return flags


def flags_known(text: str) -> bool:
    """Tell if every flag in `text` is in FLAGS."""
    try:
        parse_sample_flags(text)
    except ValueError:
        return False
    return True


def worst_flags(flags: Iterable[Flag]) -> list[Flag]:
    """Merge the flags with the same name; return them in FLAGS order.

    A merged flag has the detail with the largest number, and all details without a number.
    """
    all_flags = list(flags)
    kept = []
    for name in FLAGS:
        same = [flag for flag in all_flags if flag.name == name]
        if not same:
            continue
        reasons = [flag.detail for flag in same if flag.detail and not flag.figure]
        most = max(same, key=lambda flag: flag.figure)
        details = dict.fromkeys([*reasons, most.detail] if most.figure else reasons)
        kept.append(Flag(name, " and ".join(details)))
    return kept


def format_flags(flags: Iterable[Flag]) -> str:
    """Format flags for the table; `parse_sample_flags` reads them back."""
    return "; ".join(map(str, flags))
