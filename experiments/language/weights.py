"""Weights in GGUF's number formats. Random weights come from pools of random blocks, one per format."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from experiments.language import gguf_shape
from experiments.language.shapes import Format, Shape, Tensor
from experiments.workload import Dtype, Unsupported

# Standard deviation of random weights, equal to "initializer_range" in all public configurations.
DEVIATION = 0.02
# Blocks per pool (32 times as many for floats). A tensor takes blocks from the pool in order, and continues at the
# start after the end. Since this number is prime, equal rows of a tensor are at least this many rows apart.
POOL_BLOCKS = 262_139
# Replacement for each type with 256 weights per block if the row length is not a multiple of 256. The replacements have
# 32 weights per block, as in tensor_type_fallback in llama.cpp's src/llama-quant.cpp.
_FALLBACK = {Type.Q4_K: Type.Q5_0, Type.Q6_K: Type.Q8_0}
_FLOATS = {"F16": Type.F16, "BF16": Type.BF16}


def file_type(kind: Format) -> int:
    """Return GGUF's number for files in this format."""
    return int(gguf.LlamaFileType[f"ALL_{kind}" if kind == "F32" else f"MOSTLY_{kind}"])


def float_format(path: Path) -> Dtype:
    """Return the number format of a file with 16-bit floats. Raises Unsupported for files in other formats."""
    types = {tensor.tensor_type for tensor in gguf.GGUFReader(path).tensors} - {Type.F32}
    if types == {Type.F16}:
        return Dtype.FLOAT16
    if types == {Type.BF16}:
        return Dtype.BFLOAT16
    raise Unsupported("PyTorch needs floating-point weights: use a file in F16 or BF16")


def tensor_type(tensor: Tensor, kind: Format, shape: Shape) -> Type:
    """Return the number type that llama.cpp chooses for a tensor in a file with this format.

    Vectors are in float32. A file in Q4_K_M mixes types, as llama_tensor_get_type_impl in llama.cpp's
    src/llama-quant.cpp does: Q6_K for the output layer (the embedding table if tied), and in some layers for the value
    matrix and the second feed-forward matrix; Q4_K for all other matrices.
    """
    if shape.file:
        return gguf_shape.file_tensors(shape.file)[tensor.name].tensor_type
    if tensor.rows == 1:
        return Type.F32
    if kind in _FLOATS:
        return _FLOATS[kind]
    if kind == "Q8_0":
        return Type.Q8_0
    output = "token_embd.weight" if shape.tied else "output.weight"
    finer = tensor.name == output or (
        tensor.layer is not None
        and any(part in tensor.name for part in ("attn_v", "ffn_down"))
        and _has_more_bits(tensor.layer, shape.layers)
    )
    chosen = Type.Q6_K if finer else Type.Q4_K
    if tensor.columns % gguf.GGML_QUANT_SIZES[chosen][0]:
        return Type.Q8_0 if tensor.name == output else _FALLBACK[chosen]
    return chosen


def _has_more_bits(layer: int, layers: int) -> bool:
    """Return True for layers that have more bits in Q4_K_M, as llama.cpp's function use_more_bits does.

    These are the first and the last eighth of the layers, and every third layer between them.
    """
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def tensor_bytes(tensor: Tensor, kind: Format, shape: Shape) -> int:
    """Return a tensor's size in bytes in a file with this format."""
    block, size = gguf.GGML_QUANT_SIZES[tensor_type(tensor, kind, shape)]
    return tensor.size // block * size


def bytes_per_token(kind: Format, shape: Shape) -> int:
    """Count the weight bytes that a runtime reads to decode a token.

    These are all tensors, but only one row of the embedding table if the output layer does not use this table.
    """
    table = next(shape.tensors())
    unread = 0 if shape.tied else tensor_bytes(table, kind, shape) * (table.rows - 1) // table.rows
    return sum(tensor_bytes(tensor, kind, shape) for tensor in shape.tensors()) - unread


