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

# Accepted range for actual over predicted seconds.
LEAST, MOST = 0.8, 1.25


def predictions(results: Path) -> Finding | None:
    """Compare actual with predicted seconds per experiment, for the last node in `results` with this machine's kind."""
    records = []
    for path in (results / "nodes").glob(f"*/{RECORD}"):
        try:
            record = read_node(path)
        except StudyError:
            continue  # reported when the samples are read
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
    """Check that the system allows the connections for the plan's largest server load; None if it plans no load."""
    try:
        requests = _most_requests(results / "plan.json")
    except StudyError:  # nothing is planned yet
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
    """Count the requests in the plan's largest server load, 0 without one. Raises StudyError if it cannot be read."""
    points = [dict(point.params) for job in read_plan(plan).jobs if job.experiment == "serving" for point in job.points
              if not point.left_out]  # fmt: skip
    return max((point["requests_per_s"] * point["seconds"] for point in points), default=0)
