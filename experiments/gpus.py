"""The GPUs of this machine, of any maker, and how they compare with those of an earlier record."""

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

# The library through which CUDA programs, torch among them, reach the driver.
_CUDA = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

Card = dict[str, Any]


def list_gpus() -> list[Card]:
    """Entries of the node record: NVIDIA's GPUs as NVML tells of them, then those that torch alone names.

    A GPU that torch sees is listed whether or not it can be worked on. NVIDIA's are asked of torch where NVML does not
    answer or shows none, and where it tells no name, or shows a GPU that is cut (MIG): torch names the slice.
    """
    cards = nvml.nvidia_gpus()
    # Of torch's GPUs, NVML's are no news.
    nvml_suffices = bool(cards) and not any(is_nameless(card) or card.get("mig") for card in cards)
    if not _torch_may_see_more(nvml_suffices):
        return cards
    from experiments.devices import torch_gpu_names

    told, unnamed = Counter(card["name"] for card in cards), list(filter(is_nameless, cards))
    for maker, name in sorted(torch_gpu_names()):
        if maker == "NVIDIA" and nvml_suffices:
            continue
        if maker == "NVIDIA" and told[name]:
            told[name] -= 1
        elif maker == "NVIDIA" and unnamed:
            unnamed.pop(0)["name"] = name
        else:
            cards.append({"name": name, "maker": maker, "known_by": "torch"})
    return cards


def is_nameless(card: Mapping[str, Any]) -> bool:
    """True if neither NVML nor torch told the name of a GPU of a record."""
    return bool(card["name"] == placeholder_name(card.get("maker", "NVIDIA")))


def _torch_may_see_more(nvml_suffices: bool) -> bool:
    """True if torch may see GPUs that NVML does not name. Told from how torch was built: to load it takes seconds."""
    from experiments.devices.accelerator import is_torch_loaded

    if is_torch_loaded() or sys.platform == "darwin":
        return True
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    try:
        built = runpy.run_path(str(Path(found.origin).with_name("version.py")))
    except Exception:  # not as torch 2 has it: torch itself has to say
        return True
    if built.get("hip") or built.get("xpu"):
        return True
    return bool(built.get("cuda")) and not nvml_suffices and _is_loadable(_CUDA)


def _is_loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Change:
    """How the GPUs of this machine differ from those of a record, by their names.

    silent: those of the record that cannot be asked now, and why. gone: those that are not here, though all here can be
    asked. new: those here that the record does not have.
    """

    silent: tuple[str, ...] = ()
    why: str = ""
    gone: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


def compare_gpus(record: Mapping[str, Any], here: Sequence[Card]) -> Change:
    """Compare a record's GPUs with those of this machine. here: `list_gpus()`. A GPU without a name may be any."""
    then = record["hardware"]["gpus"]
    by_torch = {card["name"] for card in then if card.get("known_by") == "torch"}
    by_nvml = [card["name"] for card in then if card.get("known_by") != "torch"]
    if by_nvml and (refused := nvml.refusal()):
        return Change(tuple(by_nvml), f"NVML does not answer ({refused}): {driver_errors.advice(refused)}")
    missing = list((Counter(_known_names(then)) - Counter(_known_names(here))).elements())
    # Records of earlier versions have other makers' GPUs among the devices alone.
    devices = [str(device["name"]) for device in record["devices"] if device["kind"] == "gpu"]
    before: Counter[str] = Counter(_known_names(then)) | Counter(devices)
    new = list((Counter(_known_names(here)) - before).elements())[len(then) - len(_known_names(then)) :]
    unnamed = list(filter(is_nameless, here))
    untold = [name for name in missing if name not in by_torch][: len(unnamed)]
    unseen = [name for name in missing if name in by_torch]
    why = ""
    if untold:
        refused = next((words for card in unnamed for words in card.get("unanswered", {}).values()), "")
        why = f"NVML does not tell of it ({refused}): {driver_errors.advice(refused)}"
    elif unseen:
        why = f"torch does not see it: {_why_unseen()}"
    gone = Counter(missing) - Counter(untold) - Counter(unseen)
    return Change((*untold, *unseen), why, tuple(gone.elements()), tuple(new))


def format_names(names: Sequence[str]) -> str:
    """Names of GPUs in a sentence: '2x NVIDIA H200, NVIDIA L4'."""
    return ", ".join(f"{number}x {name}" if number > 1 else name for name, number in Counter(names).items())


def _known_names(cards: Sequence[Mapping[str, Any]]) -> list[str]:
    return [card["name"] for card in cards if not is_nameless(card)]


def _why_unseen() -> str:
    from experiments.devices import detect

    return "; ".join(detect()[1]) or "it says no reason"
