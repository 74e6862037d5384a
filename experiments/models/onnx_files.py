"""Models as ONNX files: in float32, or with products in 8-bit whole numbers."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path

from experiments import hardware
from experiments.work import Dtype, Unsupported

# One file of the format holds so many bytes: what protocol buffers allow.
MOST_BYTES = 2 * 10**9
# Products with weights; convolutions, whose inputs would need calibrated ranges to gain from 8 bits, stay in float32.
QUANTISED = ("MatMul", "Gemm", "LSTM", "Attention")


def onnx_file(name: str, batch: int, quantised: bool = False) -> Path:
    """The network `name` with the weights of seed 0, for batches of this size; kept while the same one is asked for.

    By the exporter that records one call (`dynamo=False`): its files run as fast as the newer one's (measured on the
    small networks: within noise), take a tenth of the time, and let every weight be quantised, where the newer one's
    descriptions of shapes make the quantiser fail. Raises Unsupported.
    """
    folder = Path(_folder(name).name)
    path = folder / f"{batch}{'-int8' * quantised}.onnx"
    if not path.exists():
        if quantised:
            _quantise(onnx_file(name, batch), path)
        else:
            _export(name, batch, path)
    return path


@lru_cache(maxsize=1)
def _folder(name: str) -> tempfile.TemporaryDirectory[str]:
    """A folder for the files of a network, removed when those of another are asked for, or the process ends."""
    return tempfile.TemporaryDirectory(prefix=f"{name}-onnx-")


def _export(name: str, batch: int, path: Path) -> None:
    import onnx  # noqa: F401 - PyTorch's exporter needs it, and would say so in words of its own
    import torch

    from experiments.devices.cpu import CpuDevice
    from experiments.models.generate import weights_on
    from experiments.models.zoo import ZOO

    entry = ZOO[name]
    if (size := entry.parameters() * Dtype.FLOAT32.itemsize) > MOST_BYTES:
        raise Unsupported(f"an ONNX file holds {MOST_BYTES / 1e9:g} GB, these weights take {size / 1e9:.1f} GB")
    if size > (free := shutil.disk_usage(path.parent).free):
        raise Unsupported(f"the model takes {size / 1e9:.1f} GB, {path.parent.parent} has {free / 1e9:.1f} GB left")
    with warnings.catch_warnings(), weights_on(CpuDevice(), Dtype.FLOAT32):
        warnings.simplefilter("ignore")
        torch.onnx.export(entry.model().eval(), (entry.batch(batch)[0],), str(path), dynamo=False)


def _quantise(model: Path, path: Path) -> None:
    """Weights in 8 bits, and inputs of products rounded to 8 bits with a range found at each call.

    By ONNX Runtime's quantiser, for PyTorch's own is announced to be removed.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    instructions = hardware.cpu().get("simd", [])
    quantize_dynamic(
        model,
        path,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=list(QUANTISED),
        # An x86 core without VNNI adds pairs of products in 16 bits, which overflow with weights of eight bits:
        # https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
        reduce_range="avx2" in instructions and not any("vnni" in name for name in instructions),
    )
