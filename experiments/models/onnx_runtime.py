"""Models in ONNX Runtime on the CPU, as they are or with products in 8-bit whole numbers."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from experiments import hardware
from experiments.work import Dtype, Unsupported

if TYPE_CHECKING:
    import torch

# One file of the format holds so many bytes: what protocol buffers allow.
MOST_BYTES = 2 * 10**9
# Products with weights; convolutions, whose inputs would need calibrated ranges to gain from 8 bits, stay in float32.
QUANTISED = ("MatMul", "Gemm", "LSTM", "Attention")
# Models that are kept by a process, so that each is exported once for all its points.
KEPT = 8


def session(name: str, batch: int, dtype: Dtype, threads: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The model `name` of the zoo, with the weights of seed 0, for batches of this size.

    dtype: float32, or int8: weights in 8 bits, and inputs of products rounded to 8 bits with
    a range found at each call (dynamic quantisation). threads: 0 leaves their number to the library.
    Raises Unsupported for other formats and for models past the size of a file.
    """
    import torch

    if dtype not in (Dtype.FLOAT32, Dtype.INT8):
        raise Unsupported(f"ONNX Runtime has no {dtype} kernels for the CPU")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    made = onnxruntime.InferenceSession(
        exported(name, batch, dtype is Dtype.INT8), options, providers=["CPUExecutionProvider"]
    )
    given = made.get_inputs()[0].name

    def call(inputs: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(made.run(None, {given: inputs.numpy()})[0])

    return call


@lru_cache(maxsize=KEPT)
def exported(name: str, batch: int, quantised: bool) -> bytes:
    """The model as an ONNX file. Raises Unsupported.

    By the exporter that records one call (`dynamo=False`): what it writes runs as fast as what the newer
    one does (measured on this zoo: within noise), takes a tenth of the time, and lets every weight be
    quantised, where the newer one's descriptions of shapes make the quantiser fail.
    ONNX Runtime's quantiser, for PyTorch's own is announced to be removed.
    """
    import onnx  # noqa: F401 - PyTorch's exporter needs it, and would say so in words of its own
    import torch

    from experiments.devices.cpu import CpuDevice
    from experiments.models.generate import weights_on
    from experiments.models.zoo import ZOO

    entry = ZOO[name]
    if entry.parameters() * 4 > MOST_BYTES:
        raise Unsupported(f"a file of ONNX holds {MOST_BYTES / 1e9:g} GB, and this model's weights are larger")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        if quantised:
            return _quantised(exported(name, batch, False), Path(folder))
        with weights_on(CpuDevice(), Dtype.FLOAT32):
            model = entry.model().eval()
        torch.onnx.export(model, (entry.batch(batch)[0],), str(path), dynamo=False)
        return path.read_bytes()


def _quantised(model: bytes, folder: Path) -> bytes:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = folder / "quantised.onnx"
    instructions = hardware.cpu().get("simd", [])
    quantize_dynamic(
        onnx.load_model_from_string(model),
        path,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=list(QUANTISED),
        # An x86 core without VNNI adds pairs of products in 16 bits, which overflow with weights of eight bits:
        # https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
        reduce_range="avx2" in instructions and not any("vnni" in name for name in instructions),
    )
    return path.read_bytes()
