"""GGUF files as they lie on a disk, and the shape of a file of the user's own."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from contract.errors import StudyError
from experiments.language.shapes import Scaling, Shape

# Faults of gguf's reader on files that are cut or are no GGUF.
_FAULTS = (ValueError, LookupError, OverflowError, MemoryError, OSError, AssertionError)


def open_reader(path: Path) -> Any:
    """gguf's reader of a file. Raises StudyError where the file is not there or not whole."""
    try:
        return gguf.GGUFReader(path)
    except FileNotFoundError:
        raise StudyError(f"{path}: no such file") from None
    except _FAULTS as fault:
        raise StudyError(f"{path} is no whole GGUF file ({fault})") from None


@cache
def file_tensors(path: Path) -> dict[str, Any]:
    """The tensors of a file by name, their data on the disk. Raises StudyError."""
    return {tensor.name: tensor for tensor in open_reader(path).tensors}


def describe_file(path: Path) -> dict[str, Any]:
    """Shape and format of a file, in JSON. Raises StudyError for a file that the study cannot check."""
    read = open_reader(path)
    try:
        fields = {name: one.contents() for name, one in read.fields.items() if not name.startswith("tokenizer.")}
    except _FAULTS as fault:
        raise StudyError(f"{path} is no whole GGUF file ({fault})") from None
    held = {tensor.name: tensor for tensor in read.tensors}
    architecture = fields.get("general.architecture")
    if architecture not in ("llama", "qwen2"):
        raise StudyError(f"{path}: a model of the architecture {architecture}: the study checks llama and qwen2 alone")
    if fields.get("split.count", 1) not in (0, 1):
        raise StudyError(f"{path}: one part of {fields['split.count']}: join them by llama-gguf-split --merge")
    about = {name.removeprefix(f"{architecture}."): value for name, value in fields.items()}
    try:
        width, heads = int(about["embedding_length"]), int(about["attention.head_count"])
        shape = Shape(
            source=str(fields.get("general.name", "")),
            architecture=architecture,
            layers=int(about["block_count"]),
            width=width,
            feed_forward=int(about["feed_forward_length"]),
            heads=heads,
            kv_heads=int(about.get("attention.head_count_kv", heads)),
            head_width=int(about.get("attention.key_length", width // heads)),
            vocabulary=int(held["token_embd.weight"].shape[1]),
            context=int(about["context_length"]),
            rope_base=float(about.get("rope.freq_base", 10000.0)),
            epsilon=float(about["attention.layer_norm_rms_epsilon"]),
            tied="output.weight" not in held,
            scaling=_rope_scaling(held),
        )
        _, _, kind = gguf.LlamaFileType(int(fields["general.file_type"])).name.partition("_")
        if not kind or shape.layers > len(held):
            raise ValueError("a guessed file_type, or more layers than tensors")
    except (LookupError, TypeError, ValueError, ArithmeticError) as fault:
        raise StudyError(f"{path}: its fields are not those of a {architecture} model ({fault!r})") from None
    _require_same_tensors(path, shape, held, about)
    known = {key: value for key, value in asdict(shape).items() if key not in ("source", "file")}
    return {"shape": known, "format": kind}


def _rope_scaling(held: dict[str, Any]) -> Scaling | None:
    """Llama 3's scaling whose largest divisor is that of the file's table; None where it has none."""
    table = held.get("rope_freqs.weight")
    return Scaling(float(np.max(table.data))) if table is not None else None


def _require_same_tensors(path: Path, shape: Shape, held: dict[str, Any], about: dict[str, Any]) -> None:
    """Raise StudyError where a file has other tensors or rotary frequencies than a model of its shape."""
    from experiments.language.weights import rope_factors

    wanted = {tensor.name: tensor.shape for tensor in shape.tensors()}
    found = {name: tuple(int(size) for size in reversed(one.shape)) for name, one in held.items()}
    if odd := sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)):
        raise StudyError(f"{path}: not a plain {shape.architecture} model: its tensor {odd[0]} is another")
    if about.get("rope.scaling.type", "none") != "none" or (
        shape.scaling and not np.allclose(held["rope_freqs.weight"].data, rope_factors(shape), rtol=1e-3)
    ):
        raise StudyError(f"{path}: its rotary frequencies are scaled as the study cannot check")
