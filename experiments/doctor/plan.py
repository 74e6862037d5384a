"""Whether the plan's predictions held when this machine was measured before."""

from __future__ import annotations

from pathlib import Path

from contract.errors import StudyError
from contract.node import RECORD, read_node
from experiments import hardware
from experiments.doctor.finding import Finding, note, ok
from experiments.seal import pace

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
        if record["kind"] == hardware.kind() and pace(record):
            found.append(record)
    if not found:
        return None
    paces = pace(max(found, key=lambda record: str(record["ended_utc"])))
    said = ", ".join(f"{name} {ratio:.2f}" for name, ratio in sorted(paces.items(), key=lambda one: -one[1]))
    seen = f"took of what was predicted: {said}"
    if all(LEAST <= ratio <= MOST for ratio in paces.values()):
        return ok("plan", seen)
    return note("plan", seen, "A run may take more, or less, than its plan says: a budget is then missed.")
