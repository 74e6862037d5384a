"""The page on checks tells single results, sessions and verdicts over many results apart, true to the table."""

from __future__ import annotations

import copy
import json
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from report import ROOT
from report.estimates import Estimates
from report.pages.exhibit_types import Exhibit
from report.pages.families import checks, time_to_train
from report.pages.session_spread import session_exhibit
from report.pages.simulated_checks import repetition_coverage, simulated_exhibits
from report.quantities.whole_runs import Coverage


@pytest.fixture
def table() -> Any:
    """Read the published table to compare texts to."""
    return json.loads((ROOT / "data" / "calibration.json").read_text(encoding="utf-8"))


def exhibits(table: Any) -> dict[str, Exhibit]:
    return {exhibit.chart.name: exhibit for exhibit in simulated_exhibits(table, {})}


def with_error(table: Any, key: str, answer: str, share: float, session: float = 0.0) -> Any:
    """Copy the table, and set an answer's rate to `share` for one question and one spread between sessions."""
    changed = copy.deepcopy(table)
    rows = [row for row in changed["rows"] if row["key"] == key and row["session"] == session]
    assert rows
    for row in rows:
        row[answer] = {"share": share, "low": share, "high": share}
    return changed


@pytest.mark.parametrize(
    ("name", "key", "answer", "session", "where"),
    [
        ("checks-simulated", "one", "supported", 0.0, "at most 7.89% of single results were wrongly decided"),
        ("checks-simulated", "one", "challenged", 0.5, "7.9% with 3 rounds"),
        (
            "checks-simulated-many",
            "most, half at",
            "depends",
            0.0,
            "all of 134 results hold, 7.9% of verdicts are 'depends'",
        ),
        ("checks-simulated-many", "every 0.25", "supported", 0.0, "about every result is supported in at most 7.9%"),
    ],
)
def test_sentences_have_the_numbers_of_the_table(
    table: Any, name: str, key: str, answer: str, session: float, where: str
) -> None:
    exhibit = exhibits(with_error(table, key, answer, 0.0789, session))[name]
    assert where in " ".join([exhibit.chart.title, *exhibit.says])
    assert where not in " ".join([exhibits(table)[name].chart.title, *exhibits(table)[name].says])


def test_sessions_do_not_count_as_chance_between_rounds(table: Any) -> None:
    changed = exhibits(with_error(table, "one", "supported", 0.5, session=0.5))
    assert changed["checks-simulated"].chart.title == exhibits(table)["checks-simulated"].chart.title


def test_all_simulated_rows_are_in_folded_tables(table: Any) -> None:
    shown = exhibits(table)
    rows = {name: len(exhibit.table.rows) for name, exhibit in shown.items() if exhibit.table}
    assert rows["checks-simulated"] + rows["checks-simulated-many"] == len(table["rows"])
    assert rows["checks-simulated-coverage"] == len(table["coverage"])
    assert rows["checks-simulated-looks"] == len(table["looks"])
    assert rows["checks-simulated-sessions"] == len(table["sessions"])
    assert rows["checks-simulated-noise"] == len(table["noises"])


def test_repetition_tells_timed_results_from_numerics(table: Any) -> None:
    repeat = checks.read_table("repeat")
    evidence: Any = type("Evidence", (), {"names": {repeat["node"]: "a node"}})
    (exhibit,) = checks._repeated_exhibit(evidence, repeat, table)
    timed = [row for row in repeat["experiments"] if row["experiment"] not in ("numerics", "equivalence")]
    points, agree = (sum(row[name] for row in timed) for name in ("points", "agree"))
    assert f"{100 * agree / points:.1f}% of {points:,} timed results agree" in exhibit.chart.title
    says = " ".join(exhibit.says)
    assert f"Of {repeat['all']['points'] - points} more results in" in says
    assert repetition_coverage(table, 0.95) in says


def results_in_sessions(*groups: tuple[str, str, str, float, float]) -> Any:
    """Return evidence with two results for each group.

    groups: experiment, metric, scale, variance between sessions, variance between rounds.
    """
    rows = [
        {"node": "a", "device": "cpu", "experiment": experiment, "metric": metric, "scale": scale, "estimate": 1.0,
         "n_sessions": sessions, "session_variance": between, "variance": within}
        for experiment, metric, scale, between, within in groups
        for sessions in (1, 2)
    ]  # fmt: skip
    data = type("Data", (), {"table": pd.DataFrame(rows)})
    return type("Evidence", (), {"data": data, "names": {"a": "machine A"}})


