"""Networks of the catalogue as PyTorch modules with random weights."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, linear
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from contract.errors import StudyError
from experiments.devices.accelerator import first_line
from experiments.models import real_data
from experiments.models.catalogue import Counts, Network

# Random numbers of which a CPU makes all weights: 16 MiB, for drawing each anew takes four times as long.
POOL = 1 << 22
# Standard deviation of the weights, as BERT and GPT-2 begin; convolutions keep the size of their inputs.
DEVIATION = 0.02
# Norms that end a branch begin near 0, as networks are trained (Goyal et al. 2017, arXiv:1706.02677, section 5.1: at 0,
# where nothing before them has a gradient). At 1, rounding alone changes gradients of 50 layers wholly in bfloat16.
DAMPED = 0.1
# Parts of the names of vectors that are added; all others are factors, of norms and layers. A first token of ones would
# leave CLIP's first norm no digits in bfloat16.
ADDED = ("bias", "embed", "token")


class Catalogued(nn.Module):
    """A network of Transformers that takes one tensor and gives one: (rows, columns), the rows of all samples.

    A decoder has begun with the same tokens in every call. Nothing is dropped in training, so that gradients can be
    checked. optimiser: with which people train such networks.
    """

    optimiser = torch.optim.AdamW
    started: Tensor | None

    def __init__(self, described: Network) -> None:
        super().__init__()
        self.described = described
        self.network = _random(described)
        if described.adapters:
            add_adapters(self.network, described.adapters)
        started = torch.arange(2, 2 + described.decoder).expand(1, -1) if described.decoder else None
        self.register_buffer("started", started, persistent=False)

    def to_empty(self, *args: Any, **kwargs: Any) -> Catalogued:
        """As a module's own, which forgets what weights two layers share."""
        super().to_empty(*args, **kwargs)
        self.network.tie_weights()  # type: ignore[operator]
        return self

    def forward(self, x: Tensor) -> Tensor:
        described = self.described
        given: dict[str, Any] = {KEYS[described.kind]: x}
        # A tracer cannot follow the search for packed sequences that takes place without a mask.
        if described.kind == "tokens" and torch.jit.is_tracing():
            given["attention_mask"] = torch.ones_like(x)
        if self.started is not None:
            given["decoder_input_ids"] = self.started.expand(len(x), -1)
        answer = self.network(**given)
        if described.output not in answer:
            raise ValueError(f"no output {described.output!r}: name one of {', '.join(answer)}")
        out: Tensor = answer[described.output]
        return out.flatten(1) if out.dim() == 4 else out.flatten(0, -2)


KEYS = {"image": "pixel_values", "tokens": "input_ids", "spectrum": "input_features"}


def _random(described: Network) -> nn.Module:
    """The network, its weights drawn from torch's seed, on torch's default device."""
    from transformers.initialization import no_init_weights

    with no_init_weights():
        model: nn.Module = _class(described)(configured(described))
    model.tie_weights()  # type: ignore[operator]
    draw = Draw()
    with torch.no_grad():
        for place, module in model.named_modules():
            _pool_whole_images(module, described.shape[-1])
            for name, weight in module.named_parameters(recurse=False):
                if weight.dim() == 1 and not any(part in name for part in ADDED):
                    damped = described.damped and f"{place}.{name}".endswith(described.damped)
                    weight.fill_(DAMPED if damped else 1.0)
                else:
                    convolution = isinstance(module, nn.Conv1d | nn.Conv2d) and weight.dim() > 2
                    draw.into(weight, weight[0].numel() ** -0.5 if convolution else DEVIATION)
    return model


def _pool_whole_images(module: nn.Module, side: int) -> None:
    """Take the mean of all pixels where a window is larger than the image (EfficientNet), which OpenVINO refuses."""
    for name, child in module.named_children():
        if isinstance(child, nn.AvgPool2d) and child.ceil_mode and child.kernel_size >= side:  # type: ignore[operator]
            setattr(module, name, nn.AdaptiveAvgPool2d(1))


def _class(described: Network) -> Any:
    import transformers

    if not hasattr(transformers, described.model):
        raise ValueError(f"transformers {transformers.__version__} has no such class")
    return getattr(transformers, described.model)


