"""GGUF files with random weights in the exact shapes of public models.

Files are written when they are first used, and removed when the process ends. If the environment variable STUDY_MODELS
names a folder, files are kept there and used again.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import gguf
import numpy as np

from contract.errors import StudyError
from contract.files import acquire_lock, atomic_path, remove_leftovers
from experiments.language import gguf_shape, weights
from experiments.language.shapes import Format, Shape, shapes
from experiments.workload import HarnessError

FOLDER = "STUDY_MODELS"
# Version number in the names of kept files. Increase it whenever the file content changes, to keep old files from being
# used.
_VERSION = 1
_PREFIX = "study-model-"
# Bytes that must stay free on the disk after a file is written.
_SPARE = 500e6
# Locks on temporary files, held until this process ends.
_locks: list[int | None] = []


def model_file(name: str, shape: Shape, kind: Format) -> Path:
    """Return the path to the GGUF file for a shape and format; write the file if it does not exist.

    name: the model's name, which becomes part of the file name. If the shape describes a user file, the path to that
    file is returned. Raises HarnessError if the disk has too little space, or if a kept file is damaged.
    """
    if shape.file and shape == shapes().get(name):
        return shape.file
    # Write the reduced copy of a user file (see `token_check`) only to a temporary file: a kept copy would become wrong
    # when the user file changes.
    if not (folder := os.environ.get(FOLDER)) or shape.file:
        return _temporary_file(name, shape, kind)
    path = Path(folder) / f"{_PREFIX}{name}-{kind}-v{_VERSION}.gguf"
    if path.exists():
        require_matching_file(path, shape, kind)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    _require_room(path.parent, file_bytes(shape, kind))
    with atomic_path(path) as temporary:
        write_file(temporary, shape, kind)
    return path


@cache
def _temporary_file(name: str, shape: Shape, kind: Format) -> Path:
    folder = Path(tempfile.gettempdir())
    remove_leftovers(folder.glob(f"{_PREFIX}*.gguf"))
    _require_room(folder, file_bytes(shape, kind))
    handle, temporary = tempfile.mkstemp(prefix=f"{_PREFIX}{name}-{kind}-", suffix=".gguf")
    os.close(handle)
    path = Path(temporary)
    atexit.register(path.unlink, missing_ok=True)
    _locks.append(acquire_lock(path))
    try:
        write_file(path, shape, kind)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def require_matching_file(path: Path, shape: Shape, kind: Format) -> None:
    """Raise HarnessError if a file's tensors differ from this shape and format."""
    try:
        stored = gguf_shape.open_reader(path).tensors
    except StudyError as fault:
        raise HarnessError(f"{fault}: delete it to have it written again") from None
    actual = {tensor.name: (int(tensor.n_elements), tensor.tensor_type) for tensor in stored}
    if actual != {tensor.name: (tensor.size, weights.tensor_type(tensor, kind, shape)) for tensor in shape.tensors()}:
        raise HarnessError(f"{path} contains a different model than its name says: delete it to have it written again")


def _require_room(folder: Path, size: float) -> None:
    """Raise HarnessError if the folder's disk has no room for `size` bytes."""
    free = shutil.disk_usage(folder).free
    if size + _SPARE > free:
        raise HarnessError(
            f"{folder} has {free / 1e9:.1f} GB free, and a model file needs {(size + _SPARE) / 1e9:.1f} GB: "
            f"free some space, or set another folder in {FOLDER} (files are kept there) or TMPDIR"
        )


def file_bytes(shape: Shape, kind: Format) -> int:
    """Sum the bytes of a file's tensors, without the vocabulary, which takes a few more megabytes."""
    return sum(weights.tensor_bytes(tensor, kind, shape) for tensor in shape.tensors())


def write_file(path: Path, shape: Shape, kind: Format) -> None:
    """Write a GGUF file. Raises HarnessError if writing fails, for example on a full disk."""
    try:
        _write_tensors(path, shape, kind)
    except OSError as refusal:
        raise HarnessError(f"a model file cannot be written to {path.parent}: {refusal.strerror or refusal}") from None


def _write_tensors(path: Path, shape: Shape, kind: Format) -> None:
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_name("random weights")
    writer.add_file_type(weights.file_type(kind))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_vocab_size(shape.vocabulary)
    _add_vocabulary(writer, shape)
    tensors = list(shape.tensors())
    for tensor in tensors:
        number_type = weights.tensor_type(tensor, kind, shape)
        size = weights.tensor_bytes(tensor, kind, shape)
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), size, raw_dtype=number_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        writer.write_tensor_data(weights.tensor_values(tensor, kind, shape))
    writer.flush()
    # Write the file to the disk now, to keep the system from doing this during measurements.
    for file in writer.fout or ():
        os.fsync(file.fileno())
    writer.close()
    weights.free_pools()


def _add_vocabulary(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """Add a byte-level vocabulary of the shape's size.

    It has a token for each byte, a token "th" with the merge that makes it, an end token, and unused tokens.
    """
    letters = [_byte_letter(byte) for byte in range(256)]
    merged = letters[ord("t")] + letters[ord("h")]
    known = [*letters, merged, "<end>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2" if shape.architecture == "qwen2" else "llama-bpe")
    writer.add_token_list([*known, *(f"<unused {number}>" for number in range(len(known), shape.vocabulary))])
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    writer.add_token_types([normal] * (len(known) - 1) + [control] * (shape.vocabulary - len(known) + 1))
    writer.add_token_merges([f"{letters[ord('t')]} {letters[ord('h')]}"])
    end = len(known) - 1
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)


def _byte_letter(byte: int) -> str:
    """Return the printable letter that stands for a byte in byte-level vocabularies such as GPT-2's."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [value for value in range(256) if value not in printable]
    return chr(byte if byte in printable else 256 + hidden.index(byte))
