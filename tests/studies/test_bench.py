"""Test the bench's statistics, bare loops and refusals, and one smoke run."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import StudyError
from experiments.doctor.finding import warning
from studies.bench import __main__ as command
from studies.bench import aa_study, bare_loops, core_over_bare
from tests.missing_tools import skip_without

ROOT = Path(__file__).parents[2]


def test_single_value_has_no_interval() -> None:
    coverage = aa_study.coverage(np.array([0.0, 0.0]), np.array([math.nan, 0.1]))
    assert (coverage.pairs, coverage.unknown, coverage.share) == (1, 1, 1.0)


@given(st.lists(st.tuples(st.floats(-0.5, 0.5), st.floats(1e-4, 1.0)), min_size=1, max_size=60))
def test_scaled_intervals_cover_95_percent(every: list[tuple[float, float]]) -> None:
    logs, halves = np.array(every).T
    scaled = aa_study.coverage(logs, halves * aa_study.coverage(logs, halves).factor * (1 + 1e-12))
    assert scaled.share >= 0.95
    assert 0 <= scaled.low <= scaled.share <= scaled.high <= 1


@pytest.mark.parametrize(
    ("unseen", "share", "factor"),
    [
        (0.0, (0.9, 1.0), (0.6, 1.2)),
        # Here each process shifts all its values, so intervals from within a process seldom cover another process's
        # value.
        (0.05, (0.0, 0.3), (5, 99)),
    ],
)
def test_intervals_cover_95_percent_for_independent_values(
    unseen: float, share: tuple[float, float], factor: tuple[float, float]
) -> None:
    random, labels = np.random.default_rng(1), [str(number) for number in range(100)]

    def make_result() -> dict[str, float]:
        values = random.normal(1, unseen) + random.normal(0, 0.02, 40)
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        return {"median": middle, "iqr": high - low, "n": len(values), "wall_s": 1.0}

    runs = [{aa_study.TORCH: {label: make_result() for label in labels}} for _ in range(4)]
    coverage, seconds, honest_s = aa_study.method_row({"points": labels, "runs": runs}, aa_study.TORCH)
    assert share[0] < coverage.share <= share[1] and factor[0] < coverage.factor < factor[1]
    assert honest_s >= seconds == 1.0


@pytest.mark.parametrize(("low", "high", "outcome"), [
    (0.98, 1.02, "met"), (0.9, 0.97, "missed"), (1.03, 1.2, "missed"), (0.97, 1.01, "undecided"),
])  # fmt: skip
def test_interval_outcome(low: float, high: float, outcome: str) -> None:
    assert core_over_bare.band_outcome(low, high, (0.98, 1.02)).partition(":")[0] == outcome


@pytest.mark.parametrize(
    ("covered", "pairs", "outcome"),
    [
        (95, 100, "met"),
        (100, 100, "missed: above 93%–97%, within what chance does"),
        (50, 100, "missed: below 93%–97%"),
        (0, 0, "missed: no intervals"),
    ],
)
def test_coverage_outcome(covered: int, pairs: int, outcome: str) -> None:
    logs = np.array([0.0] * covered + [1.0] * (pairs - covered))
    assert aa_study.coverage_outcome(aa_study.coverage(logs, np.full(pairs, 0.5)), (0.93, 0.97)) == outcome


@pytest.mark.parametrize("threads", [1, 2])
def test_bare_triad_is_right(tmp_path: Path, threads: int) -> None:
    library = bare_loops.compile_triad(tmp_path, 64)[0]
    if not library:
        skip_without("the bare triad in C: no C compiler with OpenMP; `apt-get install gcc` (Debian)")
    once, amount = bare_loops.make_triad(library, 3 * 8 * 1001, threads)
    assert amount == 3 * 8 * (1001 // threads * threads)
    assert once() > 0


def test_missing_library_gives_reason() -> None:
    order = {"experiment": "bandwidth", "params": {"footprint": 2400, "threads": 1}, "library": "", "seconds": 0.01}
    assert set(bare_loops.run_order({**order, "library": "/nowhere/stream.so"})) == {"reason"}


def test_busy_machine_is_refused_unless_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "watch_others", lambda seconds: None)
    monkeypatch.setattr(command, "load", lambda watched, cores: warning("load", "others take 50%", "", "stop them"))
    monkeypatch.delenv(command.ANYWAY_VARIABLE, raising=False)
    with pytest.raises(StudyError, match="stop them, or set BENCH_ANYWAY=1"):
        command.check_idle()
    monkeypatch.setenv(command.ANYWAY_VARIABLE, "1")
    command.check_idle()


def test_published_page_matches_its_data() -> None:
    data = ROOT / "docs" / "bench.json"
    assert command.render_page(json.loads(data.read_text(encoding="utf-8"))) == data.with_suffix(".md").read_text(
        "utf-8"
    )


@pytest.mark.slow
def test_smoke_run_covers_all_paths(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = subprocess.run(
        [sys.executable, "-m", "studies.bench", "--quick", "--out", str(out)],
        cwd=ROOT, env={**os.environ, command.ANYWAY_VARIABLE: "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert {path.name for path in out.iterdir()} == {"bench.json", "bench.md"}
    data = json.loads((out / "bench.json").read_text(encoding="utf-8"))
    assert sorted(data["aa"]["points"]) == sorted(command.QUICK)
    assert "A smoke run" in (out / "bench.md").read_text(encoding="utf-8")
