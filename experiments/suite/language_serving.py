"""A language model behind its runtime's own server, for 1 to 32 users: latency and speed of streamed answers.

`experiments.serving.language_server` is the server; `experiments.serving.simulated_users` sends requests and times
them.
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
from experiments.serving.server_processes import split_cores, start_process
from experiments.suite.serving import DisturbedError, percentile, repeat_if_disturbed
from experiments.workload import HarnessError, Observed, Threads, Unsupported, Workload

# Seconds without a token after which a stream counts as a server failure. With many users, a first token waits until
# the server has read all their prompts.
TIMEOUT_S = 120.0
# Seconds to wait for the last answers after the load's nominal duration.
ENDS_S = 600.0
# llama.cpp rounds a slot's context up to a multiple of this many tokens.
BLOCK = 256
# Maximum slots per server: LLAMA_MAX_SEQ in llama.cpp.
SLOTS = 256
# Percentiles of latencies, each with the smallest number of latencies from which to compute the percentile.
PERCENTILES = (("p50", 50.0, 1), ("p99", 99.0, 100))


def context_tokens(prompt_tokens: int, new_tokens: int) -> int:
    """Return the number of tokens to reserve per slot."""
    return -(-(prompt_tokens + new_tokens) // BLOCK) * BLOCK


def memory(model: str, format: Format, users: int, prompt_tokens: int, new_tokens: int, **_: Any) -> float:
    """Estimate the bytes for the weights, for all users' keys and values, and for the check's two layers in float32."""
    from experiments.language.gguf_files import file_bytes
    from experiments.language.token_check import checked_shape

    shape = shapes()[model]
    cache = users * shape.cache_bytes(context_tokens(prompt_tokens, new_tokens))
    return float(file_bytes(shape, format) + cache + 4 * checked_shape(model).parameters)


# Seconds to write files, to start one server for the load and another for the check, and to check the answers.
EXTRA_S = 3.0


def lacks(_: Sequence[Mapping[str, Any]], params: Params) -> str:
    """Return an error message if the backend is llama-server and the program is missing; '' otherwise."""
    absent = params["backend"] == language_server.PROGRAM and language_server.program_path() is None
    return language_server.ABSENT if absent else ""


@experiment("language-serving", memory=memory, observed=True, extra_s=EXTRA_S, load_s=2.0, lacks=lacks)
def language_serving(
    device: Device, model: Name, format: Format, users: int, prompt_tokens: int, new_tokens: int, seconds: int,
    cores: int, backend: Literal["xllamacpp", "llama-server"], threads: Threads,
) -> Workload:  # fmt: skip
    """Serve `users` who each ask for `new_tokens` tokens after a prompt, read the stream, and ask again at once.

    model: a shape with random weights, or the user's own GGUF file.
    format: number format in the file.
    seconds: time in which users send new requests; the load ends later, when every user has the last answer.
    cores: number of cores for the server, 0 for all. The users get the other cores; if none are left, they share the
        server's cores.
    threads: number of threads for the server's computation, which batches the tokens of all users.
    Error: error in the probabilities that the server returns, see `experiments.language.token_check`.
    Observed: latencies for the first token (from the request), for each later token (from the token before) and for
        whole answers. user_tokens_per_s: median rate after the first token in an answer. tokens_per_s: rate for all
        users together. failed_share: share of answers that broke off, had another token count, or were refused.
        client_share: the users' share of CPU time on the server's cores. client_delay: 99th percentile of the time from
        an answer to the same user's next request.
    Unsupported: a server that is not installed or does not compute on the device.
    Failed, with a reason that begins with `harness:`, if the server does not start, or ends early, or if pauses keep
        spoiling the load.
    """
    from experiments.language import gguf_files, runtime_server, token_check

    shape = shapes()[model]
    if min(users, seconds, prompt_tokens) < 1 or new_tokens < 2:
        raise Unsupported("users, seconds and prompt_tokens must be at least 1, new_tokens at least 2")
    if users > SLOTS:
        raise Unsupported(f"llama.cpp's server answers {SLOTS} users at a time, not {users}")
    if prompt_tokens + new_tokens > shape.context:
        raise Unsupported(f"{prompt_tokens + new_tokens} tokens: this model takes {shape.context}")
    if backend == language_server.PROGRAM:
        language_server.require_program(device.kind == "gpu")
    elif device.kind == "gpu":
        raise device.unsupported_backend(backend)
    cpus, client_cpus = split_cores(cores)
    core_count = max(1, len(cpus))
    if threads > core_count:
        raise Unsupported(f"{threads} threads for a computation are more than the {core_count} cores of the server")
    orders = {
        "backend": backend, "slots": users, "context": context_tokens(prompt_tokens, new_tokens), "threads": threads,
        "gpu": int(device.name.partition(":")[2] or 0) if device.kind == "gpu" else None, "cpus": cpus,
    }  # fmt: skip
    load = {
        "users": users, "prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "seconds": seconds,
        "timeout_s": TIMEOUT_S, "cpus": client_cpus or cpus,
    }  # fmt: skip

    def error() -> float:
        path = gguf_files.model_file(f"{model}-checked", token_check.checked_shape(model), format)
        with runtime_server.running_server({**orders, "model": str(path), "context": token_check.CONTEXT}) as running:
            return token_check.logit_error(model, format, running.next_tokens)

    def observe() -> dict[str, Observed]:
        path = gguf_files.model_file(model, shape, format)
        with runtime_server.running_server({**orders, "model": str(path)}) as running:
            records = run_load(running, load)
        return load_metrics(records, core_count if not client_cpus else 0)

    return Workload(observe=lambda: repeat_if_disturbed(observe), check=error, tolerance=token_check.TOLERANCE)


def run_load(running: Any, load: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put a load on a server and return the fields of `experiments.serving.simulated_users.LoadResult`.

    Raises RuntimeError if no answer was right. Raises HarnessError for trouble outside the server, or if the server
    ended.
    """
    child = start_process(
        "simulated_users", {**load, "port": running.port, "letter": running.letter, "seed": random.getrandbits(32)}
    )
    try:
        records = child.answer(load["seconds"] + ENDS_S)
    except HarnessError:
        running.require_alive()
        raise
    finally:
        child.stop()
    running.require_alive()
    if records["stood_s"]:
        raise DisturbedError(f"the load generator was paused for {records['stood_s']:.1f} s")
    if not records["whole"]:
        raise RuntimeError(f"no answer was right: {next(iter(records['faults']))}")
    return records


def load_metrics(records: Mapping[str, Any], shared: int) -> dict[str, Observed]:
    """Return the metrics from the users' records. shared: number of cores that users and server share."""
    failed = sum(records["faults"].values())
    metrics: dict[str, Observed] = {
        "tokens_per_s": (records["tokens"] / records["span_s"], "1/s"),
        "failed_share": (failed / (failed + len(records["whole"])), "1"),
        "requests": (float(failed + len(records["whole"])), "1"),
        "client_share": (min(1.0, records["cpu_s"] / (records["load_s"] * shared)) if shared else 0.0, "1"),
        "client_delay": (percentile(np.array(records["late"]), 99.0), "s"),
    }
    if records["user_rates"]:
        metrics["user_tokens_per_s"] = (percentile(np.array(records["user_rates"]), 50.0), "1/s")
    for name, key in (("first_token", "first"), ("token", "between"), ("answer", "whole")):
        for part, percent, least in PERCENTILES:
            if len(records[key]) >= least:
                metrics[f"{part}_{name}_latency"] = (percentile(np.array(records[key]), percent), "s")
    return metrics
