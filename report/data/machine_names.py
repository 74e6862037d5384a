"""Short names for machines: letters for published ones, "yours" for the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contract.node import machine_of_node
from report.data.node_reader import PUBLISHED_NODES

YOURS = "yours"


def own_nodes(nodes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the ids of nodes that the user added to published ones; empty if all nodes are published or none is.

    nodes: node records with their source.
    """
    published = {str(node["id"]) for node in nodes if str(node.get("source")) == PUBLISHED_NODES}
    return {str(node["id"]) for node in nodes} - published if published else set()


def short_names(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map each node's id to a short name: its machine's, and the run's number after the first: "B, run 2".

    Machines are named A, B and so on by their first measurement; the user's own are "yours", or "yours 1" and so on.

    nodes: node records with their source.
    """
    own = own_nodes(nodes)
    dated = sorted(nodes, key=lambda node: str(node["started_utc"]))
    machines = {is_own: _machines(dated, own, is_own) for is_own in (False, True)}
    names = {}
    for node in nodes:
        name = str(node["id"])
        machine, is_own = machine_of_node(name), name in own
        place, alone = machines[is_own].index(machine), len(machines[is_own]) == 1
        short = (YOURS if alone else f"{YOURS} {place + 1}") if is_own else _letters(place)
        names[name] = short + (f", run {name.rpartition('.')[2]}" if name != machine else "")
    return names


def _machines(nodes: Sequence[Mapping[str, Any]], own: set[str], is_own: bool) -> list[str]:
    """List the machines of the user's own nodes, or of the others, each once."""
    return list(dict.fromkeys(machine_of_node(str(node["id"])) for node in nodes if (str(node["id"]) in own) == is_own))


def _letters(place: int) -> str:
    """Return the name at a place, counted from 0: A to Z, then AA, AB and so on."""
    return (_letters(place // 26 - 1) if place >= 26 else "") + chr(ord("A") + place % 26)
