"""Reader for the tensors in GGUF files, and for the model shapes in user files."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from contract.errors import StudyError
from experiments.language.shapes import Scaling, Shape

# Exceptions that gguf's reader raises for truncated files, and for files that are not in the GGUF format.
_FAULTS = (ValueError, LookupError, OverflowError, MemoryError, OSError, AssertionError)


def open_reader(path: Path) -> Any:
    """Open a file with gguf's reader. Raises StudyError if the file is missing or damaged."""
    try:
        return gguf.GGUFReader(path)
    except FileNotFoundError:
        raise StudyError(f"{path}: no such file") from None
    except _FAULTS as fault:
        raise StudyError(f"{path} is not a complete GGUF file ({fault})") from None


@cache
def file_tensors(path: Path) -> dict[str, Any]:
    """Return a file's tensors by name, with memory-mapped data. Raises StudyError if the file is missing or damaged."""
    return {tensor.name: tensor for tensor in open_reader(path).tensors}


def describe_file(path: Path) -> dict[str, Any]:
    """Return the shape and format of a file's model, in a dictionary to write as JSON.

    Raises StudyError if the file is missing or damaged, or if this study does not support the model.
    """
    reader = open_reader(path)
    try:
        fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.")}
    except _FAULTS as fault:
        raise StudyError(f"{path} is not a complete GGUF file ({fault})") from None
    stored = {tensor.name: tensor for tensor in reader.tensors}
    architecture = fields.get("general.architecture")
    if architecture not in ("llama", "qwen2"):
        raise StudyError(f"{path}: unsupported architecture {architecture}: use llama or qwen2")
    if fields.get("split.count", 1) not in (0, 1):
        raise StudyError(f"{path}: one part of {fields['split.count']}: join the parts with llama-gguf-split --merge")
    metadata = {name.removeprefix(f"{architecture}."): value for name, value in fields.items()}
    try:
        width, heads = int(metadata["embedding_length"]), int(metadata["attention.head_count"])
        shape = Shape(
            source=str(fields.get("general.name", "")),
            architecture=architecture,
            layers=int(metadata["block_count"]),
            width=width,
            feed_forward=int(metadata["feed_forward_length"]),
            heads=heads,
            kv_heads=int(metadata.get("attention.head_count_kv", heads)),
            head_width=int(metadata.get("attention.key_length", width // heads)),
            vocabulary=int(stored["token_embd.weight"].shape[1]),
            context=int(metadata["context_length"]),
            rope_base=float(metadata.get("rope.freq_base", 10000.0)),
            epsilon=float(metadata["attention.layer_norm_rms_epsilon"]),
            tied="output.weight" not in stored,
            scaling=_rope_scaling(stored),
        )
        _, _, kind = gguf.LlamaFileType(int(fields["general.file_type"])).name.partition("_")
        if not kind or shape.layers > len(stored):
            raise ValueError("a guessed file_type, or more layers than tensors")
    except (LookupError, TypeError, ValueError, ArithmeticError) as fault:
        raise StudyError(f"{path}: wrong or missing fields for a {architecture} model ({fault!r})") from None
    _require_same_tensors(path, shape, stored, metadata)
    fields = {key: value for key, value in asdict(shape).items() if key not in ("source", "file")}
    return {"shape": fields, "format": kind}


def _rope_scaling(stored: dict[str, Any]) -> Scaling | None:
    """Return Llama 3's rotary frequency scaling, or None if the file has no table of frequency divisors.

    The scaling's factor is the largest divisor in the table.
    """
    table = stored.get("rope_freqs.weight")
    return Scaling(float(np.max(table.data))) if table is not None else None


def _require_same_tensors(path: Path, shape: Shape, stored: dict[str, Any], metadata: dict[str, Any]) -> None:
    """Raise StudyError if a file's tensors or rotary frequencies differ from those that its shape implies."""
    from experiments.language.weights import rope_factors

    expected = {tensor.name: tensor.shape for tensor in shape.tensors()}
    actual = {name: tuple(int(size) for size in reversed(tensor.shape)) for name, tensor in stored.items()}
    if different := sorted(name for name in expected.keys() | actual.keys() if expected.get(name) != actual.get(name)):
        raise StudyError(f"{path}: not a plain {shape.architecture} model: its tensor {different[0]} differs")
    if metadata.get("rope.scaling.type", "none") != "none" or (
        shape.scaling and not np.allclose(stored["rope_freqs.weight"].data, rope_factors(shape), rtol=1e-3)
    ):
        raise StudyError(f"{path}: unsupported rotary frequency scaling")
