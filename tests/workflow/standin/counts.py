"""What `worker` has to know of the study, once, in a file: to load it would take longer than to answer.

What the points of a preset compute and hold, by their experiments' own hooks; what is counted of the models; limits of
the real measuring process, and what that tells of the state of the machine.

`python -m tests.workflow.standin.counts PRESET OUT`, on the machine that is played.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.jobs import Plan

PUBLISHED = Path("data/nodes")


def key(experiment: str, params: Any) -> str:
    """What a point is found by."""
    return json.dumps([experiment, dict(sorted(params.items()))])


def models(plan: Plan) -> dict[str, dict[str, float]]:
    """Counts of each model of a plan, as the experiment `models` makes them: nothing of it depends on the machine.

    As a published node has it, or counted here; of networks that the plan does not count, without their graph.
    """
    from experiments.models.levels import traced
    from experiments.models.zoo import ZOO
    from experiments.suite.models import count, count_graph

    found = _published()
    for job in plan.jobs:
        for name in {dict(point.params).get("model") for point in job.points} & ZOO.keys() - found.keys():
            found[name] = {metric: value for metric, (value, _) in count(ZOO[name]).items()}
    for point in [point for job in plan.jobs if job.experiment == "models" for point in job.points]:
        if "levels" not in found[name := dict(point.params)["model"]]:
            found[name] |= {metric: value for metric, (value, _) in count_graph(traced(ZOO[name])).items()}
    return found


def _published() -> dict[str, dict[str, float]]:
    """Counts of each model by a published node."""
    import pandas as pd

    table = pd.read_parquet(sorted(PUBLISHED.glob("*/models.cpu.1.parquet"))[0])
    found: dict[str, dict[str, float]] = {}
    for params, metric, value in table[["params", "metric", "value"]].itertuples(index=False):
        found.setdefault(json.loads(params)["model"], {})[metric] = value
    return found


def counted(preset: str) -> dict[str, Any]:
    """All of it, as JSON."""
    from experiments.devices import detect
    from experiments.plan import full_plan
    from experiments.sweep import preset_path, read_preset
    from tests.workflow.standin.machine import CORES

    devices = [one.describe() for one in detect()[0]]
    return of_plan(full_plan(read_preset(preset), str(preset_path(preset)), devices, CORES))


def of_plan(plan: Plan) -> dict[str, Any]:
    """The same of a plan."""
    from experiments.registry import get
    from experiments.state import Reading
    from experiments.worker import MEMORY_SHARE, OVERRUN

    points: dict[str, dict[str, float]] = {}
    for job in plan.jobs:
        experiment = get(job.experiment)
        for point in job.points:
            params = dict(point.params)
            points[key(job.experiment, params)] = {
                "flop": float(experiment.flop(**params)) if experiment.flop else 0.0,
                "held": float(experiment.memory(**params)) if experiment.memory else 0.0,
            }
    limits = {"memory_share": MEMORY_SHARE, "overrun": OVERRUN}
    return {"points": points, "models": models(plan), "limits": limits, "reading": vars(Reading(0.0))}


def read() -> dict[str, Any]:
    """What was counted."""
    found: dict[str, Any] = json.loads(Path(os.environ["STANDIN_COUNTS"]).read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(counted(sys.argv[1])), encoding="utf-8")
