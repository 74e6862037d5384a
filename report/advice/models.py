"""Models by the names that people write, with their sizes.

`data/reference/advice/models.csv` lists models; model_names.csv adds other spellings. A language model that is not in
the list, but whose parameters are known, gets the usual shape for its size.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from report.advice.chips import ADVICE, UnknownNameError, cell_number
from report.data.names import read_rows

# Model kinds that a job can use, best first.
KINDS_OF_JOBS = {
    "decode": ("language",),
    "prompt": ("language",),
    "serve": ("language",),
    "lora": ("language", "diffusion"),
    "classify": ("vision", "encoder"),
    "detect": ("detection", "segmentation", "vision"),
    "embed": ("encoder", "language"),
    "transcribe": ("speech",),
    "pictures": ("diffusion",),
    "train": ("vision", "language", "encoder", "detection", "segmentation", "speech", "diffusion"),
    "fine-tune": ("language", "encoder", "vision", "detection", "segmentation", "speech", "diffusion"),
    "fit": ("language", "diffusion", "encoder", "speech", "vision", "detection"),
    "memory": ("language", "diffusion", "encoder", "speech", "vision", "detection"),
}
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?) ?([bm])(?:illion)?(?![a-z0-9])")
_EXPERTS = re.compile(r"(\d+)x(\d+(?:\.\d+)?)b")
_ACTIVE = re.compile(r"\ba(\d+(?:\.\d+)?)b\b")
_SCALE = {"b": 1e9, "m": 1e6}


@dataclass(frozen=True)
class Model:
    """A model.

    parameters: all; active: used for one token; kv_width: numbers that one layer keeps for one token; layers: all, and
    those that keep tokens; flop_per_item: in one forward pass for an item, such as a picture with `pixels`; listed:
    the model has its own row.
    """

    key: str
    name: str
    kind: str
    parameters: float
    active: float
    layers: float
    hidden: float
    kv_width: float
    vocab: float
    flop_per_item: float = 0.0
    pixels: float = 0.0
    listed: bool = True

    @property
    def is_convolution(self) -> bool:
        """Tell whether the model is a vision model without attention."""
        attention = re.search(r"vit|deit|swin|beit|clip|dino|eva|mixer|former|detr|sam\b|siglip", self.key)
        return self.kind in ("vision", "detection", "segmentation") and not attention


def _tokens(text: str) -> list[str]:
    """Split a name into words in lower case: 'Llama-3.1-8B' to llama, 3.1 and 8b."""
    text = text.lower()
    # An owner before a slash does not belong to the name.
    text = text.split("/")[-1] if re.match(r"^[\w.-]+/[\w.:-]*[a-z]{3}[\w.:-]*$", text) else text
    text = re.sub(r"([a-z]{2,})(?=\d)", r"\1 ", text)
    text = re.sub(r"(?<=\d)(?=[a-z]{4,})", " ", text)
    text = re.sub(r"\bv (?=\d)", "v", text)
    return re.findall(r"[a-z]+\d[\w.]*|\d+(?:\.\d+)*[a-z]*|[a-z]+", text)


def usual_shape(parameters: float) -> tuple[float, float]:
    """Return a language model's usual layers and hidden width: 12 layers width^2 parameters."""
    width = max(64.0, (parameters / 12 / 0.0073) ** (1 / 3))
    return max(2.0, round(0.0073 * width)), round(width / 64) * 64


@cache
def listed_models(folder: Path = ADVICE) -> Mapping[str, Model]:
    """Read models.csv: models by key."""
    models = {}
    for row in read_rows(folder / "models.csv"):
        parameters = cell_number(row["parameters"])
        hidden, layers, heads = (
            cell_number(row["hidden"]),
            cell_number(row["layers"]),
            cell_number(row["heads"]),
        )
        if parameters and not (hidden and layers):
            layers, hidden = usual_shape(cell_number(row["active_parameters"]) or parameters)
        head = cell_number(row["head_dim"]) or (hidden / heads if heads else 0.0)
        width = cell_number(row["kv_heads"]) * head if row["kv_heads"] and head else hidden
        # Models with latent attention keep one short vector for all heads.
        if row["key"].startswith(("deepseek-v2", "deepseek-v3", "deepseek-r1", "kimi")) and "distill" not in row["key"]:
            width = 288.0
        size = re.search(r"(\d+)x(\d+)", row["item"])
        models[row["key"]] = Model(
            key=row["key"],
            name=row["name"],
            kind=row["kind"],
            parameters=parameters,
            active=cell_number(row["active_parameters"]) or parameters,
            layers=layers,
            hidden=hidden,
            kv_width=width,
            vocab=cell_number(row["vocab"]) or 32000.0,
            flop_per_item=cell_number(row["flop_per_item"]),
            pixels=float(size[1]) * float(size[2]) if size else 0.0,
        )
    return models


