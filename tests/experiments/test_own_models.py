"""The user's own models, which are configured networks or GGUF files, are measured and checked, or refused."""

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
from experiments import registry, sweep, user_models
from experiments.jobs import Job, Point
from experiments.language import gguf_files, gguf_shape, shapes, weights
from experiments.models import catalogue, from_transformers
from experiments.suite import language_models
from experiments.worker_processes import Workers
from tests.experiments.point_runs import build_work, check_error, run_once

CONFIG = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 99,
}  # fmt: skip
MINE: dict[str, Any] = {
    "class": "BertModel", "config": CONFIG, "input": {"tokens": 16}, "output": "last_hidden_state",
}  # fmt: skip


@pytest.fixture(autouse=True)
def clean_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start without exported models, and close all loaded models at the end."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(weights, "POOL_BLOCKS", 8191)
    for variable in (user_models.VARIABLE, user_models.FILES):
        monkeypatch.setenv(variable, "")
    gguf_files._temporary_file.cache_clear()
    yield
    while language_models._loaded:
        language_models._loaded.popitem()[1].close()
    gguf_files._temporary_file.cache_clear()


ExportModels = Callable[..., dict[str, catalogue.Network]]


@pytest.fixture
def export_models(tmp_path: Path) -> ExportModels:
    """Return a function that writes models to a file and exports them."""

    def write(**models: Any) -> dict[str, catalogue.Network]:
        path = tmp_path / "mine.yaml"
        path.write_text(json.dumps(models))
        user_models.export_models(
            path, [*catalogue.SMALL, *catalogue.NETWORKS, *shapes.SHAPES], gguf_shape.describe_file
        )
        return catalogue.networks()

    return write


def network_points() -> list[Point]:
    """Return the points of a preset with the user's own networks."""
    block = {
        "cases": [{"model": "own"}],
        "grid": {"batch": [1], "dtype": ["float32"], "backend": ["torch", "openvino"]},
        "smaller": [{"model": "mlp"}],
    }
    return sweep.Sweep(registry.get_experiment("inference"), 0.1, 1.0, 60.0, 9, [block], "a test").points("cpu")


def network_params() -> list[dict[str, Any]]:
    """Return the parameters and environment of each network point."""
    return [
        {**dict(network_point.params), "environment": dict(network_point.environment)}
        for network_point in network_points()
    ]


def test_preset_passes_own_networks_to_measuring_processes(export_models: ExportModels) -> None:
    assert network_params() == []
    export_models(mine=MINE)
    assert [(point["model"], point["backend"]) for point in network_params()] == [
        ("mine", "torch"),
        ("mine", "openvino"),
    ]
    assert all(json.loads(point["environment"][user_models.VARIABLE]) == {"mine": MINE} for point in network_params())


def test_changed_configuration_changes_the_digest(export_models: ExportModels) -> None:
    def digest(config: dict[str, Any]) -> str:
        export_models(mine={**MINE, "config": config})
        return Job("inference", "cpu", "cpu", 0.1, 60.0, 9, tuple(network_points())).digest(1)

    assert digest(CONFIG) == digest(CONFIG) != digest({**CONFIG, "vocab_size": 98})


def test_configuration_file_is_read_without_its_labels(export_models: ExportModels, tmp_path: Path) -> None:
    labels = {str(number): f"a name that is long enough {number}" for number in range(500)}
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "id2label": labels, "label2id": {}}))
    network = export_models(mine={**MINE, "class": "BertForSequenceClassification", "output": "logits",
                                     "config": "config.json"})["mine"]  # fmt: skip
    assert from_transformers.count_network(network).output == (1, 500)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"class": "BertModle"}, "x: BertModle does not load: transformers .* has no such class"),
        ({"class": "../x"}, "line 1: x.class"),
        ({"output": "logits"}, "no output 'logits': use one of last_hidden_state, pooler_output"),
        ({"config": {"hidden_size": 33, "num_attention_heads": 2}}, "hidden size .33. is not a multiple"),
        ({"config": "none.json"}, "none.json: no such file"),
        ({"inptu": {}}, "unknown key.* Did you mean 'input'"),
        ({"input": {"tokens": 0}}, "line 1: x.input.tokens"),
        ({"input": {"tokens": 16, "image": 32}}, "line 1: x.input"),
        ({"input": {"tokens": 1000}}, "x: BertModel does not load"),
        ({"config": {**CONFIG, "name": "x" * 5000}}, "more than 4,000 characters"),
    ],
)
def test_invalid_network_has_a_one_line_error(
    export_models: ExportModels, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(StudyError, match=message) as raised:
        from_transformers.count_network(export_models(x=MINE | changed)["x"])
    assert "\n" not in str(raised.value)


def test_name_of_a_built_in_model_is_refused(export_models: ExportModels) -> None:
    for name in ("resnet-50", "mlp", "own", "llama-1b"):
        with pytest.raises(StudyError, match=f"{name}: the study has a model with this name"):
            export_models(**{name: MINE})


FREQUENCIES = np.linspace(1, 3, 16, dtype=np.float32)
TINY = replace(shapes.SHAPES["llama-tiny"], layers=3)


def file_points() -> list[Point]:
    """Return the points of a preset with the user's own GGUF files."""
    block = {
        "cases": [{"model": "own", "format": "Q4_K_M"}],
        "grid": {"phase": ["decode"], "tokens": [16], "backend": ["xllamacpp"], "threads": [1]},
    }
    return sweep.Sweep(registry.get_experiment("language-models"), 0.1, 1.0, 60.0, 9, [block], "a test").points("cpu")


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        (TINY, "Q4_K_M"),
        (replace(TINY, architecture="qwen2", scaling=None, tied=False), "Q8_0"),
        (replace(TINY, scaling=None), "F16"),
    ],
)
def test_gguf_file_is_measured_and_checked_with_its_own_weights(
    shape: shapes.Shape, kind: Any, tmp_path: Path, export_models: ExportModels
) -> None:
    gguf_files.write_file(tmp_path / "mine.gguf", shape, kind)
    assert file_points() == []
    export_models(mine={"file": "mine.gguf"})
    read_shape = shapes.shapes()["mine"]
    # GGUF stores epsilon in float32, so it is rounded.
    assert read_shape.epsilon == pytest.approx(shape.epsilon)
    assert replace(read_shape, source=shape.source, epsilon=shape.epsilon, file=None) == shape
    (point,) = file_points()
    assert dict(point.params)["format"] == kind, "the file's format, not the preset's"
    assert gguf_files.model_file("mine", read_shape, kind) == tmp_path / "mine.gguf"
    assert weights.bytes_per_token(kind, read_shape) == weights.bytes_per_token(kind, shape)
    workload = build_work("language-models", model="mine", format=kind, backend="xllamacpp", phase="decode")
    run_once(workload)
    assert 0 < check_error(workload) <= workload.tolerance
    checked = gguf_files.model_file("mine-checked", replace(read_shape, layers=2), kind)
    first, second = gguf_shape.file_tensors(checked), gguf_shape.file_tensors(tmp_path / "mine.gguf")
    assert np.array_equal(first["blk.1.attn_q.weight"].data, second["blk.1.attn_q.weight"].data)
    assert (tmp_path / "mine.gguf").exists()


