"""Test which attempt at a point in a round counts."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.attempts import MOST_ATTEMPTS, count_repeats, disturbed_attempts, samples_that_count
from tests.contract.test_tables import make_table

QUIET, BUSY = "clock: 9% below the highest seen", "clock: 9% below the highest seen; busy: 40% other load"
# Flags on samples, by attempt at one point, and the attempt to use.
CASES = [
    ([[BUSY, BUSY], [QUIET, QUIET]], 2),
    ([[QUIET, BUSY], [QUIET, QUIET]], 2),
    ([[QUIET, QUIET, BUSY], [QUIET]], 1),
    ([[BUSY], [BUSY], [""]], 3),
    ([[BUSY], [""], [""]], 2),
    ([["queued steal"], ["steal: 3%"], ["queued: waited for a core 9% of the time"]], 1),
    ([["crowded: others had 1.0 cores"], [""]], 1),
]


def table(attempts: list[list[str]], **changes: Any) -> pd.DataFrame:
    """Return a point's samples for two metrics, with flags by attempt."""
    rows = [
        {"attempt": number, "flags": flags, "sample": index, "metric": metric, **changes}
        for number, texts in enumerate(attempts, start=1)
        for index, flags in enumerate(texts)
        for metric in ("time", "time.forward")
    ]
    return make_table(*rows)


@pytest.mark.parametrize(("attempts", "number"), CASES)
def test_first_quiet_attempt_counts_or_else_the_first(attempts: list[list[str]], number: int) -> None:
    samples = table(attempts)
    assert samples_that_count(samples).tolist() == samples["attempt"].eq(number).tolist()
    assert count_repeats(samples) == {"measured": 1, "quiet": int(number > 1)}


def test_failed_attempt_never_replaces_one_with_a_result() -> None:
    failed = table([[""]], attempt=2, status="failed", reason="killed", value=None, elapsed_s=None)
    samples = pd.concat([table([[BUSY]]), failed], ignore_index=True)
    assert samples_that_count(samples).tolist() == samples["attempt"].eq(1).tolist()
    assert disturbed_attempts(failed).empty
    partly = pd.concat([table([["", ""]]).assign(attempt=2), failed.assign(sample=9)], ignore_index=True)
    assert disturbed_attempts(partly).empty, "an attempt with a failed part replaces nothing"


def test_samples_without_a_reading_are_not_timed() -> None:
    observed = table([[""] * 5], metric="latency", elapsed_s=None)
    both = pd.concat([table([[BUSY]]), observed.drop_duplicates("sample")], ignore_index=True)
    assert disturbed_attempts(both).tolist() == [True]
    assert disturbed_attempts(observed).empty


samples_of_points = st.lists(
    st.tuples(
        st.integers(1, 2), st.sampled_from(["a", "b"]), st.integers(1, MOST_ATTEMPTS), st.booleans(),
        st.sampled_from(["", BUSY, "steal", "throttled: heat"]), st.floats(1e-9, 1e3),
    ),
    min_size=1, max_size=30,
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(samples_of_points, st.randoms(use_true_random=False))
def test_choice_is_one_attempt_per_point_and_never_looks_at_values(rows: list[Any], random: Any) -> None:
    samples = make_table(
        *(
            {"round": number, "backend": backend, "attempt": attempt, "flags": flags, "value": value,
             "status": "ok" if ok else "wrong", "reason": "" if ok else "exceeds the tolerance"}
            for number, backend, attempt, ok, flags, value in rows
        )
    )  # fmt: skip
    counts = samples_that_count(samples)
    chosen = samples[counts].groupby(["round", "backend"])["attempt"].nunique()
    assert len(chosen) == len(samples[["round", "backend"]].drop_duplicates()) and set(chosen) == {1}
    other = samples.assign(value=[random.uniform(1e-9, 1e3) for _ in rows], error=0.0, flop=1.0)
    assert samples_that_count(other).tolist() == counts.tolist()
    order = random.sample(range(len(rows)), len(rows))
    assert samples_that_count(samples.iloc[order]).sort_index().tolist() == counts.tolist()
    for key, part in samples.groupby(["round", "backend"]):
        quiet = [
            attempt
            for attempt, own in part.groupby("attempt")
            if own["status"].eq("ok").all() and own["flags"].isin([BUSY, "steal"]).mean() < 0.5
        ]
        assert set(part.loc[counts[part.index], "attempt"]) == {min(quiet or part["attempt"])}, key
