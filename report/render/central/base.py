"""What every central figure is given, and what it gives back: one figure of all nodes, and what it decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from report.estimates import Estimates, device_kind
from report.formatting import short_processor
from report.quantities import quantities
from report.render import words
from report.render.figures import Drawing
from report.render.markdown import identifier
from report.render.measurements.base import Table, View

# A figure of more machines than these is read by nobody; each says which it shows, and the families show them all.
MOST_MACHINES = 4


T = TypeVar("T")
Machine = tuple[str, str]  # node and device


@dataclass(frozen=True)
class Shown:
    """A central figure.

    title: what it shows as a finding or a question, made from the data. reading: one sentence or two that a reader
    should take from it. claims: ids of those that it decides, for links.
    """

    title: str
    reading: Sequence[str]
    drawing: Drawing
    table: Table | None = None
    claims: Sequence[str] = ()


@dataclass(frozen=True)
class Central:
    """One figure over all nodes and devices.

    key: of its anchor and its files, `central-KEY`. show: from the evidence of all nodes and the document of
    verdicts (`verdicts.json`) to the figure; None where the data have nothing to show.
    """

    key: str
    show: Callable[[Sequence[View], Mapping[str, Any]], Shown | None]

    @property
    def name(self) -> str:
        """The name of the figure's files."""
        return f"central-{self.key}"


def deciding(document: Mapping[str, Any], *asked: str, along: str = "") -> list[str]:
    """Ids of the claims that rest on one of these quantities or whose rule runs along this variable, in their order."""
    found = []
    for verdict in document["verdicts"]:
        parts = verdict.get("parts") or []
        rests_on = {verdict.get("quantity"), *(part.get("quantity") for part in parts)}
        runs_along = {(part.get("options") or {}).get("along") for part in parts}
        if rests_on & set(asked) or (along and along in runs_along):
            found.append(str(verdict["id"]))
    return found


def of_all(views: Sequence[View], name: str) -> Estimates:
    """The cells of a quantity on all these nodes; none if the quantity is not known or nothing was measured."""
    known = quantities().get(name)
    if known is None or not views:
        return Estimates.empty()
    cells = known.estimates(views[0].data)
    if not len(cells) or "node" not in cells.labels:
        return Estimates.empty()
    return cells.only(node=[view.node for view in views])


def machine_names(views: Sequence[View], places: Collection[Machine]) -> dict[Machine, str]:
    """A name for each (node, device): of a processor or GPU its own, and its node's mark where several share it."""
    by_node = {view.node: view for view in views}
    found = {}
    for node, device in places:
        view = by_node[node]
        found[node, device] = view.host if device_kind(device) == "cpu" else card(view, device)
    shared = Counter(found.values())
    found = {
        place: f"{name} ({by_node[place[0]].data.mark(place[0])})" if shared[name] > 1 else name
        for place, name in found.items()
    }
    shared = Counter(found.values())
    # Several equal cards of one node.
    return {place: f"{name}, {place[1]}" if shared[name] > 1 else name for place, name in found.items()}


def card(view: View, device: str) -> str:
    """What a device of a node is called by its driver; its id where that is not known."""
    told = next((one["name"] for one in view.record.get("devices", ()) if one["id"] == device), device)
    return short_processor(str(told))


def told_claims(document: Mapping[str, Any], ids: Sequence[str]) -> list[dict[str, Any]]:
    """Claims as links: id, verdict and its class."""
    verdicts = {str(verdict["id"]): str(verdict["verdict"]) for verdict in document["verdicts"]}
    return [
        {"id": identifier(one), "verdict": verdicts[one], "class": words.verdict_class(verdicts[one])}
        for one in ids
        if one in verdicts
    ]


def unlike_first(ranked: Sequence[T], name: Callable[[T], object]) -> list[T]:
    """The same, the first of each name before those that are like one of them."""
    first = {name(one): one for one in reversed(ranked)}
    leading = [one for one in ranked if first[name(one)] == one]
    return [*leading, *(one for one in ranked if one not in leading)]


def fastest(views: Sequence[View], rank: Mapping[Machine, Any]) -> list[Machine]:
    """The machines, as (node, device), that are shown: with the highest rank; processors first, as nodes come.

    Unlike ones before those that are alike, of equal cards the highest alone; the best of both kinds of devices are
    among them where both are ranked.
    """
    by_node = {view.node: view for view in views}

    def called(machine: Machine) -> Machine:
        view, kind = by_node[machine[0]], device_kind(machine[1])
        return kind, view.make if kind == "cpu" else card(view, machine[1])

    ranked = sorted(rank, key=lambda machine: rank[machine], reverse=True)
    cards = {called(machine): machine for machine in reversed(ranked)}
    ranked = [machine for machine in ranked if device_kind(machine[1]) == "cpu" or cards[called(machine)] == machine]
    first = {device_kind(machine[1]): machine for machine in reversed(ranked)}
    kept = [*first.values(), *(one for one in unlike_first(ranked, called) if one not in first.values())]
    order = {node: place for place, node in enumerate(by_node)}
    return sorted(kept[:MOST_MACHINES], key=lambda machine: (device_kind(machine[1]), order[machine[0]], machine[1]))
