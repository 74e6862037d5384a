"""List this machine's GPUs from any maker, and compare them with an earlier record."""

from __future__ import annotations

import ctypes
import importlib.util
import runpy
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import driver_errors, nvml
from experiments.nvml import placeholder_name

# The CUDA driver library.
_CUDA = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

Card = dict[str, Any]


def list_gpus() -> list[Card]:
    """Return node record entries: NVIDIA GPUs from NVML, then GPUs that only torch names.

    GPUs that torch sees are listed even if torch cannot use them. NVIDIA GPUs are taken from torch too if NVML does not
    answer, shows no GPU, shows a GPU without a name, or shows a GPU that is split by MIG, whose slice only torch names.
    """
    cards = nvml.nvidia_gpus()
    # If NVML suffices, `cards` already contains all NVIDIA GPUs that torch sees.
    nvml_suffices = bool(cards) and not any(is_nameless(card) or card.get("mig") for card in cards)
    if not _torch_may_see_more(nvml_suffices):
        return cards
    from experiments.devices import torch_gpu_names

    by_nvml, unnamed = Counter(card["name"] for card in cards), list(filter(is_nameless, cards))
    for maker, name in sorted(torch_gpu_names()):
        if maker == "NVIDIA" and nvml_suffices:
            continue
        if maker == "NVIDIA" and by_nvml[name]:
            by_nvml[name] -= 1
        elif maker == "NVIDIA" and unnamed:
            unnamed.pop(0)["name"] = name
        else:
            cards.append({"name": name, "maker": maker, "known_by": "torch"})
    return cards


def is_nameless(card: Mapping[str, Any]) -> bool:
    """True if a recorded GPU has no name from NVML or torch."""
    return bool(card["name"] == placeholder_name(card.get("maker", "NVIDIA")))


def _torch_may_see_more(nvml_suffices: bool) -> bool:
    """True if torch may see GPUs that NVML does not name.

    Unless torch is loaded already, only its version file is read, to avoid loading torch.
    """
    from experiments.devices.accelerator import is_torch_loaded

    if is_torch_loaded() or sys.platform == "darwin":
        return True
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        built = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    except Exception:  # the version file is not as in torch 2: assume that torch may
        return True
    if built.get("hip") or built.get("xpu"):
        return True
    return bool(built.get("cuda")) and not nvml_suffices and is_loadable(_CUDA)


def is_loadable(library: str) -> bool:
    """Return True if the system's loader finds this shared library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Change:
    """GPU names that differ between this machine and a record.

    silent: recorded GPUs that do not answer now. why: the reason they do not answer. gone: recorded GPUs that are
    missing here, although all GPUs here answer. new: GPUs here that are missing from the record.
    """

    silent: tuple[str, ...] = ()
    why: str = ""
    gone: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


def compare_gpus(record: Mapping[str, Any], here: Sequence[Card]) -> Change:
    """Compare a record's GPUs with this machine's GPUs. A GPU without a name matches any name.

    here: this machine's GPUs, as `list_gpus` returns them.
    """
    then = record["hardware"]["gpus"]
    by_torch = {card["name"] for card in then if card.get("known_by") == "torch"}
    by_nvml = [card["name"] for card in then if card.get("known_by") != "torch"]
    if by_nvml and (refused := nvml.refusal()):
        return Change(tuple(by_nvml), f"NVML does not answer ({refused}): {driver_errors.advice(refused)}")
    missing = list((Counter(_known_names(then)) - Counter(_known_names(here))).elements())
    # Earlier versions of this program recorded GPUs by other makers than NVIDIA in `devices`, but not in `hardware`.
    devices = [str(device["name"]) for device in record["devices"] if device["kind"] == "gpu"]
    before: Counter[str] = Counter(_known_names(then)) | Counter(devices)
    new = list((Counter(_known_names(here)) - before).elements())[len(then) - len(_known_names(then)) :]
    unnamed = list(filter(is_nameless, here))
    unreported = [name for name in missing if name not in by_torch][: len(unnamed)]
    unseen = [name for name in missing if name in by_torch]
    why = ""
    if unreported:
        refused = next((words for card in unnamed for words in card.get("unanswered", {}).values()), "")
        why = f"NVML does not report its name ({refused}): {driver_errors.advice(refused)}"
    elif unseen:
        why = f"torch does not see it: {_why_unseen()}"
    missing_names = Counter(missing) - Counter(unreported) - Counter(unseen)
    return Change((*unreported, *unseen), why, tuple(missing_names.elements()), tuple(new))


def format_names(names: Sequence[str]) -> str:
    """Format GPU names: '2x NVIDIA H200, NVIDIA L4'."""
    return ", ".join(f"{number}x {name}" if number > 1 else name for name, number in Counter(names).items())


def _known_names(cards: Sequence[Mapping[str, Any]]) -> list[str]:
    return [card["name"] for card in cards if not is_nameless(card)]


def _why_unseen() -> str:
    from experiments.devices import detect

    return "; ".join(detect()[1]) or "it gives no reason"