def configured(described: Network) -> Any:
    """The network's configuration, with every probability of dropout 0."""
    config = _class(described).config_class(**described.config)
    for name, value in config.to_dict().items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


ADAPTED = ("q_proj", "v_proj")


class Adapted(nn.Module):
    """A linear layer whose weights stay as they are, and two thin matrices beside it that are trained, in float32.

    Source: Hu et al. 2021, LoRA, with what peft does by default: queries and values, scale 1. Here both matrices begin
    at random, for the gradient of one is 0 where the other is.
    """

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.empty(rank, base.in_features, dtype=torch.float32))
        self.up = nn.Parameter(torch.empty(base.out_features, rank, dtype=torch.float32))
        for one in (self.down, self.up):
            nn.init.normal_(one, std=DEVIATION)

    def forward(self, x: Tensor) -> Tensor:
        thin = linear(x.to(self.down.dtype), self.down)
        out: Tensor = self.base(x) + linear(thin, self.up).to(x.dtype)
        return out


def add_adapters(network: nn.Module, rank: int) -> None:
    """Freeze all weights, and put adapters beside the layers of ADAPTED."""
    network.requires_grad_(False)
    for module in list(network.modules()):
        for name, layer in list(module.named_children()):
            if name in ADAPTED and isinstance(layer, nn.Linear):
                setattr(module, name, Adapted(layer, rank))


class Draw:
    """Normal values: on a CPU taken in turn from a pool, for it draws slowly."""

    def __init__(self) -> None:
        self.pool, self.start = torch.randn(POOL, device="cpu", dtype=torch.float32), 0

    def into(self, weight: Tensor, deviation: float) -> None:
        """Fill a tensor with values of this standard deviation."""
        if weight.device.type != "cpu":
            weight.normal_(0.0, deviation)
            return
        flat, done = weight.view(-1), 0
        while done < len(flat):
            part = self.pool[self.start : self.start + len(flat) - done]
            torch.mul(part, deviation, out=flat[done : done + len(part)])
            done += len(part)
            self.start = (self.start + len(part)) % POOL


def batch(described: Network, size: int) -> tuple[Tensor, Tensor]:
    """Inputs of `size` samples, and a random column for each row of the output.

    Photographs, words of a text, or noise in place of a spectrum.
    """
    rows, columns = (described.counts or count(described)).output
    if described.kind == "image":
        inputs = real_data.photograph_batch(size, described.shape[-1])
    elif described.kind == "tokens":
        inputs = real_data.word_batch(size, described.shape[0], configured(described).vocab_size)
    else:
        inputs = torch.randn(size, *described.shape)
    return inputs, torch.randint(columns, (size * rows,))


class Products(TorchDispatchMode):
    """Notes the multiply-adds of each product and convolution, in the order in which they run."""

    def __init__(self) -> None:
        super().__init__()
        self.macs: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if formula := flop_registry.get(func.overloadpacket):
            self.macs.append(formula(*args, **(kwargs or {}), out_val=out) // 2)
        return out


@cache
def count(described: Network) -> Counts:
    """The sizes of a network, counted on tensors without data.

    Attention is taken apart into its products, for torch's counter does not know it whole on every device.
    Raises StudyError for a network of the user's own that does not load.
    """
    try:
        return _counted(described)
    except Exception as fault:
        if described.counts or isinstance(fault, ModuleNotFoundError):
            raise
        raise StudyError(f"{described.source}: {described.model} does not load: {first_line(fault)}") from None


def _counted(described: Network) -> Counts:
    with torch.device("meta"), sdpa_kernel(SDPBackend.MATH), Products() as products:
        model = Catalogued(described)
        whole = described.kind == "tokens"
        out = model(torch.zeros(1, *described.shape, dtype=torch.int64 if whole else torch.float32))
        forward = list(products.macs)
        if described.adapters:
            cross_entropy(out, torch.zeros(len(out), dtype=torch.int64)).backward()
    weights = list(model.parameters())
    parameters, trained = (sum(one.numel() for one in some) for some in (weights, filter(_is_trained, weights)))
    sizes = Counts(parameters, sum(forward), forward[0], (len(out), out.shape[1]))
    return replace(sizes, trained=trained, step_macs=sum(products.macs)) if described.adapters else sizes


def _is_trained(weight: nn.Parameter) -> bool:
    return weight.requires_grad
