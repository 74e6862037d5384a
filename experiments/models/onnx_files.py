"""Models as ONNX files: in float32, or with products in 8-bit whole numbers."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiments import hardware
from experiments.workload import Dtype, Unsupported

# One file of the format holds so many bytes: what protocol buffers allow.
MOST_BYTES = 2 * 10**9
# Products with weights, and convolutions, which gain from 8 bits only if the ranges of their inputs are known before.
QUANTISED, CONVOLUTIONS = ("MatMul", "Gemm", "LSTM", "Attention"), ("Conv", "MatMul", "Gemm")
# Batches on which those ranges are found.
CALIBRATED = 4


def onnx_file(name: str, batch: int, quantised: bool = False) -> Path:
    """The network `name` with the weights of seed 0, for batches of this size; kept while the same one is asked for.

    By the exporter that records one call (`dynamo=False`): its files run as fast as the newer one's (measured on the
    small networks: within noise), take a tenth of the time, and let every weight be quantised, where the newer one's
    descriptions of shapes make the quantiser fail. Raises Unsupported.
    """
    folder = Path(_folder(name).name)
    path = folder / f"{batch}{'-int8' * quantised}.onnx"
    if not path.exists():
        if quantised and has_static_ranges(name):
            _quantise_convolutions(name, batch, path)
        elif quantised:
            _quantise(onnx_file(name, batch), path)
        else:
            _export(name, batch, path)
    return path


def has_static_ranges(name: str) -> bool:
    """True for networks whose inputs of layers are rounded to 8 bits with ranges found beforehand: convolutional ones.

    Of transformers the answers are off by up to a tenth then (measured: ViT 5%, CLIP 9%).
    """
    from experiments.models.zoo import ZOO

    return ZOO[name].family == "convolutional"


@lru_cache(maxsize=1)
def _folder(name: str) -> tempfile.TemporaryDirectory[str]:
    """A folder for the files of a network, removed when those of another are asked for, or the process ends."""
    return tempfile.TemporaryDirectory(prefix=f"{name}-onnx-")


def _export(name: str, batch: int, path: Path) -> None:
    import onnx  # noqa: F401 - PyTorch's exporter needs it, and would say so in words of its own
    import torch

    from experiments.devices.cpu import CpuDevice
    from experiments.models.text_generation import weights_on
    from experiments.models.zoo import ZOO

    entry = ZOO[name]
    if (size := entry.parameters() * Dtype.FLOAT32.itemsize) > MOST_BYTES:
        raise Unsupported(f"an ONNX file holds {MOST_BYTES / 1e9:g} GB, these weights take {size / 1e9:.1f} GB")
    if size > (free := shutil.disk_usage(path.parent).free):
        raise Unsupported(f"the model takes {size / 1e9:.1f} GB, {path.parent.parent} has {free / 1e9:.1f} GB left")
    with warnings.catch_warnings(), weights_on(CpuDevice(), Dtype.FLOAT32):
        warnings.simplefilter("ignore")
        torch.onnx.export(entry.model().eval(), (entry.batch(batch)[0],), str(path), dynamo=False)


def _quantise_convolutions(name: str, batch: int, path: Path) -> None:
    """Weights in 8 bits, each output channel with a scale of its own; inputs in 8 bits, in ranges of some batches.

    By ONNX Runtime's quantiser, in the form that it and OpenVINO read (https://onnxruntime.ai/docs/performance/
    model-optimizations/quantization.html).
    """
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from experiments.models.zoo import ZOO

    model, folded = onnx_file(name, batch), path.with_suffix(".folded")
    (given,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs()

    class Batches(CalibrationDataReader):
        left = CALIBRATED

        def get_next(self) -> dict[str, Any] | None:
            self.left -= 1
            return {given.name: ZOO[name].batch(batch)[0].numpy()} if self.left >= 0 else None

    quant_pre_process(str(model), str(folded), skip_symbolic_shape=True)
    quantize_static(
        str(folded), str(path), Batches(), quant_format=QuantFormat.QDQ, op_types_to_quantize=list(CONVOLUTIONS),
        per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, reduce_range=_overflows(),
    )  # fmt: skip
    folded.unlink()


def _overflows() -> bool:
    """True on an x86 core without VNNI.

    It adds pairs of products in 16 bits, which overflow with weights of eight bits:
    https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
    """
    instructions = hardware.cpu().get("simd", [])
    return "avx2" in instructions and not any("vnni" in name for name in instructions)


def _quantise(model: Path, path: Path) -> None:
    """Weights in 8 bits, and inputs of products rounded to 8 bits with a range found at each call.

    By ONNX Runtime's quantiser, for PyTorch's own is announced to be removed.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        model,
        path,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=list(QUANTISED),
        reduce_range=_overflows(),
    )
