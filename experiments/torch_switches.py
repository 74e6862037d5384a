"""Set PyTorch's process-wide switches for vendor libraries and TF32."""

from __future__ import annotations

from typing import Any

from experiments.workload import Dtype, Unsupported


class Switches:
    """Context manager to set switches and restore them afterwards.

    wanted: (object, attribute, value) per switch. Entering and leaving takes about 3 us, short enough to wrap single
    calls.
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
    """An object whose attribute `enabled` is NNPACK's switch, for use in `Switches`.

    If oneDNN is off, PyTorch would use NNPACK for convolutions unless NNPACK is off too.
    """

    @property
    def enabled(self) -> bool:
        import torch

        return bool(torch._C._get_nnpack_enabled())

    @enabled.setter
    def enabled(self, on: bool) -> None:
        import torch

        torch.backends.nnpack.set_flags(on)


def switches(name: str, dtype: Dtype, *, library: bool = True) -> Switches:
    """Return the switches for PyTorch's device `name`.

    library: True to let layers call cuDNN (MIOpen on AMD GPUs), or oneDNN on a CPU.
    dtype: if it is TF32, products of float32 may use TF32 in matrix units; with any other format, they may not.
    Raises Unsupported for devices without such switches.
    """
    import torch

    kind = torch.device(name).type
    if kind not in ("cpu", "cuda"):
        raise Unsupported(f"PyTorch cannot switch off the vendor libraries on {kind}")
    if kind == "cpu":
        return Switches((torch.backends.mkldnn, "enabled", library), (_Nnpack(), "enabled", False))
    cudnn, products, tf32 = torch.backends.cudnn, torch.backends.cuda.matmul, dtype is Dtype.TF32
    # Disable the search for the fastest algorithm (benchmark), since it would slow the first call for each shape.
    return Switches(
        (cudnn, "enabled", library),
        (cudnn, "benchmark", False),
        (cudnn, "allow_tf32", tf32),
        (products, "allow_tf32", tf32),
    )
