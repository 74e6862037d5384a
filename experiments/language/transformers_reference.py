"""Transformers networks with weights from GGUF files, to give reference logits for other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from experiments.language.shapes import Shape

_PARTS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def model_config(shape: Shape) -> Any:
    """Convert a shape to a Transformers configuration."""
    from transformers import LlamaConfig, Qwen2Config

    return (Qwen2Config if shape.architecture == "qwen2" else LlamaConfig)(**shape.config)


def load_network(path: Path, shape: Shape, dtype: torch.dtype, device: str = "cpu") -> nn.Module:
    """Load the network from a GGUF file onto a device; gguf dequantises the weights, which are rounded to `dtype`."""
    from transformers import AutoModelForCausalLM

    config = model_config(shape)
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").eval()
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
    network.load_state_dict(weights, strict=True, assign=True)
    network.tie_weights()
    # Compute the rotary frequencies from the configuration, because the file does not contain them.
    with torch.device(device):
        network.model.rotary_emb = type(network.model.rotary_emb)(config)
    frozen: nn.Module = network.requires_grad_(False)
    return frozen


def _transformers_name(name: str) -> str:
    """Translate a tensor's GGUF name to its name in Transformers."""
    path, _, kind = name.rpartition(".")
    if not path.startswith("blk."):
        return f"{_OUTSIDE[path]}.{kind}"
    _, layer, part = path.split(".")
    return f"model.layers.{layer}.{_PARTS[part]}.{kind}"


def _reorder_heads(name: str, values: NDArray[Any], shape: Shape) -> NDArray[Any]:
    """Return a tensor's values with the rows in the order that Transformers expects.

    Rotary position encoding rotates pairs of rows of queries and keys. In each head, GGUF files for `llama` store
    paired rows side by side, but Transformers stores the first rows of all pairs before the second rows (see the
    function permute in llama.cpp's conversion script).
    """
    if shape.architecture != "llama" or not any(part in name for part in ("attn_q.", "attn_k.")):
        return np.require(values, requirements=["C", "W"])
    heads = values.shape[0] // shape.head_width
    pairs = values.reshape(heads, shape.head_width // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


def next_logits(network: nn.Module, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute logits (vocabulary,) for the token after `ids` (tokens,)."""
    with torch.inference_mode():
        out = network(torch.from_numpy(ids)[None], use_cache=False, logits_to_keep=1).logits[0, -1]
    values: NDArray[np.float64] = out.cpu().double().numpy()
    return values
