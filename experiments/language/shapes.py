"""Shapes of language models: their public configurations, tensors, parameters and operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from experiments import user_models

# A parameter of this type takes the names of language models.
Name = Annotated[str, "a language model's name"]
# Formats of files: of 4 bits, 8 bits and 16 bits, as llama.cpp names them. A file of the user's own has any other.
Format = Literal["Q4_K_M", "Q8_0", "F16", "BF16"]


@dataclass(frozen=True)
class Scaling:
    """Llama 3's scaling of rotary frequencies, by the names of Transformers' `rope_parameters`."""

    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192


@dataclass(frozen=True)
class Shape:
    """A decoder of the Llama family.

    source: address of the public configuration. architecture: its name in GGUF and in Transformers (`llama`,
    or `qwen2`: the same with biases of queries, keys and values). kv_heads: heads of keys and values.
    tied: the output layer uses the embedding table. file: of the user's own, with the weights; None: they are random.
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
        """All tensors, by their names in GGUF, in the order of a file."""
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
        """Weights and biases; the table of rotary frequencies is none."""
        return sum(tensor.size for tensor in self.tensors() if tensor.name != "rope_freqs.weight")

    @property
    def config(self) -> dict[str, Any]:
        """Fields of its configuration in Transformers."""
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
        """Operations of the products for `tokens` tokens after `before` others, 2 for each multiply-add.

        Attention as a causal kernel computes it; the output layer for the last token alone.
        """
        matrices = sum(tensor.size for tensor in self.tensors() if tensor.layer is not None and tensor.rows > 1)
        pairs = tokens * before + tokens * (tokens + 1) / 2
        attention = 2 * self.layers * self.heads * self.head_width * pairs
        return 2.0 * (matrices * tokens + attention + self.vocabulary * self.width)

    def cache_bytes(self, tokens: int) -> int:
        """Bytes of the keys and values of so many tokens in float16, llama.cpp's default."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_width * tokens


@dataclass(frozen=True)
class Tensor:
    """A tensor: its name in GGUF, its shape (rows, columns) or (columns,), and its layer if it belongs to one."""

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


# Vocabulary, context, rotary base and epsilon of Llama 3.
_LLAMA_3 = (128256, 131072, 500000.0, 1e-5)
SHAPES: dict[str, Shape] = {
    # For tests alone: no model that anybody uses.
    "llama-tiny": Shape("", "llama", 8, 256, 512, 8, 2, 32, 512, 512, 10000.0, 1e-5, True, Scaling(8.0)),
    # Qwen2.5-0.5B, for Llama itself has no model of this size.
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
    """Shapes of the study, and of the user's own files that this process was told of."""
    return _shapes(user_models.models_json())


@cache
def _shapes(_: str) -> dict[str, Shape]:
    found = dict(SHAPES)
    for name, about in user_models.models("shape").items():
        scaling = about["shape"].get("scaling")
        more = {
            "source": name,
            "file": user_models.model_file(name),
            "scaling": Scaling(**scaling) if scaling else None,
        }
        found[name] = Shape(**about["shape"] | more)
    return found
