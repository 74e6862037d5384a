"""Language models in practice: one text at a time, and on a server with many users."""

from __future__ import annotations

from functools import partial

from report.data.dataset import Dataset
from report.estimates import Estimates, concat_estimates
from report.quantities import quantity, summary_quantity
from report.quantities.memory import share_of_bandwidth
from report.quantities.rate_arithmetic import BEST_LABELS, best_over_host

EXPERIMENT = "language-models"
# A language model's phases: reading a new prompt, and writing tokens after a text.
PROMPT, DECODE = "prompt", "decode"
_WORK = ("model", "format", "phase", "tokens")
_language_quantity = partial(quantity, experiments=[EXPERIMENT])
_point_quantity = partial(_language_quantity, labels=(*_WORK, "backend", "threads"))


@_point_quantity("language.tokens_per_s", "tokens/s")
def tokens_per_s(data: Dataset) -> Estimates:
    """Tokens read or written per second: their number, divided by the median time.

    phase: `prompt` reads the tokens of a new prompt, and `decode` writes tokens after a text. tokens: length of the
    prompt, or of the text before the written tokens. format: the model file's format. backend: the runtime.
    """
    calls = data.summary(EXPERIMENT).inverse().drop_labels("dtype")
    return calls.scaled_by(calls.numbers("tokens").where(calls["phase"] == PROMPT, 1))


@_language_quantity("language.fastest", "tokens/s", (*_WORK, "runtime", "threads"))
def fastest_tokens_per_s(data: Dataset) -> Estimates:
    """`language.tokens_per_s` with the fastest runtime and thread count, for each format and for the best format.

    format: the model file's format, or `best`, for which `detail` names the format. runtime: the fastest runtime.
    """
    rates = tokens_per_s(data)
    by, of = ["node", "device", "model", "phase", "tokens"], ["threads"]
    each = rates.best_per_group([*by, "format"], of, ["backend", "threads"])
    best = rates.best_per_group(by, ["format", *of], ["backend", "threads"]).label(format="best")
    rates_by_format = concat_estimates([each, best])
    return rates_by_format.label(runtime=rates_by_format["backend"]).drop_labels("backend")


@_point_quantity("language.bandwidth_share", "1", experiments=[EXPERIMENT, "bandwidth"])
def bandwidth_share(data: Dataset) -> Estimates:
    """Bytes read per written token (weights and cache, once each), divided by its time and by the measured bandwidth.

    As for `generation.bandwidth_share`, the measured bandwidth comes from STREAM's fastest pass, models that might fit
    into caches are left out, and the result may exceed 1.
    """
    rates = data.summary(EXPERIMENT, value="bytes_per_s").filter(phase=DECODE)
    bytes_read = data.summary(EXPERIMENT, value="bytes").filter(phase=DECODE)
    return share_of_bandwidth(data, rates, bytes_read).drop_labels("dtype")


@_language_quantity("language.gpu_over_cpu", "1", ("model", "phase", "tokens", *BEST_LABELS), device="both")
def tokens_over_cpu(data: Dataset) -> Estimates:
    """Tokens per second on one GPU, relative to those on its host's CPU, for one text at a time.

    Each side uses its fastest runtime and thread count. Model and token count are the same. precision: equal (the same
    file format on both sides, as `dtype`) or best (each side's fastest format). runtime, cpu_runtime: runtimes on the
    GPU and on the CPU.
    """
    rates = tokens_per_s(data)
    return best_over_host(rates.label(dtype=rates["format"]), ["model", "phase", "tokens"])


_SERVED = ("model", "format", "users", "prompt_tokens", "new_tokens", "cores", "backend")
# Labels that identify a server and its work: all labels but the user count.
SERVER = ["node", "device", *(name for name in _SERVED if name != "users")]


def metric_by_users(data: Dataset, metric: str) -> Estimates:
    """Return a metric for each server, by ascending user count.

    The labels for load duration, compute threads and dtype are dropped.
    """
    return data.summary("language-serving", metric).sort_by(*SERVER, "users").drop_labels("seconds", "threads", "dtype")


for _name, _metric, _unit, _how in (
    ("first_token_s", "p50_first_token_latency", "s",
     "Median time from a request to its first token."),
    ("p99_first_token_s", "p99_first_token_latency", "s",
     "99th percentile time from a request to its first token, over at least 100 answers per round."),
    ("p99_token_s", "p99_token_latency", "s",
     "99th percentile time between two tokens of an answer, over at least 100 per round."),
    ("answer_s", "p50_answer_latency", "s",
     "Median time from a request to its complete answer."),
    ("user_tokens_per_s", "user_tokens_per_s", "tokens/s",
     "Tokens per second in an answer after its first token, as its user sees them: the median over answers."),
    ("tokens_per_s", "tokens_per_s", "tokens/s",
     "Tokens per second over all users, for the whole load."),
    ("failed_share", "failed_share", "1",
     "Share of answers that broke off, had the wrong token count, or were refused."),
):  # fmt: skip
    summary_quantity(f"language_serving.{_name}", _unit, _how, labels=_SERVED, metric=_metric, points=metric_by_users)
