"""The kernel that PyTorch takes for attention is told wherever a GPU computes it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.models import attention, jobs
from experiments.suite import time_to_train
from tests.experiments.points import CPU, GPU, observed, work
from tests.experiments.second_device import SecondCpu

BLOCKS = {"gpt-1m": 5, "nanogpt-cpu": 4, "gpt2-124m": 12}


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize(("backend", "name"), [(SDPBackend.FLASH_ATTENTION, "flash"), (SDPBackend.MATH, "math")])
def test_calls_are_counted_by_kernel_forward_alone(backend: SDPBackend, name: str, gradients: bool) -> None:
    q = torch.randn(2, 3, 8, 16, requires_grad=gradients)

    def call() -> None:
        for _ in range(3):
            found = functional.scaled_dot_product_attention(q, q, q)
            if gradients:
                found.sum().backward()

    with sdpa_kernel(backend):
        assert attention.kernels(call) == {name: 3}


@pytest.mark.parametrize(
    ("operator", "kernel"),
    [
        ("_scaled_dot_product_cudnn_attention", "cudnn"),
        ("_scaled_dot_product_flash_attention", "flash"),
        ("_scaled_dot_product_flash_attention_for_cpu", "flash"),
        ("_scaled_dot_product_efficient_attention", "efficient"),
        ("_scaled_dot_product_fused_attention_overrideable", "fused"),
    ],
)
def test_kernels_that_only_gpus_have_are_known_by_their_operators(operator: str, kernel: str) -> None:
    for name in (operator, f"{operator}_backward"):
        assert hasattr(torch.ops.aten, name), "PyTorch has renamed it"
    found = attention._FUSED.fullmatch(operator)
    assert found and found[1] == kernel
    assert not attention._FUSED.fullmatch(f"{operator}_backward")


def test_a_kernel_of_a_later_pytorch_is_told_by_its_name() -> None:
    q = torch.randn(1, 2, 4, 8)
    with torch.library._scoped_library("aten", "FRAGMENT") as library:
        library.define("_scaled_dot_product_later_attention(Tensor q) -> Tensor")
        library.impl("_scaled_dot_product_later_attention", lambda q: q.clone(), "CPU")
        assert attention.kernels(lambda: torch.ops.aten._scaled_dot_product_later_attention(q)) == {"later": 1}


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("training", {"model": "gpt-1m", "batch": 1}),
        ("roofline", {"model": "gpt2-124m", "batch": 1, "phase": "prefill"}),
        ("roofline", {"model": "gpt2-124m", "batch": 1, "phase": "decode"}),
        ("inference", {"model": "gpt-1m", "batch": 1}),
        ("inference", {"model": "gpt-1m", "batch": 1, "backend": "graph"}),
        ("orchestration", {"model": "gpt-1m", "batch": 1, "source": "memory"}),
    ],
)
def test_a_gpus_kernels_of_attention_are_observed_and_a_cpus_are_not(name: str, changed: dict[str, Any]) -> None:
    on_gpu = {metric: value for metric, value in observed(work(name, GPU, **changed)).items() if "attention" in metric}
    assert on_gpu == {"attention.flash": BLOCKS[changed["model"]]}
    if changed.get("backend") != "graph":
        assert not any("attention" in metric for metric in observed(work(name, CPU, **changed)))


def test_a_job_tells_the_kernels_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    did = {"job_time": 1.0, "accuracy": 1.0, "steps": 1, "tests": 1}
    monkeypatch.setattr(jobs, "learn", lambda *_: did)
    monkeypatch.setattr(time_to_train, "_alone", lambda *_: {"": 1.0, "forward": 0.5})
    found = observed(work("time-to-train", GPU, job="bytes-nanogpt-cpu"))
    assert found["attention.flash"] == BLOCKS["nanogpt-cpu"]


def test_a_model_without_attention_has_no_such_metric() -> None:
    weights: Tensor = torch.randn(8, 8)
    assert attention.metrics(lambda: weights @ weights, SecondCpu()) == {}
