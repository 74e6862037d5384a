"""Number formats and programs by the names that people write."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Bits for one weight in files for llama.cpp, with scales, as its quantisation tool prints them.
_GGUF_BITS = {
    "q2_k": 3.0, "q3_k_s": 3.6, "q3_k_m": 3.9, "q3_k_l": 4.2, "q3": 3.9, "q4_0": 4.6, "q4_1": 5.1, "q4_k_s": 4.6,
    "q4_k_m": 4.85, "q4_k_xl": 4.9, "q4": 4.8, "q5_0": 5.5, "q5_1": 6.0, "q5_k_s": 5.5,
    "q5_k_m": 5.7, "q5": 5.7, "q6_k": 6.6, "q6": 6.6,
    "q8_0": 8.5, "q8": 8.5, "iq1": 1.8, "iq2": 2.6, "iq3": 3.5, "iq4": 4.4, "q2": 3.0,
}  # fmt: skip


@dataclass(frozen=True)
class Format:
    """A number format. weight_bits: bits to store one weight. arithmetic: float32, float16, float8 or another."""

    name: str
    weight_bits: float
    arithmetic: str

    @property
    def is_quantised(self) -> bool:
        return self.weight_bits < 15 and self.arithmetic == "float16"


# Patterns for formats, with bits for a weight and the format to compute in; the first that matches counts.
_FORMATS = (
    (r"nf4|qlora|bnb.?4|4.?bit.*\(?qlora", 4.5, "float16"),
    (r"gptq.?(int)?8|w8a16", 8.3, "float16"),
    (r"awq|gptq|w4a16|exl2|exl3|marlin", 4.3, "float16"),
    (r"mxfp4|nvfp4|fp4", 4.3, "float16"),
    (r"w8a8|int8.*w8|smoothquant", 8.0, "int8"),
    (r"fp8|float8|e4m3", 8.0, "float8"),
    (r"\b3.?bit", 3.5, "float16"),
    (r"\b4.?bits?|int4|w4", 4.5, "float16"),
    (r"\b5.?bit", 5.5, "float16"),
    (r"\b6.?bit", 6.5, "float16"),
    (r"\b8.?bits?|int8|q8", 8.5, "int8"),
    (r"bf16|bfloat16", 16.0, "bfloat16"),
    (r"fp16|f16|float16|half|16.?bit|amp|mixed|o1|o2", 16.0, "float16"),
    (r"tf32", 32.0, "tf32"),
    (r"fp32|f32|float32|32.?bit|full|single", 32.0, "float32"),
)


def find_format(text: str | None) -> Format | None:
    """Recognise a format in a text such as 'Q4_K_M', 'bf16' or '4bit (QLoRA)'; None if there is none."""
    plain = (text or "").lower().replace("-", "_").replace(" ", "_")
    for name, bits in sorted(_GGUF_BITS.items(), key=lambda item: -len(item[0])):
        if re.search(rf"(?<![a-z0-9]){name}(?![0-9])", plain):
            return Format(name.upper(), bits, "float16")
    plain = (text or "").lower()
    if plain == "quantized":
        return Format("4 bits", 4.7, "float16")
    for pattern, bits, arithmetic in _FORMATS:
        if re.search(pattern, plain):
            return Format(text or "", bits, arithmetic)
    return None


# Groups that share their speed, by pattern; the first that matches counts.
_PROGRAMS = (
    (
        "llama.cpp",
        r"llama\.?cpp|llama-bench|llama.?server|llama.?stash|ollama|lm.?studio|kobold|llamafile|gguf|ggml(?!.*whisper)|jan\b|gpt4all",
    ),
    ("whisper.cpp", r"whisper\.?cpp"),
    ("const-me", r"const-me"),
    ("faster-whisper", r"faster.?whisper|ctranslate|whisperx"),
    ("insanely-fast-whisper", r"insanely|whisper.?jax|batched"),
    ("mlx-whisper", r"mlx.*whisper|whisper.*mlx|whisperkit|lightning.?whisper"),
    ("openai-whisper", r"openai.?whisper|openai/whisper|whisper"),
    ("exllama", r"exllama|exl2|tabby"),
    ("tensorrt-llm", r"tensorrt.?llm|trt.?llm|nim\b"),
    ("tensorrt", r"tensorrt|\btrt\b"),
    ("vllm", r"vllm|sglang|lmdeploy|\btgi\b|text.generation.inference|aphrodite|mlc"),
    ("mlx", r"\bmlx|mflux"),
    ("unsloth", r"unsloth"),
    ("axolotl", r"axolotl|llama.?factory|torchtune"),
    ("kohya", r"kohya|sd-scripts|dreambooth|onetrainer|ai-toolkit"),
    ("openvino", r"openvino"),
    ("coreml", r"core.?ml"),
    ("directml", r"directml"),
    ("stable-diffusion.cpp", r"stable-?diffusion\.cpp|sd\.cpp"),
    ("text-embeddings-inference", r"text.embeddings.inference|\btei\b|infinity"),
    ("onnx", r"onnx|fastembed|transformers\.js"),
    ("comfyui", r"comfy|forge"),
    ("automatic1111", r"automatic1111|a1111|(?<!llama2-)(?<!generation-)webui|sd.?next|invoke"),
    ("diffusers", r"diffusers|compvis"),
    ("sentence-transformers", r"sentence.?transformers|pyserini"),
    ("darknet", r"darknet"),
    ("plain c", r"llm\.c\b|llama2\.c\b"),
    ("torch7", r"torch ?7|caffe|theano|mxnet"),
    ("tensorflow", r"tensorflow|keras|\btf\b"),
    ("forest", r"random.?forest|extra.?trees"),
    ("catboost", r"catboost"),
    ("lightgbm", r"lightgbm|\blgbm?\b"),
    ("xgboost-exact", r"xgboost.*exact|exact.*xgboost"),
    ("xgboost", r"xgboost|\bxgb"),
    ("scikit-learn", r"scikit|sklearn"),
    ("h2o", r"h2o"),
    ("megatron", r"megatron|nemo|deepspeed|fsdp"),
    ("jax", r"\bjax\b|flax"),
    ("transformers", r"transformers|hugging|peft|trl|bitsandbytes|lit-?gpt"),
    ("pytorch", r"pytorch|torch|timm|ultralytics|detectron|mmdet"),
)


def find_program(text: str | None) -> str:
    """Return a program's group; '' for an unknown one or none."""
    plain = (text or "").lower()
    return next((name for name, pattern in _PROGRAMS if re.search(pattern, plain)), "")
