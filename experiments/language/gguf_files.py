"""GGUF files of random weights in exact shapes: written when a process first needs them, and removed at its end.

The environment variable STUDY_MODELS names a folder in which files are kept instead, and found again.
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
# Raised when files of earlier versions differ from what is written now: kept ones are not taken for new ones.
_VERSION = 1
_PREFIX = "study-model-"
# Room that a file leaves on its disk, in bytes.
_SPARE = 500e6
# Locks that this process holds to its end, each on a file of its own.
_locks: list[int | None] = []


def model_file(name: str, shape: Shape, kind: Format) -> Path:
    """The GGUF file of a shape in a format; written by the first call of a process. name: what the file is called by.

    A whole file of the user's own is taken as it is. Raises HarnessError where the disk has no room for it, or a kept
    file is damaged.
    """
    if shape.file and shape == shapes().get(name):
        return shape.file
    # The part of a file that is checked is kept for no other run: the file may have another content by then.
    if not (kept := os.environ.get(FOLDER)) or shape.file:
        return _temporary_file(name, shape, kind)
    path = Path(kept) / f"{_PREFIX}{name}-{kind}-v{_VERSION}.gguf"
    if path.exists():
        require_whole(path, shape, kind)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    _require_room(path.parent, file_bytes(shape, kind))
    with atomic_path(path) as temporary:
        write(temporary, shape, kind)
    return path


@cache
def _temporary_file(name: str, shape: Shape, kind: Format) -> Path:
    folder = Path(tempfile.gettempdir())
    remove_leftovers(folder.glob(f"{_PREFIX}*.gguf"))
    _require_room(folder, file_bytes(shape, kind))
    handle, made = tempfile.mkstemp(prefix=f"{_PREFIX}{name}-{kind}-", suffix=".gguf")
    os.close(handle)
    path = Path(made)
    atexit.register(path.unlink, missing_ok=True)
    _locks.append(acquire_lock(path))
    try:
        write(path, shape, kind)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def require_whole(path: Path, shape: Shape, kind: Format) -> None:
    """Raise HarnessError where a file is not what is written for this shape and format."""
    try:
        held = {tensor.name: (int(tensor.n_elements), tensor.tensor_type) for tensor in gguf_shape.reader(path).tensors}
    except StudyError as fault:
        raise HarnessError(f"{fault}: delete it, and it is written again") from None
    if held != {tensor.name: (tensor.size, weights.type_of(tensor, kind, shape)) for tensor in shape.tensors()}:
        raise HarnessError(f"{path} holds another model than its name says: delete it, and it is written again")


def _require_room(folder: Path, wanted: float) -> None:
    """Raise HarnessError where the folder's disk has no room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if wanted + _SPARE > free:
        raise HarnessError(
            f"{folder} has {free / 1e9:.1f} GB free, and a model's file needs {(wanted + _SPARE) / 1e9:.1f} GB: "
            f"make room, or name another folder in {FOLDER} (files are kept there) or TMPDIR"
        )


def file_bytes(shape: Shape, kind: Format) -> int:
    """Bytes of the tensors of a file; its vocabulary takes some megabytes more."""
    return sum(weights.tensor_bytes(tensor, kind, shape) for tensor in shape.tensors())


def write(path: Path, shape: Shape, kind: Format) -> None:
    """Write a whole GGUF file. Raises HarnessError if the disk is full before its end."""
    try:
        _write(path, shape, kind)
    except OSError as refusal:
        raise HarnessError(
            f"a model's file cannot be written to {path.parent}: {refusal.strerror or refusal}"
        ) from None


def _write(path: Path, shape: Shape, kind: Format) -> None:
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
    for one in tensors:
        found = weights.type_of(one, kind, shape)
        writer.add_tensor_info(
            one.name, one.shape, np.dtype(np.float32), weights.tensor_bytes(one, kind, shape), raw_dtype=found
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for one in tensors:
        writer.write_tensor_data(weights.values(one, kind, shape))
    writer.flush()
    # Else the system would write the file out while points are measured.
    for file in writer.fout or ():
        os.fsync(file.fileno())
    writer.close()
    weights.forget_pools()


def _add_vocabulary(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """A byte-level vocabulary of the right size: a token for each byte, one merge, an end, and tokens of no text."""
    letters = [_letter(byte) for byte in range(256)]
    merged = letters[ord("t")] + letters[ord("h")]
    known = [*letters, merged, "<end>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2" if shape.architecture == "qwen2" else "llama-bpe")
    writer.add_token_list([*known, *(f"<unused {at}>" for at in range(len(known), shape.vocabulary))])
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    writer.add_token_types([normal] * (len(known) - 1) + [control] * (shape.vocabulary - len(known) + 1))
    writer.add_token_merges([f"{letters[ord('t')]} {letters[ord('h')]}"])
    end = len(known) - 1
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)


def _letter(byte: int) -> str:
    """The printable letter that byte-level vocabularies since GPT-2 write for a byte."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [one for one in range(256) if one not in plain]
    return chr(byte if byte in plain else 256 + hidden.index(byte))
