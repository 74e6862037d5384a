"""A GGUF file's network in Transformers, from the file's own weights, and logits to hold other runtimes against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from experiments.language.shapes import Shape

# Parts of a layer: their names in GGUF and in Transformers.
_PARTS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def model_config(shape: Shape) -> Any:
    """The shape as a configuration of Transformers."""
    from transformers import LlamaConfig, Qwen2Config

    return (Qwen2Config if shape.architecture == "qwen2" else LlamaConfig)(**shape.config)


def load_network(path: Path, shape: Shape, dtype: torch.dtype, device: str = "cpu") -> nn.Module:
    """The file's network on a device, its weights dequantised by gguf to this format."""
    from transformers import AutoModelForCausalLM

    config = model_config(shape)
    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").eval()
    weights = {}
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        weights[_transformers_name(tensor.name)] = torch.from_numpy(_reorder_heads(tensor.name, values, shape)).to(
            device, dtype
        )
    if shape.tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    made.load_state_dict(weights, strict=True, assign=True)
    made.tie_weights()
    # Frequencies of the rotary embedding are no weights, so that no file has them.
    with torch.device(device):
        made.model.rotary_emb = type(made.model.rotary_emb)(config)
    network: nn.Module = made.requires_grad_(False)
    return network


def _transformers_name(name: str) -> str:
    """A tensor's name in Transformers."""
    whole, _, kind = name.rpartition(".")
    if not whole.startswith("blk."):
        return f"{_OUTSIDE[whole]}.{kind}"
    _, layer, part = whole.split(".")
    return f"model.layers.{layer}.{_PARTS[part]}.{kind}"


def _reorder_heads(name: str, values: NDArray[Any], shape: Shape) -> NDArray[Any]:
    """Values in the order that Transformers expects.

    Files of the architecture `llama` have each head's rows of queries and keys in pairs, Transformers in halves:
    permute in llama.cpp's conversion.
    """
    if shape.architecture != "llama" or not any(part in name for part in ("attn_q.", "attn_k.")):
        return np.require(values, requirements=["C", "W"])
    heads = values.shape[0] // shape.head_width
    pairs = values.reshape(heads, shape.head_width // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


def next_logits(made: nn.Module, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Logits of the token after `ids` (tokens,): (vocabulary,)."""
    with torch.inference_mode():
        out = made(torch.from_numpy(ids)[None], use_cache=False, logits_to_keep=1).logits[0, -1]
    found: NDArray[np.float64] = out.cpu().double().numpy()
    return found
