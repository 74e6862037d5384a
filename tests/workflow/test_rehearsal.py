"""A short form of `python -m tests.workflow.rehearsal`."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from experiments.outcomes import outcomes
from tests.workflow import rehearsal as program

PRESET = Path(__file__).parent / "standin" / "small.yaml"
# What a preset so small says something about.
CLAIMS = ("N07", "G06", "W22")


@pytest.mark.slow
def test_a_rented_gpu_is_measured_although_it_is_cut_off_and_processes_go_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To judge it beside what is published takes longer.
    monkeypatch.setattr(program, "PUBLISHED", tmp_path / "nobody")
    spoilt = {"crash": "parallelism", "hang": "numerics", "nonsense": "content"}
    rehearsal = program.Rehearsal(tmp_path, str(PRESET), random.Random(1), spoilt=spoilt)
    rehearsal.run(cuts=1)
    assert rehearsal.faults == []
    cut, end = rehearsal.rows
    assert 0 < cut.measured < end.measured == end.planned
    assert (cut.record, end.record) == ("partial", "sealed")
    assert end.pairs == 1  # the triad
    assert [name for name in CLAIMS if not end.verdicts[name].startswith("awaiting")]
    told = outcomes([rehearsal.node])
    # On a busy machine others may come too late, too.
    lost = set(re.findall(r"^ +\d+  (\S+) on \S+: (?!timeout)", told, re.MULTILINE))
    assert lost == {spoilt["crash"], spoilt["nonsense"]}, told
    for experiment, words in (
        ("parallelism", "was ended by SIGKILL"),
        ("numerics", "timeout: no answer within"),
        ("content", "is more than the whole, for a share"),
        ("content", "is not a time"),
        ("content", "no answer from the measuring process"),
    ):
        assert re.search(rf"{experiment} on cuda:0: .*{words}", told), told
