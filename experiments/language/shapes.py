"""Language model shapes from public configurations, with their tensors, parameter counts and FLOP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from experiments import user_models

Name = Annotated[str, "a language model's name"]
# Formats of the files that this study writes, with 4, 8 or 16 bits per weight, named as in llama.cpp. User files may
# have other formats.
Format = Literal["Q4_K_M", "Q8_0", "F16", "BF16"]


@dataclass(frozen=True)
class Scaling:
    """Llama 3's rotary frequency scaling, with field names from Transformers' `rope_parameters`."""

    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192


@dataclass(frozen=True)
class Shape:
    """Shape of a decoder-only model with Llama's architecture.

    source: address of the public configuration, or the user's name for the model.
    architecture: name in GGUF and Transformers; `qwen2` is `llama` with biases for queries, keys and values.
    kv_heads: number of heads for keys and values. tied: True if the output layer uses the embedding table.
    scaling: rotary frequency scaling; None without scaling.
    file: user file with the weights; None for random weights.
    """

    source: str
    architecture: Literal["llama", "qwen2"]
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    context: int
    rope_base: float
    epsilon: float
    tied: bool
    scaling: Scaling | None = None
    file: Path | None = None

    def tensors(self) -> Iterator[Tensor]:
        """Yield all tensors, with their names in GGUF, in the order in which a file contains them."""
        queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
        yield Tensor("token_embd.weight", (self.vocabulary, self.width))
        if self.scaling:
            yield Tensor("rope_freqs.weight", (self.head_width // 2,))
        for layer in range(self.layers):
            parts = {
                "attn_norm": (self.width,),
                "attn_q": (queries, self.width),
                "attn_k": (keys, self.width),
                "attn_v": (keys, self.width),
                "attn_output": (self.width, queries),
                "ffn_norm": (self.width,),
                "ffn_gate": (self.feed_forward, self.width),
                "ffn_up": (self.feed_forward, self.width),
                "ffn_down": (self.width, self.feed_forward),
            }
            for part, shape in parts.items():
                yield Tensor(f"blk.{layer}.{part}.weight", shape, layer)
                if self.architecture == "qwen2" and part in ("attn_q", "attn_k", "attn_v"):
                    yield Tensor(f"blk.{layer}.{part}.bias", shape[:1], layer)
        yield Tensor("output_norm.weight", (self.width,))
        if not self.tied:
            yield Tensor("output.weight", (self.vocabulary, self.width))

    @property
    def parameters(self) -> int:
        """Number of weights and biases, without the rotary frequency table."""
        return sum(tensor.size for tensor in self.tensors() if tensor.name != "rope_freqs.weight")

    @property
    def config(self) -> dict[str, Any]:
        """Fields to set in a Transformers configuration."""
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": self.rope_base}
        if self.scaling:
            rope |= {"rope_type": "llama3", **asdict(self.scaling)}
        return {
            "vocab_size": self.vocabulary, "hidden_size": self.width, "intermediate_size": self.feed_forward,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_width, "rms_norm_eps": self.epsilon, "max_position_embeddings": self.context,
            "tie_word_embeddings": self.tied, "rope_parameters": rope, "bos_token_id": None, "eos_token_id": None,
        }  # fmt: skip

    def flop(self, tokens: int, before: int = 0) -> float:
        """Count the FLOP of the matrix products to process `tokens` tokens after `before` earlier tokens.

        A multiply-add counts as 2 FLOP. Attention is causal, and the output layer is computed for the last token only.
        """
        matrices = sum(tensor.size for tensor in self.tensors() if tensor.layer is not None and tensor.rows > 1)
        pairs = tokens * before + tokens * (tokens + 1) / 2
        attention = 2 * self.layers * self.heads * self.head_width * pairs
        return 2.0 * (matrices * tokens + attention + self.vocabulary * self.width)

    def cache_bytes(self, tokens: int) -> int:
        """Return the byte size of a KV cache for `tokens` tokens in float16, llama.cpp's default format."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_width * tokens


@dataclass(frozen=True)
class Tensor:
    """Name and shape of a tensor in a GGUF file.

    shape: (rows, columns), or (columns,) for a vector. layer: the tensor's layer number; None outside the layers.
    """

    name: str
    shape: tuple[int, ...]
    layer: int | None = None

    @property
    def columns(self) -> int:
        return self.shape[-1]

    @property
    def rows(self) -> int:
        return self.size // self.columns

    @property
    def size(self) -> int:
        return self.shape[0] * (self.shape[1] if len(self.shape) > 1 else 1)


# Values of `vocabulary`, `context`, `rope_base` and `epsilon` in all Llama 3 models.
_LLAMA_3 = (128256, 131072, 500000.0, 1e-5)
SHAPES: dict[str, Shape] = {
    # This shape is for tests only.
    "llama-tiny": Shape("", "llama", 8, 256, 512, 8, 2, 32, 512, 512, 10000.0, 1e-5, True, Scaling(8.0)),
    # This is Qwen2.5-0.5B's shape, because Llama has no model of this size.
    "llama-0.5b": Shape(
        "https://huggingface.co/Qwen/Qwen2.5-0.5B/blob/main/config.json",
        "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1000000.0, 1e-6, True,
    ),
    "llama-1b": Shape(
        "https://huggingface.co/meta-llama/Llama-3.2-1B/blob/main/config.json",
        "llama", 16, 2048, 8192, 32, 8, 64, *_LLAMA_3, True, Scaling(32.0),
    ),
    "llama-3b": Shape(
        "https://huggingface.co/meta-llama/Llama-3.2-3B/blob/main/config.json",
        "llama", 28, 3072, 8192, 24, 8, 128, *_LLAMA_3, True, Scaling(32.0),
    ),
    "llama-8b": Shape(
        "https://huggingface.co/meta-llama/Llama-3.1-8B/blob/main/config.json",
        "llama", 32, 4096, 14336, 32, 8, 128, *_LLAMA_3, False, Scaling(8.0),
    ),
}  # fmt: skip


def shapes() -> dict[str, Shape]:
    """Return the built-in shapes and those from user files, by name."""
    return _shapes(user_models.models_json())


@cache
def _shapes(_: str) -> dict[str, Shape]:
    known = dict(SHAPES)
    for name, about in user_models.models("shape").items():
        scaling = about["shape"].get("scaling")
        more = {
            "source": name,
            "file": user_models.model_file(name),
            "scaling": Scaling(**scaling) if scaling else None,
        }
        known[name] = Shape(**about["shape"] | more)
    return known
