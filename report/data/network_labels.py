"""Networks by name: how pages call them, and the kind of input that they take."""

from __future__ import annotations

# Kinds of input, in the order of the pages.
INPUTS = {"image": "Images", "tokens": "Text", "spectrum": "Speech"}
OTHER = "Other networks"
# By the name that samples have: the name that people know, and the kind of input.
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

# Networks of which a training step changes a few added weights alone (LoRA).
ADAPTED = ("llama-1b-lora",)
# Shapes of language models that write text, by the name that samples have.
LANGUAGE_MODELS = {
    "llama-0.5b": "Qwen2.5 0.5B",
    "llama-1b": "Llama 3.2 1B",
    "llama-3b": "Llama 3.2 3B",
    "llama-8b": "Llama 3.1 8B",
}


def is_known(model: str) -> bool:
    """True if people know the network by a name; the study's small ones and a user's own are not."""
    return model in NETWORKS


def title(model: str) -> str:
    """The name that people know, or the one that samples have."""
    return NETWORKS[model][0] if model in NETWORKS else LANGUAGE_MODELS.get(model, model)


def group(model: str) -> str:
    """Heading under which pages list the network: a key of `GROUPS`."""
    return INPUTS[NETWORKS[model][1]] if model in NETWORKS else OTHER


GROUPS = (*INPUTS.values(), OTHER)
