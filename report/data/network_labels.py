"""Display names and input kinds for networks."""

from __future__ import annotations

# Page headings by input kind, in page order.
INPUTS = {"image": "Images", "tokens": "Text", "spectrum": "Speech"}
OTHER = "Other networks"
# Display name and input kind, by the network's name in the samples.
NETWORKS = {
    "resnet-50": ("ResNet-50", "image"),
    "mobilenet-v2": ("MobileNetV2", "image"),
    "efficientnet-b0": ("EfficientNet-B0", "image"),
    "convnext-t": ("ConvNeXt-T", "image"),
    "vit-b-16": ("ViT-B/16", "image"),
    "clip-vit-b-32": ("CLIP ViT-B/32", "image"),
    "segformer-b0": ("SegFormer-B0", "image"),
    "bert-base": ("BERT-base", "tokens"),
    "distilbert": ("DistilBERT", "tokens"),
    "minilm-l6": ("MiniLM-L6", "tokens"),
    "t5-small": ("T5-small", "tokens"),
    "gpt2-124m": ("GPT-2 124M", "tokens"),
    "bert-base-classifier": ("BERT-base, classifier", "tokens"),
    "minilm-l6-classifier": ("MiniLM-L6, classifier", "tokens"),
    "gpt2-124m-1024": ("GPT-2 124M, 1,024 tokens", "tokens"),
    "llama-1b": ("Llama 3.2 1B", "tokens"),
    "llama-1b-lora": ("Llama 3.2 1B, LoRA", "tokens"),
    "whisper-tiny": ("Whisper-tiny", "spectrum"),
}

# Networks whose training updates only a few additional weights (LoRA).
ADAPTED = ("llama-1b-lora",)
# Display names for language models that generate text, by the model's name in the samples.
LANGUAGE_MODELS = {
    "llama-0.5b": "Qwen2.5 0.5B",
    "llama-1b": "Llama 3.2 1B",
    "llama-3b": "Llama 3.2 3B",
    "llama-8b": "Llama 3.1 8B",
}


def is_known(model: str) -> bool:
    """True for a published network, false for the study's small networks and for users' networks."""
    return model in NETWORKS


def title(model: str) -> str:
    """Return a network's display name, or `model` itself if it has no display name."""
    return NETWORKS[model][0] if model in NETWORKS else LANGUAGE_MODELS.get(model, model)


def group(model: str) -> str:
    """Return the page heading for the network, one of `GROUPS`."""
    return INPUTS[NETWORKS[model][1]] if model in NETWORKS else OTHER


GROUPS = (*INPUTS.values(), OTHER)
