"""Write a node's record into the folder with the node's rounds.

The first round writes a partial record. After the last round, `seal` replaces it with the complete record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.node import PARTIAL, RECORD, read_node, write_node
from experiments.jobs import Job, Plan


def begin_node(folder: Path, probe: Path, plan: Plan) -> None:
    """Put a partial record into a round's folder, so that an interrupted run still shows what is missing.

    probe: this machine's record. Raises StudyError, OSError.
    """
    partial, jobs = folder / PARTIAL, summarize_plan(plan)
    if _read_jobs(partial) != jobs:
        write_node(partial, {**read_node(probe), "jobs": jobs})
    # A sealed record in the folder is from an earlier run and describes other rounds: remove it, unless this file is
    # `probe`.
    if (folder / RECORD).resolve() != probe.resolve():
        (folder / RECORD).unlink(missing_ok=True)


def _read_jobs(partial: Path) -> Any:
    """Read the jobs from a partial record; None if it is missing or unreadable."""
    try:
        return read_node(partial).get("jobs")
    except StudyError:
        return None


def summarize_plan(plan: Plan) -> dict[str, Any]:
    """Return for each job its predicted seconds per round, and its number of omitted points by reason."""
    return {job.name: _summarize_job(job, plan.rounds) for job in plan.jobs}


def _summarize_job(job: Job, rounds: int) -> dict[str, Any]:
    numbers = [number for number in range(1, rounds + 1) if job.has_points(number)]
    return {
        "predicted_s": [round(job.seconds(number), 2) for number in numbers],
        "left_out": dict(Counter(point.left_out for point in job.points if point.left_out)),
        **({"rounds": numbers} if numbers != list(range(1, len(numbers) + 1)) else {}),
    }


def seal(probe: Path, rounds: Sequence[Path], out: Path, plan: Plan | None = None) -> None:
    """Write a node's complete record, with facts from its rounds.

    probe: the file with this machine's record. rounds: the rounds' files, with the files of further attempts beside
    them. plan: if given, the record also contains its looks, and the predicted and the measured seconds of each job's
    first attempts.
    Raises StudyError if a round belongs to another node.
    """
    from contract.node_pack import repeat_files
    from contract.sample_table import read_samples

    record = read_node(probe)
    files = [*rounds, *(repeat for path in rounds for repeat in repeat_files(path))]
    tables = [(path, *read_samples(path)) for path in files]
    abouts = [about for _, _, about in tables]
    record["started_utc"] = min(about["started_utc"] for about in abouts)
    record["ended_utc"] = max(about["ended_utc"] for about in abouts)
    # Several hosts of the same kind may have measured these rounds.
    if hosts := sorted({about["host"] for about in abouts if about.get("host")}):
        record["hosts"] = hosts
    strangers = {name for _, table, _ in tables for name in table["node"].unique()} - {record["id"]}
    if strangers:
        raise StudyError(
            f"{probe} describes {record['id']}, but rounds of {', '.join(sorted(strangers))} lie beside it: "
            "each machine's rounds belong in a folder of their own"
        )
    if plan is not None:
        record["jobs"] = summarize_plan(plan)
        if plan.looks:
            record["looks"] = [dict(look) for look in plan.looks]
        for name, job in record["jobs"].items():
            seconds_by_round = _round_seconds(
                (path, about) for path, _, about in tables[: len(rounds)] if path.name.startswith(f"{name}.")
            )
            job["wall_s"] = [seconds_by_round[number][0] for number in sorted(seconds_by_round)]
            if any(stood := [seconds_by_round[number][1] for number in sorted(seconds_by_round)]):
                job["stood_s"] = stood
    _move_superseded(out.parent, keep={path.resolve() for path in files})
    write_node(out, record)
    (out.parent / PARTIAL).unlink(missing_ok=True)


def _round_seconds(files: Iterable[tuple[Path, dict[str, Any]]]) -> dict[int, tuple[float, float]]:
    """Return (wall seconds, suspended seconds) by round number, for one job.

    files: each round's path, whose name ends in the round's number, and the metadata in the file.
    """
    return {
        int(path.stem.rpartition(".")[2]): (round(about["wall_s"], 2), round(about.get("stood_s", 0.0), 2))
        for path, about in files
        if "wall_s" in about
    }


def _move_superseded(folder: Path, keep: set[Path]) -> None:
    """Move rounds from an earlier preset to `superseded/`, to keep them out of the analysis."""
    for path in folder.glob("[!.]*.parquet"):
        if path.resolve() not in keep:
            (folder / "superseded").mkdir(exist_ok=True)
            path.replace(folder / "superseded" / path.name)


def job_paces(record: dict[str, Any]) -> dict[str, float]:
    """Return the ratio of running time to predicted time for each job, over the rounds that have both times."""
    paces = {}
    for name, job in record.get("jobs", {}).items():
        wall_s = job.get("wall_s", [])
        predicted = sum(job["predicted_s"][: len(wall_s)])
        if wall_s and predicted:
            paces[name] = (sum(wall_s) - sum(job.get("stood_s", []))) / predicted
    return paces
