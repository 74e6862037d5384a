"""A claim's scope: the cells that it speaks of, and why there may be none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from contract.node import kind_of_node
from report.data.dataset import Dataset
from report.data.machines import KINDS, of_kind
from report.estimates import Estimates, device_kind
from report.formatting import count, label_value, several
from report.judging.claims import Part
from report.quantities import Quantity

_MOST_LISTED = 8


def select(cells: Estimates, scope: Mapping[str, Any]) -> Estimates:
    """The cells that a scope names.

    `backend: best` means the best shape too. An aggregate labelled best enters
    only if the scope asks for it; `threads: all` is the most that a node's
    device was measured with.
    """
    for name, value in _wanted(scope, cells).items():
        cells = _narrow(cells, name, value)
    return _decidable(cells)


def _decidable(cells: Estimates) -> Estimates:
    """Without the cells that have no interval where another machine of their kind has one for the same.

    A single round decides nothing yet, and takes nothing from what was decided on that kind before.
    """
    sure = cells.frame["low"].notna().to_numpy(bool)
    if "node" not in cells.labels or sure.all():
        return cells
    keys = cells.frame[cells.labels].assign(node=cells.frame["node"].map(kind_of_node, na_action="ignore"))
    same = keys.groupby(cells.labels, dropna=False, sort=False).ngroup().to_numpy()
    return cells.at(sure | ~np.isin(same, same[sure]))


def _wanted(scope: Mapping[str, Any], cells: Estimates) -> dict[str, Any]:
    wanted = dict(scope)
    if wanted.get("backend") == "best" and "shape" in cells.labels:
        wanted.setdefault("shape", "best")
    for name in ("backend", "shape"):
        if name in cells.labels and name not in wanted:
            wanted[name] = [value for value in cells.frame[name].dropna().unique() if value != "best"]
    return wanted


def _narrow(cells: Estimates, name: str, value: Any) -> Estimates:
    if name not in cells.labels:
        return cells.at([])
    if name == "threads" and value == "all":
        kinds = cells.frame["device"].map(device_kind)
        most = cells.frame["threads"].astype(float).groupby([cells.frame["node"], kinds]).transform("max")
        return cells.at((cells.frame["threads"].astype(float) == most).to_numpy(bool))
    return cells.only(**{name: value})


def kinds_needed(part: Part, quantity: Quantity) -> list[str]:
    """Kinds of devices without which the part cannot be decided."""
    asked = part.scope.get("device", [])
    kinds = {*quantity.kinds, *(asked if isinstance(asked, list) else [asked])}
    if part.options.get("over") == "device":
        kinds |= {str(part.options["of"]), str(part.options["to"])}
    return sorted(kind if kind in ("cpu", "gpu") else device_kind(kind) for kind in kinds)


def lacking(part: Part, quantity: Quantity, cells: Estimates, data: Dataset) -> tuple[str, str]:
    """Why a part has nothing to compare: the verdict (awaiting …) and a sentence that begins with it."""
    kinds = kinds_needed(part, quantity)
    wanted = several(list(quantity.experiments))
    for kind in kinds:
        if not data.with_kind(kind):
            return "awaiting hardware", f"awaiting hardware: no node with a {kind.upper()} has measured {wanted}"
    machine = str(part.scope.get("baseline"))
    if machine in KINDS and not of_kind(data, machine):
        return "awaiting hardware", f"awaiting hardware: no {KINDS[machine].called} has measured {wanted}"
    places = kinds or sorted({kind for node in data.nodes.nodes for kind in node.kinds()})
    for experiment in quantity.experiments:
        failed = _failed(experiment, places, bool(kinds), data)
        if failed:
            return "awaiting experiment", f"awaiting experiment {experiment}: {failed}"
    name = quantity.experiments[0] if quantity.experiments else quantity.name
    return "awaiting experiment", f"awaiting experiment {name}: {_left_over(part, cells)}"


def _failed(experiment: str, kinds: list[str], every: bool, data: Dataset) -> str | None:
    """Why an experiment gave nothing on these kinds of devices; None if it did. every: all kinds are needed."""
    reasons = []
    for kind in kinds:
        rows = data.statuses(experiment, kind)
        if (rows["status"] == "ok").any():
            if not every:
                return None
            continue
        nodes = several([data.label(node) for node in data.with_kind(kind)])
        if not len(rows):
            reasons.append(f"not run on the {kind.upper()} of {nodes}")
        else:
            commonest = rows.groupby(["status", "reason"]).size().idxmax()
            status, reason = commonest if isinstance(commonest, tuple) else (commonest, "")
            reasons.append(f"{status} on the {kind.upper()} of {nodes}: {reason}")
    return "; ".join(reasons) or None


def _left_over(part: Part, cells: Estimates) -> str:
    """Which part of the scope nothing was measured in."""
    left = cells
    for name, value in _wanted(part.scope, cells).items():
        narrowed = _narrow(left, name, value)
        if not len(narrowed):
            seen = sorted(left.frame[name].dropna().unique(), key=str) if name in left.labels else []
            there = [label_value(name, one) for one in seen[:_MOST_LISTED]]
            more = f" and {len(seen) - len(there)} more" if len(seen) > len(there) else ""
            asked = [label_value(name, one) for one in (value if isinstance(value, list) else [value])]
            if there:
                return f"measured, but not with {several(asked, 'or')} (measured: {', '.join(there)}{more})"
            return "the points that ran do not give this quantity on any node"
        left = narrowed
    if part.rule in ("ratio", "trend", "crossover") and len(left):
        return f"{count(len(left), 'cell')} measured, but none that the rule {part.rule} can compare"
    return "the points that ran do not give this quantity on any node"
