"""Test that lost and damaged outputs are detected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from contract.node import write_node
from tests.experiments.test_node import RECORD, write_round
from workflow.result_files import is_measured, unusable_rounds, usable_plan, usable_record

NAME = "gemm.cpu.1.parquet"


def test_damaged_round_is_listed_and_foreign_round_is_refused(tmp_path: Path) -> None:
    own = Path(write_round(tmp_path, NAME, 7))
    assert unusable_rounds({str(own): {}, str(tmp_path / "lost.cpu.1.parquet"): {}}, RECORD["id"]) == []
    content = own.read_bytes()
    for spoilt in (b"", b"PAR1", content[: len(content) // 2], content[:-1], bytes(len(content))):
        own.write_bytes(spoilt)
        assert unusable_rounds({str(own): {}}, RECORD["id"]) == [str(own)]
    for name, node in ((NAME, "another-cpu-8c-fff000"), ("gemm.cpu.2.parquet", RECORD["id"])):
        strange = write_round(tmp_path, name, 7, node=node)
        with pytest.raises(StudyError, match=rf"holds gemm\.cpu\.1\.parquet of {node}, and {name} of .* move it away"):
            unusable_rounds({strange: {}}, RECORD["id"])


@pytest.mark.parametrize(
    ("noted", "usable"),
    [
        ({"protocol": 3, "planned": "0" * 12}, True),
        ({"protocol": 2, "planned": "0" * 12}, False),
        ({"protocol": 3, "planned": "1" * 12}, False),
        # In rounds with schema 1, the protocol is no count for the experiment.
        ({"schema": 1, "protocol": 3, "planned": "0" * 12}, False),
        ({"schema": 1}, False),
    ],
)
def test_round_with_other_protocol_or_plan_is_measured_again(
    noted: dict[str, Any], usable: bool, tmp_path: Path
) -> None:
    """The round's file records protocol and plan, so Snakemake's metadata is not needed.

    Two rounds with different protocols are never both usable.
    """
    path = write_round(tmp_path, NAME, 7, **noted)
    required = {"schema": 2, "protocol": 3, "planned": "0" * 12}
    assert unusable_rounds({path: required}, RECORD["id"]) == ([] if usable else [path])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"schema": 3}', '{"schema": 4}', '{"schema": 4, "jobs": [{}], "rounds": 1}']
)
def test_unusable_plan_or_record_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text(text)
    assert usable_plan(tmp_path / "file.json") is None and usable_record(tmp_path / "file.json") is None
    assert usable_plan(tmp_path / "lost.json") is None and usable_record(tmp_path / "lost.json") is None


def test_is_measured_needs_sealed_node_with_all_rounds(tmp_path: Path) -> None:
    folder = tmp_path / RECORD["id"]
    assert not is_measured(tmp_path)
    jobs = {"gemm.cpu": {"predicted_s": [9.0], "left_out": {}}}
    write_node(folder / "node.json", {**RECORD, "jobs": jobs})
    assert not is_measured(tmp_path)
    path = Path(write_round(folder, NAME, 7))
    assert is_measured(tmp_path)
    path.write_bytes(b"PAR1")
    assert not is_measured(tmp_path)
