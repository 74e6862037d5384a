"""Models through `torch.compile`: kernels made for one shape, one number format and one number of threads."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from experiments.devices.accelerator import first_line
from experiments.workload import Unsupported

Call = Callable[..., Any]


def compiled(call: Call, threads: int, first: Callable[[Call], object], **options: Any) -> Call:
    """`call`, compiled by `torch.compile` for the shapes of `first`, which makes its first call.

    threads: those of the CPU, 0 on a GPU. options: of inductor. Raises Unsupported, with what to
    install, if it cannot be compiled here.
    """
    from torch._dynamo.exc import TorchDynamoException

    _name_without_spaces()
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


def _name_without_spaces() -> None:
    """Have inductor find PyTorch's headers and libraries by a path without spaces, if theirs has some.

    It hands paths to the C++ compiler without quotes, so that nothing compiles in a folder of such a name.
    """
    installed = Path(cpp_extension._TORCH_PATH)
    if " " not in str(installed):
        return
    digest = hashlib.sha256(str(installed).encode()).hexdigest()[:12]
    link = Path(tempfile.gettempdir()) / f"{Path.home().name.replace(' ', '-')}-torch-{digest}"
    try:
        link.symlink_to(installed)
    except OSError:
        # There already, perhaps another user's: it counts only if it leads to the same place.
        if not link.is_symlink() or link.readlink() != installed:
            return
    cpp_extension._TORCH_PATH, cpp_extension.TORCH_LIB_PATH = str(link), str(link / "lib")


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
