"""User-defined models: networks from a Transformers class, and language models from a file.

The planning process reads them from YAML and passes them to measuring processes in environment variables.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json, read_yaml

# A preset uses this name to stand for all of the user's models.
OWN = "own"
# VARIABLE: environment variable with the descriptions of the models as JSON.
# FILES: environment variable with the paths of the models' files, which are never recorded.
VARIABLE, FILES = "STUDY_OWN_MODELS", "STUDY_OWN_FILES"
# Maximum number of characters in VARIABLE, whose value is recorded.
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
    """Return the models by name. kind: "class" for Transformers classes, "shape" for model files."""
    return {name: about for name, about in json.loads(models_json()).items() if kind in about}


def models_json() -> str:
    return os.environ.get(VARIABLE) or "{}"


def model_file(name: str) -> Path:
    return Path(json.loads(os.environ[FILES])[name])


def fixed_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters and values that a user's model file determines; empty for points without such a file."""
    about = models("shape").get(params.get("model", ""), {})
    return {key: about[key] for key in ("format",) if key in about and key in params}


def model_variables(name: object) -> dict[str, str]:
    """Return the environment variables to measure a user model; none for the study's models."""
    if name not in json.loads(models_json()):
        return {}
    return {variable: os.environ[variable] for variable in (VARIABLE, FILES)}


def export_models(path: Path, reserved: Iterable[str], describe: Callable[[Path], Mapping[str, Any]]) -> None:
    """Read models from a YAML file into environment variables, for this process and its children.

    reserved: names used by the study. describe: returns the shape and format for a language model's file.
    Raises StudyError with file, line and key.
    """
    own, files = read_yaml(path, _SCHEMA), {}
    for name, about in own.items():
        if name in reserved or name == OWN:
            raise StudyError(f"{path}: {name}: the study has a model with this name: choose another")
        if set(about) != {"file"} and not about.keys() >= {"class", "input"}:
            raise StudyError(f"{path}: {name}: set `class` (from Transformers) and `input`, or `file` alone")
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
        raise StudyError(f"{path}: more than {MOST_TEXT:,} characters: remove fields equal to the class's defaults")
    os.environ.update({VARIABLE: described, FILES: json.dumps(files)})


def _read_config(path: Path) -> dict[str, Any]:
    """Read the configuration fields that define a network; replace label names by their count."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise StudyError(f"{path}: not a configuration: it must be a JSON object")
    if "id2label" in content:
        content["num_labels"] = len(content["id2label"])
    return {key: value for key, value in content.items() if key not in ("id2label", "label2id")}
