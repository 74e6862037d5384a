"""Checks of plans: the times that an earlier run's plan predicted, and the connections that the `serving` points need.

A `serving` point sends requests to a server over many connections at once.
"""

from __future__ import annotations

from pathlib import Path

from contract.errors import StudyError
from contract.node import RECORD, parse_job_name, read_node
from experiments import hardware
from experiments.doctor.finding import Finding, note, ok, warning
from experiments.jobs import read_plan
from experiments.node_writer import job_paces
from experiments.serving import connection_limits

# A note is shown if a ratio of actual to predicted seconds is outside this range.
LEAST, MOST = 0.8, 1.25


def predictions(results: Path) -> Finding | None:
    """Compare the seconds that each experiment took with the seconds that its plan predicted.

    The times are from the newest node record in `results` for the same kind of machine as this one.
    """
    records = []
    for path in (results / "nodes").glob(f"*/{RECORD}"):
        try:
            record = read_node(path)
        except StudyError:
            continue  # an invalid record is reported when its node's samples are read
        if record["kind"] == hardware.machine_kind() and job_paces(record):
            records.append(record)
    if not records:
        return None
    paces = job_paces(max(records, key=lambda record: str(record["ended_utc"])))
    times = {" on ".join(parse_job_name(name)): pace for name, pace in sorted(paces.items(), key=lambda item: -item[1])}
    groups = {
        "longer": [f"{name} ({pace:.2f} times)" for name, pace in times.items() if pace > MOST],
        "shorter": [f"{name} ({pace:.2f} times)" for name, pace in times.items() if pace < LEAST],
    }
    texts = [f"{word} than planned: {_list_names(names)}" for word, names in groups.items() if names]
    rest = len(times) - sum(map(len, groups.values()))
    seen = "; ".join([*texts, f"as planned, {LEAST:g} to {MOST:g} times: {rest} of {len(times)} experiments"])
    if not texts:
        return ok("plan", seen)
    return note("plan", seen, "A run may take longer or shorter than its plan predicts, and miss its budget.")


def _list_names(names: list[str], most: int = 4) -> str:
    """Join the first names, and count the rest."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def server_load(results: Path) -> Finding | None:
    """Check that the system allows as many connections as the `serving` point with the most requests needs.

    Returns None if the plan measures no `serving` point. If no plan can be read, checks a default number.
    """
    try:
        requests = _most_requests(results / "plan.json")
    except StudyError:
        requests = None
    if requests == 0:
        return None
    wanted = connection_limits.connection_count(requests or connection_limits.CONNECTIONS)
    reason = connection_limits.file_shortage(
        wanted, connection_limits.raise_file_limit(wanted)
    ) or connection_limits.port_shortage(wanted)
    if not reason:
        return ok("connections", f"the system allows the {wanted} connections for the server load")
    why = "Points in `serving` with this load fail, with the reason `harness`."
    seen, _, mend = reason.partition(": ")
    return note("connections", seen, why, mend) if requests is None else warning("connections", seen, why, mend)


def _most_requests(plan: Path) -> int:
    """Return the largest number of requests in a planned `serving` point; 0 if the plan measures no such point.

    Raises StudyError if the plan cannot be read.
    """
    points = [dict(point.params) for job in read_plan(plan).jobs if job.experiment == "serving" for point in job.points
              if not point.left_out]  # fmt: skip
    return max((point["requests_per_s"] * point["seconds"] for point in points), default=0)
