"""Networks that run in OpenVINO, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from experiments.models.onnx_files import has_static_ranges, onnx_file
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch

# Line beginnings in OpenVINO's error messages. These lines name only a location in OpenVINO's code, not the reason.
PLACES = ("Exception from", "Check '", "FrontEnd API", "Model wasn't")
PRECISIONS = {Dtype.FLOAT32: "f32", Dtype.BFLOAT16: "bf16", Dtype.FLOAT16: "f16"}


def session(
    name: str, batch: int, dtype: Dtype, threads: int, alone: bool = True
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Load the network `name`, with weights drawn from seed 0, and return a callable that maps inputs to outputs.

    batch: samples per call. dtype: number format to compute in; inputs and outputs are in float32. int8 is only for
    convolutions in convolutional networks; OpenVINO chooses the format for all other operators.
    threads: number of threads; 0 for OpenVINO's default. alone: True if this process runs only one session at a time;
    otherwise threads are not pinned to cores, because OpenVINO would pin all sessions to the same cores.
    Raises Unsupported for formats that OpenVINO lacks or does not use on this processor.
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
        compiled = core.compile_model(core.read_model(path), "CPU", options)
    except RuntimeError as refusal:
        raise Unsupported(
            f"OpenVINO {openvino.__version__} cannot compile this network: {_refusal_reason(refusal)}"
        ) from None
    hint = "INFERENCE_PRECISION_HINT"
    precision = _convolution_precision(compiled) if quantised else compiled.get_property(hint).get_type_name()
    if precision != ("int8" if quantised else PRECISIONS[dtype]):
        raise Unsupported(f"OpenVINO computes in {precision} instead of {dtype}: this processor lacks the format")
    request = compiled.create_infer_request()

    def call(inputs: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(request.infer([inputs.numpy()], share_inputs=True, share_outputs=True)[0])

    return call


def _convolution_precision(compiled: Any) -> str:
    """Return int8 if all convolutions run in 8 bits; otherwise return another format in which a convolution runs."""
    layers = [
        {key: value.value for key, value in layer.get_rt_info().items()}
        for layer in compiled.get_runtime_model().get_ops()
    ]
    formats = {layer["runtimePrecision"] for layer in layers if layer["layerType"] == "Convolution"}
    return str(min(formats - {"u8", "i8"}, default="int8"))


def _refusal_reason(refusal: RuntimeError) -> str:
    lines = [line.strip() for line in str(refusal).splitlines()]
    return next((line for line in lines if line and not line.startswith(PLACES)), lines[0])
