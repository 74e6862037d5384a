"""Run the measuring process, which reads one point at a time and answers with samples.

`experiments.worker_processes` runs this module as a child process, so that a crash, a hang or a lack of memory costs
only one point.
Protocol: the process reads orders from stdin and writes answers to stdout, each as a JSON object on one line.
An order with the key `prepare` only loads the libraries that its point needs, so that loading is not part of measuring.
On a CPU, the answer with a point's samples also contains the point's profile, if it has one. On a GPU, this answer only
lists the profile's metrics, under the key `profile`; a later order with the key `profile` then asks for the profile.
An answer with the key `last` is the process's last answer: the process ends, since a device error or a failed capture
would affect later points.
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
from experiments.jobs import MEMORY_SHARE, needs_torch
from experiments.machine_state import Watch, pause_flag
from experiments.point_errors import Skipped, attempt, outcome
from experiments.registry import Experiment, convert_params, get_experiment
from experiments.serving.connection_limits import raise_file_limit
from experiments.timing import Measurement, Policy, measure
from experiments.workload import Observed, Profile, Unsupported, Workload

# A probe times a cheaper point, to predict the time of a call at the point to measure.
# SURE_SHARE: if a probe predicts that a call takes at most this share of the budget, no further probe is needed.
# PLANNED_SHARE: if the plan predicts that a call takes at most this share of the budget, no probe is needed at all. The
# share is smaller than SURE_SHARE, since a call may take 20 times as long as the plan predicts: the plan knows only a
# core's rate in matrix products.
SURE_SHARE, PLANNED_SHARE = 0.1, 0.02
# Probes time larger and larger points. After the first, a probe runs only if its call is predicted to take at most
# PROBE_SHARE of the budget, or at most PROBE_S seconds. Without PROBE_S, only the cheapest points would be probed under
# a small budget. Most of the time at those points is the start of threads; scaled up to the point to measure, it would
# predict hours.
PROBE_SHARE, PROBE_S = 0.3, 1.0
# Skip a point if its call is predicted to take more than this many times its budget.
OVERRUN = 2.0
# GRAPH_BELOW_S: calls shorter than this are also timed in a graph, if they can be captured.
# GRAPH_CALLS: minimum number of calls in the graph. GRAPH_METRIC: the metric's name for these times.
GRAPH_BELOW_S, GRAPH_CALLS, GRAPH_METRIC = 50e-6, 20, "graph_time"
# Number of open files to allow for libraries and their processes, since macOS allows only 256 by default.
FILES = 1000


def serve() -> None:
    """Answer orders from stdin on stdout until stdin closes."""
    end_with_parent()
    count_stops()
    raise_file_limit(FILES)
    with running_time.RunningTime():
        _answer_orders()


def _answer_orders() -> None:
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
        except StudyError as refusal:  # for example, the GPU is in use: the next order tries again to open the device
            answer = outcome("failed", str(refusal))
        gc.collect()
        if device is not None and _leaves_unusable(device, answer):
            answer["last"] = True
        send(answer)
        if "last" in answer:
            return
        # Exclude loaded modules from garbage collection: scanning torch takes 0.1 s after every point.
        if len(sys.modules) > loaded:
            loaded = len(sys.modules)
            gc.freeze()


def _prepare(order: dict[str, Any], device: Device) -> dict[str, Any]:
    """Load the point's experiment, and torch if the point needs it."""
    # Ignore errors here: a library that cannot be loaded fails again in each point that needs it, and the error then
    # becomes the point's outcome.
    with suppress(Exception):
        _set_threads(device, order["params"])
        if order["experiment"]:
            get_experiment(order["experiment"])
    return {"ready": True}


def _set_threads(device: Device, params: dict[str, Any]) -> None:
    # Set the thread count only for points that need torch, since other libraries start their own threads.
    if needs_torch(params):
        device.set_threads(params["threads"])


def answer_order(order: dict[str, Any], device: Device, watch: Watch) -> dict[str, Any]:
    """Measure one point: {status, reason, …} and, on success, its samples.

    Errors in the point become its outcome and are not raised.
    """
    return attempt(lambda: _measure_point(order, device, watch))


def _leaves_unusable(device: Device, answer: dict[str, Any]) -> bool:
    """True if the device is unusable in this process after this answer."""
    if device.spoilt:
        return True
    # Driver error messages vary, so the device itself is tested after any failure.
    metrics = [*answer.get("parts", []), *answer.get("profiled", [])]
    outcomes = {answer.get("status"), *(metric.get("status", "ok") for metric in metrics)}
    return bool({"failed", "unsupported"} & outcomes) and bool(device.fault())


