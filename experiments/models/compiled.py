"""Models through `torch.compile`: kernels made for one shape, one number format and one number of threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from experiments.devices.accelerator import first_line
from experiments.work import Unsupported

Call = Callable[..., Any]


def compiled(call: Call, threads: int, first: Callable[[Call], object], **options: Any) -> Call:
    """`call`, compiled by `torch.compile` for the shapes of `first`, which makes its first call.

    threads: those of the CPU, 0 on a GPU. options: of inductor. Raises Unsupported, with what to
    install, if it cannot be compiled here.
    """
    from torch._dynamo.exc import TorchDynamoException

    # What it remembers of other points counts against a limit past which it silently compiles no more.
    torch._dynamo.reset()
    # Its kernels have their number of threads built in.
    given: Mapping[str, Any] = {**options, **({"cpp.threads": threads} if threads else {})}
    made: Call = torch.compile(call, dynamic=False, options=dict(given))
    try:
        first(made)
    except TorchDynamoException as refusal:
        cause = getattr(refusal, "inner_exception", refusal)
        if "outofmemory" in type(cause).__name__.lower():
            raise cause from None
        raise Unsupported(f"torch.compile cannot: {first_line(cause)}; {_mend(str(cause))}") from None
    return made


def _mend(refusal: str) -> str:
    """What to do about something that torch.compile lacks."""
    lower = refusal.lower()
    if "triton" in lower:
        return "it needs Triton, and a GPU that Triton knows (compute capability 7.0)"
    if "python.h" in lower:
        return "install Python's headers (Debian: apt-get install python3-dev)"
    if "compiler" in lower or "g++" in lower or "c++" in lower:
        return "install a C++ compiler (Debian: apt-get install g++)"
    return "`TORCH_LOGS=inductor` says more"
