"""A request goes through a model and its answer comes back: a wrong or lost one is noticed."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch

from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.models import compiled as compiling
from experiments.models import generate, onnx_runtime
from experiments.models.names import Model
from experiments.models.zoo import ZOO
from experiments.registry import get, typed
from experiments.state import Watch
from experiments.suite import inference as module
from experiments.work import Unsupported, Work
from experiments.worker import answer_to

from .second_device import SecondCpu

SMALL = ["mlp", "cnn", "resnet", "vit", "lstm-32", "gpt-1m", "embedding", "tabular"]


def work(device: Device | None = None, **more: Any) -> Work:
    experiment = get("inference")
    params = {"model": "mlp", "batch": 2, "dtype": "float32", "backend": "torch", "threads": 1, **more}
    return experiment.function(device or CpuDevice(), **typed(experiment, params))


def right(made: Work) -> bool:
    assert made.check is not None
    assert made.tolerance is not None
    return made.check() <= made.tolerance


@pytest.mark.parametrize(
    ("backend", "dtype"), [("torch", "float32"), ("onnx", "float32"), ("onnx", "int8"), ("torch", "bfloat16")]
)
@pytest.mark.parametrize("model", SMALL)
def test_answers_are_those_of_the_model(model: str, backend: str, dtype: str) -> None:
    made = work(model=model, backend=backend, dtype=dtype)
    for call in made.calls:
        call()
    assert right(made)
    assert right(made)  # on other inputs
    assert made.flop == ZOO[model].forward_flop(2)


@pytest.mark.parametrize("backend", ["torch", "graph"])
@pytest.mark.parametrize("model", SMALL)
def test_a_gpu_is_sent_the_inputs_and_sends_the_answer(model: str, backend: str) -> None:
    made = work(SecondCpu(), model=model, backend=backend, threads=0)
    assert right(made)
    assert right(made)
    assert (made.clock, made.single) == ("host", True)
    (beside,) = made.beside
    assert (beside.metric, beside.clock, beside.single) == ("device_time", "device", False)
    assert [name for name, _ in beside.phases] == ["to_device", "compute", "to_host"]


@pytest.mark.parametrize("backend", ["torch", "graph"])
@pytest.mark.parametrize("lost", ["send", "fetch", "compute"])
def test_data_that_do_not_travel_are_noticed(monkeypatch: pytest.MonkeyPatch, lost: str, backend: str) -> None:
    monkeypatch.setattr(module.Service, lost, lambda self, *_: None)
    assert not right(work(SecondCpu(), backend=backend, threads=0))


class Stale(SecondCpu):
    """Replays nothing."""

    def graph(self, calls: Any) -> Any:
        super().graph(calls)
        return lambda: None


def test_a_graph_that_does_nothing_is_noticed() -> None:
    assert not right(work(Stale(), backend="graph", threads=0))


@pytest.mark.parametrize("wrong", [lambda out: out * 1.001, lambda out: out * torch.nan, lambda out: out.roll(1, 0)])
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_wrong_answer_is_noticed(monkeypatch: pytest.MonkeyPatch, kind: str, wrong: Any) -> None:
    asked = module.Service.without_gradients
    monkeypatch.setattr(
        module.Service, "without_gradients", lambda self, call: lambda inputs: wrong(asked(self, call)(inputs))
    )
    assert not right(work(CpuDevice() if kind == "cpu" else SecondCpu()))


def test_of_a_large_batch_some_samples_are_checked_and_all_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    logits = generate.exact_logits

    def exact(model: Any, inputs: torch.Tensor, device: Device) -> torch.Tensor:
        seen.append(len(inputs))
        return logits(model, inputs, device)

    monkeypatch.setattr(generate, "exact_logits", exact)
    monkeypatch.setattr(module, "CHECKED_FLOP", 3.5 * ZOO["mlp"].forward_flop(1))
    assert right(work(batch=64))
    assert seen == [3]
    asked = module.Service.without_gradients
    monkeypatch.setattr(
        module.Service,
        "without_gradients",
        lambda self, call: lambda inputs: asked(self, call)(inputs).index_fill(0, torch.arange(63), torch.nan),
    )
    assert not right(work(batch=64))


def test_bytes_are_weights_inputs_and_answer_and_of_tables_the_rows() -> None:
    mlp = sum(p.numel() for p in ZOO["mlp"].model().parameters())
    assert work(model="mlp", batch=3).bytes == 4 * (mlp + 3 * 64 + 3 * 10)
    assert work(model="embedding", batch=3).bytes == 4 * (64 * 64 + 64) + 3 * 254 * (64 * 4 + 8) + 3 * 64 * 4


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"dtype": "int8"}, "int8 is ONNX Runtime's"),
        ({"dtype": "float8_e4m3fn"}, "does not answer"),
        ({"backend": "onnx", "dtype": "bfloat16"}, "no bfloat16 kernels"),
        ({"backend": "onnx", "device": SecondCpu()}, "does not run on"),
        ({"backend": "graph"}, "no graphs"),
        ({"batch": 0}, "has data"),
    ],
)
def test_what_cannot_be_is_unsupported(more: dict[str, Any], why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        work(**more)


def test_a_model_past_the_size_of_a_file_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="2 GB"):
        onnx_runtime.exported("gpt-1.3b", 1, False)


def test_a_model_is_exported_once_for_all_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx_runtime.exported.cache_clear()
    written: list[str] = []
    export = torch.onnx.export

    def exports(*args: Any, **more: Any) -> None:
        written.append(args[2])
        export(*args, **more)

    monkeypatch.setattr(torch.onnx, "export", exports)
    for dtype in ("float32", "int8", "float32"):
        work(backend="onnx", dtype=dtype)
    assert len(written) == 1


@pytest.mark.parametrize(
    ("cause", "mend"),
    [
        ("C++ compiler g++ not found", "apt-get install g"),
        ("Cannot find a working triton installation", "needs Triton"),
        ("fatal error: Python.h: No such file", "python3-dev"),
        ("something else", "TORCH_LOGS"),
    ],
)
def test_what_cannot_be_compiled_is_unsupported(monkeypatch: pytest.MonkeyPatch, cause: str, mend: str) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def refuses(call: Any, **_: Any) -> Any:
        def first(*_: Any) -> Any:
            raise TorchDynamoException(cause)

        return first

    monkeypatch.setattr(compiling.torch, "compile", refuses)
    with pytest.raises(Unsupported, match=r"torch\.compile cannot") as refusal:
        work(backend="inductor")
    assert mend in str(refusal.value)


def test_compiled_kernels_are_made_for_these_threads_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    used: list[int] = []

    def compiles(call: Any, **how: Any) -> Any:
        given.append(how)

        def counted(inputs: torch.Tensor) -> Any:
            used.append(1)
            return call(inputs)

        return counted

    monkeypatch.setattr(compiling.torch, "compile", compiles)
    made = work(backend="inductor", threads=2)
    assert given == [{"dynamic": False, "options": {"freezing": True, "cpp.threads": 2}}]
    made.calls[0]()
    assert len(used) == 2
    assert right(made)


def test_all_models_of_the_zoo_can_be_asked() -> None:
    assert set(get_args(Model)) == set(ZOO)


def test_probes_neither_compile_nor_export_for_a_batch_that_is_not_asked_for() -> None:
    smaller = get("inference").smaller
    assert smaller is not None
    at = {"model": "mlp", "dtype": "float32", "threads": 1}
    assert smaller({**at, "batch": 1, "backend": "inductor"}) is None
    assert smaller({**at, "batch": 64, "backend": "inductor"}) == {**at, "batch": 8, "backend": "torch"}
    assert smaller({**at, "batch": 4, "backend": "onnx"}) == {**at, "batch": 1, "backend": "onnx"}


def test_a_point_has_as_many_single_requests_as_are_asked_for() -> None:
    order = {
        "experiment": "inference",
        "device": "cpu",
        "params": {"model": "tabular", "batch": 1, "dtype": "float32", "backend": "torch", "threads": 1},
        "policy": {"target": 0.5, "budget_s": 2.0, "max_samples": 30},
    }
    answer = answer_to(order, CpuDevice(), Watch("cpu"))
    assert answer["status"] == "ok"
    (part,) = answer["parts"]
    assert part["calls"] == 1
    assert len(part["series"][0]["values"]) == 30
