"""Networks of the user's own: what is asked of the file, what each mistake is told, and where they are measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from experiments import own, registry, sweep
from experiments.jobs import Job, Point
from experiments.language import own_files, shapes
from experiments.models import catalogue, from_transformers

CONFIG = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 99,
}
MINE: dict[str, Any] = {
    "class": "BertModel", "config": CONFIG, "input": {"tokens": 16}, "output": "last_hidden_state",
}  # fmt: skip


@pytest.fixture
def announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Announce networks in a file, for one test."""
    for variable in (own.VARIABLE, own.FILES):
        monkeypatch.setenv(variable, "")

    def announce(content: Any) -> dict[str, catalogue.Network]:
        path = tmp_path / "mine.yaml"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        own.announce(path, [*catalogue.SMALL, *catalogue.NETWORKS, *shapes.SHAPES], own_files.describe)
        return catalogue.networks()

    return announce


def asked() -> list[Point]:
    """The points of a preset that asks for the user's own networks."""
    block = {
        "cases": [{"model": "own"}],
        "grid": {"batch": [1], "dtype": ["float32"], "backend": ["torch", "openvino"]},
    }
    return sweep.Sweep(registry.get("inference"), 0.1, 1.0, 60.0, 9, [block], "a test").points("cpu")


def points() -> list[dict[str, Any]]:
    """What a preset asks of the user's own networks."""
    return [{**dict(one.params), "environment": dict(one.environment)} for one in asked()]


def test_a_preset_measures_them_in_processes_that_know_them(announced: Any) -> None:
    assert points() == []
    announced({"mine": MINE})
    assert [(one["model"], one["backend"]) for one in points()] == [("mine", "torch"), ("mine", "openvino")]
    assert all(json.loads(one["environment"][own.VARIABLE]) == {"mine": MINE} for one in points())


def test_another_configuration_by_the_same_name_is_measured_anew(announced: Any) -> None:
    def digest(config: dict[str, Any]) -> str:
        announced({"mine": {**MINE, "config": config}})
        return Job("inference", "cpu", "cpu", 0.1, 60.0, 9, tuple(asked())).digest(1)

    assert digest(CONFIG) == digest(CONFIG) != digest({**CONFIG, "vocab_size": 98})


def test_a_configuration_is_read_beside_the_file_without_its_labels(announced: Any, tmp_path: Path) -> None:
    labels = {str(number): f"a name that is long enough {number}" for number in range(500)}
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "id2label": labels, "label2id": {}}))
    made = announced({"mine": {**MINE, "class": "BertForSequenceClassification", "output": "logits",
                               "config": "config.json"}})["mine"]  # fmt: skip
    assert from_transformers.count(made).output == (1, 500)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"class": "BertModle"}, "x: BertModle does not load: transformers .* has no such class"),
        ({"class": "../x"}, "line 1: x.class"),
        ({"output": "logits"}, "no output 'logits': name one of last_hidden_state, pooler_output"),
        ({"config": {"hidden_size": 33, "num_attention_heads": 2}}, "hidden size .33. is not a multiple"),
        ({"config": "none.json"}, "none.json: no such file"),
        ({"inptu": {}}, "unknown key.* Did you mean 'input'"),
        ({"input": {"tokens": 0}}, "line 1: x.input.tokens"),
        ({"input": {"tokens": 16, "image": 32}}, "line 1: x.input"),
        ({"input": {"tokens": 1000}}, "x: BertModel does not load"),
        ({"config": {**CONFIG, "name": "x" * 5000}}, "more than 4,000 characters"),
    ],
)
def test_each_mistake_is_told_in_one_line(announced: Any, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(StudyError, match=said) as refused:
        from_transformers.count(announced({"x": MINE | changed})["x"])
    assert "\n" not in str(refused.value)


def test_a_name_of_the_study_is_refused(announced: Any) -> None:
    for name in ("resnet-50", "mlp", "own"):
        with pytest.raises(StudyError, match=f"{name}: a model of the study has that name"):
            announced({name: MINE})
