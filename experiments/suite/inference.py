"""Inference with trained models, one request after the other; inputs and answers lie in host memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.models.catalogue import NETWORKS
from experiments.models.network_names import Model
from experiments.registry import experiment
from experiments.workload import Dtype, Phase, Threads, Unsupported, Workload, relative_error

if TYPE_CHECKING:
    import torch

    from experiments.models.zoo import Entry

Backend = Literal["torch", "channels_last", "inductor", "graph", "onnx", "openvino"]
# These runtimes read the network from a float32 file, whatever format they compute in.
RUNTIMES = ("onnx", "openvino")

# Number of requests to rotate through, each with its own inputs.
SLOTS = 8
# FLOP budget for the float64 reference. It limits the number of samples to check from a batch; at least one sample is
# checked.
CHECKED_FLOP = 1e10
# Tolerated relative error. In half precision, some dozens of layers round their results. Their rounding errors add up
# like independent errors: in these models, the total is at most four times the error of one rounding. In float32, sums
# over up to thousands of terms add their own rounding. In int8, inputs and weights are rounded to 256 steps across
# their range, which causes an error of about 1% each for random normal data; residual connections dilute this error (1
# to 2% measured on these models).
TOLERANCE = {
    Dtype.FLOAT64: 1e-12,
    Dtype.FLOAT32: 1e-5,
    **{dtype: 16 * dtype.unit_roundoff for dtype in (Dtype.TF32, Dtype.BFLOAT16, Dtype.FLOAT16)},
    Dtype.INT8: 5e-2,
}


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    """Take an eighth of the batch, down to one sample, for a cheaper sweep point.

    Replace every backend except onnx and graph by torch, which needs no compiling or exporting.
    """
    if params["batch"] == 1:
        return None
    reduced = {**params, "batch": max(1, params["batch"] // 8)}
    return reduced if params["backend"] in ("onnx", "graph") else {**reduced, "backend": "torch"}


def memory(model: str, dtype: str, backend: str, **_: Any) -> float:
    """Estimate the bytes for the weights and the check's float64 weights.

    For ONNX Runtime, add the file with the weights and the copy of the file in memory.
    """
    from experiments.models.zoo import ZOO

    copies = 20 if backend == "onnx" else 8
    return ZOO[model].parameters() * float(Dtype(dtype).itemsize + copies)


def flop(model: str, batch: int, **_: Any) -> float:
    """Return the FLOP for the products in one forward pass."""
    from experiments.models.zoo import ZOO

    return ZOO[model].forward_flop(batch)


def extra_s(call_s: float, model: str, dtype: str, backend: str, threads: int, **_: Any) -> float:
    """Estimate the seconds to check answers, to make the model again for another runtime, and to compile.

    Catalogue networks reuse a pool of random values for their weights, so deduct a part of the time that the plan
    allows for drawing them. Checking a catalogue network takes as long as some float32 calls. About one sweep point in
    four has to write the file that ONNX Runtime and OpenVINO share.
    """
    if not threads:
        return 0.5
    if model not in NETWORKS:
        return 0.25
    from experiments.models.zoo import ZOO

    entry = ZOO[model]
    weights = entry.parameters()
    seconds = 0.3 + call_s * (8 if dtype == Dtype.BFLOAT16 else 4) - 1.1e-8 * weights
    if backend == "inductor":
        seconds += 25.0 if entry.family == "convolutional" else 7.0
    if backend in RUNTIMES:
        seconds += 0.2 + (1.8e-8 + 4e-8 * (dtype == Dtype.INT8)) * weights
        # Activation ranges for convolutions are calibrated once for both runtimes.
        seconds += 2.0 if dtype == Dtype.INT8 and entry.family == "convolutional" else 0.0
    # Deduct the time to copy the weights: ONNX Runtime reads the weights from the file, so only the check copies them.
    return seconds - (1.5e-8 * weights if backend == "onnx" else 0.0)


@experiment("inference", smaller=smaller, memory=memory, flop=flop, extra_s=extra_s, load_s=2.5, protocol=2)
def inference(device: Device, model: Model, batch: int, dtype: Dtype, backend: Backend, threads: Threads) -> Workload:
    """Send one request: `batch` samples go from host memory through the model, and the answer comes back.

    backend: torch (default settings); channels_last; inductor (compiled, weights folded into the kernels, images with
        channels last); graph (on a GPU, captured as one graph); onnx (ONNX Runtime); openvino (on a CPU).
    dtype: format for weights, data and answer; OpenVINO uses it only for its computations. int8 rounds weights and the
        inputs of products to 8 bits. ONNX Runtime finds the range of these inputs at each call; for convolutional
        networks, both runtimes calibrate it beforehand.

    A `time` sample is one request by the host's clock. For a GPU the inputs lie in pinned memory (for Apple's GPUs,
    which have none, in plain memory). `device_time` is the device's own time for each phase of a request (copy in,
    compute, copy out); for this metric, the host launches the phases separately.
    bytes: weights, inputs and answer, each counted once.
    """
    from experiments.models.text_generation import seeded_weights, set_tf32
    from experiments.models.zoo import ZOO

    if batch < 1:
        raise Unsupported("batch must be at least 1")
    if dtype not in TOLERANCE or (dtype is Dtype.INT8 and backend not in RUNTIMES):
        raise Unsupported(f"{backend} does not support {dtype} here: int8 needs ONNX Runtime or OpenVINO")
    if backend == "openvino" and device.kind != "cpu":
        raise device.unsupported_backend(backend)
    entry, weight_dtype = ZOO[model], Dtype.FLOAT32 if backend in RUNTIMES else dtype
    if backend == "channels_last" and not entry.images:
        raise Unsupported(f"{model} takes no images: channels_last needs them")
    set_tf32(device, dtype)
    with seeded_weights(device, weight_dtype):
        network = entry.model().eval()
    channels_last = backend == "channels_last" or (backend == "inductor" and entry.images)
    service = Service(entry, network, device, weight_dtype, batch, channels_last)
    if backend == "onnx":
        from experiments.models import onnx_runtime

        service.answer = onnx_runtime.session(model, batch, dtype, threads, device)
    elif backend == "openvino":
        from experiments.models import openvino_runtime

        service.answer = openvino_runtime.session(model, batch, dtype, threads)
    elif backend == "inductor":
        from experiments.models.compiled import compile_call

        service.answer = service.wrap_inference_mode(
            compile_call(
                network, threads, lambda call: service.wrap_inference_mode(call)(service.device_inputs), freezing=True
            )
        )
    elif backend == "graph":
        service.capture()
    return Workload(
        run=[partial(service.request, slot) for slot in range(SLOTS)],
        flop=entry.forward_flop(batch),
        bytes=service.bytes(),
        check=service.error,
        tolerance=TOLERANCE[dtype],
        clock="host",
        single=True,
        beside=service.device_workloads(),
    )


class Service:
    """Model with buffers for requests in host memory and, if it runs on a GPU, one input buffer on the GPU.

    channels_last: store convolution weights and images with channels last.
    """

    def __init__(
        self,
        entry: Entry,
        network: torch.nn.Module,
        device: Device,
        dtype: Dtype,
        batch: int,
        channels_last: bool = False,
    ) -> None:
        import torch

        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        if channels_last:
            network = network.to(memory_format=self.layout)  # type: ignore[call-overload]
        self.entry, self.network, self.device, self.batch = entry, network, device, batch
        self.torch_dtype = device.torch_dtype(dtype)
        self.inputs = [self.draw_inputs() for _ in range(SLOTS)]
        self.device_inputs = self.inputs[0].to(device.name)
        self.answer: Callable[[torch.Tensor], torch.Tensor] = self.wrap_inference_mode(network)
        self.out = self.answer(self.device_inputs)
        if device.kind != "cpu":
            self.inputs = [device.stage(inputs) for inputs in self.inputs]
        self.results = [self.host_buffer(self.out) for _ in range(SLOTS)]

    def host_buffer(self, data: torch.Tensor) -> torch.Tensor:
        """Return an empty host buffer with the shape and format of `data`."""
        import torch

        buffer = torch.empty(data.shape, dtype=data.dtype)
        return buffer if self.device.kind == "cpu" else self.device.stage(buffer)

    def draw_inputs(self) -> torch.Tensor:
        """Draw new samples in host memory."""
        inputs = self.entry.batch(self.batch)[0].contiguous(memory_format=self.layout)
        return inputs.to(self.torch_dtype) if inputs.is_floating_point() else inputs

    def wrap_inference_mode(self, call: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
        """Wrap `call` in PyTorch's inference mode, so that it keeps no data for gradients."""
        import torch

        def answer(inputs: torch.Tensor) -> torch.Tensor:
            with torch.inference_mode():
                out: torch.Tensor = call(inputs)
                return out

        return answer

    def capture(self) -> None:
        """Capture the computation as a graph for later requests. Raises Unsupported if the device has no graphs."""
        answer, result = self.answer, [self.out]

        def compute() -> None:
            result[0] = answer(self.device_inputs)

        replay = self.device.graph([compute])

        def replay_graph(_: torch.Tensor) -> torch.Tensor:
            replay()
            return result[0]

        self.answer = replay_graph

    def request(self, slot: int) -> None:
        """Process one request. On a GPU only launch it, because the timing code waits for its completion."""
        if self.device.kind == "cpu":
            self.results[slot] = self.answer(self.inputs[slot])
        else:
            self.send(slot)
            self.compute()
            self.fetch(slot)

    def send(self, slot: int) -> None:
        self.device_inputs.copy_(self.inputs[slot], non_blocking=True)

    def compute(self) -> None:
        self.out = self.answer(self.device_inputs)

    def fetch(self, slot: int) -> None:
        self.results[slot].copy_(self.out, non_blocking=True)

    def device_workloads(self) -> list[Workload]:
        """Return a list with one workload, which times each phase of a request by the GPU's clock; [] on a CPU."""
        if self.device.kind == "cpu":
            return []
        phases: list[Phase] = [
            ("to_device", partial(self.send, 0)),
            ("compute", self.compute),
            ("to_host", partial(self.fetch, 0)),
        ]
        return [Workload(phases=phases, metric="device_time")]

    def bytes(self) -> float:
        """Count weights, inputs and answer; for embedding tables only the rows to look up."""
        import torch

        tables = [module for module in self.network.modules() if isinstance(module, torch.nn.Embedding)]
        weights = sum(p.nbytes for p in self.network.parameters()) - sum(table.weight.nbytes for table in tables)
        rows = sum(self.device_inputs.numel() * table.embedding_dim * table.weight.element_size() for table in tables)
        return float(weights + rows + self.device_inputs.nbytes + self.out.nbytes)

    def error(self) -> float:
        """Answer fresh inputs; return the error of the answers in host memory relative to answers in float64."""
        import torch

        from experiments.models.text_generation import exact_logits

        slot, inputs = 0, self.draw_inputs()
        self.inputs[slot].copy_(inputs)
        with torch.inference_mode():  # nan exposes values that are never written
            self.results[slot].fill_(torch.nan)
        self.request(slot)
        self.device.synchronise()
        answers = self.results[slot].double().unflatten(0, (self.batch, -1))
        if not bool(answers.isfinite().all()):
            return float("nan")
        checked = max(1, int(CHECKED_FLOP / self.entry.forward_flop(1)))
        indices = torch.randperm(self.batch)[:checked]
        exact = exact_logits(self.network, inputs[indices], self.device).unflatten(0, (len(indices), -1))
        return relative_error(answers[indices], exact)
