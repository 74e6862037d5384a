"""Adds measurements to the synthetic fleet: `python -m tests.golden.fleet`, a minute.

Machines that no one has measured yet, as `tests.workflow.standin` plays them: a server of 64 cores with an H100, a
desktop and a laptop. With them and the published node every rule that can be decided is. Their records stay as they
are, and so do their first rounds (rounds.parquet), made of presets with networks that the study no longer measures.
Everything of later presets that those lack is made anew (added.parquet), in the rounds of the real plan and in no time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

FLEET = Path(__file__).parent / "fleet"
_ADDED = (
    "models", "inference", "training", "roofline", "equivalence", "boosting", "language-models", "language-serving",
    "serving",
)  # fmt: skip
# A machine, its preset, and the experiments of which points are added.
MACHINES: dict[str, tuple[str, tuple[str, ...]]] = {
    "large server": ("rented", _ADDED),
    "desktop": ("quick", _ADDED),
    "laptop": ("quick", ("models", "training", "language-models")),
}
# After the first rounds, of which each is of an experiment's earlier points.
ADDED_ROUNDS = (4, 5, 6)


def make(machine: str) -> None:
    """Measure the points of a machine that its first rounds lack, and keep them in one file."""
    import pandas as pd

    from contract.node import read_node
    from contract.tables import write_unchecked
    from experiments.plan import full_plan
    from experiments.sweep import preset_path, read_preset
    from tests.workflow.standin import counts
    from tests.workflow.standin.machine import CORES

    name, some = MACHINES[machine]
    place = FLEET / machine.replace(" ", "-")
    record = read_node(place / "node.json")
    preset = read_preset(name)
    preset["experiments"] = {key: one for key, one in preset["experiments"].items() if key in some}
    plan = full_plan(preset, str(preset_path(name)), record["devices"], CORES)
    counted = counts.of_plan(plan)
    known = _known(place / "rounds.parquet")
    jobs = [
        replace(job, points=points)
        for job in plan.jobs
        if (points := tuple(one for one in job.points if (job.experiment, _subject(dict(one.params))) not in known))
    ]
    tables = [_round(job, number, counted, str(record["id"])) for number in ADDED_ROUNDS for job in jobs]
    write_unchecked(
        place / "added.parquet",
        pd.concat(tables, ignore_index=True),
        {"seed": 0, "wall_s": 900.0, "warmup_s": 150.0, "timed_s": 450.0},
    )


def _subject(params: dict[str, Any]) -> Any:
    """The model or the service that a point is of; None where it is of neither."""
    return params.get("model", params.get("service"))


def _known(rounds: Path) -> set[tuple[str, Any]]:
    """Experiments of rounds, each with the subjects of its points."""
    import pandas as pd

    table = pd.read_parquet(rounds, columns=["experiment", "params"]).drop_duplicates()
    return {(name, _subject(json.loads(params))) for name, params in table.itertuples(index=False)}


def _round(job: Any, number: int, counted: dict[str, Any], node: str) -> Any:
    """One round of a job as a table of samples."""
    from experiments.rounds import Round, table
    from tests.workflow.standin.worker import answered

    os.environ["STANDIN_ROUND"] = str(number)
    measured, now = Round(job, number, 0, None), 1.0
    for point in job.points:
        order = measured.job.order(point)
        answer, took = answered(order, counted, now)
        if "profile" in answer:
            answer["profiled"] = answered({**order, "profile": True}, counted, now)[0]["profiled"]
        now += took
        measured._note(point, json.loads(json.dumps(answer)))
    for row in measured.rows:
        row["origin"] = "synthetic"
    return table(measured, node, f"fleet{number}")


def main() -> None:
    """Make every machine, each in a process of its own, which plays that machine."""
    if len(sys.argv) > 1:
        make(sys.argv[1])
        return
    for machine in MACHINES:
        env = {**os.environ, "STANDIN_MACHINE": machine, "STANDIN_ENERGY": "1", "STANDIN_SEED": machine}
        subprocess.run([sys.executable, "-m", "tests.golden.fleet", machine], env=env, check=True)


if __name__ == "__main__":
    main()