def test_sessions_are_compared_to_rounds_for_each_experiment() -> None:
    evidence = results_in_sessions(
        ("gemm", "time", "log", 0.0016, 0.0001),
        ("training", "time", "log", 0.0, 0.0004),
        ("training", "time.forward", "log", 0.0, 0.0009),
        ("training", "share", "logit", 0.01, 0.0001),
        ("models", "flop", "log", 0.0, 1e-13),
        ("peak", "time", "log", float("nan"), 0.0001),
    )
    (exhibit,) = session_exhibit(evidence)
    assert exhibit.chart.title == "Between sessions, 1 of 2 experiments spread more than between rounds"
    assert exhibit.says[0].startswith("Gemm spreads most between sessions: 4%, from 1 result in several")
    assert exhibit.table is not None
    assert [row[1:] for row in exhibit.table.rows] == [
        ["gemm", "2", "1", "1%", "4%", "4"],
        ["training", "2", "1", "2%", "0%", "0"],
        ["training: time forward", "2", "1", "3%", "0%", "0"],
    ]


def test_only_results_of_decided_claims_count_as_measured_again() -> None:
    table = checks.read_table("second")
    outcomes = dict.fromkeys((row["claim"] for row in table["rows"]), "supported") | {"G13": "undecided"}
    verdicts = [
        {"id": row["claim"], "verdict": outcomes[row["claim"]],
         "parts": [] if row["claim"] == "W14" else [{"name": row["part"], "outcome": outcomes[row["claim"]]}]}
        for row in table["rows"]
    ]  # fmt: skip
    evidence: Any = type("Evidence", (), {"names": {table["node"]: "a node"}, "document": {"verdicts": verdicts}})
    claims = {row["claim"] for row in checks.results_measured_again(evidence)}
    assert "N03" in claims and not claims & {"W14", "G13"}
    evidence.names = {}
    assert checks.results_measured_again(evidence) == []


def test_single_sessions_have_no_exhibit() -> None:
    assert list(session_exhibit(results_in_sessions(("gemm", "time", "log", float("nan"), 0.0001)))) == []


def test_longest_job_is_named_with_its_ratio() -> None:
    cases = [
        {"job": "short", "seconds": 60.0, "estimate": 1.5, "low": 1.1, "high": 2.0},
        {"job": "long", "seconds": 3480.0, "estimate": 1.021, "low": 0.8, "high": 1.3},
    ]
    (sentence,) = checks._step_sentences(cases)
    assert "1 of 2 results" in sentence and "long (58 minutes), took ×1.02 the calculated time." in sentence


@given(st.integers(1, 60), st.data())
def test_shown_share_is_the_least_that_the_count_does_not_refute(examined: int, data: Any) -> None:
    inside = data.draw(st.integers(1, examined))
    share = checks.shown_share(inside, examined)
    assert binom.sf(inside - 1, examined, share) == pytest.approx(0.05)


def test_coverage_of_derived_times_says_how_much_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"job": f"job {i}", "device": "cpu", "estimate": 1.0, "low": 0.5, "high": 2.0, "n_rounds": 1,
             "detail": "2 times without correction"} for i in range(8)]  # fmt: skip
    misses = Estimates.from_rows([{"estimate": 1.1, "se": 0.01, "df": 2.0, "method": "parts"}])
    named = {"checked": rows, "steps": []}
    monkeypatch.setattr(
        checks, "records", lambda cases: named[cases] if isinstance(cases, str) else [{"estimate": 1.1}]
    )
    monkeypatch.setattr(checks, "predicted_over_measured", lambda data: misses)
    monkeypatch.setattr(checks, "parts_coverage", lambda data: Coverage(14, 14, 0.9, 1.1, 1.23))
    known: dict[str, Any] = {checks.CHECK: "checked", checks.STEP_CHECK: "steps"}
    evidence: Any = type("Evidence", (), {"data": object(), "quantity": staticmethod(known.get)})
    (exhibit,) = checks._derived_exhibit(evidence)
    assert exhibit.chart.title.startswith("8 of 8 whole jobs took as long as derived")
    assert "the interval is right for 69% of such jobs or more" in exhibit.says[1]
    assert "14 of 14 jobs came within a factor of 1.2" in exhibit.says[2] and "81% of such jobs" in exhibit.says[2]


def test_times_from_the_own_step_and_from_the_line_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    view: Any = type("View", (), {"data": object()})
    monkeypatch.setattr(time_to_train, "parts_coverage", lambda data, kind: Coverage(14, 14, 0.9, 1.1, 1.23))
    monkeypatch.setattr(time_to_train, "coverage", lambda data, kind: Coverage(8, 8, 0.7, 1.7, 4.0))
    own, line = time_to_train._method_sentences(view, "cpu", 3, 13)
    assert "3 of 13 times" in own and "14 of 14 jobs came within a factor of 1.2" in own
    assert (
        "8 of 8 jobs" in line and "69% of such jobs or more" in line and "a range of models, not a measurement" in line
    )
    monkeypatch.setattr(time_to_train, "coverage", lambda data, kind: None)
    (alone,) = time_to_train._method_sentences(view, "cpu", 0, 13)
    assert alone.startswith("Each time") and "no interval is known" in alone
