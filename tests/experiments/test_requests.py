"""Requests to a device and to models there: what travels, what is timed, and what is lost on the way is noticed."""

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

WAYS = [("pinned", "eager"), ("pageable", "eager"), ("pinned", "graph")]
SHAPES: dict[str, dict[str, Any]] = {
    "elementwise": {"m": 1000, "n": 1, "k": 1}, "gemv": {"m": 48, "n": 1, "k": 80}, "gemm": {}, "mlp": {"m": 9},
}  # fmt: skip


class Stale(SecondCpu):
    """Replays nothing: what a graph gives whose buffers are others than those that are read."""

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
def test_a_graph_that_does_nothing_is_noticed(name: str, changed: dict[str, Any]) -> None:
    assert passes_check(build_work(name, GPU, **changed))
    assert not passes_check(build_work(name, Stale(), **changed))


@pytest.mark.parametrize(("host_memory", "launch"), WAYS)
@pytest.mark.parametrize("op", SHAPES)
def test_fresh_data_go_there_and_the_result_comes_back(
    op: str, host_memory: str, launch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"op": op, **SHAPES[op], "host_memory": host_memory, "launch": launch}
    made = build_work("offload", GPU, **how)
    assert passes_check(made)
    assert passes_check(made), "on other data, from another place"
    for lost in ("send", "fetch"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(offload.Trip, lost, lambda self, slot: None)
            assert not passes_check(build_work("offload", GPU, **how)), lost
    one = {"elementwise": offload_requests.Elementwise, "gemm": offload_requests.Product}.get(
        op, offload_requests.Layers
    )
    on = one.bind
    monkeypatch.setattr(one, "bind", lambda self, *data: lambda: on(self, *data)().mul_(1.001))
    assert not passes_check(build_work("offload", GPU, **how))


def test_the_host_times_every_part_until_the_device_is_done() -> None:
    device = SecondCpu()
    made = build_work("offload", device, host_memory="pinned")
    assert (made.clock, [one.clock for one in made.beside]) == ("host", ["device"])
    before = device.waits
    device.time(made, 3)
    assert device.waits == before + 3 + 1  # for each request, and before the first


def test_parts_of_short_requests_are_repeated_in_their_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    graph = SecondCpu.graph
    monkeypatch.setattr(SecondCpu, "graph", lambda self, calls: lengths.append(len(calls)) or graph(self, calls))
    for m, uses in ((1000, 1), (1000, 5), (offload.SHORT_BYTES // 8, 1)):
        made = build_work("offload", GPU, op="elementwise", m=m, n=1, k=1, uses=uses, host_memory="pinned")
        repeats = offload.REPEATS // uses if m == 1000 else 1
        assert [*lengths, made.beside[0].per] == [repeats] * 4
        lengths.clear()


def test_what_the_device_takes_is_shown_without_the_host_or_the_refusal_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_work("offload", GPU, host_memory="pageable").beside == ()
    monkeypatch.setattr(SecondCpu, "graph", CpuDevice.graph)
    (lack,) = build_work("offload", GPU, host_memory="pinned").beside
    with pytest.raises(Unsupported, match="no graphs"):
        lack.calls[0]()
    with pytest.raises(Unsupported):
        build_work("offload", GPU, host_memory="pinned", launch="graph")


@pytest.mark.parametrize("launch", ["eager", "graph"])
def test_requests_use_one_place_in_host_memory_after_another(launch: str) -> None:
    trip = offload.Trip(offload_requests.Elementwise(SecondCpu(), "torch", Dtype.FLOAT32, 100, 1, 1), 1, 3, pinned=True)
    phases = trip.phases if launch == "eager" else trip.capture_graphs()
    for (data,), result in trip.slots:
        data.fill_(0.0)
        result.fill_(-1.0)
    for done in (1, 2, 3):
        for _, phase in phases:
            phase()
        assert sum(bool((result == 0.5).all()) for _, result in trip.slots) == done


class OneOfTwo(SecondCpu):
    """A device that has another of its kind, and remembers what was launched together."""

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
def test_what_arrives_is_what_was_sent_and_every_part_that_does_not_is_seen(
    monkeypatch: pytest.MonkeyPatch, direction: str, host_memory: str
) -> None:
    monkeypatch.setattr(transfer, "PART", 1000)
    for size in (1, 4, 5000):
        device = OneOfTwo()
        made = build_work("transfer", device, size=size, direction=direction, host_memory=host_memory)
        assert check_error(made) == made.tolerance == 0.0
        assert device.waits >= 1, "pinned copies are on their way when the call returns"
        assert device.at_once == ((2,) if direction == "both" else ())
    copy = torch.Tensor.copy_

    def found(spoil: Callable[[torch.Tensor], torch.Tensor]) -> float:
        def spoiling(to: torch.Tensor, sent: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
            return copy(to, spoil(sent) if len(to) == 5000 else sent, non_blocking)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "copy_", spoiling)
            return check_error(made)

    for at in torch.arange(7, 5000, 1000).split(1):
        assert found(lambda sent, at=at: sent.index_add(0, at, torch.ones(1, dtype=sent.dtype))) == pytest.approx(1 / 5)
    assert found(lambda sent: torch.cat([sent[1000:2000], sent[:1000], sent[2000:]])) == pytest.approx(2 / 5)


@pytest.mark.parametrize("backend", ["torch", "graph"])
@pytest.mark.parametrize("lost", ["send", "fetch", "compute"])
def test_data_that_do_not_travel_are_noticed(monkeypatch: pytest.MonkeyPatch, lost: str, backend: str) -> None:
    monkeypatch.setattr(inference.Service, lost, lambda self, *_: None)
    assert not passes_check(build_work("inference", GPU, backend=backend))


def test_of_a_large_batch_some_samples_are_checked_and_all_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    logits, asked = text_generation.exact_logits, inference.Service.wrap_inference_mode
    monkeypatch.setattr(text_generation, "exact_logits", lambda *of: seen.append(len(of[1])) or logits(*of))
    monkeypatch.setattr(inference, "CHECKED_FLOP", 3.5 * ZOO["mlp"].forward_flop(1))
    assert passes_check(build_work("inference", batch=64))
    assert seen == [3]
    lost = torch.arange(63)
    monkeypatch.setattr(
        inference.Service,
        "wrap_inference_mode",
        lambda self, call: lambda inputs: asked(self, call)(inputs).index_fill(0, lost, torch.nan),
    )
    assert not passes_check(build_work("inference", batch=64))


def test_a_model_is_exported_once_for_all_its_points_unless_it_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_full_disk_is_told_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx_files._network_folder.cache_clear()
    monkeypatch.setattr(onnx_files.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**6))
    with pytest.raises(Unsupported, match=r"takes 0\.4 GB, .* has 0\.0 GB left"):
        onnx_files.onnx_file("bert-base", 1)


def test_onnx_runtime_writes_its_answer_where_the_tensors_lie() -> None:
    """Played on the CPU, where the same calls bind memory."""
    import onnxruntime

    made = onnxruntime.InferenceSession(onnx_files.onnx_file("mlp", 2), providers=["CPUExecutionProvider"])
    call = onnx_runtime.bind_session(made, "cpu", "0")
    with seeded_weights(CPU, Dtype.FLOAT32):
        model = ZOO["mlp"].model().eval()
    for _ in range(2):
        inputs = ZOO["mlp"].batch(2)[0]
        assert torch.allclose(call(inputs), model(inputs), atol=1e-5)


@pytest.mark.parametrize(
    ("maker", "said"), [("NVIDIA", "pip install onnxruntime-gpu"), ("AMD", "backend onnx does not run on")]
)
def test_a_gpu_without_an_onnx_runtime_is_told(maker: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecondCpu, "maker", maker)
    with pytest.raises(Unsupported, match=said):
        build_work("inference", GPU, backend="onnx")


def test_openvino_says_which_format_it_really_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    import openvino

    given: list[dict[str, Any]] = []
    compile_model = openvino.Core.compile_model

    def in_float32(self: Any, model: Any, device: str, options: dict[str, Any]) -> Any:
        given.append(options)
        return compile_model(self, model, device, {**options, "INFERENCE_PRECISION_HINT": "f32"})

    monkeypatch.setattr(openvino.Core, "compile_model", in_float32)
    with pytest.raises(Unsupported, match="computes in f32 instead of bfloat16"):
        build_work("inference", backend="openvino", dtype="bfloat16", threads=2)
    assert given[0]["INFERENCE_NUM_THREADS"] == 2


@pytest.mark.parametrize(
    ("cause", "mend"),
    [
        ("C++ compiler g++ not found", "apt-get install g"),
        ("Cannot find a working triton installation", "needs Triton"),
        ("fatal error: Python.h: No such file", "python3-dev"),
        ("something else", "TORCH_LOGS"),
    ],
)
def test_what_cannot_be_compiled_says_what_to_do(monkeypatch: pytest.MonkeyPatch, cause: str, mend: str) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def first(*_: Any) -> Any:
        raise TorchDynamoException(cause)

    monkeypatch.setattr(compiling.torch, "compile", lambda call, **_: first)
    with pytest.raises(Unsupported, match=mend):
        build_work("inference", backend="inductor")


@pytest.mark.parametrize(
    ("backend", "model", "layout"),
    [("torch", "cnn", torch.contiguous_format), ("channels_last", "cnn", torch.channels_last),
     ("inductor", "cnn", torch.channels_last), ("inductor", "gpt-1m", torch.contiguous_format)],
)  # fmt: skip
def test_images_alone_lie_with_channels_last_where_that_is_faster(
    backend: str, model: str, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    service = inference.Service
    monkeypatch.setattr(inference, "Service", lambda *given: made.append(service(*given)) or made[0])
    monkeypatch.setattr(compiling.torch, "compile", lambda call, **_: call)
    build_work("inference", backend=backend, model=model)
    assert made[0].layout is layout


SMALL_GPT = {"vocab_size": 500, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}


def generator(dtype: str = "float64", batch: int = 3, tokens: int = 24) -> Generator:
    """Texts of a small GPT-2 that are continued."""
    described = replace(NETWORKS["gpt2-124m"], config=SMALL_GPT, shape=(tokens,), counts=None)
    with seeded_weights(CPU, Dtype(dtype)):
        model = catalogue_entry(described).model()
    return Generator(model, lambda: torch.randint(500, (batch, tokens)), CPU)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_either_phase_gives_the_logits_of_the_whole_forward_pass(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for tokens in (2, 24, 64):
        assert generator(tokens=tokens).error(phase) < 1e-13
    for dtype in ("float32", "bfloat16", "float16"):
        assert generator(dtype).error(phase) <= inference.TOLERANCE[Dtype(dtype)]
    made = generator()
    monkeypatch.setattr(torch.Tensor, "index_copy_", lambda self, *_: self)
    assert not made.error(phase) < 1e-3, "a cache that is not kept is noticed"


def test_every_token_is_the_same_work_in_the_same_memory() -> None:
    made = generator()
    before = [layer.keys.data_ptr() for layer in made.cached.cache.layers]
    first = made.decode().clone()
    made.decode()
    torch.testing.assert_close(made.decode(), first)
    assert [layer.keys.data_ptr() for layer in made.cached.cache.layers] == before


def test_a_token_moves_the_weights_and_the_cache_once() -> None:
    made = generator("bfloat16", batch=3, tokens=24)
    _, moved = operator_traffic.total_traffic(made.decode)
    matrices = 2 * 12 * 64**2 + 500 * 64
    cache = 2 * 2 * 3 * 24 * 64
    assert 2 * (matrices + cache) < moved < 2.8 * (matrices + cache)