def _measure_point(order: dict[str, Any], device: Device, watch: Watch) -> dict[str, Any]:
    experiment = get_experiment(order["experiment"])
    if device.kind not in experiment.fits:
        raise Unsupported("no accelerator" if device.kind == "cpu" else f"{experiment.name} asks about CPUs only")
    params, policy = convert_params(experiment, order["params"]), Policy(**order["policy"])
    if not device.supports(backend := str(params.get("backend", ""))):
        raise device.unsupported_backend(backend)
    _set_threads(device, order["params"])
    planned = order.get("known") or {}
    _require_memory(experiment, order["params"], device, planned.get("memory"))
    if "profile" in order:  # the call's time was already checked against the budget before the point was timed
        return _profile(experiment.function(device, **params).profile)
    # If the plan does not know a point's operations, it predicts 0 seconds. Such a prediction is ignored.
    if not 0 < (planned.get("call_s") or 0) <= PLANNED_SHARE * policy.budget_s:
        _require_budget(experiment, params, device, policy)
    started = running_time.now()
    work = experiment.function(device, **params)
    error, answer = _check_result(work), outcome("ok", "ok")
    if work.tolerance is not None and not (error is not None and error <= work.tolerance):
        answer = outcome("wrong", f"relative error {error:.3g} exceeds the tolerance {work.tolerance:.3g}")
    watch.begin(int(order["params"].get("threads", 0)))
    parts = _measure_workloads(work, device, policy, watch)
    sampled, stood = running_time.now(), running_time.paused_s()
    observation = attempt(lambda: {"observed": _observe(work)})
    if "observed" not in observation:
        if not parts:
            return observation
        parts.append({**observation, "metric": "observations"})
    stood = running_time.paused_s() - stood
    extra_keys: dict[str, Any] = {"last": True} if any("last" in part for part in parts) else {}
    if work.profile and device.kind == "cpu":
        extra_keys["profiled"] = _profile(work.profile)["profiled"]
    elif work.profile:
        extra_keys["profile"] = dict(work.profile.units)
    return {
        **answer,
        **extra_keys,
        "parts": parts,
        "observed": observation.get("observed", {}),
        "observed_flags": str(pause_flag(stood)) if stood else "",
        # If nothing was timed, this time also includes the time to make the workload and to check its result.
        "observed_s": running_time.now() - (sampled if parts else started),
        "flop": work.flop,
        "bytes": work.bytes,
        # JSON cannot encode an error of inf or nan. It may be left out, since the status is already "wrong".
        "error": error if error is not None and error < float("inf") else None,
        "tolerance": work.tolerance,
    }


def _measure_workloads(work: Workload, device: Device, policy: Policy, watch: Watch) -> list[dict[str, Any]]:
    """Measure the workload, the workloads in its `beside`, and, if possible, the workload in a graph.

    The budget is split evenly among these workloads.

    Raises the main workload's error; an error in another workload becomes the outcome for that workload's metric.
    """
    lacking: dict[str, Any] = {}
    works = [candidate for candidate in (work, *work.beside) if candidate.calls or candidate.phases]
    if work.graph and _is_short(work, device):
        captured = attempt(lambda: {"work": _capture(work, device)})
        if "work" in captured:
            works.append(captured["work"])
        else:
            lacking = captured
    share = replace(policy, budget_s=policy.budget_s / max(len(works), 1))
    parts = [_measure_workload(work, device, share, watch) for work in works[:1]]
    for other in works[1:]:
        part = attempt(lambda other=other: _measure_workload(other, device, share, watch))  # type: ignore[misc]
        parts.append(part if part["status"] == "ok" else {**part, "metric": other.metric})
    if lacking and device.kind != "cpu":
        parts.append({**lacking, "metric": GRAPH_METRIC})
    return parts


def _is_short(work: Workload, device: Device) -> bool:
    """True if a call is so short that launches dominate, so a graph is useful. Raises NoTimeError."""
    return call_s(Timer(work, device), 100 * GRAPH_BELOW_S, PROBE_S, count=3) < GRAPH_BELOW_S


