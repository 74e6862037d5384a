"""A language model behind its runtime's own server, for 1 to 32 users: how soon and how fast its answers stream.

`experiments.serving.language_server` is the server; `experiments.serving.simulated_users` asks and times.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from experiments.devices import Device
from experiments.language.shapes import Format, Name, shapes
from experiments.registry import Params, experiment
from experiments.serving import language_server
from experiments.serving.server_processes import split_cores, start
from experiments.suite.serving import DisturbedError, percentile, repeat_if_disturbed
from experiments.workload import HarnessError, Observed, Threads, Unsupported, Workload

# Of a stream that is silent for longer, the server has failed: many users wait for all of their prompts at first.
TIMEOUT_S = 120.0
# Seconds that the last answers may take once the load has lasted as long as it should.
ENDS_S = 600.0
# llama.cpp gives a slot a multiple of so many tokens.
BLOCK = 256
# Most slots of a server: LLAMA_MAX_SEQ in llama.cpp.
SLOTS = 256
# Percentiles of times, and the fewest times of which they tell.
PERCENTILES = (("p50", 50.0, 1), ("p99", 99.0, 100))


def context(prompt_tokens: int, new_tokens: int) -> int:
    """Tokens for which a slot has room."""
    return -(-(prompt_tokens + new_tokens) // BLOCK) * BLOCK


def memory(model: str, format: Format, users: int, prompt_tokens: int, new_tokens: int, **_: Any) -> float:
    """Weights, keys and values of all users; and the two layers that are checked, in float32."""
    from experiments.language.gguf_files import file_bytes
    from experiments.language.token_check import checked_shape

    shape = shapes()[model]
    cache = users * shape.cache_bytes(context(prompt_tokens, new_tokens))
    return float(file_bytes(shape, format) + cache + 4 * checked_shape(model).parameters)


# Writing files, starting two servers, and checking the answers of one.
EXTRA_S = 3.0


def lacks(_: Sequence[Mapping[str, Any]], params: Params) -> str:
    """A server that is no part of the study's own installation, and is not there."""
    absent = params["backend"] == language_server.PROGRAM and language_server.program() is None
    return language_server.ABSENT if absent else ""


@experiment("language-serving", memory=memory, observed=True, extra_s=EXTRA_S, load_s=2.0, lacks=lacks)
def language_serving(
    device: Device, model: Name, format: Format, users: int, prompt_tokens: int, new_tokens: int, seconds: int,
    cores: int, backend: Literal["xllamacpp", "llama-server"], threads: Threads,
) -> Workload:  # fmt: skip
    """`users` who ask for `new_tokens` tokens after a prompt, read them as they stream, and ask again at once.

    model: a shape with random weights, or a GGUF file of the user's own. format: of the file. seconds: for which they
    ask, and as much longer as it takes until each has an answer. cores: the server is held to so many; 0: all. The
    users have others, or where there are none the same. threads: of the server's computation; it batches all users'
    tokens.
    Error: of probabilities that came through the server, see `experiments.language.token_check`.
    Observed: latencies of the first token (from the request), of each further one (from the one before) and of whole
    answers. user_tokens_per_s: of an answer after its first token, the median. tokens_per_s: of all users together.
    failed_share: of answers, those that broke off, had another number of tokens, or were refused. client_share: of the
    time of the server's cores, what the users took. client_delay: 99th percentile of the time from an answer to its
    user's next request.
    Unsupported: a server that is not installed or does not compute on the device. Failed, with a reason that begins
    with `harness:`, where the server does not start or ends, or a pause spoils the load again and again.
    """
    from experiments.language import gguf_files, runtime_server, token_check

    shape = shapes()[model]
    if min(users, seconds, prompt_tokens) < 1 or new_tokens < 2:
        raise Unsupported("there is a user at least, a second, a token of a prompt, and two of an answer")
    if users > SLOTS:
        raise Unsupported(f"llama.cpp's server answers {SLOTS} users at a time, not {users}")
    if prompt_tokens + new_tokens > shape.context:
        raise Unsupported(f"{prompt_tokens + new_tokens} tokens: this model takes {shape.context}")
    if backend == language_server.PROGRAM:
        language_server.require_program(device.kind == "gpu")
    elif device.kind == "gpu":
        raise device.unsupported(backend)
    cpus, others = split_cores(cores)
    room = max(1, len(cpus))
    if threads > room:
        raise Unsupported(f"{threads} threads for a computation are more than the {room} cores of the server")
    orders = {
        "backend": backend, "slots": users, "context": context(prompt_tokens, new_tokens), "threads": threads,
        "gpu": int(device.name.partition(":")[2] or 0) if device.kind == "gpu" else None, "cpus": cpus,
    }  # fmt: skip
    load = {
        "users": users, "prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "seconds": seconds,
        "timeout_s": TIMEOUT_S, "cpus": others or cpus,
    }  # fmt: skip

    def error() -> float:
        path = gguf_files.model_file(f"{model}-checked", token_check.checked_shape(model), format)
        with runtime_server.started({**orders, "model": str(path), "context": token_check.CONTEXT}) as running:
            return token_check.difference(model, format, running.following)

    def observe() -> dict[str, Observed]:
        path = gguf_files.model_file(model, shape, format)
        with runtime_server.started({**orders, "model": str(path)}) as running:
            seen = offered(running, load)
        return metrics(seen, room if not others else 0)

    return Workload(observe=lambda: repeat_if_disturbed(observe), check=error, tolerance=token_check.TOLERANCE)


def offered(running: Any, load: Mapping[str, Any]) -> Mapping[str, Any]:
    """Offer a load to a server, and give what the users saw, `experiments.serving.simulated_users.Seen` by its fields.

    Raises RuntimeError if no answer was right, HarnessError for trouble that is not the server's, or if it ended.
    """
    child = start(
        "simulated_users", {**load, "port": running.port, "letter": running.letter, "seed": random.getrandbits(32)}
    )
    try:
        seen = child.answer(load["seconds"] + ENDS_S)
    except HarnessError:
        running.require_life()
        raise
    finally:
        child.stop()
    running.require_life()
    if seen["stood_s"]:
        raise DisturbedError(f"the load stood still for {seen['stood_s']:.1f} s")
    if not seen["whole"]:
        raise RuntimeError(f"no answer was right: {next(iter(seen['faults']))}")
    return seen


def metrics(seen: Mapping[str, Any], shared: int) -> dict[str, Observed]:
    """Metrics of what users saw. shared: cores that they and the server have in common."""
    failed = sum(seen["faults"].values())
    found: dict[str, Observed] = {
        "tokens_per_s": (seen["tokens"] / seen["span_s"], "1/s"),
        "failed_share": (failed / (failed + len(seen["whole"])), "1"),
        "requests": (float(failed + len(seen["whole"])), "1"),
        "client_share": (min(1.0, seen["cpu_s"] / (seen["load_s"] * shared)) if shared else 0.0, "1"),
        "client_delay": (percentile(np.array(seen["late"]), 99.0), "s"),
    }
    if seen["user_rates"]:
        found["user_tokens_per_s"] = (percentile(np.array(seen["user_rates"]), 50.0), "1/s")
    for name, key in (("first_token", "first"), ("token", "between"), ("answer", "whole")):
        for part, percent, least in PERCENTILES:
            if len(seen[key]) >= least:
                found[f"{part}_{name}_latency"] = (percentile(np.array(seen[key]), percent), "s")
    return found
