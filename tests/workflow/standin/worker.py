"""In the place of `experiments.worker`: answers points from a model of the machine, as fast as time passes there."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

from contract.ending import end_with_parent
from tests.workflow.standin import counts
from tests.workflow.standin.answers import SET_UP_S, Teller
from tests.workflow.standin.chips import Lack, chip
from tests.workflow.standin.machine import START_S, faster
from tests.workflow.standin.suite import answer_of

# Metrics that a GPU's points are profiled for in a second pass, and the seconds that a profile takes to be read.
PROFILED, PROFILE_S = re.compile(r"kernel_time|matmul_time_share|time_below\..*"), 1.0


class Garbage(str):
    """An answer that is no JSON."""


def serve() -> None:
    """As `experiments.worker.serve`."""
    end_with_parent()
    # The clock began with the process: what Python takes to start is part of what the real one takes.
    begun, number, counted = time.perf_counter() - _age_s(), 0, counts.read()

    def wait_until(seconds: float) -> None:
        time.sleep(max(0.0, seconds / faster() - (time.perf_counter() - begun)))

    now = 0.0
    for line in sys.stdin:
        order = json.loads(line)
        now = max(now, (time.perf_counter() - begun) * faster())
        if "prepare" in order:
            answer, took = {"ready": True}, START_S["cpu" if order["device"] == "cpu" else "gpu"] - now
        else:
            number += 1
            answer, took = answered(order, counted, now)
            answer = spoilt(answer, order["experiment"], number)
        now += took
        wait_until(now)
        print(answer if isinstance(answer, Garbage) else json.dumps(answer, allow_nan=False), flush=True)


def _age_s() -> float:
    """Seconds since this process was started, to the kernel's tick."""
    ticks = float(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def answered(order: dict[str, Any], counted: dict[str, Any], begun_s: float) -> tuple[dict[str, Any], float]:
    """The answer to a point, and the seconds that it takes."""
    name, device, params, policy = (order[key] for key in ("experiment", "device", "params", "policy"))
    limits = counted["limits"]
    about = counted["points"][counts.key(name, params)]
    own = chip(device, int(params.get("threads", 0)))
    said = [os.environ.get(key, "") for key in ("STANDIN_SEED", "STANDIN_HOST", "STANDIN_ROUND")]
    chance = random.Random("/".join([*said, name, device, json.dumps(params, sort_keys=True)]))
    if about["held"] > limits["memory_share"] * own.free:
        text = f"memory: needs {about['held'] / 2**30:.1f} GiB, {own.free / 2**30:.1f} GiB are free"
        return {"status": "skipped", "reason": text}, 0.2
    try:
        answer = answer_of(name, own, {**params, "flop": about["flop"]}, counted["models"])
    except Lack as lack:
        return {"status": "unsupported", "reason": str(lack)}, 0.1
    except MemoryError as lack:
        return {"status": "oom", "reason": f"CUDA out of memory. {lack}"}, 0.5
    longest = max((series.call_s for series in answer.series), default=0.0)
    if longest > limits["overrun"] * policy["budget_s"]:
        text = f"budget: one call is predicted to take {longest:.3g} s, the point has {policy['budget_s']:g} s"
        return {"status": "skipped", "reason": text}, 0.3
    teller = Teller(own, chance, counted["reading"], begun_s, "STANDIN_ENERGY" in os.environ)
    told = teller.tell(answer, policy)
    profiled = {name: told["observed"].pop(name) for name in [*told["observed"]] if PROFILED.fullmatch(name)}
    if own.kind == "cpu" or not profiled:
        told["observed"] |= profiled
    elif "profile" not in order:
        told["profile"] = {name: unit for name, (_, unit) in profiled.items()}
    else:
        metrics = [{"metric": name, "unit": unit, "value": value} for name, (value, unit) in profiled.items()]
        told = {"status": "ok", "reason": "ok", "profiled": metrics, "profiled_s": PROFILE_S}
        return told, SET_UP_S + PROFILE_S
    return told, teller.now - begun_s


def spoilt(answer: dict[str, Any], experiment: str, number: int) -> Any:
    """The answer, unless this experiment is one that goes wrong: its second point of a process, and so on."""
    if number % 2:
        return answer
    if experiment == os.environ.get("STANDIN_CRASH"):
        os.kill(os.getpid(), signal.SIGKILL)
    if experiment == os.environ.get("STANDIN_HANG"):
        time.sleep(3600)
    if experiment != os.environ.get("STANDIN_NONSENSE"):
        return answer
    share = {"parts": [], "observed": {"whole_share": (2.0, "1")}, "flop": None, "bytes": None}
    early = {**share, "observed": {"latency": (-0.003, "s")}}
    lies = [{"status": "ok", "error": None, "tolerance": None, **lie} for lie in (share, early)]
    # The last one costs the process.
    return [Garbage("{'status': nothing that anybody could read"), *lies][number // 2 % 3]


if __name__ == "__main__":
    serve()
