"""Catalogue networks as PyTorch modules with random weights."""

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

# Random values (16 MiB) that a CPU draws once and reuses for all weights, because drawing each weight would take four
# times as long.
POOL = 1 << 22
# Standard deviation of initial weights, as in BERT and GPT-2. Convolution weights have the standard deviation 1 /
# sqrt(terms in a sum) instead, to preserve the activations' magnitude.
DEVIATION = 0.02
# Initial weight for the norms at the end of residual branches. Training usually starts with 0 (Goyal et al. 2017,
# arXiv:1706.02677, section 5.1), but then the branch's earlier layers would get no gradient to check. With 1, rounding
# in bfloat16 would completely change the gradients in a network with 50 layers.
DAMPED = 0.1
# A vector whose name contains one of these words is an addend and gets random values. All others are factors and start
# at 1 or DAMPED. CLIP's class token is an addend: if it were all ones, the first norm would have no correct digits in
# bfloat16.
ADDED = ("bias", "embed", "token")


class CatalogueModel(nn.Module):
    """Transformers network with one input tensor, and one output tensor (rows, columns) with all samples' rows.

    A separate decoder gets the same tokens in every call. Dropout is off, so that gradients can be checked.
    optimiser: the usual optimiser for these networks.
    """

    optimiser = torch.optim.AdamW
    started: Tensor | None

    def __init__(self, spec: Network) -> None:
        super().__init__()
        self.spec = spec
        self.network = _random_network(spec)
        if spec.adapters:
            add_adapters(self.network, spec.adapters)
        started = torch.arange(2, 2 + spec.decoder).expand(1, -1) if spec.decoder else None
        self.register_buffer("started", started, persistent=False)

    def to_empty(self, *args: Any, **kwargs: Any) -> CatalogueModel:
        """Call `torch.nn.Module.to_empty`, and then tie shared weights again, because that method separates them."""
        super().to_empty(*args, **kwargs)
        self.network.tie_weights()  # type: ignore[operator]
        return self

    def forward(self, x: Tensor) -> Tensor:
        spec = self.spec
        arguments: dict[str, Any] = {KEYS[spec.kind]: x}
        # Pass a mask, because without it Transformers would look for packed sequences, by code that cannot be traced.
        if spec.kind == "tokens" and torch.jit.is_tracing():
            arguments["attention_mask"] = torch.ones_like(x)
        if self.started is not None:
            arguments["decoder_input_ids"] = self.started.expand(len(x), -1)
        outputs = self.network(**arguments)
        if spec.output not in outputs:
            raise ValueError(f"no output {spec.output!r}: use one of {', '.join(outputs)}")
        out: Tensor = outputs[spec.output]
        return out.flatten(1) if out.dim() == 4 else out.flatten(0, -2)


KEYS = {"image": "pixel_values", "tokens": "input_ids", "spectrum": "input_features"}


def _random_network(spec: Network) -> nn.Module:
    """Make the network on torch's default device, with random weights from torch's global random generator."""
    from transformers.initialization import no_init_weights

    with no_init_weights():
        model: nn.Module = _model_class(spec)(model_config(spec))
    model.tie_weights()  # type: ignore[operator]
    pool = NormalPool()
    with torch.no_grad():
        for path, module in model.named_modules():
            _pool_whole_images(module, spec.shape[-1])
            for name, weight in module.named_parameters(recurse=False):
                if weight.dim() == 1 and not any(part in name for part in ADDED):
                    damped = spec.damped and f"{path}.{name}".endswith(spec.damped)
                    weight.fill_(DAMPED if damped else 1.0)
                else:
                    convolution = isinstance(module, nn.Conv1d | nn.Conv2d) and weight.dim() > 2
                    pool.fill(weight, weight[0].numel() ** -0.5 if convolution else DEVIATION)
    return model


def _pool_whole_images(module: nn.Module, side: int) -> None:
    """Replace average pooling over windows as large as the image by global pooling (for EfficientNet).

    OpenVINO rejects windows that are larger than their input.
    """
    for name, child in module.named_children():
        if isinstance(child, nn.AvgPool2d) and child.ceil_mode and child.kernel_size >= side:  # type: ignore[operator]
            setattr(module, name, nn.AdaptiveAvgPool2d(1))


def _model_class(spec: Network) -> Any:
    import transformers

    if not hasattr(transformers, spec.model):
        raise ValueError(f"transformers {transformers.__version__} has no such class")
    return getattr(transformers, spec.model)


def model_config(spec: Network) -> Any:
    """Make the network's configuration with all dropout probabilities 0."""
    config = _model_class(spec).config_class(**spec.config)
    for name, value in config.to_dict().items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


