"""`list`: every experiment, what is asked of each device here and of GPUs that are not, and what was left out."""

from __future__ import annotations

import json

import pytest

from experiments import hardware, listing
from experiments.cli import main
from experiments.listing import gathered, told
from experiments.registry import experiments
from tests.experiments.torch_standin import H100, P100, Torch, install


@pytest.fixture(autouse=True)
def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpus", list)


def rows(text: str) -> dict[str, list[str]]:
    """The table's rows by experiment."""
    lines = text.split("What the preset")[1].splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines[2:] if line.split()}


def test_every_experiment_is_named_with_what_it_asks_of_whom(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, Torch())
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    table = rows(said)
    assert set(experiments()) <= set(table)
    assert "cpu  (NVIDIA)  (AMD)  (Intel)" in said
    assert table["clock"] == ["yes", "–", "–", "–", "–"]
    assert table["transfer"] == ["–", "yes", "yes", "yes", "yes"]
    assert table["sequential"] == ["yes", "yes", "yes", "–", "–"]  # CUDA C on GPUs
    assert table["tabular"][-1] == "torch"  # of torch and cupy
    assert "left out: torch 2.11.0 was built without CUDA" in said
    assert "CuPy" not in said


def test_gpus_here_have_a_column_and_those_left_out_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, Torch(H100, H100, P100, cuda="13.0", architectures=["sm_90"]))
    monkeypatch.setattr(listing.importlib.util, "find_spec", lambda _: None)
    found = gathered()
    assert torch.opened == []
    assert [one["id"] for one in found["devices"]] == ["cpu", "cuda:0", "cuda:1"]
    said = told(found)
    assert "cuda:0 … cuda:1" in said
    assert "(NVIDIA)" not in said
    assert "cuda:0: NVIDIA H100 80GB HBM3" in said
    assert "left out: cuda:2: torch 2.11.0 has no code for Tesla P100" in said
    assert "CuPy is not installed" in said


def test_programs_read_the_same(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    install(monkeypatch, Torch())
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["left_out"]
    asked = found["experiments"]["tabular"]["devices"]
    assert asked["(Apple)"] == {"asked": True, "libraries": ["torch"], "all": False}
    assert set(asked["(NVIDIA)"]["libraries"]) == {"torch", "cupy"}
    assert found["experiments"]["clock"]["devices"]["(AMD)"]["asked"] is False
    assert "threads" in found["experiments"]["gemm"]["parameters"]
