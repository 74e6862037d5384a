"""Which machines a central figure shows: of many nodes a few, those with GPUs first, and each kind of GPU once."""

from __future__ import annotations

from collections.abc import Sequence

from report.estimates import device_kind
from report.render.central.base import MOST_MACHINES
from report.render.measurements.base import View


def accelerators(view: View) -> list[str]:
    """The GPUs of a node that have measured something; of several of one name the first."""
    names = {str(one["id"]): str(one["name"]) for one in view.record.get("devices", ())}
    found: dict[str, str] = {}
    for device in view.devices():
        if device_kind(device) == "gpu":
            found.setdefault(names.get(device, device), device)
    return list(found.values())


def nodes(views: Sequence[View], most: int = MOST_MACHINES) -> list[View]:
    """At most so many nodes, in their order: those with GPUs before others, unlike ones before those that are alike."""
    first: dict[str, View] = {}
    similar = []
    for view in sorted(views, key=lambda view: not accelerators(view)):
        if view.make in first:
            similar.append(view)
        else:
            first[view.make] = view
    chosen = {view.node for view in [*first.values(), *similar][:most]}
    return [view for view in views if view.node in chosen]
