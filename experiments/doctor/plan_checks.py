"""Check the plan: its predictions against an earlier run, and its loads against the limits of the system."""

from __future__ import annotations

from pathlib import Path

from contract.errors import StudyError
from contract.node import RECORD, read_node
from experiments import hardware
from experiments.doctor.finding import Finding, note, ok, warning
from experiments.jobs import read_plan
from experiments.node_writer import job_paces
from experiments.serving import connection_limits

# Seconds taken over seconds predicted that are near enough.
LEAST, MOST = 0.8, 1.25


def predictions(results: Path) -> Finding | None:
    """Seconds taken over those predicted by each experiment, in the last node of this kind that was measured here."""
    found = []
    for path in (results / "nodes").glob(f"*/{RECORD}"):
        try:
            record = read_node(path)
        except StudyError:
            continue  # said by whoever reads the samples
        if record["kind"] == hardware.machine_kind() and job_paces(record):
            found.append(record)
    if not found:
        return None
    paces = job_paces(max(found, key=lambda record: str(record["ended_utc"])))
    said = ", ".join(f"{name} {ratio:.2f}" for name, ratio in sorted(paces.items(), key=lambda one: -one[1]))
    seen = f"took of what was predicted: {said}"
    if all(LEAST <= ratio <= MOST for ratio in paces.values()):
        return ok("plan", seen)
    return note("plan", seen, "A run may take more, or less, than its plan says: a budget is then missed.")


def server_load(results: Path) -> Finding | None:
    """Check that the connections of the largest load on a server fit; None where the plan in `results` has no load."""
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
        return ok("connections", f"room for the {wanted} of a load on a server")
    why = "Points of `serving` with such a load fail, with the reason `harness`."
    seen, _, mend = reason.partition(": ")
    return note("connections", seen, why, mend) if requests is None else warning("connections", seen, why, mend)


def _most_requests(plan: Path) -> int:
    """Requests of the largest load in a plan; 0 if it has none. Raises StudyError if it cannot be read."""
    points = [dict(point.params) for job in read_plan(plan).jobs if job.experiment == "serving" for point in job.points
              if not point.left_out]  # fmt: skip
    return max((point["requests_per_s"] * point["seconds"] for point in points), default=0)