def tensor_values(tensor: Tensor, kind: Format, shape: Shape) -> NDArray[Any]:
    """Return a tensor's values as in a file: bytes (rows, bytes per row), or float32 (columns,) for a vector.

    Random weights have the mean 0 (norm weights have the mean 1) and the standard deviation DEVIATION. Equal arguments
    give equal weights. For a user file, return its tensor's first rows, as many as `tensor` has.
    """
    if shape.file:
        return gguf_shape.file_tensors(shape.file)[tensor.name].data[: tensor.shape[0]]
    if tensor.name == "rope_freqs.weight":
        return rope_factors(shape)
    draw = np.random.default_rng(list(tensor.name.encode()))
    if tensor.rows == 1:
        vector = draw.normal(1.0 if "norm" in tensor.name else 0.0, DEVIATION, tensor.columns)
        return vector.astype(np.float32)
    number_type = tensor_type(tensor, kind, shape)
    pool = _block_pool(number_type)
    start, left = int(draw.integers(len(pool))), tensor.size // gguf.GGML_QUANT_SIZES[number_type][0]
    parts = []
    while left:
        parts.append(pool[start : start + left])
        left, start = left - len(parts[-1]), 0
    return np.concatenate(parts).reshape(tensor.rows, -1)


@cache
def _block_pool(kind: Type) -> NDArray[np.uint8]:
    """Make a pool of random blocks, shape (blocks, bytes per block).

    The blocks contain normally distributed values, quantised by gguf. gguf cannot quantise to Q4_K and Q6_K. In these
    types, the quants (the integers that stand for weights) and the scales within a block are random bits, and the whole
    block's scale sets the standard deviation.
    """
    draw = np.random.default_rng(int(kind))
    if kind not in (Type.Q4_K, Type.Q6_K):
        # Draw 32 values per block, as the quantised types have. Floats have one value per block, so their pool gets 32
        # times as many blocks.
        values = draw.normal(0.0, DEVIATION, (POOL_BLOCKS, 32)).astype(np.float32)
        quantised = np.ascontiguousarray(gguf.quantize(values, kind))
        return quantised.view(np.uint8).reshape(-1, gguf.GGML_QUANT_SIZES[kind][1])
    blocks = draw.integers(0, 256, (POOL_BLOCKS, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    if kind is Type.Q4_K:
        # In Q4_K, weight = d * scale * quant - dmin * minimum. Quants are 0 to 15 (mean 7.5, standard deviation 4.61),
        # and scales are 0 to 63 (root mean square 36.4). Here each minimum equals its scale, and dmin is 7 to 8 times d
        # at random: the mean weight is 0, but exact zeros are rare, as in real files.
        scale = DEVIATION / (36.37 * 4.61)
        both = np.stack([np.full(POOL_BLOCKS, scale), scale * draw.uniform(7, 8, POOL_BLOCKS)], axis=1)
        blocks[:, 0:4] = both.astype("<f2").view(np.uint8)
        blocks[:, 8:12] = blocks[:, 4:8]
        blocks[:, 12:16] = (blocks[:, 12:16] & 15) * 17
    else:
        # In Q6_K, weight = d * scale * (quant - 32). Quants are 0 to 63 (standard deviation 18.5), and scales are -128
        # to 127 (standard deviation 73.9).
        blocks[:, -2:] = np.array([DEVIATION / (73.9 * 18.48)], dtype="<f2").view(np.uint8)
    return blocks


def free_pools() -> None:
    """Free all pools, which take up to 150 MB."""
    _block_pool.cache_clear()


def rope_factors(shape: Shape) -> NDArray[np.float32]:
    """Return the numbers by which Llama 3 divides the rotary frequencies, shape (head width / 2,)."""
    scaling = shape.scaling
    assert scaling is not None
    frequencies = shape.rope_base ** -(np.arange(0, shape.head_width, 2) / shape.head_width)
    lengths = 2 * np.pi / frequencies
    original, low, high = scaling.original_max_position_embeddings, scaling.low_freq_factor, scaling.high_freq_factor
    share = np.clip((original / lengths - low) / (high - low), 0.0, 1.0)
    factors: NDArray[np.float32] = (1 / ((1 - share) / scaling.factor + share)).astype(np.float32)
    return factors
