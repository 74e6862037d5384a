"""Contents are what they are called, and products of them are checked: also where the right answer is zero."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import torch

from experiments.devices.cpu import CpuDevice
from experiments.registry import get, typed
from experiments.suite import content
from experiments.work import Dtype, Work

CPU = CpuDevice()
CONTENTS = get_args(content.Content)
DTYPES = ["float64", "float32", "bfloat16", "float16"]


def work(name: str, dtype: str = "float32", backend: str = "torch") -> Work:
    experiment = get("content")
    params = {"content": name, "m": 40, "n": 56, "k": 72, "dtype": dtype, "backend": backend, "threads": 1}
    return experiment.function(CPU, **typed(experiment, params))


def right(made: Work) -> bool:
    assert made.check is not None
    assert made.tolerance is not None
    return made.check() <= made.tolerance


def filled(name: Any, dtype: str) -> torch.Tensor:
    return content.filled(CPU, name, (100, 100), Dtype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_contents_are_what_they_are_called(dtype: str) -> None:
    assert not filled("zeros", dtype).any()
    assert set(filled("ones", dtype).unique().tolist()) == {1.0}
    assert set(filled("integers", dtype).unique().tolist()) == {0.0, 1.0, 2.0, 3.0}
    share = (filled("sparse", dtype) != 0).double().mean().item()
    # Six standard deviations of the share among 10,000.
    assert abs(share - content.DENSITY) < 6 * math.sqrt(content.DENSITY * (1 - content.DENSITY) / 10_000)
    assert (filled("normal", dtype) != 0).double().mean().item() > 0.99
    assert all(filled(name, dtype).dtype == CPU.torch_dtype(Dtype(dtype)) for name in CONTENTS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_denormal_numbers_are_below_the_smallest_normal_one_and_not_zero(dtype: str) -> None:
    values = filled("denormal", dtype)
    assert values.abs().max().double() < torch.finfo(values.dtype).tiny
    assert (values != 0).double().mean() > 0.9


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CONTENTS)
def test_every_product_passes_its_check(name: str, dtype: str) -> None:
    made = work(name, dtype)
    assert right(made)
    assert made.flop == 2 * 40 * 56 * 72


@pytest.mark.parametrize("backend", ["onednn", "numpy"])
@pytest.mark.parametrize("name", CONTENTS)
def test_every_library_passes(name: str, backend: str) -> None:
    assert right(work(name, backend=backend))


def broken(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    matmul = CpuDevice.matmul

    def passed(self: CpuDevice, *args: Any) -> Any:
        product = matmul(self, *args)
        return lambda: fault(product().clone())

    monkeypatch.setattr(CpuDevice, "matmul", passed)


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            lambda out: out.index_fill_(0, torch.tensor(30), 9.0), id="a row past the checked ones overwritten"
        ),
        pytest.param(lambda out: out.index_fill_(1, torch.tensor(3), float("nan")), id="a column of nan"),
        pytest.param(lambda out: out.index_fill_(0, torch.tensor(30), float("nan")), id="a late row of nan"),
    ],
)
def test_a_wrong_product_fails_its_check(monkeypatch: pytest.MonkeyPatch, name: str, fault: Any) -> None:
    broken(monkeypatch, fault)
    assert not right(work(name))


@pytest.mark.parametrize("name", CONTENTS)
def test_zeros_are_right_for_zeros_and_where_denormal_numbers_may_be_read_as_zero(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    broken(monkeypatch, torch.zero_)
    made = work(name)
    assert right(made) == (name in ("zeros", "denormal"))
    if name == "denormal":
        assert made.observe is not None
        assert made.observe() == {"flushed_share": (1.0, "1")}


def test_a_library_that_keeps_denormal_numbers_flushes_none() -> None:
    made = work("denormal", "float64")
    assert made.observe is not None
    assert made.observe()["flushed_share"][0] == 0


@pytest.mark.parametrize(("result", "expected"), [(0.0, 0.0), (1e-30, math.inf)])
def test_against_an_exact_zero_only_zero_is_right(result: float, expected: float) -> None:
    zeros = torch.zeros(3, 3, dtype=torch.float64)
    assert content.error(zeros + result, zeros) == expected


def test_the_error_of_numbers_whose_squares_vanish_is_still_relative() -> None:
    exact = torch.full((2, 2), 1e-300, dtype=torch.float64)
    assert content.error(exact * 1.5, exact) == pytest.approx(0.5)
