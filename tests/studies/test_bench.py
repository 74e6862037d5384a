"""The bench's statistics, peers and refusals; `make bench` itself is run once, in its shortest form."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import StudyError
from studies.bench import __main__ as command
from studies.bench import aa, bare, intervals, page, scale
from studies.bench.intervals import Estimate, Ratio
from tests.missing import missing

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("how", "unseen", "share", "factor"),
    [
        ("mean", 0.0, (0.93, 0.97), (0.9, 1.1)),
        ("median", 0.0, (0.93, 0.97), (0.9, 1.1)),
        # One process is one shift: what its values agree on says nothing about the next process.
        ("mean", 0.05, (0.0, 0.25), (5, 99)),
    ],
)
def test_intervals_cover_what_they_say_of_values_that_share_nothing(
    how: str, unseen: float, share: tuple[float, float], factor: tuple[float, float]
) -> None:
    random = np.random.default_rng(1)

    def once() -> Estimate:
        values = random.normal(1, unseen) + random.normal(0, 0.02, 40)
        if how == "mean":
            return intervals.of_mean(values.mean(), values.std(ddof=1), len(values))
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        return intervals.of_median(middle, high - low, len(values))

    found = intervals.coverage(intervals.ratio(once(), once(), moderated=False) for _ in range(1500))
    assert share[0] < found.share < share[1] and factor[0] < found.factor < factor[1]


def test_one_value_has_no_interval_and_is_counted_apart() -> None:
    lone = intervals.of_median(1.0, 0.0, 1)
    assert math.isnan(lone.half)
    found = intervals.coverage([intervals.ratio(lone, lone, moderated=False), Ratio(0.0, 0.1)])
    assert (found.pairs, found.unknown, found.share) == (1, 1, 1.0)


ratios = st.lists(st.builds(Ratio, st.floats(-0.5, 0.5), st.floats(1e-4, 1.0)), min_size=1, max_size=60)


@given(ratios)
def test_intervals_scaled_by_the_factor_cover_95_percent(every: list[Ratio]) -> None:
    factor = intervals.coverage(every).factor
    scaled = intervals.coverage([Ratio(each.log, each.half * factor * (1 + 1e-12)) for each in every])
    assert scaled.share >= 0.95
    assert 0 <= scaled.low <= scaled.share <= scaled.high <= 1


estimates = st.builds(Estimate, st.floats(-1, 1), st.floats(1e-4, 0.1), st.floats(1, 50))


@given(estimates, estimates, st.booleans())
def test_a_ratio_and_its_inverse_agree(a: Estimate, b: Estimate, moderated: bool) -> None:
    one, other = intervals.ratio(a, b, moderated), intervals.ratio(b, a, moderated)
    assert one.log == -other.log
    assert one.half == pytest.approx(other.half)
    assert one.holds_one == other.holds_one


@pytest.mark.parametrize(("low", "high", "outcome"), [
    (0.98, 1.02, "met"), (0.9, 0.97, "missed"), (1.03, 1.2, "missed"), (0.97, 1.01, "undecided"),
])  # fmt: skip
def test_an_interval_against_its_target(low: float, high: float, outcome: str) -> None:
    assert intervals.against_band(low, high, (0.98, 1.02)).partition(":")[0] == outcome


@pytest.mark.parametrize(
    ("covered", "pairs", "outcome"),
    [
        (95, 100, "met"),
        (100, 100, "missed: above 93%–97%, within what chance does"),
        (50, 100, "missed: below 93%–97%"),
        (0, 0, "missed: no intervals"),
    ],
)
def test_a_share_against_its_target(covered: int, pairs: int, outcome: str) -> None:
    every = [Ratio(0.0, 1.0)] * covered + [Ratio(1.0, 0.5)] * (pairs - covered)
    assert intervals.share_against_band(intervals.coverage(every), (0.93, 0.97)) == outcome


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("compiler", ["c", "numba"])
def test_the_bare_triad_computes_what_it_should(tmp_path: Path, compiler: str, threads: int) -> None:
    library = bare.compiled(tmp_path, 64)[0] if compiler == "c" else ""
    if compiler == "c" and not library:
        missing("the bare triad in C: no C compiler with OpenMP; `apt-get install gcc` (Debian)")
    once, amount = bare.triad(library, 3 * 8 * 1001, threads)
    assert amount == 3 * 8 * (1001 // threads * threads)
    assert once() > 0


def test_a_busy_machine_is_refused_unless_told_and_a_short_burst_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(command.ANYWAY, raising=False)
    with pytest.raises(StudyError, match="busy: others take 50% of it"):
        command.idle(lambda seconds: 50.0)
    seen = iter([0.0, 90.0, 1.0, 0.0, 2.0])
    command.idle(lambda seconds: next(seen))
    assert next(seen, None) is None
    monkeypatch.setenv(command.ANYWAY, "1")
    command.idle(lambda seconds: pytest.fail("asked"))


@pytest.mark.parametrize("module", [page, scale], ids=lambda one: one.__name__)
def test_the_published_pages_are_those_of_their_data(module: ModuleType) -> None:
    data = ROOT / "docs" / f"{'scale' if module is scale else 'bench'}.json"
    assert module.text(json.loads(data.read_text(encoding="utf-8"))) == data.with_suffix(".md").read_text("utf-8")


@pytest.mark.slow
def test_a_smoke_run_passes_through_every_path(tmp_path: Path) -> None:
    for peer in ("pyperf", "pytest_benchmark"):
        pytest.importorskip(peer, reason="the extra `bench` is not installed")
    out = tmp_path / "out"
    ran = subprocess.run(
        [sys.executable, "-m", "studies.bench", "--quick", "--out", str(out)],
        cwd=ROOT, env={**os.environ, command.ANYWAY: "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert {path.name for path in out.iterdir()} == {"bench.json", "bench.md", "bench.svg", "bench.png"}
    data = json.loads((out / "bench.json").read_text(encoding="utf-8"))
    assert data["aa"]["left_out"] == {}
    assert {row.method for row in aa.rows(data["aa"], data["aa"]["cheap"])} == set(aa.NAMES)
    assert "A smoke run" in (out / "bench.md").read_text(encoding="utf-8")
