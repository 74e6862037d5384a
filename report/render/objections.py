"""What may be held against the study, and what was done about it: declared in report/objections.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.files import read_json, read_yaml
from report.render import words
from report.render.markdown import identifier

_REPORT = Path(__file__).resolve().parents[1]
DECLARED = _REPORT / "objections.yaml"
SCHEMA = _REPORT / "schemas" / "objections.schema.json"


def objections(document: Mapping[str, Any], path: Path = DECLARED) -> list[dict[str, Any]]:
    """Each objection that holds for this document's nodes, with the verdicts on the claims that it is about.

    document: what verdicts.json holds; a claim that it has no verdict on is left out. Raises StudyError with file and
    line for what is not of the schema.
    """
    verdicts = {str(one["id"]): str(one["verdict"]) for one in document["verdicts"]}
    gpu = any(device["kind"] != "cpu" for node in document["nodes"] for device in node.get("devices") or [])
    return [
        {
            "says": str(one["says"]),
            "done": words.sentence(str(one["done"])),
            "answer": str(one["answer"]),
            "claims": [
                {"id": identifier(claim), "verdict": verdicts[claim], "class": words.verdict_class(verdicts[claim])}
                for claim in one.get("claims", [])
                if claim in verdicts
            ],
        }
        for one in read_yaml(path, read_json(SCHEMA))
        if one.get("when", {}).get("gpu", gpu) == gpu
    ]
