"""GPUs by their published figures: of the reference only what was verified, and whose driver calls them how."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from contract.errors import StudyError
from contract.schema import did_you_mean
from report.data.dataset import Dataset
from report.formatting import several
from report.quantities.memory import GPU_CACHE_BYTES

# Number formats whose rated arithmetic the reference may hold.
PEAKS = {"float32": "fp32_flops", "bfloat16": "bf16_flops"}
# The quickest of them.
NARROW = "bfloat16"
FIGURES = ("memory_bytes_per_s", "memory_bytes", "power_w", "l2_bytes", *PEAKS.values())
# Words that tell builds of a chip apart, and what drivers say in their place.
_FORMS = {"sxm", "pcie", "nvl", "ti", "super", "laptop", "mobile", "d"}
_SAME = {"sxm2": "sxm", "sxm3": "sxm", "sxm4": "sxm", "sxm5": "sxm", "sxm6": "sxm", "hbm3": "sxm", "oam": "sxm"}
_SIZE = re.compile(r"\d+gb")


@dataclass(frozen=True)
class Chip:
    """A GPU as its maker rates it.

    figures: verified values by name, of FIGURES, in FLOP/s, B/s, B and W. entries: the ids of those. lacking: what
    the reference names without having verified it.
    """

    id: str
    name: str
    figures: Mapping[str, float]
    lacking: tuple[str, ...] = ()
    words: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def device(self) -> str:
        """What its cells call the device: the word predicted is in it."""
        return f"predicted:{self.id}"

    @property
    def entries(self) -> list[str]:
        return [f"{self.id}.{name}" for name in self.figures]

    @property
    def cache(self) -> float:
        """Bytes that may stay on the chip: its rated cache, or where that is not known more than any chip has."""
        return self.figures.get("l2_bytes", GPU_CACHE_BYTES)

    def peak(self, dtype: str) -> float | None:
        """Rated FLOP/s in a number format; None where that was not verified."""
        return self.figures.get(PEAKS.get(dtype, ""))


def chips(reference: Mapping[str, Mapping[str, Any]]) -> list[Chip]:
    """The GPUs of the reference that have a verified figure to predict from, by name.

    A GPU: what has figures of memory and of arithmetic, and no cores that run threads of their own.
    """
    ids: dict[str, set[str]] = {}
    for name in reference:
        owner, _, figure = name.rpartition(".")
        ids.setdefault(owner, set()).add(figure)
    found = []
    for owner, figures in ids.items():
        memory, arithmetic = {"memory_bytes", "memory_bytes_per_s"} & figures, set(PEAKS.values()) & figures
        if not memory or not arithmetic or "cores" in figures:
            continue
        held = {name: reference[f"{owner}.{name}"] for name in FIGURES if name in figures}
        known = {name: float(one["value"]) for name, one in held.items() if _verified(one)}
        if known:
            subject = str(next(iter(held.values()))["subject"])
            lacking = tuple(f"{owner}.{name}" for name in held if name not in known)
            found.append(Chip(owner, subject, known, lacking, _words(f"{owner} {subject}")))
    return sorted(found, key=lambda chip: chip.name)


def _verified(entry: Mapping[str, Any]) -> bool:
    return bool(entry["status"] == "verified") and entry.get("value") is not None


def _words(text: str) -> frozenset[str]:
    # '80 GB' and '80GB' are one word.
    text = re.sub(r"(\d+)\s+gb\b", r"\1gb", text.lower())
    return frozenset(_SAME.get(word, word) for word in re.findall(r"[a-z0-9]+", text))


def _matches(name: str, known: Iterable[Chip]) -> list[Chip]:
    """The chips that a name may mean: it holds all words of their ids, sizes aside, and no build that is not theirs."""
    words = _words(name)
    sizes = {word for word in words if _SIZE.fullmatch(word)}
    found = []
    for chip in known:
        own = {word for word in _words(chip.id) if not _SIZE.fullmatch(word)}
        its_sizes = {word for word in chip.words if _SIZE.fullmatch(word)}
        fits = not sizes or not its_sizes or bool(sizes & its_sizes)
        if own - _FORMS <= words and words & _FORMS <= chip.words and fits:
            found.append(chip)
    # A name that tells the build means just that.
    exact = [chip for chip in found if chip.words & _FORMS == words & _FORMS]
    return exact or found


def find(name: str, known: list[Chip]) -> Chip:
    """The chip of this id or name. Raises StudyError if there is none, or more than one."""
    by_id = {chip.id: chip for chip in known}
    if name.lower() in by_id:
        return by_id[name.lower()]
    found = _matches(name, known)
    if len(found) == 1:
        return found[0]
    if found:
        choices = several([chip.id for chip in found], "or")
        raise StudyError(f"--gpu {name!r}: which one: {choices}?")
    names = [*by_id, *(chip.name for chip in known)]
    raise StudyError(
        f"--gpu {name!r}: no verified figures of such a GPU are in data/reference. "
        f"Known: {', '.join(sorted(by_id))}.{did_you_mean(name, names)}"
    )


def of_device(device: Mapping[str, Any], known: Iterable[Chip]) -> Chip | None:
    """The chip that a node's device is, by what its driver calls it and, where that leaves several, by its memory."""
    found = _matches(str(device["name"]), known)
    size = device.get("memory_bytes")
    if len(found) > 1 and size:
        found = sorted(found, key=lambda chip: abs(chip.figures.get("memory_bytes", 0.0) - float(size)))[:1]
    return found[0] if len(found) == 1 else None


def measured(data: Dataset, known: Iterable[Chip]) -> dict[tuple[str, str], Chip]:
    """The chip of each device that nodes have, by node and device; without devices that the reference lacks."""
    known = list(known)
    pairs = [(node.id, device) for node in data.nodes.nodes for device in node.record["devices"]]
    found = {(node, str(device["id"])): of_device(device, known) for node, device in pairs if device["kind"] == "gpu"}
    return {place: chip for place, chip in found.items() if chip is not None}
