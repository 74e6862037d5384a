"""Quantities of language models as people run them: one text at a time, and behind a server for many users."""

from __future__ import annotations

from functools import partial

from report.data.dataset import Dataset
from report.estimates import Estimates, concat_estimates
from report.quantities import quantity, summary_quantity
from report.quantities.memory import share_of_bandwidth
from report.quantities.rate_arithmetic import BEST_LABELS, best_over_host

EXPERIMENT = "language-models"
# Phases: a fresh prompt is read; tokens are written after one.
PROMPT, DECODE = "prompt", "decode"
_WORK = ("model", "format", "phase", "tokens")
_language_quantity = partial(quantity, experiments=[EXPERIMENT])
_point_quantity = partial(_language_quantity, labels=(*_WORK, "backend", "threads"))


@_point_quantity("language.tokens_per_s", "tokens/s")
def tokens_per_s(data: Dataset) -> Estimates:
    """Tokens over the median time: those of a prompt that is read, or those that are written after one.

    phase: prompt or decode. tokens: of the prompt, or of the text before the written ones. format: of the file.
    backend: the runtime.
    """
    calls = data.summary(EXPERIMENT).inverse().without("dtype")
    return calls.scaled_by(calls.numbers("tokens").where(calls["phase"] == PROMPT, 1))


@_language_quantity("language.fastest", "tokens/s", (*_WORK, "runtime", "threads"))
def fastest_tokens_per_s(data: Dataset) -> Estimates:
    """`language.tokens_per_s` of the fastest runtime and number of threads, for each format and for the best of all.

    format: of the file, or `best`, where `detail` names it. runtime: the fastest.
    """
    rates = tokens_per_s(data)
    by, of = ["node", "device", "model", "phase", "tokens"], ["threads"]
    each = rates.best([*by, "format"], of, ["backend", "threads"])
    best = rates.best(by, ["format", *of], ["backend", "threads"]).label(format="best")
    found = concat_estimates([each, best])
    return found.label(runtime=found["backend"]).without("backend")


@_point_quantity("language.bandwidth_share", "1", experiments=[EXPERIMENT, "bandwidth"])
def bandwidth_share(data: Dataset) -> Estimates:
    """Bytes that a written token reads (weights and cache, each once) over its time and over the measured bandwidth.

    Bandwidth as for `generation.bandwidth_share`; so are models left out that could stay in caches. It may exceed 1.
    """
    rates = data.summary(EXPERIMENT, value="bytes_per_s").only(phase=DECODE)
    bytes_read = data.summary(EXPERIMENT, value="bytes").only(phase=DECODE)
    return share_of_bandwidth(data, rates, bytes_read).without("dtype")


@_language_quantity("language.gpu_over_cpu", "1", ("model", "phase", "tokens", *BEST_LABELS), device="both")
def tokens_over_cpu(data: Dataset) -> Estimates:
    """Most tokens per second of one GPU over the most of its host's CPU, same model and tokens, one text at a time.

    precision: equal (the same format of the file on both sides, as `dtype`) or best (each side's fastest format).
    runtime, cpu_runtime: of the GPU and of the CPU.
    """
    rates = tokens_per_s(data)
    return best_over_host(rates.label(dtype=rates["format"]), ["model", "phase", "tokens"])


_SERVED = ("model", "format", "users", "prompt_tokens", "new_tokens", "cores", "backend")
# Labels that tell one server and its work from another: all but the users.
SERVER = ["node", "device", *(name for name in _SERVED if name != "users")]


def metric_by_users(data: Dataset, metric: str) -> Estimates:
    """A metric by server and number of users, in rising order; how long the load lasted, and by how many threads tokens
    were computed, is no label.
    """
    return data.summary("language-serving", metric).ascending(*SERVER, "users").without("seconds", "threads", "dtype")


for _name, _metric, _unit, _how in (
    ("first_token_s", "p50_first_token_latency", "s",
     "Median of the time from a request until its first token came."),
    ("p99_first_token_s", "p99_first_token_latency", "s",
     "99th percentile of the time from a request until its first token came, of at least 100 answers in each round."),
    ("p99_token_s", "p99_token_latency", "s",
     "99th percentile of the time between two tokens of an answer, of at least 100 in each round."),
    ("answer_s", "p50_answer_latency", "s",
     "Median of the time from a request until its answer was whole."),
    ("user_tokens_per_s", "user_tokens_per_s", "tokens/s",
     "Tokens a second of an answer after its first token, as its user sees them: the median over answers."),
    ("tokens_per_s", "tokens_per_s", "tokens/s",
     "Tokens that reach all users together, for each second under the whole load."),
    ("failed_share", "failed_share", "1",
     "Share of the answers that broke off, had another number of tokens than asked for, or were refused."),
):  # fmt: skip
    summary_quantity(f"language_serving.{_name}", _unit, _how, labels=_SERVED, metric=_metric, points=metric_by_users)
