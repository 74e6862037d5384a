"""Makes the synthetic fleet again: `python -m tests.golden.fleet [MACHINE]`, ten minutes.

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
import yaml

from contract.node import RECORD
from contract.tables import read_samples, write_unchecked
from tests.workflow.rehearsal import Rehearsal

FLEET = Path(__file__).parent / "fleet"
PRESETS = Path(__file__).parents[2] / "workflow" / "config" / "presets"
# A machine, its preset, and the experiments of it that the claims about such a machine need; none: all.
MACHINES: dict[str, tuple[str, tuple[str, ...]]] = {
    "large server": ("rented", ()),
    "desktop": ("quick", ()),
    "laptop": ("quick", ("clock", "peak", "gemm", "models", "roofline", "training", "time-to-train")),
}


def main() -> None:
    """Measure each machine, or those named, and keep its rounds, all in one file."""
    for machine in sys.argv[1:] or MACHINES:
        with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
            more = {"STANDIN_MACHINE": machine, "STANDIN_ENERGY": "1"}
            preset = _preset(Path(folder), *MACHINES[machine])
            made = Rehearsal(Path(folder), preset, random.Random(machine), faster=60.0, more=more)
            made.run(cuts=0)
            if made.faults:
                sys.exit("\n".join(made.faults))
            kept = FLEET / machine.replace(" ", "-")
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(made.node / RECORD, kept / RECORD)
            rounds = [read_samples(path) for path in sorted(made.node.glob("*.parquet"))]
            about = {name: sum(one[name] for _, one in rounds) for name in ("wall_s", "warmup_s", "timed_s")}
            table = pd.concat([table for table, _ in rounds], ignore_index=True)
            write_unchecked(kept / "rounds.parquet", table, {"seed": 0, **about})


def _preset(folder: Path, name: str, experiments: tuple[str, ...]) -> str:
    """The name of a preset, or a file of one with these experiments alone."""
    if not experiments:
        return name
    preset = yaml.safe_load((PRESETS / f"{name}.yaml").read_text(encoding="utf-8"))
    preset["experiments"] = {key: preset["experiments"][key] for key in experiments}
    made = folder / f"some of {name}.yaml"
    made.write_text(yaml.safe_dump(preset), encoding="utf-8")
    return str(made)


if __name__ == "__main__":
    main()
