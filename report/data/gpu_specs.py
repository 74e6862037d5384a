"""GPUs by their datasheets: what of the reference was verified, and what drivers call them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from contract.errors import StudyError
from report.formatting import join_words

# Number formats whose rated arithmetic the reference may hold.
PEAKS = {"float32": "fp32_flops", "bfloat16": "bf16_flops"}
FIGURES = ("memory_bytes_per_s", "memory_bytes", "power_w", "l2_bytes", *PEAKS.values())
# Words that tell builds of a chip apart, and what drivers say in their place.
_BUILDS = {"sxm", "pcie", "nvl", "ti", "super", "laptop", "mobile", "d"}
_SYNONYMS = {"sxm2": "sxm", "sxm3": "sxm", "sxm4": "sxm", "sxm5": "sxm", "sxm6": "sxm", "hbm3": "sxm", "oam": "sxm"}
_SIZE = re.compile(r"\d+gb")


@dataclass(frozen=True)
class GpuSpecs:
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
    def entries(self) -> list[str]:
        return [f"{self.id}.{name}" for name in self.figures]

    def peak(self, dtype: str) -> float | None:
        """Rated FLOP/s in a number format; None where that was not verified."""
        return self.figures.get(PEAKS.get(dtype, ""))


def gpu_specs(reference: Mapping[str, Mapping[str, Any]]) -> list[GpuSpecs]:
    """The GPUs of the reference that have a verified figure, by name.

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
        known = {name: float(one["value"]) for name, one in held.items() if _is_verified(one)}
        if known:
            subject = str(next(iter(held.values()))["subject"])
            lacking = tuple(f"{owner}.{name}" for name in held if name not in known)
            found.append(GpuSpecs(owner, subject, known, lacking, _words(f"{owner} {subject}")))
    return sorted(found, key=lambda chip: chip.name)


def _is_verified(entry: Mapping[str, Any]) -> bool:
    return bool(entry["status"] == "verified") and entry.get("value") is not None


def _words(text: str) -> frozenset[str]:
    # '80 GB' and '80GB' are one word.
    text = re.sub(r"(\d+)\s+gb\b", r"\1gb", text.lower())
    return frozenset(_SYNONYMS.get(word, word) for word in re.findall(r"[a-z0-9]+", text))


def _matching_gpus(name: str, known: Iterable[GpuSpecs]) -> list[GpuSpecs]:
    """The chips that a name may mean: it holds all words of their ids, sizes aside, and no build that is not theirs."""
    words = _words(name)
    sizes = {word for word in words if _SIZE.fullmatch(word)}
    found = []
    for chip in known:
        own = {word for word in _words(chip.id) if not _SIZE.fullmatch(word)}
        its_sizes = {word for word in chip.words if _SIZE.fullmatch(word)}
        fits = not sizes or not its_sizes or bool(sizes & its_sizes)
        if own - _BUILDS <= words and words & _BUILDS <= chip.words and fits:
            found.append(chip)
    # A name that tells the build means just that.
    exact = [chip for chip in found if chip.words & _BUILDS == words & _BUILDS]
    return exact or found


def find_gpu(name: str, known: list[GpuSpecs]) -> GpuSpecs:
    """The chip of this id or name. Raises StudyError if there is none, or more than one."""
    by_id = {chip.id: chip for chip in known}
    if name.lower() in by_id:
        return by_id[name.lower()]
    found = _matching_gpus(name, known)
    if len(found) == 1:
        return found[0]
    if found:
        choices = join_words([chip.id for chip in found], "or")
        raise StudyError(f"{name!r}: which one: {choices}?")
    raise StudyError(f"{name!r}: no verified figures of such a GPU are in data/reference")