def test_records_omit_the_folder_of_a_gguf_file(tmp_path: Path, export_models: ExportModels) -> None:
    gguf_files.write_file(tmp_path / "mine.gguf", TINY, "Q8_0")
    export_models(mine={"file": "mine.gguf"})
    (point,) = file_points()
    workers = Workers([], None, lambda: None)
    workers.get_worker("cpu", point.environment)
    assert str(tmp_path) in json.dumps(dict(point.environment))
    assert str(tmp_path) not in json.dumps([workers.environments, point.params])
    assert "mine" in json.dumps(workers.environments)


def rewrite_gguf(source: Path, path: Path, change: Callable[[gguf.GGUFWriter], object], omit: str = "") -> None:
    """Copy a GGUF file without fields and tensors named like `omit`, then apply `change`."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, str(reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture" and (not omit or omit not in name):
            writer.add_key_value(
                name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None
            )
    for tensor in reader.tensors:
        if not omit or omit not in tensor.name:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("change", "omit", "message"),
    [
        (lambda to: to.add_uint16("split.count", 3), "", "one part of 3: join the parts"),
        (lambda to: to.add_tensor("blk.0.extra.weight", np.ones(4, np.float32)), "", "its tensor blk.0.extra.weight"),
        (lambda to: None, "blk.1.ffn_up", "its tensor blk.1.ffn_up.weight differs"),
        (lambda to: None, "block_count", r"wrong or missing fields for a llama model .*block_count"),
        (lambda to: None, "file_type", r"wrong or missing fields for a llama model .*file_type"),
        (lambda to: to.add_file_type(999), "file_type", "wrong or missing fields for a llama model"),
        (lambda to: to.add_file_type(1024), "file_type", "a guessed file_type"),
        (lambda to: to.add_head_count(0), "attention.head_count", "wrong or missing fields for a llama model"),
        (lambda to: to.add_block_count(1 << 31), "block_count", "more layers than tensors"),
        (lambda to: None, "token_embd", "wrong or missing fields for a llama model"),
        (lambda to: to.add_string("llama.rope.scaling.type", "yarn"), "", "unsupported rotary frequency scaling"),
        (
            lambda to: to.add_tensor("rope_freqs.weight", FREQUENCIES),
            "rope_freqs",
            "unsupported rotary frequency scaling",
        ),
    ],
)
def test_unsupported_gguf_file_is_refused(
    change: Any, omit: str, message: str, tmp_path: Path, export_models: ExportModels
) -> None:
    gguf_files.write_file(tmp_path / "whole.gguf", TINY, "Q8_0")
    rewrite_gguf(tmp_path / "whole.gguf", tmp_path / "odd.gguf", change, omit)
    with pytest.raises(StudyError, match=rf"mine.yaml: mine: .*odd.gguf.*{message}") as raised:
        export_models(mine={"file": "odd.gguf"})
    assert "\n" not in str(raised.value)


def test_other_architectures_and_broken_files_are_refused(tmp_path: Path, export_models: ExportModels) -> None:
    writer = gguf.GGUFWriter(tmp_path / "gemma.gguf", "gemma3")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tmp_path / "text.gguf").write_text("no model")
    for file, message in (
        ("gemma.gguf", "unsupported architecture gemma3: use llama or qwen2"),
        ("text.gguf", "is not a complete GGUF file"),
        ("none.gguf", "no such file"),
        (".", "is not a complete GGUF file"),
    ):
        with pytest.raises(StudyError, match=message) as raised:
            export_models(mine={"file": file})
        assert "\n" not in str(raised.value)
