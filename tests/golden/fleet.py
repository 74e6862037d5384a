"""Makes the synthetic fleet again: `python -m tests.golden.fleet`, ten minutes.

Machines that no one has measured yet, played by `tests.workflow.standin` and measured by the real workflow: a server
of 64 cores with an H100, a desktop and a laptop. On them and the published node every rule that can be decided is.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from pathlib import Path

import pandas as pd

from contract.node import RECORD
from contract.tables import read_samples, write_unchecked
from tests.workflow.rehearsal import Rehearsal

FLEET = Path(__file__).parent / "fleet"
MACHINES = {"large server": "rented", "desktop": "quick", "laptop": "quick"}


def main() -> None:
    """Measure each machine and keep its rounds, all in one file."""
    shutil.rmtree(FLEET, ignore_errors=True)
    for machine, preset in MACHINES.items():
        with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
            more = {"STANDIN_MACHINE": machine, "STANDIN_ENERGY": "1"}
            made = Rehearsal(Path(folder), preset, random.Random(machine), faster=60.0, more=more)
            made.run(cuts=0)
            if made.faults:
                sys.exit("\n".join(made.faults))
            kept = FLEET / made.node.name
            kept.mkdir(parents=True)
            shutil.copyfile(made.node / RECORD, kept / RECORD)
            rounds = [read_samples(path) for path in sorted(made.node.glob("*.parquet"))]
            about = {name: sum(one[name] for _, one in rounds) for name in ("wall_s", "warmup_s", "timed_s")}
            table = pd.concat([table for table, _ in rounds], ignore_index=True)
            write_unchecked(kept / "rounds.parquet", table, {"seed": 0, **about})


if __name__ == "__main__":
    main()