@cache
def _spellings(folder: Path = ADVICE) -> tuple[tuple[frozenset[str], int, str, str], ...]:
    """Return each spelling as words, with its letters, its model and itself."""
    names = {}
    for model in listed_models(folder).values():
        names[re.sub(r"\(.*?\)", "", model.name)] = model.key
        names.setdefault(model.key, model.key)
    for row in read_rows(folder / "model_names.csv"):
        names[row["alias"]] = row["key"]
    spellings = []
    for name, key in names.items():
        words = frozenset(_tokens(name))
        if words and key in listed_models(folder):
            spellings.append((words, sum(map(len, words)), key, name))
    return tuple(spellings)


def size_in_name(text: str) -> float:
    """Return the parameters that a name tells, such as 7e9 for '7B'; 0 if none."""
    text = text.lower()
    experts = _EXPERTS.search(text)
    if experts:
        return float(experts[1]) * float(experts[2]) * 1e9 * 0.83
    text = _ACTIVE.sub(" ", re.sub(r"[^a-z0-9.]+", " ", re.sub(r"(?<=[a-z])-?(?=\d+(\.\d+)?b\b|\d{2,}m\b)", " ", text)))
    sizes = [float(number) * _SCALE[unit] for number, unit in _SIZE.findall(text) if unit == "b" or float(number) >= 10]
    return max(sizes, default=0.0)


def find_model(text: str, kind: str, parameters: float | None = None) -> Model:
    """Recognise a model in a text such as 'Llama-3.1-8B-Instruct', 'GPT-2 124M' or 'resnet50'.

    kind: the job's, which settles names that several models share. parameters: as the asker tells them.

    Raises UnknownNameError.
    """
    plain = re.sub(
        r"\b(q\d\w*|fp16|fp8|bf16|int[48]|awq|gptq|gguf|\d ?bits?|instruct|chat|it|hf|base model)\b",
        " ",
        text.lower().replace("_k_", "_k"),
    )
    plain = re.sub(r"[_:]", " ", plain)
    words = set(_tokens(plain)) | set(_tokens(text))
    stated = parameters or size_in_name(text)
    kinds = KINDS_OF_JOBS.get(kind, ())
    best, score = None, (0.0, 0.0, 0.0)
    for spelling, letters, key, _ in _spellings():
        if not spelling <= words:
            continue
        model = listed_models()[key]
        if kinds and model.kind not in kinds:
            continue
        if stated and model.parameters and kind not in ("classify", "detect", "pictures"):
            ratio = model.parameters / stated
            if not 0.75 < ratio < 1.34:
                continue
        # A bare size or a bare word such as "large" names nothing.
        if letters < 3 or all(re.fullmatch(r"[\d.]+[bm]?|small|base|large|tiny|medium|v\d", word) for word in spelling):
            continue
        rank = (float(letters), -float(kinds.index(model.kind) if kinds else 0), float(bool(model.flop_per_item)))
        if rank > score:
            best, score = model, rank
    if best is not None:
        best = _with_parameters(best, parameters)
        return replace(best, active=_active(text, best))
    if stated and kind == "pictures":
        return replace(generic_model(text, stated), kind="diffusion")
    if stated and (not kinds or kinds[0] in ("language", "encoder") or "language" in kinds):
        return generic_model(text, stated)
    raise UnknownNameError("model", text, nearest_models(text))


def _active(text: str, model: Model) -> float:
    match = _ACTIVE.search(text.lower())
    return float(match[1]) * 1e9 if match and model.active == model.parameters else model.active


def _with_parameters(model: Model, parameters: float | None) -> Model:
    if parameters and not model.parameters:
        return replace(model, parameters=parameters, active=parameters)
    return model


def generic_model(name: str, parameters: float) -> Model:
    """Return a language model with the usual shape for its size."""
    match = _ACTIVE.search(name.lower())
    active = float(match[1]) * 1e9 if match else parameters
    layers, hidden = usual_shape(active)
    # Since 2023 larger models share keys and values among four to eight heads.
    return Model(
        key="",
        name=name,
        kind="language",
        parameters=parameters,
        active=active,
        layers=layers,
        hidden=hidden,
        kv_width=hidden / 4,
        vocab=50000.0,
        listed=False,
    )


def unlisted_network(model: Model, pixels: float) -> Model:
    """Return a network that sees pictures, for a model that is in no table, of the same parameters.

    Usual networks have 400 operations for each parameter at 224 x 224 pixels, and fewer for smaller pictures.
    """
    flop = 400 * model.parameters * min(pixels / 224**2, 1.0) ** 0.5
    return replace(model, kind="vision", flop_per_item=flop, pixels=pixels)


def nearest_models(text: str, number: int = 3) -> list[str]:
    """List the known models whose names are most like a text."""
    names = {name.lower(): listed_models()[key].name for _, _, key, name in _spellings()}
    close = difflib.get_close_matches(text.lower(), names, n=number, cutoff=0.5)
    return list(dict.fromkeys(names[name] for name in close))
