"""Models in ONNX Runtime, on the CPU and on NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from experiments.devices import Device
from experiments.models.onnx_files import onnx_file
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch

Call = Callable[["torch.Tensor"], "torch.Tensor"]
CUDA = "CUDAExecutionProvider"


def session(name: str, batch: int, dtype: Dtype, threads: int, device: Device) -> Call:
    """The network `name`, with the weights of seed 0, for batches of this size that lie on the device.

    dtype: float32, tf32 on a GPU, or int8 on a CPU: weights in 8 bits, and inputs of products rounded to 8 bits with
    a range found at each call (dynamic quantisation). threads: 0 leaves their number to the library.
    Raises Unsupported for other formats and for models past the size of a file.
    """
    import onnxruntime
    import torch

    formats = (Dtype.FLOAT32, Dtype.INT8) if device.kind == "cpu" else (Dtype.FLOAT32, Dtype.TF32)
    if dtype not in formats:
        raise Unsupported(f"ONNX Runtime computes in {' and '.join(formats)} here, not in {dtype}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    on_cpu = device.kind == "cpu"
    provider = "CPUExecutionProvider" if on_cpu else _cuda(device, dtype, onnxruntime.get_available_providers())
    made = onnxruntime.InferenceSession(onnx_file(name, batch, dtype is Dtype.INT8), options, providers=[provider])
    if not on_cpu:
        return bound(made, *device.name.split(":"))
    given = made.get_inputs()[0].name

    def call(inputs: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(made.run(None, {given: inputs.numpy()})[0])

    return call


def _cuda(device: Device, dtype: Dtype, providers: list[str]) -> tuple[str, dict[str, Any]]:
    """The provider for one GPU, with its options. Raises Unsupported where this build has none."""
    import torch

    if device.maker != "NVIDIA":
        raise device.unsupported("onnx")
    if CUDA not in providers:
        raise Unsupported("this onnxruntime is built without CUDA: pip install onnxruntime-gpu in place of onnxruntime")
    return CUDA, {
        "device_id": device.name.partition(":")[2],
        "use_tf32": str(int(dtype is Dtype.TF32)),
        # In torch's own stream, so that copies there and back wait for it.
        "user_compute_stream": str(torch.cuda.current_stream(device.name).cuda_stream),
    }


def bound(made: Any, kind: str, index: str) -> Call:
    """Calls of a session with tensors that lie on a device: one output, which every call writes again."""
    import numpy as np
    import torch

    (given,), answer, binding = made.get_inputs(), made.get_outputs()[0], made.io_binding()
    where = torch.device(kind, int(index))
    out = torch.empty(answer.shape, dtype=torch.float32, device=where)
    binding.bind_output(answer.name, kind, int(index), np.float32, tuple(out.shape), out.data_ptr())

    def call(inputs: torch.Tensor) -> torch.Tensor:
        number = np.float32 if inputs.is_floating_point() else np.int64
        binding.bind_input(given.name, kind, int(index), number, tuple(inputs.shape), inputs.data_ptr())
        made.run_with_iobinding(binding)
        return out

    return call
