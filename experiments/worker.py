"""The process that measures: takes points one at a time, answers with samples.

Run by `experiments.worker_processes` as its child, so that a point that takes the process
down (out of memory, a crash in a library, a hang) costs only itself.
Protocol: one JSON object a line, on standard input and on standard output. A point with the key `prepare` is not
measured: what it needs is loaded, so that whoever sent it can tell starting from measuring. A point with the key
`profile` is profiled and not timed: the answer to the timed point tells, under the same key, which metrics that gives.
An answer with the key `last` ends the process: an error of the device, or a capture that failed, would spoil the next
points.
"""

from __future__ import annotations

import gc
import json
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from contract import running_time
from contract.child_processes import end_with_parent
from contract.errors import StudyError
from experiments.children import answer_sender
from experiments.clock_readings import Timer, call_s
from experiments.counters import count_stops
from experiments.devices import Device, open_device
from experiments.jobs import needs_torch
from experiments.machine_state import Watch, pause_flag
from experiments.point_errors import Skipped, attempt, outcome
from experiments.registry import Experiment, convert_params, get_experiment
from experiments.serving.connection_limits import raise_file_limit
from experiments.timing import Measurement, Policy, measure
from experiments.workload import Observed, Profile, Unsupported, Workload

# A point that is predicted to take this share of its budget is measured without another probe; without any, if the
# plan says so: from what a core does in a product, of which a whole step may reach a twentieth.
SURE_SHARE, PLANNED_SHARE = 0.1, 0.02
# A probe may cost this share of the point's budget, or these seconds, before a larger one is not dared:
# the cheapest take little more than starting threads, and scaled up that looks like hours.
PROBE_SHARE, PROBE_S = 0.3, 1.0
# A call that is predicted to take this many times the point's budget is not made.
OVERRUN = 2.0
# A call shorter than this is timed in a graph as well, if it can be captured, and so many calls make one.
GRAPH_BELOW_S, GRAPH_CALLS, GRAPH_METRIC = 50e-6, 20, "graph_time"
# Files that libraries and their processes may open, where the system allows it: macOS begins with 256 in all.
FILES = 1000
# The largest share of free memory that a point may ask for.
MEMORY_SHARE = 0.6


def serve() -> None:
    """Read points from standard input until it closes; answer each on standard output."""
    end_with_parent()
    count_stops()
    raise_file_limit(FILES)
    with running_time.RunningTime():
        _answer_orders()


def _answer_orders() -> None:
    """Answer orders until there are no more."""
    send = answer_sender()
    device: Device | None = None
    watch: Watch | None = None
    loaded = 0
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if device is None or watch is None:
                device, watch = open_device(order["device"]), Watch(order["device"])
            answer = _prepare(order, device) if "prepare" in order else answer_order(order, device, watch)
        except StudyError as refusal:  # a GPU that others have taken may be free at the next point
            answer = outcome("failed", str(refusal))
        gc.collect()
        if device is not None and _leaves_unusable(device, answer):
            answer["last"] = True
        send(answer)
        if "last" in answer:
            return
        # Libraries are here to stay: looking through torch again takes a tenth of a second, after every point.
        if len(sys.modules) > loaded:
            loaded = len(sys.modules)
            gc.freeze()


def _prepare(order: dict[str, Any], device: Device) -> dict[str, Any]:
    """Load what the point's experiment is made of, and the libraries that set its threads."""
    # What cannot be loaded is the outcome of the points that need it.
    with suppress(Exception):
        _set_threads(device, order["params"])
        if order["experiment"]:
            get_experiment(order["experiment"])
    return {"ready": True}


def _set_threads(device: Device, params: dict[str, Any]) -> None:
    # What needs no torch starts its own threads.
    if needs_torch(params):
        device.set_threads(params["threads"])


def answer_order(order: dict[str, Any], device: Device, watch: Watch) -> dict[str, Any]:
    """Measure one point: {status, reason, …} and, if it went well, its samples.

    Never raises for what goes wrong with a point: that is an outcome.
    """
    return attempt(lambda: _measure_point(order, device, watch))


def _leaves_unusable(device: Device, answer: dict[str, Any]) -> bool:
    """True if this process can measure nothing more on the device after this answer."""
    if device.spoilt:
        return True
    # Drivers have many words for their errors: after any failure, ask the device itself.
    metrics = [*answer.get("parts", []), *answer.get("profiled", [])]
    outcomes = {answer.get("status"), *(metric.get("status", "ok") for metric in metrics)}
    return bool({"failed", "unsupported"} & outcomes) and bool(device.fault())


