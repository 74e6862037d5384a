"""Catalogue of widely used networks, as Transformers classes with published configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from experiments import user_models
from experiments.language.shapes import SHAPES


@dataclass(frozen=True)
class Counts:
    """Weight and operation counts for a network.

    parameters: number of weights. macs: multiply-adds per sample in the forward pass.
    first_macs: multiply-adds per sample in the forward pass's first product.
    output: (rows, columns) of the output for one sample.
    trained: number of weights that a training step changes; None if it changes all.
    step_macs: multiply-adds per sample in a training step; None if the gradients for a product's inputs and weights
        each take as many multiply-adds as the product.
    """

    parameters: int
    macs: int
    first_macs: int
    output: tuple[int, int]
    trained: int | None = None
    step_macs: int | None = None


@dataclass(frozen=True, eq=False)
class Network:
    """Network, defined by a Transformers class, changes to its default configuration, and an input.

    model: Transformers class name. config: changes to its default configuration.
    kind: input kind. shape: shape of one sample: (channels, height, width) of an image, (length,) of tokens,
        or (bands, frames) of a spectrum.
    decoder: number of tokens that the decoder gets; 0 for networks without a separate decoder.
    output: field in the network's result to use as output.
    source: address of the published configuration, or a user network's name.
    counts: weight and operation counts; None if the network has to be counted first.
    activation_bytes: bytes per sample that a training step in float32 saves for the backward pass; None if they have to
        be counted first.
    damped: suffix of the parameter names for the last norm in each residual branch (see `from_transformers.DAMPED`);
        None to start all norms at 1.
    adapters: rank of the adapters (LoRA) to train; 0 to train all weights.
    """

    model: str
    family: Literal["convolutional", "transformer"]
    kind: Literal["image", "tokens", "spectrum"]
    shape: tuple[int, ...]
    output: str
    source: str
    config: Mapping[str, Any] = field(default_factory=dict)
    decoder: int = 0
    counts: Counts | None = None
    activation_bytes: int | None = None
    damped: str | None = None
    adapters: int = 0

    @property
    def is_causal(self) -> bool:
        """True for decoder-only models that generate text token by token."""
        return (
            self.kind == "tokens"
            and self.output == "logits"
            and not self.decoder
            and (self.model.endswith(("ForCausalLM", "LMHeadModel")))
        )


# Networks in `experiments.models.small_networks`.
SMALL = (
    "mlp", "cnn", "resnet", "wide-resnet", "lstm-32", "lstm-128", "lstm-512", "gpt-1m", "nanogpt-cpu", "nanogpt",
    "resnet-18", "airbench94", "alexnet",
)  # fmt: skip

HUB = "https://huggingface.co/"
NETWORKS = {
    "resnet-50": Network(  # He et al. 2016, "Deep residual learning for image recognition"
        "ResNetForImageClassification", "convolutional", "image", (3, 224, 224), "logits",
        HUB + "microsoft/resnet-50", {"num_labels": 1000},
        counts=Counts(25_557_032, 4_089_184_256, 118_013_952, (1, 1_000)),
        activation_bytes=85_913_512, damped="layer.2.normalization.weight",
    ),
    "mobilenet-v2": Network(  # Sandler et al. 2018
        "MobileNetV2ForImageClassification", "convolutional", "image", (3, 224, 224), "logits",
        HUB + "google/mobilenet_v2_1.0_224", {"num_labels": 1000},
        counts=Counts(3_504_872, 300_774_272, 10_838_016, (1, 1_000)),
        activation_bytes=79_857_012, damped="reduce_1x1.normalization.weight",
    ),
    "efficientnet-b0": Network(  # Tan and Le 2019
        "EfficientNetForImageClassification", "convolutional", "image", (3, 224, 224), "logits",
        HUB + "google/efficientnet-b0",
        {"num_labels": 1000, "image_size": 224, "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280},
        counts=Counts(5_288_548, 385_814_752, 10_838_016, (1, 1_000)),
        activation_bytes=89_038_996, damped="project_bn.weight",
    ),
    "convnext-t": Network(  # Liu et al. 2022
        "ConvNextForImageClassification", "convolutional", "image", (3, 224, 224), "logits",
        HUB + "facebook/convnext-tiny-224", {"num_labels": 1000},
        counts=Counts(28_589_128, 4_455_531_264, 14_450_688, (1, 1_000)),
    ),
    "vit-b-16": Network(  # Dosovitskiy et al. 2021
        "ViTForImageClassification", "transformer", "image", (3, 224, 224), "logits",
        HUB + "google/vit-base-patch16-224", {"num_labels": 1000},
        counts=Counts(86_567_656, 17_563_828_224, 115_605_504, (1, 1_000)),
        activation_bytes=118_164_688,
    ),
    "clip-vit-b-32": Network(  # Radford et al. 2021; only the image encoder
        "CLIPVisionModelWithProjection", "transformer", "image", (3, 224, 224), "image_embeds",
        HUB + "openai/clip-vit-base-patch32",
        counts=Counts(87_849_216, 4_408_811_520, 115_605_504, (1, 512)),
    ),
    "segformer-b0": Network(  # Xie et al. 2021
        "SegformerForSemanticSegmentation", "transformer", "image", (3, 512, 512), "logits",
        HUB + "nvidia/segformer-b0-finetuned-ade-512-512", {"num_labels": 150},
        counts=Counts(3_752_694, 8_387_821_568, 77_070_336, (1, 2_457_600)),
    ),
    "bert-base": Network(  # Devlin et al. 2019
        "BertModel", "transformer", "tokens", (128,), "last_hidden_state", HUB + "google-bert/bert-base-uncased",
        counts=Counts(109_482_240, 11_174_215_680, 75_497_472, (128, 768)),
    ),
    "distilbert": Network(  # Sanh et al. 2019
        "DistilBertModel", "transformer", "tokens", (128,), "last_hidden_state",
        HUB + "distilbert/distilbert-base-uncased",
        counts=Counts(66_362_880, 5_586_812_928, 75_497_472, (128, 768)),
    ),
    "minilm-l6": Network(  # Wang et al. 2020
        "BertModel", "transformer", "tokens", (128,), "last_hidden_state",
        HUB + "sentence-transformers/all-MiniLM-L6-v2",
        {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
        counts=Counts(22_713_216, 1_434_599_424, 18_874_368, (128, 384)),
    ),
    "t5-small": Network(  # Raffel et al. 2020
        "T5ForConditionalGeneration", "transformer", "tokens", (128,), "logits", HUB + "google-t5/t5-small",
        decoder=16,
        counts=Counts(60_506_624, 3_548_905_472, 33_554_432, (16, 32_128)),
    ),
    "gpt2-124m": Network(  # Radford et al. 2019
        "GPT2LMHeadModel", "transformer", "tokens", (128,), "logits", HUB + "openai-community/gpt2",
        counts=Counts(124_439_808, 16_114_089_984, 226_492_416, (128, 50_257)),
    ),
    "whisper-tiny": Network(  # Radford et al. 2022
        "WhisperForConditionalGeneration", "transformer", "spectrum", (80, 3000), "logits", HUB + "openai/whisper-tiny",
        {
            "d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6,
            "decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536,
        },
        decoder=4,
        counts=Counts(37_760_640, 20_369_511_936, 276_480_000, (4, 51_865)),
    ),
    "llama-1b": Network(  # the same shape as `llama-1b` in `experiments.language`
        "LlamaForCausalLM", "transformer", "tokens", (128,), "logits", HUB + "meta-llama/Llama-3.2-1B",
        SHAPES["llama-1b"].config,
        counts=Counts(1_235_814_400, 159_249_334_272, 536_870_912, (128, 128_256)), activation_bytes=480_135_680,
    ),
    # This network is for fine-tuning: BERT with a two-class head, as for GLUE (Devlin et al. 2019, section 4.1).
    "bert-base-classifier": Network(
        "BertForSequenceClassification", "transformer", "tokens", (128,), "logits",
        HUB + "google-bert/bert-base-uncased", {"num_labels": 2},
        counts=Counts(109_483_778, 11_174_217_216, 75_497_472, (1, 2)), activation_bytes=76_387_344,
    ),
    # This network is for serving, because published times for it are evidence for a claim in the report
    # (report/claims/W30.yaml). It has the same kind of head as `bert-base-classifier`.
    "minilm-l6-classifier": Network(
        "BertForSequenceClassification", "transformer", "tokens", (128,), "logits",
        HUB + "philschmid/MiniLM-L6-H384-uncased-sst2",
        {
            "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
            "num_labels": 2,
        },
        counts=Counts(22_713_986, 1_434_600_192, 18_874_368, (1, 2)),
    ),
    # This network is for training: GPT-2 with its full context length.
    "gpt2-124m-1024": Network(
        "GPT2LMHeadModel", "transformer", "tokens", (1024,), "logits", HUB + "openai-community/gpt2",
        counts=Counts(124_439_808, 145_824_153_600, 1_811_939_328, (1_024, 50_257)), activation_bytes=1_345_417_216,
    ),
    "llama-1b-lora": Network(  # Grattafiori et al. 2024; peft's default adapter rank
        "LlamaForCausalLM", "transformer", "tokens", (512,), "logits", HUB + "meta-llama/Llama-3.2-1B",
        SHAPES["llama-1b"].config,
        adapters=8,
        counts=Counts(1_236_666_368, 650_318_446_592, 8_388_608, (512, 128_256), 851_968, 1_314_478_096_384),
        activation_bytes=1_438_715_904,
    ),
}  # fmt: skip


def networks() -> dict[str, Network]:
    """Return the networks in the catalogue and the user's networks, by name."""
    return _networks(user_models.models_json())


@cache
def _networks(_: str) -> dict[str, Network]:
    return NETWORKS | {name: _network(name, about) for name, about in user_models.models("class").items()}


def _network(name: str, about: Mapping[str, Any]) -> Network:
    ((kind, size),) = about["input"].items()
    return Network(
        about["class"],
        "convolutional" if kind == "image" else "transformer",
        kind,
        {"image": (3, size, size), "tokens": (size,)}.get(kind) or tuple(size),
        about.get("output", "logits"),
        name,
        about.get("config", {}),
        about.get("decoder", 0),
    )
