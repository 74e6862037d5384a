"""Language models of the user's own: GGUF files that are read, checked by two of their layers, and refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from contract.errors import StudyError
from experiments import own, registry, sweep
from experiments.language import files, own_files, weights
from experiments.language.shapes import SHAPES, Shape, shapes
from experiments.suite import language_models
from experiments.workers import Workers
from tests.experiments.points import error, run, work

TINY = replace(SHAPES["llama-tiny"], layers=3)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file and no model is left behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(weights, "POOL_BLOCKS", 8191)
    for variable in (own.VARIABLE, own.FILES):
        monkeypatch.setenv(variable, "")
    files._temporary_file.cache_clear()
    yield
    while language_models._loaded:
        language_models._loaded.popitem()[1].close()
    files._temporary_file.cache_clear()


def announced(folder: Path, **named: str) -> None:
    """Announce files by their names."""
    path = folder / "mine.yaml"
    path.write_text(json.dumps({name: {"file": file} for name, file in named.items()}))
    own.announce(path, SHAPES, own_files.describe)


def points() -> list[Any]:
    block = {
        "cases": [{"model": "own", "format": "Q4_K_M"}],
        "grid": {"phase": ["decode"], "tokens": [16], "backend": ["xllamacpp"], "threads": [1]},
    }
    return sweep.Sweep(registry.get("language-models"), 0.1, 1.0, 60.0, 9, [block], "a test").points("cpu")


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        (TINY, "Q4_K_M"),
        (replace(TINY, architecture="qwen2", scaling=None, tied=False), "Q8_0"),
        (replace(TINY, scaling=None), "F16"),
    ],
)
def test_a_file_is_measured_and_checked_by_its_own_weights(shape: Shape, kind: Any, tmp_path: Path) -> None:
    files.write(tmp_path / "mine.gguf", shape, kind)
    assert points() == []
    announced(tmp_path, mine="mine.gguf")
    found = shapes()["mine"]
    # A file holds it in float32.
    assert found.epsilon == pytest.approx(shape.epsilon)
    assert replace(found, source=shape.source, epsilon=shape.epsilon, file=None) == shape
    (point,) = points()
    assert dict(point.params)["format"] == kind, "the file's format, not the preset's"
    assert files.model_file("mine", found, kind) == tmp_path / "mine.gguf"
    assert weights.bytes_per_token(kind, found) == weights.bytes_per_token(kind, shape)
    made = work("language-models", model="mine", format=kind, backend="xllamacpp", phase="decode")
    run(made)
    assert 0 < error(made) <= made.tolerance
    checked = files.model_file("mine-checked", replace(found, layers=2), kind)
    first, second = own_files.tensors(checked), own_files.tensors(tmp_path / "mine.gguf")
    assert np.array_equal(first["blk.1.attn_q.weight"].data, second["blk.1.attn_q.weight"].data)
    assert (tmp_path / "mine.gguf").exists()


def test_no_record_holds_the_folder_of_a_file(tmp_path: Path) -> None:
    files.write(tmp_path / "mine.gguf", TINY, "Q8_0")
    announced(tmp_path, mine="mine.gguf")
    (point,) = points()
    workers = Workers([], None, lambda: None)
    workers.started_with("cpu", point.environment)
    assert str(tmp_path) in json.dumps(dict(point.environment))
    assert str(tmp_path) not in json.dumps([workers.environments, point.params])
    assert "mine" in json.dumps(workers.environments)


def rewritten(source: Path, path: Path, change: Callable[[gguf.GGUFWriter], object], leave: str = "") -> None:
    """A copy of a file with fields and tensors added, and without those of a name."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, str(reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture" and (not leave or leave not in name):
            writer.add_key_value(
                name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None
            )
    for one in reader.tensors:
        if not leave or leave not in one.name:
            writer.add_tensor(one.name, one.data, raw_dtype=one.tensor_type)
    change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("change", "leave", "said"),
    [
        (lambda to: to.add_uint16("split.count", 3), "", "one part of 3: join them"),
        (lambda to: to.add_tensor("blk.0.extra.weight", np.ones(4, np.float32)), "", "its tensor blk.0.extra.weight"),
        (lambda to: None, "blk.1.ffn_up", "its tensor blk.1.ffn_up.weight is another"),
        (lambda to: None, "block_count", r"its fields are not those of a llama model .*block_count"),
        (lambda to: None, "file_type", r"its fields are not those of a llama model .*file_type"),
        (lambda to: to.add_file_type(999), "file_type", "its fields are not those of a llama model"),
        (lambda to: to.add_file_type(1024), "file_type", "a guessed file_type"),
        (lambda to: to.add_head_count(0), "attention.head_count", "its fields are not those of a llama model"),
        (lambda to: to.add_block_count(1 << 31), "block_count", "more layers than tensors"),
        (lambda to: None, "token_embd", "its fields are not those of a llama model"),
        (lambda to: to.add_string("llama.rope.scaling.type", "yarn"), "", "rotary frequencies are scaled"),
        (
            lambda to: to.add_tensor("rope_freqs.weight", np.linspace(1, 3, 16, dtype=np.float32)),
            "rope_freqs",
            "rotary frequencies are scaled",
        ),
    ],
)
def test_a_file_that_cannot_be_checked_is_refused(change: Any, leave: str, said: str, tmp_path: Path) -> None:
    files.write(tmp_path / "whole.gguf", TINY, "Q8_0")
    rewritten(tmp_path / "whole.gguf", tmp_path / "odd.gguf", change, leave)
    with pytest.raises(StudyError, match=rf"mine.yaml: mine: .*odd.gguf.*{said}") as refused:
        announced(tmp_path, mine="odd.gguf")
    assert "\n" not in str(refused.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "gemma.gguf", "gemma3")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tmp_path / "text.gguf").write_text("no model")
    for file, said in (
        ("gemma.gguf", "of the architecture gemma3: the study checks llama and qwen2 alone"),
        ("text.gguf", "is no whole GGUF file"),
        ("none.gguf", "no such file"),
        (".", "is no whole GGUF file"),
    ):
        with pytest.raises(StudyError, match=said) as refused:
            announced(tmp_path, mine=file)
        assert "\n" not in str(refused.value)
    with pytest.raises(StudyError, match="a model of the study has that name"):
        announced(tmp_path, **{"llama-1b": "none.gguf"})
