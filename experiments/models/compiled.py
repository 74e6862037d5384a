"""Models compiled by `torch.compile` for one shape, number format and thread count."""

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


def compile_call(call: Call, threads: int, first_call: Callable[[Call], object], **options: Any) -> Call:
    """Compile `call` with `torch.compile` and return the compiled function.

    first_call: calls the compiled function once, with the shapes for which it is compiled. threads: CPU threads; 0 on a
    GPU. options: settings for inductor, the compiler. Raises Unsupported if the compilation fails; the message names
    packages to install.
    """
    from torch._dynamo.exc import TorchDynamoException

    _link_path_without_spaces()
    # Drop the functions compiled for earlier measurements, because torch.compile silently stops compiling when it holds
    # too many functions.
    torch._dynamo.reset()
    # Set the thread count before compilation, because inductor writes it into the CPU kernels' code.
    inductor_options: Mapping[str, Any] = {**options, **({"cpp.threads": threads} if threads else {})}
    compiled: Call = torch.compile(call, dynamic=False, options=dict(inductor_options))
    try:
        first_call(compiled)
    except TorchDynamoException as refusal:
        cause = getattr(refusal, "inner_exception", refusal)
        if "outofmemory" in type(cause).__name__.lower():
            raise cause from None
        raise Unsupported(f"torch.compile failed: {first_line(cause)}; {_remedy(str(cause))}") from None
    return compiled


def _link_path_without_spaces() -> None:
    """Let inductor find PyTorch through a symbolic link if PyTorch's path contains spaces.

    Inductor passes paths to the C++ compiler unquoted, so spaces break compilation.
    """
    installed = Path(cpp_extension._TORCH_PATH)
    if " " not in str(installed):
        return
    digest = hashlib.sha256(str(installed).encode()).hexdigest()[:12]
    link = Path(tempfile.gettempdir()) / f"{Path.home().name.replace(' ', '-')}-torch-{digest}"
    try:
        link.symlink_to(installed)
    except OSError:
        # If the link exists already, another user may have made it, so use the link only if it has the same target.
        if not link.is_symlink() or link.readlink() != installed:
            return
    cpp_extension._TORCH_PATH, cpp_extension.TORCH_LIB_PATH = str(link), str(link / "lib")


def _remedy(refusal: str) -> str:
    """Return advice to the user for a compiler error message."""
    lower = refusal.lower()
    if "triton" in lower:
        return "it needs Triton, and a GPU that Triton knows (compute capability 7.0)"
    if "python.h" in lower:
        return "install Python's headers (Debian: apt-get install python3-dev)"
    if "compiler" in lower or "g++" in lower or "c++" in lower:
        return "install a C++ compiler (Debian: apt-get install g++)"
    return "`TORCH_LOGS=inductor` says more"
