"""A node's record beside its rounds: there from the first of them on, and sealed once all are measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.node import PARTIAL, RECORD, read_node, write_node
from experiments.jobs import Plan


def begin_node(folder: Path, probe: Path, plan: Plan) -> None:
    """Put an unsealed record into a folder that gets a round: cut off here, it still tells what was measured of what.

    probe: the record of this machine. Raises StudyError, OSError.
    """
    partial, jobs = folder / PARTIAL, summarize_plan(plan)
    if _read_jobs(partial) != jobs:
        write_node(partial, {**read_node(probe), "jobs": jobs})
    # What was sealed before was another set of rounds; the record that is read is nobody's seal.
    if (folder / RECORD).resolve() != probe.resolve():
        (folder / RECORD).unlink(missing_ok=True)


def _read_jobs(partial: Path) -> Any:
    """The jobs in an unsealed record; None if it is missing or cannot be read."""
    try:
        return read_node(partial).get("jobs")
    except StudyError:
        return None


def summarize_plan(plan: Plan) -> dict[str, Any]:
    """Of each job of a plan: seconds that each round should take, and how many points are left out for which reason."""
    numbers = range(1, plan.rounds + 1)
    return {
        job.name: {
            "predicted_s": [round(job.seconds(number), 2) for number in numbers if job.measures(number)],
            "left_out": dict(Counter(point.left_out for point in job.points if point.left_out)),
        }
        for job in plan.jobs
    }


def seal(probe: Path, rounds: Sequence[Path], out: Path, plan: Plan | None = None) -> None:
    """Write a node's record from its rounds; with a plan, each job's seconds stand beside those that were predicted.

    Raises StudyError if a round is another node's.
    """
    from contract.sample_table import read_samples

    record = read_node(probe)
    seen = [(path, *read_samples(path)) for path in rounds]
    abouts = [about for _, _, about in seen]
    record["started_utc"] = min(about["started_utc"] for about in abouts)
    record["ended_utc"] = max(about["ended_utc"] for about in abouts)
    # Hosts of one kind may take over from each other.
    if hosts := sorted({about["host"] for about in abouts if about.get("host")}):
        record["hosts"] = hosts
    strangers = {name for _, table, _ in seen for name in table["node"].unique()} - {record["id"]}
    if strangers:
        raise StudyError(
            f"{probe} describes {record['id']}, but rounds of {', '.join(sorted(strangers))} lie beside it: "
            "each machine's rounds belong in a folder of their own"
        )
    if plan is not None:
        record["jobs"] = summarize_plan(plan)
        for name, job in record["jobs"].items():
            taken = _round_seconds((path, about) for path, _, about in seen if path.name.startswith(f"{name}."))
            job["wall_s"] = [taken[number][0] for number in sorted(taken)]
            if any(stood := [taken[number][1] for number in sorted(taken)]):
                job["stood_s"] = stood
    _move_superseded(out.parent, keep={path.resolve() for path in rounds})
    write_node(out, record)
    (out.parent / PARTIAL).unlink(missing_ok=True)


def _round_seconds(files: Iterable[tuple[Path, dict[str, Any]]]) -> dict[int, tuple[float, float]]:
    """Seconds by the number of the round, which a file's name ends with, and those in which it stood still."""
    return {
        int(path.stem.rpartition(".")[2]): (round(about["wall_s"], 2), round(about.get("stood_s", 0.0), 2))
        for path, about in files
        if "wall_s" in about
    }


def _move_superseded(folder: Path, keep: set[Path]) -> None:
    """Move rounds of an earlier preset out of the way: mixed with this one's, they would be judged together."""
    for path in folder.glob("[!.]*.parquet"):
        if path.resolve() not in keep:
            (folder / "superseded").mkdir(exist_ok=True)
            path.replace(folder / "superseded" / path.name)


def job_paces(record: dict[str, Any]) -> dict[str, float]:
    """Seconds of running time over seconds predicted, by job, of those rounds that say both."""
    found = {}
    for name, job in record.get("jobs", {}).items():
        taken = job.get("wall_s", [])
        predicted = sum(job["predicted_s"][: len(taken)])
        if taken and predicted:
            found[name] = (sum(taken) - sum(job.get("stood_s", []))) / predicted
    return found
