"""Presets give the right points, and a mistake in a preset is named with its place before measuring starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from experiments import backends, hardware, plan, registry
from experiments.cli import main
from experiments.jobs import Job, Point
from experiments.registry import experiments, get_experiment
from experiments.sweep import find_sweep, preset_path, read_preset

TINY = Path(__file__).parents[1] / "workflow" / "tiny.yaml"


HINTS = {"double": "float64", "FP16": "float16", "bf16": "bfloat16"}


@pytest.mark.parametrize("preset", ["quick", "full", str(TINY)])
def test_presets_measure_every_experiment(preset: str) -> None:
    content = read_preset(preset)
    assert set(content["experiments"]) == set(experiments())
    for name in content["experiments"]:
        part = find_sweep(content, name, preset)
        measured = [bool(part.points(kind)) for kind in get_experiment(name).fits]
        assert all(measured) if preset == "full" else any(measured)


def write_changed_preset(tmp_path: Path, old: str, new: str) -> str:
    path = tmp_path / "mine.yaml"
    text = TINY.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return str(path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rounds: 3", "runds: 3", ["line 2", "runds: unknown key", "Did you mean 'rounds'?"]),
        ("rounds: 3", "rounds: three", ["line 2", "rounds", "'three' is not of type integer"]),
        ("dtype: [float64, bfloat16]", "dtype: [float46]", ["experiments.gemm.sweep.1.grid.dtype.0", "'float64'"]),
        *(
            ("dtype: [float64, bfloat16]", f"dtype: [{word}]", ["line 24", f"Did you mean '{meant}'?"])
            for word, meant in HINTS.items()
        ),
        ("  gemm:", "  gem:", ["experiments.gem: unknown key", "Did you mean 'gemm'?"]),
        ("{m: 256, n: 256, k: 256}", "{m: 256, n: 256, q: 256}", ["cases.0.q", "unknown key"]),
        ("{m: 256, n: 256, k: 256}", "{m: 256, n: 256}", ["gemm.sweep[0]", "parameter 'k' of gemm is missing"]),
        ("threads: [1, all]", "threads: [1, most]", ["threads.1", "most"]),
        ("footprint: [24576, 4xLLC]", "footprint: [24576, 4xL3]", ["footprint.1", "4xL3"]),
        ("footprint: [24576, 4xLLC]", "footprint: [24576, xlargestLLC]", ["footprint.1", "xlargestLLC"]),
        ("  gemm:", "  gemm:\n    stage: 0", ["experiments.gemm.stage", "0"]),
        ('"on": cpu', '"on": tpu', ["on", "'tpu'", "cpu, gpu"]),
        ("point_s: 0.05", "point_s: 0", ["point_s"]),
    ],
)  # fmt: skip
def test_typo_is_reported_with_its_place(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    with pytest.raises(StudyError) as caught:
        read_preset(write_changed_preset(tmp_path, old, new))
    for word in ["mine.yaml", *words]:
        assert word in str(caught.value)


def test_unknown_preset_error_lists_the_presets() -> None:
    with pytest.raises(StudyError, match=r"no preset 'fulll'.*Presets: full, hour, quick.*Did you mean 'full'\?"):
        preset_path("fulll")


def sweep_points(blocks: list[dict[str, Any]], kind: str = "cpu", name: str = "gemm") -> list[Point]:
    content = {"target": 1, "point_s": 1, "round_s": 1, "max_samples": 6, "experiments": {name: {"sweep": blocks}}}
    return list(find_sweep(content, name, "test").points(kind))


def point_params(blocks: list[dict[str, Any]], kind: str = "cpu") -> list[dict[str, Any]]:
    return [dict(point.params) for point in sweep_points(blocks, kind)]


def test_cases_cross_the_grid_without_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "usable_cores", lambda: 1)
    case = {"m": 1, "n": 2, "k": 3}
    grid = {"dtype": ["float32", "float64"], "backend": ["torch"], "threads": [1, "all"]}
    params = point_params([{"cases": [case, {**case, "m": 9}], "grid": grid}])
    assert len(params) == 4  # on one core, threads "all" means 1 and adds no points
    assert {point["threads"] for point in params} == {1}


def test_machine_relative_words_become_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "usable_cores", lambda: 12)
    monkeypatch.setattr(hardware, "last_level_cache_bytes", lambda: 1000)
    grid = {"op": ["copy"], "footprint": ["4xLLC"], "dtype": ["float64"], "backend": ["llvm"], "threads": ["all"]}
    (point,) = sweep_points([{"grid": grid}], name="bandwidth")
    assert point.columns["threads"] == 12
    assert point.columns["params"] == '{"footprint":4000,"op":"copy"}'


@pytest.mark.parametrize(("cores", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_thread_range_doubles_up_to_all(monkeypatch: pytest.MonkeyPatch, cores: int, counts: list[int]) -> None:
    monkeypatch.setattr(hardware, "usable_cores", lambda: cores)
    grid = {"dtype": ["float32"], "backend": ["torch"], "threads": ["1..all"]}
    assert [point["threads"] for point in point_params([{"cases": [{"m": 1, "n": 1, "k": 1}], "grid": grid}])] == counts


def test_blocks_apply_only_to_their_device_kind() -> None:
    case = {"m": 1, "n": 1, "k": 1}
    blocks = [
        {"on": "cpu", "cases": [case], "grid": {"dtype": ["float32"], "backend": ["numpy"], "threads": [1]}},
        {"on": "gpu", "cases": [case], "grid": {"dtype": ["tf32"], "backend": ["torch"]}},
    ]
    assert [point["backend"] for point in point_params(blocks)] == ["numpy"]
    (gpu,) = point_params(blocks, "gpu")
    assert (gpu["dtype"], gpu["threads"]) == ("tf32", 0)


def test_library_group_expands_to_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        backends, "expand_group", lambda name: {"openblas-*": ["openblas-a", "openblas-b"]}.get(name, [name])
    )
    grid = {"dtype": ["float32"], "backend": ["torch", "openblas-*"], "threads": [1]}
    params = point_params([{"cases": [{"m": 1, "n": 1, "k": 1}], "grid": grid}])
    assert [point["backend"] for point in params] == ["torch", "openblas-a", "openblas-b"]


def test_check_prints_a_digest_that_changes_with_the_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check_output(preset: str) -> dict[str, object]:
        assert main(["check", "--preset", preset, "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out))

    once = "- grid: {backend: [llvm], threads: [1], chain: [1000000]}"
    assert check_output(str(TINY)) == check_output(str(TINY))
    assert check_output(
        write_changed_preset(tmp_path, once, "- rounds: 1\n        " + once.removeprefix("- "))
    ) != check_output(str(TINY))


def test_digest_changes_with_a_protocol(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """After a change of protocol, the workflow makes the plan again, and its jobs have the new protocol."""

    def digest_and_protocol() -> tuple[str, int]:
        assert main(["check", "--preset", str(TINY), "--json"]) == 0
        part = find_sweep(read_preset(str(TINY)), "gemm", "tiny")
        job = plan.plan_job(part, {"id": "cpu", "kind": "cpu"}, 2)
        return json.loads(capsys.readouterr().out)["digest"], Job.from_json(
            json.loads(json.dumps(job.as_json))
        ).protocol

    before, protocol = digest_and_protocol()
    assert protocol == get_experiment("gemm").protocol
    monkeypatch.setitem(registry._REGISTRY, "gemm", replace(get_experiment("gemm"), protocol=protocol + 1))
    after, raised = digest_and_protocol()
    assert raised == protocol + 1
    assert after != before
