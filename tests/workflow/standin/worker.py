"""Replacement for `experiments.worker`: answers the points in `small.yaml` on the faster clock."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from contract.child_processes import end_with_parent
from experiments.machine_state import Reading
from tests.workflow.standin.machine import START_S, time_scale

# MEMORY: bytes per second from memory. LINK: bytes per second in a transfer. LAUNCH_S: seconds to launch a call.
# PRODUCTS: multiply-adds per second.
MEMORY = {"cpu": 170e9, "gpu": 2.9e12}
LINK, LAUNCH_S, PRODUCTS = 52e9, 3e-6, 25e12
SAMPLES, BETWEEN, WITHIN = 15, 0.015, 0.008
# SET_UP_S: seconds to set up a point. WARM_UP, TIMED: shares of the budget for the warm-up and for the samples.
SET_UP_S, WARM_UP, TIMED = 0.15, 0.2, 0.6


class Garbage(str):
    """Text to send unchanged, in place of an answer in JSON."""


def call_cost(experiment: str, kind: str, p: dict[str, Any]) -> tuple[float | None, float | None, float | None]:
    """Return seconds, FLOP and bytes per call; None if not applicable."""
    if experiment == "transfer":
        return p["size"] / LINK, None, float(p["size"])
    if experiment == "bandwidth":
        return p["footprint"] / MEMORY[kind] + LAUNCH_S, None, float(p["footprint"])
    if experiment == "content":
        return p["m"] * p["n"] * p["k"] / PRODUCTS + LAUNCH_S, 2.0 * p["m"] * p["n"] * p["k"], None
    return (None if experiment == "numerics" else 6e-4), None, None


def answer_point(order: dict[str, Any], now: float) -> tuple[dict[str, Any], float]:
    """Return the answer to a point, as from `experiments.worker`, and the seconds that it takes.

    now: seconds on the faster clock at which the point starts.
    """
    name, params, policy = order["experiment"], order["params"], order["policy"]
    kind = "cpu" if order["device"] == "cpu" else "gpu"
    seed_parts = [os.environ["STANDIN_HOST"], os.environ["STANDIN_ROUND"], name, json.dumps(params, sort_keys=True)]
    chance = random.Random("/".join(seed_parts))
    call_s, flop, moved = call_cost(name, kind, params)
    answer = {"status": "ok", "reason": "ok", "parts": [], "observed": {}, "flop": flop, "bytes": moved,
            "error": 1e-9, "tolerance": 1e-6}  # fmt: skip
    if call_s is None:
        answer["observed"] = {"spread_ulp": (3.0, "1"), "differing_share": (0.4, "1")}
        return answer, SET_UP_S
    warm_up_s, room = WARM_UP * policy["budget_s"], TIMED * policy["budget_s"]
    number = max(1, min(SAMPLES, int(policy["max_samples"]), int(room / call_s)))
    calls = max(1, int(room / number / call_s))
    # Vary the times between rounds and between samples.
    luck = chance.lognormvariate(0, BETWEEN)
    values = [call_s * luck * chance.lognormvariate(0, WITHIN) for _ in range(number)]
    begun = now + SET_UP_S + warm_up_s
    reading = {**vars(Reading(begun)), "other_load": 0.001, "steal": 0.0}
    if kind == "gpu":
        reading |= {"clock_mhz": 1800.0, "temperature_c": 50.0, "power_w": 640.0, "utilisation": 1.0}
    answer["parts"] = [
        {
            "status": "ok", "series": [{"metric": "time", "unit": "s", "values": values}], "energy": None,
            "stop_reason": "converged", "readings": [reading] * number, "calls": calls, "warmup_s": warm_up_s,
            "timed_s": calls * sum(values), "flop": flop, "bytes": moved,
        }
    ]  # fmt: skip
    return answer, SET_UP_S + warm_up_s + calls * sum(values)


def spoil_answer(answer: dict[str, Any], experiment: str, number: int) -> Any:
    """Return the answer, but at every second point in a faulty experiment die, hang or return nonsense."""
    if number % 2:
        return answer
    if experiment == os.environ["STANDIN_CRASH"]:
        os.kill(os.getpid(), signal.SIGKILL)
    if experiment == os.environ["STANDIN_HANG"]:
        time.sleep(3600)
    if experiment != os.environ["STANDIN_NONSENSE"]:
        return answer
    share = {"parts": [], "observed": {"whole_share": (2.0, "1")}, "flop": None, "bytes": None}
    early = {**share, "observed": {"latency": (-0.003, "s")}}
    lies = [{"status": "ok", "error": None, "tolerance": None, **lie} for lie in (share, early)]
    # The unreadable output comes last, because the study ends this process after it.
    return [Garbage("{'status': nothing that anybody could read"), *lies][number // 2 % 3]


def _age_s() -> float:
    """Return the seconds since this process started, exact to one kernel tick."""
    ticks = float(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def serve() -> None:
    """Serve orders like `experiments.worker.serve`."""
    end_with_parent()
    # Start the clock at the process start, so that Python's start counts.
    begun, number, now = time.perf_counter() - _age_s(), 0, 0.0
    for line in sys.stdin:
        order = json.loads(line)
        now = max(now, (time.perf_counter() - begun) * time_scale())
        if "prepare" in order:
            answer, took = {"ready": True}, START_S["cpu" if order["device"] == "cpu" else "gpu"] - now
        else:
            number += 1
            answer, took = answer_point(order, now)
            answer = spoil_answer(answer, order["experiment"], number)
        now += took
        time.sleep(max(0.0, now / time_scale() - (time.perf_counter() - begun)))
        print(answer if isinstance(answer, Garbage) else json.dumps(answer, allow_nan=False), flush=True)


if __name__ == "__main__":
    serve()
