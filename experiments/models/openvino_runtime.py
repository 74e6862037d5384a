"""Models in OpenVINO on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from experiments.models.onnx_files import has_static_ranges, onnx_file
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch

# The lines of a refusal that say where in OpenVINO it arose, and no more.
PLACES = ("Exception from", "Check '", "FrontEnd API", "Model wasn't")
PRECISIONS = {Dtype.FLOAT32: "f32", Dtype.BFLOAT16: "bf16", Dtype.FLOAT16: "f16"}


def session(
    name: str, batch: int, dtype: Dtype, threads: int, alone: bool = True
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The network `name`, with the weights of seed 0, for batches of this size.

    dtype: the format that OpenVINO computes in; weights, inputs and outputs are handed over in float32. Left alone it
    takes the one that it holds fastest here, as it does beside the products in int8 of convolutional networks.
    threads: 0 leaves their number to the library. alone: this process computes by one session at a time; threads of
    several would be held to the same cores. Raises Unsupported for formats that it has not, or does not take on this
    processor.
    """
    import openvino
    import torch

    quantised = dtype is Dtype.INT8
    if dtype not in PRECISIONS and not (quantised and has_static_ranges(name)):
        raise Unsupported(f"OpenVINO computes in {', '.join(PRECISIONS)} here, convolutions in int8, not in {dtype}")
    options = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    if not quantised:
        options["INFERENCE_PRECISION_HINT"] = PRECISIONS[dtype]
    if threads:
        options |= {"INFERENCE_NUM_THREADS": threads, "ENABLE_HYPER_THREADING": True}
    if not alone:
        options["ENABLE_CPU_PINNING"] = False
    core, path = openvino.Core(), onnx_file(name, batch, quantised)
    try:
        made = core.compile_model(core.read_model(path), "CPU", options)
    except RuntimeError as refusal:
        raise Unsupported(f"OpenVINO {openvino.__version__} does not take this network: {_reason(refusal)}") from None
    taken = _precision(made) if quantised else made.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    if taken != ("int8" if quantised else PRECISIONS[dtype]):
        raise Unsupported(f"OpenVINO computes in {taken} where {dtype} is asked for: this processor lacks the format")
    request = made.create_infer_request()

    def call(inputs: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(request.infer([inputs.numpy()], share_inputs=True, share_outputs=True)[0])

    return call


def _precision(compiled: Any) -> str:
    """int8 if all convolutions are computed in 8 bits; else the format of one that is not."""
    told = [
        {key: one.value for key, one in layer.get_rt_info().items()} for layer in compiled.get_runtime_model().get_ops()
    ]
    formats = {layer["runtimePrecision"] for layer in told if layer["layerType"] == "Convolution"}
    return str(min(formats - {"u8", "i8"}, default="int8"))


def _reason(refusal: RuntimeError) -> str:
    lines = [line.strip() for line in str(refusal).splitlines()]
    return next((line for line in lines if line and not line.startswith(PLACES)), lines[0])
