"""How often the engine errs on machines whose truth is known: the published table.

python -m studies.calibration --out data/calibration.json
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from contract.arguments import Parser, path
from contract.errors import run_command
from contract.files import write_json
from report.statistics import DECIDING, LEVEL
from studies.calibration.machines import SAMPLES_PER_ROUND, Noise
from studies.calibration.trials import ANSWERS, Setting, row

SEED = 20260
USUAL = Noise(unequal=3)
EVERYTHING = Noise(unequal=3, heavy=True, shared=0.25, outliers=0.05, disturbed=0.02, drift=0.02)

SETTINGS = (
    # Few rounds.
    Setting(USUAL, 1, 10, 100),
    Setting(USUAL, 2, 10, 4_000),
    Setting(USUAL, 3, 40, 1_000),
    Setting(USUAL, 5, 40, 1_000),
    Setting(USUAL, 8, 40, 1_000),
    Setting(USUAL, 3, 10, 4_000),
    Setting(USUAL, 5, 10, 4_000),
    Setting(USUAL, 3, 2, 16_000),
    Setting(USUAL, 5, 2, 16_000),
    Setting(USUAL, 3, 1, 30_000),
    # Kinds of noise.
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
    # Rules.
    Setting(USUAL, 5, 10, 4_000, "at most"),
    Setting(USUAL, 5, 10, 4_000, "within"),
    Setting(USUAL, 5, 10, 2_000, "ratio"),
    Setting(EVERYTHING, 5, 10, 2_000, "ratio"),
    Setting(USUAL, 5, 10, 10_000, "trend"),
    Setting(USUAL, 5, 10, 10_000, "crossover"),
    Setting(USUAL, 5, 10, 10_000, "every"),
    Setting(USUAL, 5, 10, 10_000, "exists"),
    Setting(USUAL, 5, 10, 10_000, "half"),
    Setting(USUAL, 5, 10, 10_000, "best"),
)  # fmt: skip


def table(settings: Sequence[Setting] = SETTINGS, seed: int = SEED) -> dict[str, Any]:
    """The table of calibration; the same for the same engine, settings and seed."""
    rows = []
    for place, setting in enumerate(settings):
        began = time.monotonic()
        rows.append(row(setting, [seed, place]))
        told = "{question}; {noise}; {rounds} rounds, {points} points:".format(**rows[-1])
        shares = "  ".join(f"{answer} {rows[-1][answer]['share']:.2%}" for answer in ANSWERS)
        print(f"{told} {shares}  ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)
    return {
        "origin": "synthetic",
        "level": DECIDING,
        "drawn": LEVEL,
        "seed": seed,
        "samples_per_round": SAMPLES_PER_ROUND,
        "rows": rows,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate and write the table. Raises OSError."""
    parser = Parser(prog="python -m studies.calibration", description=__doc__)
    parser.add_argument("--out", required=True, type=path, metavar="FILE")
    write_json(parser.parse_args(argv).out, table())
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