def _capture(work: Workload, device: Device) -> Workload:
    """Capture the calls in one graph, several times over, so that the graph's launch hardly adds to a call's time."""
    calls = list(work.calls) * -(-GRAPH_CALLS // len(work.calls))
    return Workload(
        run=device.graph(calls), metric=GRAPH_METRIC, per=float(len(calls)), flop=work.flop, bytes=work.bytes
    )


def _measure_workload(work: Workload, device: Device, policy: Policy, watch: Watch) -> dict[str, Any]:
    """Sample one workload; add the energy per call if it can be measured."""
    energy_before = watch.energy()
    measurement = measure(work, device, policy, watch.read, look=watch.look)
    series = _series(work, measurement)
    # Record no energy if the process was suspended, since the device then draws power without work.
    counts = measurement.timed_s >= watch.energy_least_s and not measurement.stood_s
    energy_used = watch.energy_since(energy_before) if counts else None
    if energy_used:
        # The energy includes the warm-up's. Subtract it in proportion to the time, since warm-up draws the same power.
        joules = (
            energy_used.joules
            * measurement.timed_s
            / (measurement.timed_s + measurement.warmup_s)
            / measurement.total_calls
        )
        name = energy_used.method if work.metric == "time" else f"{work.metric}.{energy_used.method}"
        energy = {"metric": name, "unit": "J", "value": joules / (work.per or 1)}
    return {
        "status": "ok",
        "series": series,
        "energy": energy if energy_used else None,
        "readings": [vars(reading) for reading in measurement.readings],
        "calls": measurement.calls,
        "stop_reason": measurement.stop_reason,
        "warmup_s": measurement.warmup_s,
        "timed_s": measurement.timed_s,
        "flop": work.flop,
        "bytes": work.bytes,
    }


def _series(work: Workload, measurement: Measurement) -> list[dict[str, Any]]:
    series = []
    for phase, seconds in measurement.samples.items():
        name = f"{work.metric}.{phase}" if phase else work.metric
        values = (
            [work.rate / value for value in seconds] if work.rate else [value / (work.per or 1) for value in seconds]
        )
        series.append({"metric": name, "unit": work.rate_unit, "values": values})
    return series


def _observe(work: Workload) -> dict[str, Observed]:
    """Return the workload's observations. Raises ValueError for values that are not finite."""
    observations = dict(work.observe()) if work.observe else {}
    for metric, (values, _) in observations.items():
        several = values if isinstance(values, Sequence) else [values]
        if not all(math.isfinite(value) for value in several):
            raise ValueError(f"{metric} is not a number")
    return observations


def _profile(profile: Profile | None) -> dict[str, Any]:
    """Take a profile; answer with a unit, and a value or an outcome, for each metric."""
    if profile is None:
        raise Unsupported("this work has no profile")
    values: dict[str, float] = {}

    def take() -> dict[str, Any]:
        values.update(profile.take())
        return outcome("failed", "the profile does not contain this metric")

    started, stood = running_time.now(), running_time.paused_s()
    lack = attempt(take)
    last = {"last": True} if lack.pop("last", False) else {}
    profile_s, stood = running_time.now() - started, running_time.paused_s() - stood
    metrics = [
        {"metric": metric, "unit": unit}
        | ({"value": values[metric]} if math.isfinite(values.get(metric, math.nan)) else lack)
        | {"flags": str(pause_flag(stood)) if stood else ""}
        for metric, unit in profile.units.items()
    ]
    return {**outcome("ok", "ok"), "profiled": metrics, "profiled_s": profile_s, **last}


def _check_result(work: Workload) -> float | None:
    return float(work.check()) if work.check else None


def _require_memory(experiment: Experiment, params: dict[str, Any], device: Device, known_bytes: float | None) -> None:
    if experiment.memory is None:
        return
    needed, free = experiment.memory(**params) if known_bytes is None else known_bytes, device.free_bytes()
    if needed > MEMORY_SHARE * free:
        raise Skipped(f"memory: needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free")


def _require_budget(experiment: Experiment, params: dict[str, Any], device: Device, policy: Policy) -> None:
    """Predict the call time from cheaper points; raise Skipped if the predicted time is far beyond the budget.

    The cheapest point is timed first. Its time is scaled up to the point to measure, in proportion to
    `Experiment.call_s`, or to `_work_size` if the experiment does not define `call_s`. Fixed costs make the prediction
    too high, so if it is large, the next larger point is timed too, as long as that is cheap. Raises NoTimeError.
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
        # Take at least two readings: the first call may compile or allocate.
        probes = Timer(work, device)
        once = call_s(probes, SURE_SHARE * policy.budget_s, max(policy.budget_s, PROBE_S), count=4, minimum=2)
        predicted = once * goal / size(**cheaper)
        if predicted <= SURE_SHARE * policy.budget_s:
            return
    if predicted > OVERRUN * policy.budget_s:
        raise Skipped(f"budget: one call is predicted to take {predicted:.3g} s, the point has {policy.budget_s:g} s")


def _work_size(**params: Any) -> float:
    """Estimate a point's work, relative to other points, as the product of its integer parameters."""
    size = 1.0
    for name, value in params.items():
        if name != "threads" and isinstance(value, int):
            size *= max(value, 1)
    return size


if __name__ == "__main__":
    serve()
