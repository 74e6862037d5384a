"""Compare the plan's predictions with an earlier run, and the plan's server loads with system limits."""

from __future__ import annotations

from pathlib import Path

from contract.errors import StudyError
from contract.node import RECORD, read_node
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
    ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in sorted(paces.items(), key=lambda item: -item[1]))
    seen = f"actual over predicted time: {ratios}"
    if all(LEAST <= ratio <= MOST for ratio in paces.values()):
        return ok("plan", seen)
    return note("plan", seen, "A run may take longer or shorter than its plan predicts, and miss its budget.")


def server_load(results: Path) -> Finding | None:
    """Check that the system allows as many connections as the plan's largest server load needs.

    Returns None if the plan contains no server load.
    """
    try:
        requests = _most_requests(results / "plan.json")
    except StudyError:  # no plan can be read: check a default number of connections
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
    """Count the requests in the plan's largest server load; return 0 if the plan contains no server load.

    Raises StudyError if the plan cannot be read.
    """
    points = [dict(point.params) for job in read_plan(plan).jobs if job.experiment == "serving" for point in job.points
              if not point.left_out]  # fmt: skip
    return max((point["requests_per_s"] * point["seconds"] for point in points), default=0)
