"""ONNX files of networks in float32, or with matrix products in 8-bit integers."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiments import hardware
from experiments.workload import Dtype, Unsupported

# Largest file size in bytes. ONNX files are protocol buffers, which have this limit.
MOST_BYTES = 2 * 10**9
# CONVOLUTIONS: operators to quantise in convolutional networks. Their input ranges are static (determined in advance),
# because convolutions gain from 8 bits only with static ranges. QUANTISED: operators to quantise in all other networks.
# Their input ranges are dynamic (determined anew in each call).
QUANTISED, CONVOLUTIONS = ("MatMul", "Gemm", "LSTM", "Attention"), ("Conv", "MatMul", "Gemm")
# Batches used to find the static input ranges.
CALIBRATED = 4


def onnx_file(name: str, batch: int, quantised: bool = False) -> Path:
    """Return an ONNX file with the network `name` for a batch size, with weights drawn from seed 0.

    Only the latest network's files are kept. PyTorch's tracing exporter (`dynamo=False`) writes them, for two reasons.
    It takes a tenth of the newer exporter's time, and the files from both run equally fast (within noise on the small
    networks). Every weight in the tracing exporter's files can be quantised, while the newer exporter adds shape
    annotations that make the quantiser fail.
    Raises Unsupported if the file would be too large.
    """
    folder = Path(_network_folder(name).name)
    path = folder / f"{batch}{'-int8' * quantised}.onnx"
    if not path.exists():
        if quantised and has_static_ranges(name):
            _quantise_convolutions(name, batch, path)
        elif quantised:
            _quantise_dynamically(onnx_file(name, batch), path)
        else:
            _export(name, batch, path)
    return path


def has_static_ranges(name: str) -> bool:
    """Return True for convolutional networks, whose input ranges in 8 bits are static and come from calibration.

    Static ranges would cost transformers too much accuracy (measured errors: ViT 5%, CLIP 9%).
    """
    from experiments.models.zoo import ZOO

    return ZOO[name].family == "convolutional"


@lru_cache(maxsize=1)
def _network_folder(name: str) -> tempfile.TemporaryDirectory[str]:
    """Make a folder for a network's files; remove it when another network gets a folder, or the process ends."""
    return tempfile.TemporaryDirectory(prefix=f"{name}-onnx-")


def _export(name: str, batch: int, path: Path) -> None:
    import onnx  # noqa: F401 - PyTorch's exporter needs it; fail here with ModuleNotFoundError
    import torch

    from experiments.devices.cpu import CpuDevice
    from experiments.models.text_generation import seeded_weights
    from experiments.models.zoo import ZOO

    entry = ZOO[name]
    if (size := entry.parameters() * Dtype.FLOAT32.itemsize) > MOST_BYTES:
        raise Unsupported(
            f"ONNX files are limited to {MOST_BYTES / 1e9:g} GB, and these weights take {size / 1e9:.1f} GB"
        )
    if size > (free := shutil.disk_usage(path.parent).free):
        raise Unsupported(f"the model takes {size / 1e9:.1f} GB, {path.parent.parent} has {free / 1e9:.1f} GB left")
    with warnings.catch_warnings(), seeded_weights(CpuDevice(), Dtype.FLOAT32):
        warnings.simplefilter("ignore")
        torch.onnx.export(entry.model().eval(), (entry.batch(batch)[0],), str(path), dynamo=False)


def _quantise_convolutions(name: str, batch: int, path: Path) -> None:
    """Write the network to `path` in 8 bits, with a scale per output channel and input ranges from CALIBRATED batches.

    Uses ONNX Runtime's quantiser, and a format (QDQ) that ONNX Runtime and OpenVINO can read:
    https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
    """
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from experiments.models.zoo import ZOO

    model, folded = onnx_file(name, batch), path.with_suffix(".folded")
    (source,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs()

    class Batches(CalibrationDataReader):
        remaining = CALIBRATED

        def get_next(self) -> dict[str, Any] | None:
            self.remaining -= 1
            return {source.name: ZOO[name].batch(batch)[0].numpy()} if self.remaining >= 0 else None

    quant_pre_process(str(model), str(folded), skip_symbolic_shape=True)
    quantize_static(
        str(folded), str(path), Batches(), quant_format=QuantFormat.QDQ, op_types_to_quantize=list(CONVOLUTIONS),
        per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        reduce_range=_has_overflowing_sums(),
    )  # fmt: skip
    folded.unlink()


def _has_overflowing_sums() -> bool:
    """Return True on an x86 core without VNNI instructions.

    These cores add pairs of products in 16 bits, and the sums overflow if the weights use all 8 bits:
    https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
    """
    instructions = hardware.cpu().get("simd", [])
    return "avx2" in instructions and not any("vnni" in name for name in instructions)


def _quantise_dynamically(model: Path, path: Path) -> None:
    """Write the network to `path` with weights in 8 bits; the runtime finds the input ranges anew in each call.

    Uses ONNX Runtime's quantiser, because PyTorch will remove its own quantiser.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        model,
        path,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=list(QUANTISED),
        reduce_range=_has_overflowing_sums(),
    )