def _measure_point(order: dict[str, Any], device: Device, watch: Watch) -> dict[str, Any]:
    experiment = get_experiment(order["experiment"])
    if device.kind not in experiment.fits:
        raise Unsupported("no accelerator" if device.kind == "cpu" else f"{experiment.name} asks about CPUs only")
    params, policy = convert_params(experiment, order["params"]), Policy(**order["policy"])
    if not device.runs(backend := str(params.get("backend", ""))):
        raise device.unsupported(backend)
    _set_threads(device, order["params"])
    known = order.get("known") or {}
    _require_memory(experiment, order["params"], device, known.get("memory"))
    if "profile" in order:  # it fitted its budget when it was timed
        return _profile(experiment.function(device, **params).profile)
    # What counts no operations (0) may take any time.
    if not 0 < (known.get("call_s") or 0) <= PLANNED_SHARE * policy.budget_s:
        _require_budget(experiment, params, device, policy)
    begun = running_time.now()
    work = experiment.function(device, **params)
    error, answer = _check_result(work), outcome("ok", "ok")
    if work.tolerance is not None and not (error is not None and error <= work.tolerance):
        answer = outcome("wrong", f"relative error {error:.3g} exceeds the tolerance {work.tolerance:.3g}")
    watch.begin(int(order["params"].get("threads", 0)))
    parts = _measure_workloads(work, device, policy, watch)
    timed, stood = running_time.now(), running_time.paused_s()
    seen = attempt(lambda: {"observed": _observe(work)})
    if "observed" not in seen:
        if not parts:
            return seen
        parts.append({**seen, "metric": "observations"})
    stood = running_time.paused_s() - stood
    told: dict[str, Any] = {"last": True} if any("last" in part for part in parts) else {}
    if work.profile and device.kind == "cpu":
        told["profiled"] = _profile(work.profile)["profiled"]
    elif work.profile:
        told["profile"] = dict(work.profile.units)
    return {
        **answer,
        **told,
        "parts": parts,
        "observed": seen.get("observed", {}),
        "observed_flags": str(pause_flag(stood)) if stood else "",
        # Where the core times nothing, all of it makes the observation.
        "observed_s": running_time.now() - (timed if parts else begun),
        "flop": work.flop,
        "bytes": work.bytes,
        # JSON has no infinity and no nan: a result that has one is wrong by definition.
        "error": error if error is not None and error < float("inf") else None,
        "tolerance": work.tolerance,
    }


def _measure_workloads(work: Workload, device: Device, policy: Policy, watch: Watch) -> list[dict[str, Any]]:
    """The work itself, the works beside it, and the work in a graph; they share the point's budget.

    Raises the error of the work itself; of the others it is an outcome under their metric.
    """
    lacking: dict[str, Any] = {}
    works = [one for one in (work, *work.beside) if one.calls or one.phases]
    if work.graph and _is_short(work, device):
        made = attempt(lambda: {"work": _capture(work, device)})
        if "work" in made:
            works.append(made["work"])
        else:
            lacking = made
    share = replace(policy, budget_s=policy.budget_s / max(len(works), 1))
    parts = [_measure_workload(work, device, share, watch) for work in works[:1]]
    for one in works[1:]:
        made = attempt(lambda one=one: _measure_workload(one, device, share, watch))  # type: ignore[misc]
        parts.append(made if made["status"] == "ok" else {**made, "metric": one.metric})
    if lacking and device.kind != "cpu":
        parts.append({**lacking, "metric": GRAPH_METRIC})
    return parts


def _is_short(work: Workload, device: Device) -> bool:
    """True if a call is so short that a graph shows more than launching does. Raises NoTimeError."""
    return call_s(Timer(work, device), 100 * GRAPH_BELOW_S, PROBE_S, wanted=3) < GRAPH_BELOW_S


