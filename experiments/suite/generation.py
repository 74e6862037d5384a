"""Text from a GPT: the prompt in one pass, and each token after it from a cache of keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.suite.inference import TOLERANCE
from experiments.work import Dtype, Threads, Work

if TYPE_CHECKING:
    import torch

Phase = Literal["prefill", "decode"]
Name = Literal["gpt", "gpt2", "gpt-1m", "gpt-10m", "gpt-85m", "gpt-350m", "gpt-1.3b", "gpt-7b"]


def memory(model: str, batch: int, context: int, dtype: str, **_: Any) -> float:
    """Weights, their largest part in float64 for the check, and the cache."""
    import torch

    from experiments.models.zoo import ZOO, Gpt

    with torch.device("meta"):
        made = ZOO[model].model()
    assert isinstance(made, Gpt)
    size, layers = Dtype(dtype).itemsize, len(made.blocks)
    cached = 2 * layers * made.width * batch * context
    return float(size * (ZOO[model].parameters() + cached) + 8 * ZOO[model].parameters() / layers)


def flop(model: str, phase: str, batch: int, context: int, **_: Any) -> float:
    """Of the products of one call, near enough: those of the model's own forward pass in proportion to its tokens."""
    from experiments.models.zoo import ZOO

    tokens = context if phase == "prefill" else 1
    return ZOO[model].forward_flop(batch) * tokens / ZOO[model].length


def extra_s(call_s: float, point_s: float, threads: int, **_: Any) -> float:
    """Filling the cache of keys and values, and the check in float64."""
    return 0.4 + (min(6 * call_s, 5 * point_s) if threads else 1.0)


@experiment("generation", memory=memory, flop=flop, extra_s=extra_s, load_s=1.0)
def generation(
    device: Device,
    model: Name,
    phase: Phase,
    context: int,
    batch: int,
    dtype: Dtype,
    backend: Literal["torch", "inductor", "graph"],
    threads: Threads,
) -> Work:
    """One step in the continuation of `batch` texts, with keys and values of earlier tokens cached.

    prefill: `context` tokens at once, until the logits of the next ones. decode: one token each,
    the last of so many, from the cache of the others. backend: torch as it comes; compiled
    (inductor); on a GPU captured as one graph. Weights and cache are of format `dtype`.

    Work: FLOP by formula; bytes: all weights and the cache once, which is what a token has to read.
    """
    from experiments.models import attention
    from experiments.models.compiled import compiled
    from experiments.models.generate import Generator, weights_on
    from experiments.models.zoo import ZOO, Gpt

    with weights_on(device, dtype):
        made = ZOO[model].model()
    assert isinstance(made, Gpt)
    generator = Generator(made, device, dtype, batch, context)
    call = generator.call(phase)
    if backend == "inductor":
        call = compiled(call, threads, lambda first: first())
    elif backend == "graph":
        held: list[torch.Tensor] = []
        eager = call
        replay = device.graph([lambda: held.__setitem__(slice(None), [eager()])])

        def call() -> torch.Tensor:
            replay()
            return held[0]

    eager_call = generator.call(phase)
    return Work(
        run=call,
        flop=generator.flop(phase),
        bytes=generator.bytes(phase),
        check=lambda: generator.error(phase, call),
        tolerance=TOLERANCE[dtype],
        # A graph holds the kernels that its calls took before it was captured; compiled ones have no operators.
        observe=None if backend == "inductor" else lambda: attention.metrics(eager_call, device),
    )