ADAPTED = ("q_proj", "v_proj")


class LoraLinear(nn.Module):
    """Frozen linear layer with an adapter, which consists of two trained low-rank matrices in float32.

    Source: Hu et al. 2021, LoRA. The adapter's output has the scale 1, as by default in the library peft. peft starts
    one matrix at 0. Here both matrices start with random values, because a matrix gets no gradient if the other is 0.
    """

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.empty(rank, base.in_features, dtype=torch.float32))
        self.up = nn.Parameter(torch.empty(base.out_features, rank, dtype=torch.float32))
        for matrix in (self.down, self.up):
            nn.init.normal_(matrix, std=DEVIATION)

    def forward(self, x: Tensor) -> Tensor:
        low_rank = linear(x.to(self.down.dtype), self.down)
        out: Tensor = self.base(x) + linear(low_rank, self.up).to(x.dtype)
        return out


def add_adapters(network: nn.Module, rank: int) -> None:
    """Freeze all weights and add trained adapters to the layers named in ADAPTED, as peft does by default."""
    network.requires_grad_(False)
    for module in list(network.modules()):
        for name, layer in list(module.named_children()):
            if name in ADAPTED and isinstance(layer, nn.Linear):
                setattr(module, name, LoraLinear(layer, rank))


class NormalPool:
    """Generator for normally distributed weights. On CPUs, which draw slowly, it reuses a pool with POOL values."""

    def __init__(self) -> None:
        self.pool, self.start = torch.randn(POOL, device="cpu", dtype=torch.float32), 0

    def fill(self, weight: Tensor, deviation: float) -> None:
        """Fill a tensor with normally distributed values, with mean 0 and this standard deviation."""
        if weight.device.type != "cpu":
            weight.normal_(0.0, deviation)
            return
        flat, done = weight.view(-1), 0
        while done < len(flat):
            part = self.pool[self.start : self.start + len(flat) - done]
            torch.mul(part, deviation, out=flat[done : done + len(part)])
            done += len(part)
            self.start = (self.start + len(part)) % POOL


def draw_batch(spec: Network, size: int) -> tuple[Tensor, Tensor]:
    """Draw inputs for `size` samples, and a random target column for each output row.

    Images are crops of photographs, tokens are words from a text, and spectra are noise.
    """
    rows, columns = (spec.counts or count_network(spec)).output
    if spec.kind == "image":
        inputs = real_data.photograph_batch(size, spec.shape[-1])
    elif spec.kind == "tokens":
        inputs = real_data.word_batch(size, spec.shape[0], model_config(spec).vocab_size)
    else:
        inputs = torch.randn(size, *spec.shape)
    return inputs, torch.randint(columns, (size * rows,))


class ProductCounter(TorchDispatchMode):
    """Mode that counts the multiply-adds in each matrix product and convolution, in execution order."""

    def __init__(self) -> None:
        super().__init__()
        self.macs: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if formula := flop_registry.get(func.overloadpacket):
            self.macs.append(formula(*args, **(kwargs or {}), out_val=out) // 2)
        return out


@cache
def count_network(spec: Network) -> Counts:
    """Count a network's weights and multiply-adds on meta tensors, which have no data.

    Attention runs as separate matrix products, because torch's counter lacks the fused kernels of some devices.
    Raises StudyError if a user network does not load.
    """
    try:
        return _count_network(spec)
    except Exception as fault:
        if spec.counts or isinstance(fault, ModuleNotFoundError):
            raise
        raise StudyError(f"{spec.source}: {spec.model} does not load: {first_line(fault)}") from None


def _count_network(spec: Network) -> Counts:
    with torch.device("meta"), sdpa_kernel(SDPBackend.MATH), ProductCounter() as products:
        model = CatalogueModel(spec)
        dtype = torch.int64 if spec.kind == "tokens" else torch.float32
        out = model(torch.zeros(1, *spec.shape, dtype=dtype))
        forward = list(products.macs)
        if spec.adapters:
            cross_entropy(out, torch.zeros(len(out), dtype=torch.int64)).backward()
    weights = list(model.parameters())
    parameters, trained = (sum(weight.numel() for weight in part) for part in (weights, filter(_is_trained, weights)))
    sizes = Counts(parameters, sum(forward), forward[0], (len(out), out.shape[1]))
    return replace(sizes, trained=trained, step_macs=sum(products.macs)) if spec.adapters else sizes


def _is_trained(weight: nn.Parameter) -> bool:
    return weight.requires_grad
