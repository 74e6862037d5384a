"""PyTorch's process-wide switches: whether it calls a vendor's libraries, and how these may compute."""

from __future__ import annotations

from typing import Any

from experiments.workload import Dtype, Unsupported


class Switches:
    """A context in which switches are as wanted, and after which they are as before.

    wanted: (object, attribute, value) of each. It takes some 3 us to enter and leave, so
    that single calls can be made in it.
    """

    def __init__(self, *wanted: tuple[Any, str, Any]) -> None:
        self.wanted = wanted

    def __enter__(self) -> None:
        self.before = [getattr(place, name) for place, name, _ in self.wanted]
        for place, name, value in self.wanted:
            setattr(place, name, value)

    def __exit__(self, *_: object) -> None:
        for (place, name, _), value in zip(self.wanted, self.before, strict=True):
            setattr(place, name, value)


class _Nnpack:
    """NNPACK's switch as an attribute; PyTorch calls that library for convolutions where oneDNN is off."""

    @property
    def enabled(self) -> bool:
        import torch

        return bool(torch._C._get_nnpack_enabled())

    @enabled.setter
    def enabled(self, on: bool) -> None:
        import torch

        torch.backends.nnpack.set_flags(on)


def switches(name: str, dtype: Dtype, *, library: bool = True) -> Switches:
    """The switches for PyTorch's device `name`.

    library: layers may call cuDNN (on AMD's GPUs MIOpen); on a CPU, oneDNN.
    dtype: TF32 allows matrix units for float32, every other format forbids them.
    Raises Unsupported for devices whose libraries have no switch.
    """
    import torch

    kind = torch.device(name).type
    if kind not in ("cpu", "cuda"):
        raise Unsupported(f"PyTorch cannot do without the libraries of {kind}")
    if kind == "cpu":
        return Switches((torch.backends.mkldnn, "enabled", library), (_Nnpack(), "enabled", False))
    cudnn, products, tf32 = torch.backends.cudnn, torch.backends.cuda.matmul, dtype is Dtype.TF32
    # Searching algorithms (benchmark) would make the first call of each shape slow.
    return Switches(
        (cudnn, "enabled", library),
        (cudnn, "benchmark", False),
        (cudnn, "allow_tf32", tf32),
        (products, "allow_tf32", tf32),
    )