def _capture(work: Workload, device: Device) -> Workload:
    """Calls of the work in one graph, enough of them that starting it does not show."""
    calls = list(work.calls) * -(-GRAPH_CALLS // len(work.calls))
    return Workload(
        run=device.graph(calls), metric=GRAPH_METRIC, per=float(len(calls)), flop=work.flop, bytes=work.bytes
    )


def _measure_workload(work: Workload, device: Device, policy: Policy, watch: Watch) -> dict[str, Any]:
    """Samples of one work, and the energy of one call where something counts it."""
    begun = watch.energy()
    measurement = measure(work, device, policy, watch.read, look=watch.look)
    series = _series(work, measurement)
    # While the process stands still the device draws power for nothing.
    counts = measurement.timed_s >= watch.energy_least_s and not measurement.stood_s
    used = watch.energy_since(begun) if counts else None
    if used:
        # Of the time that was sampled: warm-up draws as much.
        joules = used.joules * measurement.timed_s / (measurement.timed_s + measurement.warmup_s) / measurement.made
        name = used.method if work.metric == "time" else f"{work.metric}.{used.method}"
        energy = {"metric": name, "unit": "J", "value": joules / (work.per or 1)}
    return {
        "status": "ok",
        "series": series,
        "energy": energy if used else None,
        "readings": [vars(reading) for reading in measurement.readings],
        "calls": measurement.calls,
        "stop_reason": measurement.stop_reason,
        "warmup_s": measurement.warmup_s,
        "timed_s": measurement.timed_s,
        "flop": work.flop,
        "bytes": work.bytes,
    }


def _series(work: Workload, measurement: Measurement) -> list[dict[str, Any]]:
    """Each metric with its unit and values."""
    found = []
    for phase, seconds in measurement.samples.items():
        name = f"{work.metric}.{phase}" if phase else work.metric
        values = (
            [work.rate / value for value in seconds] if work.rate else [value / (work.per or 1) for value in seconds]
        )
        found.append({"metric": name, "unit": work.rate_unit, "values": values})
    return found


def _observe(work: Workload) -> dict[str, Observed]:
    """What the work observes. Raises ValueError for what is no number, which no table could hold."""
    found = dict(work.observe()) if work.observe else {}
    for metric, (values, _) in found.items():
        several = values if isinstance(values, Sequence) else [values]
        if not all(math.isfinite(value) for value in several):
            raise ValueError(f"{metric} is not a number")
    return found


def _profile(profile: Profile | None) -> dict[str, Any]:
    """The answer that holds a profile: each metric with its unit, and its value or the outcome that took its place."""
    if profile is None:
        raise Unsupported("this work has no profile")
    taken: dict[str, float] = {}

    def take() -> dict[str, Any]:
        taken.update(profile.take())
        return outcome("failed", "the profile has no such number")

    begun, stood = running_time.now(), running_time.paused_s()
    lack = attempt(take)
    last = {"last": True} if lack.pop("last", False) else {}
    spent, stood = running_time.now() - begun, running_time.paused_s() - stood
    metrics = [
        {"metric": metric, "unit": unit}
        | ({"value": taken[metric]} if math.isfinite(taken.get(metric, math.nan)) else lack)
        | {"flags": str(pause_flag(stood)) if stood else ""}
        for metric, unit in profile.units.items()
    ]
    return {**outcome("ok", "ok"), "profiled": metrics, "profiled_s": spent, **last}


def _check_result(work: Workload) -> float | None:
    return float(work.check()) if work.check else None


def _require_memory(experiment: Experiment, params: dict[str, Any], device: Device, known: float | None) -> None:
    if experiment.memory is None:
        return
    wanted, free = experiment.memory(**params) if known is None else known, device.free_bytes()
    if wanted > MEMORY_SHARE * free:
        raise Skipped(f"memory: needs {wanted / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free")


def _require_budget(experiment: Experiment, params: dict[str, Any], device: Device, policy: Policy) -> None:
    """Predict one call's time from cheaper points of the same kind; raise Skipped if it does not fit.

    The cheapest one is timed first and scaled by `call_s`, or by the work it does; fixed costs make
    that an overestimate, so a bad prediction is tried again from a dearer one, as long as that one is cheap.
    Raises NoTimeError.
    """
    if experiment.smaller is None:
        return
    ladder = []
    step = experiment.smaller(params)
    while step is not None:
        ladder.append(step)
        step = experiment.smaller(step)
    size = experiment.call_s or _work_size
    goal = size(**params)
    predicted = 0.0
    for cheaper in reversed(ladder):
        if predicted * size(**cheaper) / goal > max(PROBE_SHARE * policy.budget_s, PROBE_S):
            break
        work = experiment.function(device, **cheaper)
        # The first call may compile or allocate: there are two at least.
        probes = Timer(work, device)
        once = call_s(probes, SURE_SHARE * policy.budget_s, max(policy.budget_s, PROBE_S), wanted=4, least=2)
        predicted = once * goal / size(**cheaper)
        if predicted <= SURE_SHARE * policy.budget_s:
            return
    if predicted > OVERRUN * policy.budget_s:
        raise Skipped(f"budget: one call is predicted to take {predicted:.3g} s, the point has {policy.budget_s:g} s")


def _work_size(**params: Any) -> float:
    """The amount of work of a point, in proportion: the product of its whole-number parameters."""
    size = 1.0
    for name, value in params.items():
        if name != "threads" and isinstance(value, int):
            size *= max(value, 1)
    return size


if __name__ == "__main__":
    serve()
