"""Find the nodes of a machine kind."""

from __future__ import annotations

from contract.machine_kinds import KINDS
from report.data.dataset import Dataset


def nodes_of_kind(data: Dataset, kind: str) -> list[str]:
    """List the ids of all nodes in a machine kind: laptop, desktop, many-core or server."""
    return [node.id for node in data.nodes.nodes if KINDS[kind].matches(node.record)]
