"""A claim's scope: the estimates that it speaks of, and what is missing where there are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from contract.node import kind_of_node
from report.data.dataset import Dataset
from report.data.machines import KINDS, of_kind
from report.estimates import Estimates, device_kind
from report.formatting import label_value
from report.judging.claims import Part
from report.model import Failure, Missing, Verdict
from report.quantities import Quantity


def select(estimates: Estimates, scope: Mapping[str, Any]) -> Estimates:
    """The estimates that a scope names.

    `backend: best` means the best shape too. An aggregate labelled best enters
    only if the scope asks for it; `threads: all` is the most that a node's
    device was measured with.
    """
    for name, value in _wanted(scope, estimates).items():
        estimates = _narrow(estimates, name, value)
    return _decidable(estimates)


def _decidable(estimates: Estimates) -> Estimates:
    """Without those that have no interval where another machine of their kind has one for the same.

    A single round decides nothing yet, and takes nothing from what was decided on that kind before.
    """
    sure = estimates["low"].notna().to_numpy(bool)
    if "node" not in estimates.labels or sure.all():
        return estimates
    keys = estimates.frame[estimates.keys].assign(node=estimates["node"].map(kind_of_node, na_action="ignore"))
    same = keys.groupby(estimates.keys, dropna=False, sort=False).ngroup().to_numpy()
    return estimates.at(sure | ~np.isin(same, same[sure]))


def _wanted(scope: Mapping[str, Any], estimates: Estimates) -> dict[str, Any]:
    wanted = dict(scope)
    if wanted.get("backend") == "best" and "shape" in estimates.labels:
        wanted.setdefault("shape", "best")
    for name in ("backend", "shape"):
        if name in estimates.labels and name not in wanted:
            wanted[name] = [value for value in estimates[name].dropna().unique() if value != "best"]
    return wanted


def _narrow(estimates: Estimates, name: str, value: Any) -> Estimates:
    if name not in estimates.labels:
        return estimates.at([])
    if name == "threads" and value == "all":
        threads = estimates.numbers("threads")
        most = threads.groupby([estimates["node"], estimates["device"].map(device_kind)]).transform("max")
        return estimates.at(threads == most)
    return estimates.only(**{name: value})


def kinds_needed(part: Part, quantity: Quantity) -> list[str]:
    """Kinds of devices without which the part cannot be decided."""
    asked = part.scope.get("device", [])
    kinds = {*quantity.kinds, *(asked if isinstance(asked, list) else [asked])}
    if part.options.get("over") == "device":
        kinds |= {str(part.options["of"]), str(part.options["to"])}
    return sorted(kind if kind in ("cpu", "gpu") else device_kind(kind) for kind in kinds)


def missing(part: Part, quantity: Quantity, estimates: Estimates, data: Dataset) -> Missing:
    """What a part that has nothing to compare waits for. estimates: all of its quantity."""
    kinds = kinds_needed(part, quantity)
    wanted = tuple(quantity.experiments)
    for kind in kinds:
        if not data.with_kind(kind):
            return Missing(Verdict.AWAITING_HARDWARE, wanted, device=kind)
    machine = part.machine or str(part.scope.get("baseline"))
    if machine in KINDS and not of_kind(data, machine):
        return Missing(Verdict.AWAITING_HARDWARE, wanted, machine=machine, device=KINDS[machine].device)
    there = kinds or sorted({kind for node in data.nodes.nodes for kind in node.kinds()})
    for experiment in wanted:
        failures = [_failure(experiment, kind, data) for kind in there]
        failed = tuple(one for one in failures if one is not None)
        if failed and (kinds or len(failed) == len(there)):
            return Missing(Verdict.AWAITING_EXPERIMENT, (experiment,), failures=failed)
    return _left_over(part, estimates, wanted[0] if wanted else quantity.name)


def _failure(experiment: str, kind: str, data: Dataset) -> Failure | None:
    """Why an experiment gave nothing on this kind of devices; None if it gave something."""
    rows = data.statuses(experiment, kind)
    if (rows["status"] == "ok").any():
        return None
    nodes = tuple(data.names(data.with_kind(kind)))
    if not len(rows):
        return Failure(kind, nodes)
    commonest = rows.groupby(["status", "reason"]).size().idxmax()
    return Failure(kind, nodes, *(commonest if isinstance(commonest, tuple) else (commonest,)))


def _left_over(part: Part, estimates: Estimates, experiment: str) -> Missing:
    """Which label of the scope nothing was measured with."""
    left, none = estimates, Missing(Verdict.AWAITING_EXPERIMENT, (experiment,))
    for name, value in _wanted(part.scope, estimates).items():
        narrowed = _narrow(left, name, value)
        if not len(narrowed):
            there = sorted(left[name].dropna().unique(), key=str) if name in left.labels else []
            wanted = value if isinstance(value, list) else [value]
            words = [tuple(label_value(name, one) for one in values) for values in (wanted, there)]
            return Missing(none.verdict, none.experiments, label=name, wanted=words[0], measured=words[1])
        left = narrowed
    if part.rule in ("ratio", "trend", "crossover") and len(left):
        return Missing(none.verdict, none.experiments, rule=part.rule, estimates=len(left))
    return none
