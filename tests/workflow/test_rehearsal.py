"""A short form of `python -m tests.workflow.rehearsal`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.workflow.rehearsal import Rehearsal, outcomes

PRESET = Path(__file__).parent / "standin" / "small.yaml"
# What a preset so small says something about.
CLAIMS = ("N07", "G06", "W22")


@pytest.mark.slow
def test_a_rented_gpu_is_measured_although_it_is_cut_off_and_processes_go_wrong(tmp_path: Path) -> None:
    spoilt = {"crash": "parallelism", "hang": "numerics", "nonsense": "content"}
    rehearsal = Rehearsal(tmp_path, str(PRESET), random.Random(1), spoilt=spoilt)
    rehearsal.run(cuts=1)
    assert rehearsal.faults == []
    cut, end = rehearsal.rows
    assert 0 < cut.measured < end.measured == end.planned
    assert (cut.record, end.record) == ("partial", "sealed")
    assert [name for name in CLAIMS if end.verdicts[name].startswith("awaiting")] == []
    told = {job: " ".join(reasons) for job, reasons in outcomes(rehearsal.node).items()}
    assert told.keys() == {"parallelism.cuda-0", "numerics.cuda-0", "content.cuda-0"}
    assert "was ended by SIGKILL" in told["parallelism.cuda-0"]
    assert "timeout: no answer within" in told["numerics.cuda-0"]
    for words in ("is more than the whole, for a share", "is not a time", "said what is no answer"):
        assert words in told["content.cuda-0"]
