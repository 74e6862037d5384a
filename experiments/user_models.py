"""Models of the user's own: networks by a class of Transformers, and language models by a file.

The process that plans reads them from YAML; processes that measure are told of them by their environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json, read_yaml

# The name by which a preset asks for all of them.
OWN = "own"
# Variables: the models in JSON; and the folders of their files, which no record holds.
VARIABLE, FILES = "STUDY_OWN_MODELS", "STUDY_OWN_FILES"
# The longest text that a record holds.
MOST_TEXT = 4000
_NUMBER = {"type": "integer", "minimum": 1, "maximum": 100_000}
_NETWORK = {
    "class": {"type": "string", "pattern": "^[A-Z][A-Za-z0-9]*$"},
    "config": {"type": ["string", "object"]},
    "input": {
        "type": "object",
        "properties": {
            "image": _NUMBER,
            "tokens": _NUMBER,
            "spectrum": {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2},
        },
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    },
    "decoder": _NUMBER,
    "output": {"type": "string"},
}
_SCHEMA = {
    "type": "object",
    "propertyNames": {"pattern": "^[a-z0-9][a-z0-9.-]{0,40}$"},
    "additionalProperties": {
        "type": "object",
        "properties": {**_NETWORK, "file": {"type": "string"}},
        "additionalProperties": False,
        "minProperties": 1,
    },
}


def models(kind: str) -> dict[str, dict[str, Any]]:
    """By name, the models described by a class of Transformers (kind: class) or by a file (kind: shape)."""
    return {name: about for name, about in json.loads(models_json()).items() if kind in about}


def models_json() -> str:
    """All models in JSON."""
    return os.environ.get(VARIABLE) or "{}"


def model_file(name: str) -> Path:
    """The file of a language model."""
    return Path(json.loads(os.environ[FILES])[name])


def fixed_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a point that a model's file decides."""
    about = models("shape").get(params.get("model", ""), {})
    return {key: about[key] for key in ("format",) if key in about and key in params}


def model_variables(name: object) -> dict[str, str]:
    """Variables of a process that measures a model of this name: none for the study's own."""
    if name not in json.loads(models_json()):
        return {}
    return {variable: os.environ[variable] for variable in (VARIABLE, FILES)}


def export_models(path: Path, taken: Iterable[str], describe: Callable[[Path], Mapping[str, Any]]) -> None:
    """Tell this process, and those it starts, of the models in a YAML file.

    taken: names of the study's own. describe: a language model's shape and format, of its file.
    Raises StudyError, with file, line and key.
    """
    own, files = read_yaml(path, _SCHEMA), {}
    for name, about in own.items():
        if name in taken or name == OWN:
            raise StudyError(f"{path}: {name}: a model of the study has that name: give it another")
        if set(about) != {"file"} and not about.keys() >= {"class", "input"}:
            raise StudyError(f"{path}: {name}: give a class of Transformers with its input, or a file alone")
        if isinstance(config := about.get("config"), str):
            about["config"] = _read_config(path.parent / config)
        if "file" in about:
            files[name] = str((path.parent / Path(about["file"]).expanduser()).resolve())
            try:
                own[name] = describe(Path(files[name]))
            except StudyError as fault:
                raise StudyError(f"{path}: {name}: {fault}") from None
    described = json.dumps(own, sort_keys=True)
    if len(described) > MOST_TEXT:
        raise StudyError(f"{path}: more than {MOST_TEXT:,} characters: leave out fields that the class has itself")
    os.environ.update({VARIABLE: described, FILES: json.dumps(files)})


def _read_config(path: Path) -> dict[str, Any]:
    """The fields of a configuration that shape a network: names of labels become their number."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise StudyError(f"{path}: not a configuration: it has no fields")
    if "id2label" in content:
        content["num_labels"] = len(content["id2label"])
    return {key: value for key, value in content.items() if key not in ("id2label", "label2id")}
