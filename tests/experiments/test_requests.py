"""Requests to devices and to the models on them: data are moved, phases are timed, and checks detect lost data."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from experiments.devices.cpu import CpuDevice
from experiments.models import compiled as compiling
from experiments.models import offload_requests, onnx_files, onnx_runtime, operator_traffic, text_generation
from experiments.models.catalogue import NETWORKS
from experiments.models.text_generation import Generator, seeded_weights
from experiments.models.zoo import ZOO, catalogue_entry
from experiments.suite import inference, offload, transfer
from experiments.workload import Dtype, Unsupported
from tests.experiments.point_runs import CPU, GPU, build_work, check_error, passes_check
from tests.experiments.second_device import SecondCpu

MEMORY_LAUNCHES = [("pinned", "eager"), ("pageable", "eager"), ("pinned", "graph")]
SHAPES: dict[str, dict[str, Any]] = {
    "elementwise": {"m": 1000, "n": 1, "k": 1}, "gemv": {"m": 48, "n": 1, "k": 80}, "gemm": {}, "mlp": {"m": 9},
}  # fmt: skip


class StaleGraphDevice(SecondCpu):
    """GPU whose graphs do nothing, as if they had been captured with other buffers."""

    def graph(self, calls: Any) -> Any:
        super().graph(calls)
        return lambda: None


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("offload", {"host_memory": "pinned", "launch": "graph"}),
        ("inference", {"backend": "graph"}),
        ("sustained", {"load": "one_block", "extent": 16}),
    ],
)
def test_graph_that_does_nothing_fails_the_check(name: str, changed: dict[str, Any]) -> None:
    assert passes_check(build_work(name, GPU, **changed))
    assert not passes_check(build_work(name, StaleGraphDevice(), **changed))


@pytest.mark.parametrize(("host_memory", "launch"), MEMORY_LAUNCHES)
@pytest.mark.parametrize("op", SHAPES)
def test_fresh_data_are_sent_and_the_result_is_fetched(
    op: str, host_memory: str, launch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = {"op": op, **SHAPES[op], "host_memory": host_memory, "launch": launch}
    workload = build_work("offload", GPU, **changed)
    assert passes_check(workload)
    assert passes_check(workload), "on other data, in another slot"
    for lost in ("send", "fetch"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(offload.Trip, lost, lambda self, slot: None)
            assert not passes_check(build_work("offload", GPU, **changed)), lost
    request_class = {"elementwise": offload_requests.Elementwise, "gemm": offload_requests.Product}.get(
        op, offload_requests.Layers
    )
    bind = request_class.bind
    monkeypatch.setattr(request_class, "bind", lambda self, *data: lambda: bind(self, *data)().mul_(1.001))
    assert not passes_check(build_work("offload", GPU, **changed))


def test_host_times_include_the_wait_for_the_device() -> None:
    device = SecondCpu()
    workload = build_work("offload", device, host_memory="pinned")
    assert (workload.clock, [other.clock for other in workload.beside]) == ("host", ["device"])
    before = device.waits
    device.time(workload, 3)
    assert device.waits == before + 3 + 1  # one wait for each request, and one before the first


def test_short_request_parts_are_repeated_in_their_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    graph = SecondCpu.graph
    monkeypatch.setattr(SecondCpu, "graph", lambda self, calls: lengths.append(len(calls)) or graph(self, calls))
    for m, uses in ((1000, 1), (1000, 5), (offload.SHORT_BYTES // 8, 1)):
        workload = build_work("offload", GPU, op="elementwise", m=m, n=1, k=1, uses=uses, host_memory="pinned")
        repeats = offload.REPEATS // uses if m == 1000 else 1
        assert [*lengths, workload.beside[0].per] == [repeats] * 4
        lengths.clear()


def test_device_times_need_pinned_memory_and_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_work("offload", GPU, host_memory="pageable").beside == ()
    monkeypatch.setattr(SecondCpu, "graph", CpuDevice.graph)
    (device_time,) = build_work("offload", GPU, host_memory="pinned").beside
    with pytest.raises(Unsupported, match="no graphs"):
        device_time.calls[0]()
    with pytest.raises(Unsupported):
        build_work("offload", GPU, host_memory="pinned", launch="graph")


@pytest.mark.parametrize("launch", ["eager", "graph"])
def test_requests_rotate_through_host_memory(launch: str) -> None:
    trip = offload.Trip(offload_requests.Elementwise(SecondCpu(), "torch", Dtype.FLOAT32, 100, 1, 1), 1, 3, pinned=True)
    phases = trip.phases if launch == "eager" else trip.capture_graphs()
    for (data,), result in trip.slots:
        data.fill_(0.0)
        result.fill_(-1.0)
    for done in (1, 2, 3):
        for _, phase in phases:
            phase()
        assert sum(bool((result == 0.5).all()) for _, result in trip.slots) == done


class PeerDevice(SecondCpu):
    """Device that is its own peer; it records how many calls each concurrent launch has."""

    at_once: tuple[int, ...] = ()

    @classmethod
    def peers(cls, name: str) -> list[str]:
        return [name]

    def launch_concurrently(self, calls: Sequence[Callable[[], object]]) -> None:
        self.at_once += (len(calls),)
        super().launch_concurrently(calls)


@pytest.mark.parametrize(
    ("direction", "host_memory"),
    [
        *((way, kind) for way in ("host_to_device", "device_to_host") for kind in ("pinned", "pageable")),
        ("both", "pinned"),
        ("device_to_device", "none"),
        ("peer", "none"),
    ],
)
def test_transfers_are_exact_and_each_corrupted_part_is_detected(
    monkeypatch: pytest.MonkeyPatch, direction: str, host_memory: str
) -> None:
    monkeypatch.setattr(transfer, "PART", 1000)
    for size in (1, 4, 5000):
        device = PeerDevice()
        workload = build_work("transfer", device, size=size, direction=direction, host_memory=host_memory)
        assert check_error(workload) == workload.tolerance == 0.0
        assert device.waits >= 1, "pinned copies are asynchronous"
        assert device.at_once == ((2,) if direction == "both" else ())
    copy = torch.Tensor.copy_

    def spoilt_error(spoil: Callable[[torch.Tensor], torch.Tensor]) -> float:
        def spoil_copy(to: torch.Tensor, sent: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
            return copy(to, spoil(sent) if len(to) == 5000 else sent, non_blocking)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "copy_", spoil_copy)
            return check_error(workload)

    for at in torch.arange(7, 5000, 1000).split(1):
        assert spoilt_error(
            lambda sent, at=at: sent.index_add(0, at, torch.ones(1, dtype=sent.dtype))
        ) == pytest.approx(1 / 5)
    assert spoilt_error(lambda sent: torch.cat([sent[1000:2000], sent[:1000], sent[2000:]])) == pytest.approx(2 / 5)


@pytest.mark.parametrize("backend", ["torch", "graph"])
@pytest.mark.parametrize("lost", ["send", "fetch", "compute"])
def test_lost_request_phase_fails_the_check(monkeypatch: pytest.MonkeyPatch, lost: str, backend: str) -> None:
    monkeypatch.setattr(inference.Service, lost, lambda self, *_: None)
    assert not passes_check(build_work("inference", GPU, backend=backend))


def test_large_batch_is_checked_on_a_few_samples_and_scanned_for_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    batch_sizes: list[int] = []
    exact_logits, wrap = text_generation.exact_logits, inference.Service.wrap_inference_mode
    monkeypatch.setattr(
        text_generation, "exact_logits", lambda *args: batch_sizes.append(len(args[1])) or exact_logits(*args)
    )
    monkeypatch.setattr(inference, "CHECKED_FLOP", 3.5 * ZOO["mlp"].forward_flop(1))
    assert passes_check(build_work("inference", batch=64))
    assert batch_sizes == [3]
    lost = torch.arange(63)
    monkeypatch.setattr(
        inference.Service,
        "wrap_inference_mode",
        lambda self, call: lambda inputs: wrap(self, call)(inputs).index_fill(0, lost, torch.nan),
    )
    assert not passes_check(build_work("inference", batch=64))


def test_model_is_exported_once_and_a_large_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx_files._network_folder.cache_clear()
    written: list[str] = []
    export = torch.onnx.export
    monkeypatch.setattr(torch.onnx, "export", lambda *args, **more: written.append(args[2]) or export(*args, **more))
    for dtype in ("float32", "int8", "float32"):
        build_work("inference", backend="onnx", dtype=dtype)
    build_work("inference", backend="openvino", dtype="float32")
    assert len(written) == 1
    folder = Path(written[0]).parent
    assert folder.exists()
    with pytest.raises(Unsupported, match="2 GB"):
        onnx_files.onnx_file("llama-1b", 1)
    gc.collect()
    assert not folder.exists()


def test_full_disk_is_reported_before_the_export(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx_files._network_folder.cache_clear()
    monkeypatch.setattr(onnx_files.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**6))
    with pytest.raises(Unsupported, match=r"takes 0\.4 GB, .* has 0\.0 GB left"):
        onnx_files.onnx_file("bert-base", 1)


def test_onnx_runtime_binds_the_memory_of_tensors() -> None:
    """The test runs on the CPU. On a GPU, the same calls bind the memory of tensors to a session."""
    import onnxruntime

    session = onnxruntime.InferenceSession(onnx_files.onnx_file("mlp", 2), providers=["CPUExecutionProvider"])
    call = onnx_runtime.bind_session(session, "cpu", "0")
    with seeded_weights(CPU, Dtype.FLOAT32):
        model = ZOO["mlp"].model().eval()
    for _ in range(2):
        inputs = ZOO["mlp"].batch(2)[0]
        assert torch.allclose(call(inputs), model(inputs), atol=1e-5)


@pytest.mark.parametrize(
    ("maker", "message"), [("NVIDIA", "pip install onnxruntime-gpu"), ("AMD", "backend onnx does not run on")]
)
def test_gpu_without_onnx_runtime_is_unsupported(maker: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecondCpu, "maker", maker)
    with pytest.raises(Unsupported, match=message):
        build_work("inference", GPU, backend="onnx")


def test_openvino_in_another_format_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    import openvino

    used_options: list[dict[str, Any]] = []
    compile_model = openvino.Core.compile_model

    def in_float32(self: Any, model: Any, device: str, options: dict[str, Any]) -> Any:
        used_options.append(options)
        return compile_model(self, model, device, {**options, "INFERENCE_PRECISION_HINT": "f32"})

    monkeypatch.setattr(openvino.Core, "compile_model", in_float32)
    with pytest.raises(Unsupported, match="computes in f32 instead of bfloat16"):
        build_work("inference", backend="openvino", dtype="bfloat16", threads=2)
    assert used_options[0]["INFERENCE_NUM_THREADS"] == 2


@pytest.mark.parametrize(
    ("cause", "fix"),
    [
        ("C++ compiler g++ not found", "apt-get install g"),
        ("Cannot find a working triton installation", "needs Triton"),
        ("fatal error: Python.h: No such file", "python3-dev"),
        ("something else", "TORCH_LOGS"),
    ],
)
def test_compiler_error_suggests_a_fix(monkeypatch: pytest.MonkeyPatch, cause: str, fix: str) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def fail(*_: Any) -> Any:
        raise TorchDynamoException(cause)

    monkeypatch.setattr(compiling.torch, "compile", lambda call, **_: fail)
    with pytest.raises(Unsupported, match=fix):
        build_work("inference", backend="inductor")


@pytest.mark.parametrize(
    ("backend", "model", "layout"),
    [("torch", "cnn", torch.contiguous_format), ("channels_last", "cnn", torch.channels_last),
     ("inductor", "cnn", torch.channels_last), ("inductor", "gpt-1m", torch.contiguous_format)],
)  # fmt: skip
def test_only_images_use_channels_last(
    backend: str, model: str, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    services: list[Any] = []
    service = inference.Service
    monkeypatch.setattr(inference, "Service", lambda *args: services.append(service(*args)) or services[0])
    monkeypatch.setattr(compiling.torch, "compile", lambda call, **_: call)
    build_work("inference", backend=backend, model=model)
    assert services[0].layout is layout


SMALL_GPT = {"vocab_size": 500, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}


def generator(dtype: str = "float64", batch: int = 3, tokens: int = 24) -> Generator:
    """Return a text generator with a small GPT-2."""
    network = replace(NETWORKS["gpt2-124m"], config=SMALL_GPT, shape=(tokens,), counts=None)
    with seeded_weights(CPU, Dtype(dtype)):
        model = catalogue_entry(network).model()
    return Generator(model, lambda: torch.randint(500, (batch, tokens)), CPU)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_both_phases_match_the_full_forward_pass(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for tokens in (2, 24, 64):
        assert generator(tokens=tokens).error(phase) < 1e-13
    for dtype in ("float32", "bfloat16", "float16"):
        assert generator(dtype).error(phase) <= inference.TOLERANCE[Dtype(dtype)]
    model = generator()
    monkeypatch.setattr(torch.Tensor, "index_copy_", lambda self, *_: self)
    assert not model.error(phase) < 1e-3, "a cache without updates is detected"


def test_each_decoded_token_repeats_the_same_work_in_the_same_memory() -> None:
    model = generator()
    before = [layer.keys.data_ptr() for layer in model.cached.cache.layers]
    first = model.decode().clone()
    model.decode()
    torch.testing.assert_close(model.decode(), first)
    assert [layer.keys.data_ptr() for layer in model.cached.cache.layers] == before


def test_decoding_moves_the_weights_and_the_cache_once() -> None:
    model = generator("bfloat16", batch=3, tokens=24)
    _, moved = operator_traffic.total_traffic(model.decode)
    matrices = 2 * 12 * 64**2 + 500 * 64
    cache = 2 * 2 * 3 * 24 * 64
    assert 2 * (matrices + cache) < moved < 2.8 * (matrices + cache)
