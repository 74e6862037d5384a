"""Words for readers about quantities and scopes, in place of names and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from contract.files import read_json, read_yaml
from report import PACKAGE
from report.formatting import (
    BASELINES,
    capitalize,
    format_count,
    format_exact,
    join_words,
    label_value,
    side_name,
    with_unit,
)
from report.pages.chart_rows import library_name


@dataclass(frozen=True)
class QuantityWords:
    """A quantity's axis label, its meaning in a sentence, and the names of its axis's two directions (or none)."""

    axis: str
    means: str = ""
    ends: tuple[str, ...] = ()


@cache
def read_quantity_words() -> Mapping[str, QuantityWords]:
    """Read the words for all quantities that claims use. Raises StudyError for a schema violation."""
    entries: dict[str, Any] = read_yaml(
        PACKAGE / "quantity_words.yaml", read_json(PACKAGE / "schemas" / "quantity_words.schema.json")
    )
    return {
        name: QuantityWords(entry["axis"], entry["means"], tuple(entry.get("ends", ())))
        for name, entry in entries.items()
    }


def quantity_words(name: str) -> QuantityWords:
    """Return the words for a quantity; without an entry, its name is spelt out."""
    spelt = capitalize(name.rpartition(".")[2].replace("_", " "))
    return read_quantity_words().get(name) or QuantityWords(spelt)


# Labels that the meaning of a quantity covers, or that a page shows elsewhere.
_LEFT_OUT = {"entry", "comparison", "ceilings", "numbers", "evidence", "launch", "variant"}
_BARE = {"model", "gpu", "machine", "operators", "setting", "dtype"}
_UNITS = {"requests_per_s": "requests a second", "parameters": "parameters"}
_SIDES = {"vulkan": "Vulkan", "opencl": "OpenCL", "cudnn": "cuDNN", "cuda": "CUDA"}
_PHRASES: Mapping[str, Mapping[Any, str]] = {
    "backend": {"best": "the fastest library", "vulkan": "Vulkan"},
    "baseline": {
        **{name: f"compared with {text}" for name, text in BASELINES.items()},
        "one processor": "compared with one processor",
        "server processor": "compared with one server processor",
        "server": "compared with a whole server",
    },
    "card": {"rtx-3060": "RTX 3060", "rtx-4060-ti": "RTX 4060 Ti"},
    "chains": {"one": "one chain of steps", "full": "as many chains of steps as the chip takes"},
    "device": {"cpu": "CPUs measured here", "gpu": "GPUs measured here"},
    "direction": {"host_to_device": "copies to the GPU", "device_to_host": "copies from the GPU"},
    "host_memory": {"pinned": "pinned memory"},
    "kernel": {"chain": "dependent arithmetic", "chase": "pointer chasing", "states": "a state machine"},
    "kind": {"published": "published models", "study": "models of this study"},
    "layer": {"product": "layers that are matrix products"},
    "learning_rate": {"tuned": "the learning rate tuned for each batch", "fixed": "left as it is"},
    "list": {"published": "published trainings"},
    "method": {
        "cell_order": "entries computed in another order",
        "summation": "terms added in another order",
        "split_k": "terms added in groups",
    },
    "of": _SIDES,
    "to": _SIDES,
    "op": {"triad": "passes over memory (triad)", "mlp": "requests to a small network", "gemm": "matrix products"},
    "phase": {"training": "training", "decode": "writing text", "prefill": "reading the prompt"},
    "precision": {"equal": "equal number formats", "best": "the fastest number format of each side"},
    "scale": {"large": "trainings beyond simple models"},
    "scenario": {"offline": "many requests at once"},
    "size": {"small": "small models", "large": "large models"},
    "task": {
        "convolution": "convolutions",
        "fine-tune": "fine-tuning",
        "generate": "writing text",
        "infer": "answering",
        "libraries": "libraries",
        "product": "matrix products",
        "prompt": "reading the prompt",
        "table": "tables",
        "telemetry": "readings under load",
        "train": "training steps",
        "train-to-target": "trainings to a target",
    },
    "transfers": {"included": "copies included", "excluded": "copies left out"},
}


def scope_text(scope: Mapping[str, Any]) -> str:
    """Describe the results that a part of a claim uses: 'GPUs measured here; 32 paths'; '' for all results."""
    rest = dict(scope)
    texts = [f"matrices of {rest.pop('m'):,} by {rest.pop('n'):,}"] if {"m", "n", "k"} <= {*rest} else []
    if texts:
        del rest["k"]
    for name, value in rest.items():
        values = [item for item in (value if isinstance(value, list) else [value]) if item != ""]
        if name == "source":
            texts.append(format_count(len(values), "published source"))
        elif name == "device" and "source" in scope:
            texts.append(f"{side_name(value)}s")
        elif values and name not in _LEFT_OUT:
            texts.append(_values_text(name, values))
    return "; ".join(texts)


def _values_text(name: str, values: list[Any]) -> str:
    if name in _UNITS:
        return f"{join_words([format_exact(float(value)) for value in values])} {_UNITS[name]}"
    text = join_words([_value_text(name, value) for value in values])
    return f"models {text}" if name == "model" and len(values) > 1 else text


def _value_text(name: str, value: Any) -> str:
    phrase = _PHRASES.get(name, {}).get(value)
    if phrase:
        return phrase
    if name == "backend":
        return library_name(str(value))
    if name == "size":
        return f"{with_unit(float(value), 'B')} of data"
    return str(value) if name in _BARE or name in _PHRASES else label_value(name, value)
