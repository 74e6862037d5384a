"""Measure how often the verdict engine errs on simulated machines with a known truth, for the published table.

python -m studies.calibration --out data/calibration.json

The table has five parts: answers to questions (`questions`), interval coverage (`coverage`), rounds on demand
(`looks`), the spread between sessions (`sessions`), and noise on nodes, to compare it to the simulated noise
(`node_rounds`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract.arguments import Parser, parse_path
from contract.errors import run_command
from contract.files import write_json
from report import ROOT
from report.statistics import DECIDING, LEVEL
from studies.calibration.coverage import coverage_rows
from studies.calibration.looks import look_rows
from studies.calibration.node_rounds import noise_rows
from studies.calibration.questions import ANSWERS, BELOW, LISTS, Setting, simulate_setting
from studies.calibration.sessions import SessionSetting, session_row
from studies.calibration.simulated_machines import BUSY, NODE_NOISES, SAMPLES_PER_ROUND, USUAL, Noise

SEED = 20260
SYMMETRIC = Noise(unequal=3)
EVERYTHING = Noise(unequal=3, heavy=True, shared=0.25, outliers=0.05, disturbed=0.02, drift=0.02)
ROUNDS = (3, 5, 8)
# Ratios of the spread between sessions to the spread between rounds; 0 is in the other settings.
SESSIONS = (0.25, 0.5)

SETTINGS = (
    # These settings vary the round, point and node counts.
    Setting(SYMMETRIC, 1, 10, 100),
    Setting(SYMMETRIC, 2, 10, 4_000),
    Setting(SYMMETRIC, 3, 40, 1_000),
    Setting(SYMMETRIC, 5, 40, 1_000),
    Setting(SYMMETRIC, 8, 40, 1_000),
    Setting(SYMMETRIC, 3, 10, 4_000),
    Setting(SYMMETRIC, 5, 10, 4_000),
    Setting(SYMMETRIC, 3, 2, 16_000),
    Setting(SYMMETRIC, 5, 2, 16_000),
    Setting(SYMMETRIC, 3, 1, 30_000),
    # These settings vary the noise.
    Setting(Noise(0.005, 0.003), 3, 40, 1_000),
    Setting(Noise(0.1, 0.03, unequal=5), 3, 40, 1_000),
    Setting(Noise(unequal=3, heavy=True), 3, 40, 1_000),
    Setting(Noise(unequal=3, heavy=True), 5, 10, 4_000),
    Setting(Noise(unequal=3, outliers=0.05), 5, 10, 4_000),
    Setting(Noise(unequal=3, disturbed=0.05), 3, 40, 1_000),
    Setting(Noise(unequal=3, disturbed=0.05), 5, 10, 4_000),
    Setting(Noise(unequal=3, drift=0.05), 3, 10, 4_000),
    Setting(Noise(unequal=3, shared=0.25), 3, 40, 2_000),
    Setting(Noise(unequal=3, shared=0.5), 3, 40, 3_000),
    Setting(Noise(unequal=3, shared=0.5), 5, 10, 4_000),
    Setting(Noise(unequal=3, shared=0.8), 3, 40, 3_000),
    Setting(Noise(unequal=3, shared=0.8), 5, 10, 4_000),
    Setting(EVERYTHING, 3, 40, 2_000),
    Setting(EVERYTHING, 5, 10, 4_000),
    *(Setting(noise, rounds, 40, 1_000) for noise in NODE_NOISES for rounds in ROUNDS),
    # In these settings, all rounds come from one session, and sessions differ.
    *(
        Setting(replace(noise, session=session), rounds, 40, 1_000)
        for noise in (SYMMETRIC, USUAL)
        for session in SESSIONS
        for rounds in ROUNDS
    ),
    # These settings vary the verdict rule.
    Setting(SYMMETRIC, 5, 10, 4_000, "at most"),
    Setting(SYMMETRIC, 5, 10, 4_000, "within"),
    Setting(SYMMETRIC, 5, 10, 2_000, "ratio"),
    Setting(EVERYTHING, 5, 10, 2_000, "ratio"),
    *(
        Setting(noise, rounds, 40, 1_000, "share of time")
        for noise in (SYMMETRIC, *NODE_NOISES)
        for rounds in ROUNDS
    ),
    *(Setting(SYMMETRIC, 5, 10, 10_000, name) for name in ("trend", "crossover", "every", "exists", "half", "best")),
    # These settings are verdicts over many points.
    *(Setting(noise, 3, 10, 3_000, name) for name in BELOW for noise in (SYMMETRIC, USUAL)),
    *(Setting(noise, 3, points, 3_000, "most, half at") for points in (10, 40, 134) for noise in (SYMMETRIC, USUAL)),
    *(Setting(SYMMETRIC, 3, points, 3_000, name) for name, (points, _) in LISTS.items()),
)  # fmt: skip
# Machines measured in two sessions: spread between sessions, its common fraction, and anchors of 40 points.
TWO_SESSIONS = tuple(
    SessionSetting(noise, spread, common, anchors)
    for noise in (SYMMETRIC, *NODE_NOISES)
    for spread, common in ((0.0, 0.0), (0.5, 0.0), (0.5, 0.8), (1.0, 0.5))
    for anchors in (5, 20)
)


def calibration_table(settings: Sequence[Setting] = SETTINGS, seed: int = SEED) -> dict[str, Any]:
    """Return the answers in all settings, which depend only on the engine, the settings and the seed."""
    rows = []
    for place, setting in enumerate(settings):
        began = time.monotonic()
        rows.append(simulate_setting(setting, [seed, place]))
        setting_text = "{question}; {noise}; {rounds} rounds, {points} points:".format(**rows[-1])
        shares = "  ".join(f"{answer} {rows[-1][answer]['share']:.2%}" for answer in ANSWERS)
        print(f"{setting_text} {shares}  ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)
    return {
        "origin": "synthetic",
        "level": DECIDING,
        "drawn": LEVEL,
        "seed": seed,
        "samples_per_round": SAMPLES_PER_ROUND,
        "rows": rows,
    }


def interval_tables(nodes: Path, seed: int = SEED) -> dict[str, Any]:
    """Return interval coverage, looks, sessions, and the noise on nodes in the folder `nodes`.

    Raises StudyError if a node is faulty.
    """
    noises = (SYMMETRIC, *NODE_NOISES)
    return {
        "coverage": [
            row
            for place, noise in enumerate(noises)
            for rounds in ROUNDS
            for row in coverage_rows(noise, rounds, [seed, 1, place, rounds])
        ],
        "looks": [
            row for place, noise in enumerate((SYMMETRIC, USUAL, BUSY)) for row in look_rows(noise, [seed, 2, place])
        ],
        "sessions": [session_row(setting, [seed, 3, place]) for place, setting in enumerate(TWO_SESSIONS)],
        "noises": noise_rows(nodes, seed),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate all settings, and write the table of error rates. Raises OSError, and StudyError for a faulty node."""
    parser = Parser(prog="python -m studies.calibration", description=__doc__)
    parser.add_argument("--out", required=True, type=parse_path, metavar="FILE")
    out = parser.parse_args(argv).out
    write_json(out, {**calibration_table(), **interval_tables(ROOT / "data" / "nodes")})
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
