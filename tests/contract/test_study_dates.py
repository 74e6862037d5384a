"""Impossible dates are found in records, and wrong clocks before anything is measured."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contract import study_dates
from contract.errors import StudyError
from contract.node import parse_time, utc_time
from contract.study_dates import FIRST, check_clock, impossible_date
from experiments.cli import main
from experiments.doctor import Level, machine_checks

COMMITTED = parse_time(FIRST) + timedelta(days=100)


@pytest.mark.parametrize(
    ("dates", "fault"),
    [
        ([{"started_utc": "1970-01-01T00:00:07Z", "ended_utc": utc_time()}], "started_utc 1970-01-01T00:00:07Z lies b"),
        ([{"started_utc": FIRST}, {"ended_utc": "2026-11-20T18:33:59Z"}], "before the study's first version (2026"),
        ([{"ended_utc": utc_time(-2 * 86_400)}], "lies in the future: set the machine's clock and measure again"),
        ([{"started_utc": FIRST, "ended_utc": utc_time(-11 * 3600)}], ""),
        ([{}], ""),
    ],
)  # fmt: skip
def test_impossible_dates_are_named(dates: list[dict[str, str]], fault: str) -> None:
    text = impossible_date(*dates)
    assert fault in text and bool(fault) == bool(text)


def set_clock(patch: pytest.MonkeyPatch, now: datetime) -> None:
    patch.setattr(study_dates.time, "time", now.timestamp)
    patch.setattr(study_dates, "run_git", lambda *_: str(int(COMMITTED.timestamp())))


@pytest.mark.parametrize("words", [["probe"], ["plan"], ["run", "clock", "--out", "a.parquet"], ["preflight"]])
def test_no_command_measures_before_the_first_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    set_clock(monkeypatch, datetime(1970, 1, 1, tzinfo=UTC))
    with pytest.raises(StudyError, match=r"clock shows 1970-01-01, before the study's first version .*: set the clock"):
        main(words)
    assert not list(tmp_path.iterdir())
    assert machine_checks.date(True).level is Level.WARNING


@pytest.mark.parametrize(("days", "text"), [(-2, "before this version"), (0, ""), (600, ""), (3650, "years after")])
def test_clock_is_compared_with_the_commit(monkeypatch: pytest.MonkeyPatch, days: int, text: str) -> None:
    set_clock(monkeypatch, COMMITTED + timedelta(days=days))
    assert text in check_clock() and bool(text) == bool(check_clock())
    finding = machine_checks.date(True)
    assert finding.level is (Level.WARNING if text else Level.OK) and text in finding.why
