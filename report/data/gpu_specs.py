"""GPU datasheet figures from the reference, matched by the names that drivers report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from contract.errors import StudyError
from report.formatting import join_words

# Number formats with rated peaks in the reference, and these peaks' names there.
PEAKS = {"float32": "fp32_flops", "bfloat16": "bf16_flops"}
FIGURES = ("memory_bytes_per_s", "memory_bytes", "power_w", "l2_bytes", *PEAKS.values())
# _BUILDS: words to distinguish a chip's builds (variants).
# _SYNONYMS: other words that drivers use for these builds.
_BUILDS = {"sxm", "pcie", "nvl", "ti", "super", "laptop", "mobile", "d"}
_SYNONYMS = {"sxm2": "sxm", "sxm3": "sxm", "sxm4": "sxm", "sxm5": "sxm", "sxm6": "sxm", "hbm3": "sxm", "oam": "sxm"}
_SIZE = re.compile(r"\d+gb")


@dataclass(frozen=True)
class GpuSpecs:
    """Ratings for a GPU from its maker.

    figures: verified values, in FLOP/s, B/s, B and W, by a name from FIGURES. entries: reference ids for these figures.
    lacking: reference ids for figures without a verified value. words: words in the id and the name.
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
        """Return the rated FLOP/s in a number format, or None if no verified value is known."""
        return self.figures.get(PEAKS.get(dtype, ""))


def gpu_specs(reference: Mapping[str, Mapping[str, Any]]) -> list[GpuSpecs]:
    """List the GPUs that have a verified figure in the reference, sorted by name.

    A reference entry's id consists of the device and the figure. A device is a GPU if it has a memory figure and a
    peak, but no figure `cores`, which CPUs have.
    """
    ids: dict[str, set[str]] = {}
    for name in reference:
        owner, _, figure = name.rpartition(".")
        ids.setdefault(owner, set()).add(figure)
    chips = []
    for owner, figures in ids.items():
        memory, arithmetic = {"memory_bytes", "memory_bytes_per_s"} & figures, set(PEAKS.values()) & figures
        if not memory or not arithmetic or "cores" in figures:
            continue
        entries = {name: reference[f"{owner}.{name}"] for name in FIGURES if name in figures}
        known = {name: float(entry["value"]) for name, entry in entries.items() if _is_verified(entry)}
        if known:
            subject = str(next(iter(entries.values()))["subject"])
            lacking = tuple(f"{owner}.{name}" for name in entries if name not in known)
            chips.append(GpuSpecs(owner, subject, known, lacking, _words(f"{owner} {subject}")))
    return sorted(chips, key=lambda chip: chip.name)


def _is_verified(entry: Mapping[str, Any]) -> bool:
    return bool(entry["status"] == "verified") and entry.get("value") is not None


def _words(text: str) -> frozenset[str]:
    # Convert '80 GB' to the single word '80gb'.
    text = re.sub(r"(\d+)\s+gb\b", r"\1gb", text.lower())
    return frozenset(_SYNONYMS.get(word, word) for word in re.findall(r"[a-z0-9]+", text))


def _matching_gpus(name: str, known: Iterable[GpuSpecs]) -> list[GpuSpecs]:
    """Find the chips that a name may mean.

    All words in the chip's id, except for builds and memory sizes, must be words in the name. All builds in the name
    must belong to the chip. If the name and the chip both have a memory size, the sizes must be equal.
    """
    words = _words(name)
    sizes = {word for word in words if _SIZE.fullmatch(word)}
    chips = []
    for chip in known:
        own = {word for word in _words(chip.id) if not _SIZE.fullmatch(word)}
        its_sizes = {word for word in chip.words if _SIZE.fullmatch(word)}
        fits = not sizes or not its_sizes or bool(sizes & its_sizes)
        if own - _BUILDS <= words and words & _BUILDS <= chip.words and fits:
            chips.append(chip)
    # If some chips' builds are exactly the builds in the name, return only these chips.
    exact = [chip for chip in chips if chip.words & _BUILDS == words & _BUILDS]
    return exact or chips


def find_gpu(name: str, known: list[GpuSpecs]) -> GpuSpecs:
    """Find the chip with this id or name. Raises StudyError if none or several match."""
    by_id = {chip.id: chip for chip in known}
    if name.lower() in by_id:
        return by_id[name.lower()]
    chips = _matching_gpus(name, known)
    if len(chips) == 1:
        return chips[0]
    if chips:
        choices = join_words([chip.id for chip in chips], "or")
        raise StudyError(f"{name!r}: which one: {choices}?")
    raise StudyError(f"{name!r}: no verified figures of such a GPU are in data/reference")
