"""The waterfall of one small request: what the host, the GPU and the CPU do in its microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from report.formatting import count, several
from report.render.central import lanes
from report.render.central.base import MOST_MACHINES, Central, Machine, Shown, deciding, machine_names
from report.render.central.chosen import accelerators, nodes
from report.render.central.requests import (
    CARD,
    CPU,
    HOST,
    KINDS,
    QUICKEST,
    REST,
    WHOLE,
    Group,
    answers,
    of_answers,
    of_gpus,
    smallest,
    to_gpu,
)
from report.render.figures import AMBER, BLUE, GREEN, GREY, MUTED, PURPLE, SKY, Drawing
from report.render.measurements.base import Table, View
from report.render.words import LEVEL

MOST_ANSWERS = 4  # of all nodes together
_COLOURS = {
    **dict(zip((KINDS.get(name, name) for name in HOST.values()), (MUTED, PURPLE, MUTED, GREY), strict=True)),
    **dict(zip(CARD.values(), (AMBER, BLUE, GREEN), strict=True)),
    CPU: SKY,
    QUICKEST: SKY,
    REST: MUTED,
    WHOLE: GREY,
}


def show(views: Sequence[View], document: Mapping[str, Any]) -> Shown | None:
    """The smallest request to each GPU and the same on its host; where no GPU was asked, answers of small models."""
    able = [view for view in views if any(smallest(view, device) for device in accelerators(view))]
    shown = nodes(able)
    asked = [to_gpu(view, device) for view in shown for device in accelerators(view)]
    groups, tell = [group for group in asked if group][:MOST_MACHINES], of_gpus
    if not groups:
        found = {view.node: answers(view) for view in views}
        able = [view for view in views if found[view.node]]
        shown = nodes(able)
        each = max(1, MOST_ANSWERS // max(1, len(shown)))
        groups, tell = [group for view in shown for group in found[view.node][:each]], of_answers
    if not groups:
        return None
    machines = machine_names(shown, list(dict.fromkeys(group["machine"] for group in groups)))
    title, reading = tell(groups, machines)
    return Shown(
        title,
        reading,
        _drawing(groups, machines, tell is of_gpus, len(able) - len({node for node, _ in machines})),
        _table(groups, machines),
        deciding(document, "offload.transfer_over_compute", "offload.speedup_over_100_cores", "inference.onnx_gain"),
    )


def _drawing(groups: Sequence[Group], machines: Mapping[Machine, str], gpus: bool, left_out: int) -> Drawing:
    seen = {part["kind"] for group in groups for lane in group["lanes"] for part in lane["parts"]}
    alone = len(machines) == 1 and not gpus
    shows = {
        "groups": [
            {
                "title": group["work"] if alone else f"{machines[group['machine']]}: {group['work']}",
                "lanes": group["lanes"],
            }
            for group in groups
        ],
        "colours": {kind: colour for kind, colour in _COLOURS.items() if kind in seen},
        "x": "time since the request was made",
    }
    if gpus:
        caption = (
            "One small request on a scale of time: what the host does, one call after the other, until the result is "
            "back; what the GPU does of it by its own clock, drawn as late as it can have been, for the last copy ends "
            f"the request; and the CPU alone by its fastest library. Marks: whole times, with {LEVEL} intervals. "
            "float32, from pinned memory"
        )
    else:
        caption = (
            "One answer of small trained models on the CPU, float32, from the input in memory to the answer there: by "
            "PyTorch as it comes, where what the quickest other library does without is told apart if that is surely "
            f"more than nothing, and by that library. Marks: whole times, with {LEVEL} intervals; "
            f"{several(list(machines.values()))}"
        )
    if left_out > 0:
        caption += f"; {count(left_out, 'further node')} stand in the sections of their families"
    return lanes.drawing(FIGURE.name, shows, f"{caption}.", "One small request, part by part.")


def _table(groups: Sequence[Group], machines: Mapping[Machine, str]) -> Table:
    rows = []
    for group in groups:
        of = [group["work"], machines[group["machine"]]]
        for lane in group["lanes"]:
            rows += [[*of, lane["label"], part["what"], part["told"]] for part in lane["parts"]]
            if lane["mark"] and len(lane["parts"]) > 1:
                rows.append([*of, lane["label"], "the whole", lane["mark"]["told"]])
    return Table(
        f"One small request, part by part, with {LEVEL} intervals",
        ["Request", "On", "Who", "What", "Time"],
        rows, "llllr", [28, 20, 14, 24, 22],
    )  # fmt: skip


FIGURE = Central("waterfall", show)
