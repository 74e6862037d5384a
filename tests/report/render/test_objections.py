"""Objections are told with their answers and the verdicts that they are about, as far as they hold for the nodes."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from contract.files import read_yaml
from report.judging.judge import CLAIMS
from report.render.objections import DECLARED, objections


def test_each_has_its_answer_and_the_verdicts_on_its_claims(make_document: Any) -> None:
    document = make_document()
    told = objections(document)
    assert len(told) >= 10
    (one,) = [one for one in told if [claim["id"] for claim in one["claims"]] == ["G13"]]
    known = {verdict["id"]: verdict["verdict"] for verdict in document["verdicts"]}
    assert one["claims"][0]["verdict"] == known["G13"]
    assert one["done"] == "Rule changed"
    assert one["says"] and one["answer"]


def test_that_no_gpu_was_measured_is_told_only_while_it_is_so(make_document: Any) -> None:
    without = make_document()
    with_one = copy.deepcopy(without)
    with_one["nodes"][0]["devices"].append({"id": "cuda:0", "kind": "gpu", "name": "Example GPU", "memory_bytes": 1})
    gone = {one["says"] for one in objections(without)} - {one["says"] for one in objections(with_one)}
    assert len(gone) == 1 and "GPU" in gone.pop()


def test_those_of_the_study_name_claims_that_there_are_and_type_no_figure() -> None:
    declared = read_yaml(DECLARED)
    for one in declared:
        assert all((CLAIMS / f"{claim}.yaml").is_file() for claim in one.get("claims", [])), one["says"]
        assert not re.search(r"\d", one["says"] + one["answer"])
    assert len({one["says"] for one in declared}) == len(declared)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- {says: Nobody believes this., done: ignored, answer: It is believed by us.}", r"done.*'ignored'"),
        ("- {says: Nobody believes this., done: measured}", "answer"),
    ],
)
def test_a_mistake_is_told_with_its_line(make_document: Any, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "objections.yaml"
    path.write_text(f"{text}\n", encoding="utf-8")
    with pytest.raises(StudyError, match=rf"objections\.yaml.*{says}"):
        objections(make_document(), path)
