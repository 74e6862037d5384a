"""Quantities of language models behind a server: how soon answers begin, and how fast they stream, by users."""

from __future__ import annotations

from functools import partial

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.quantities import quantity, says

_LABELS = ("model", "format", "users", "prompt_tokens", "new_tokens", "cores", "backend")
# Labels that tell one server and its work from another: all but the users.
SERVER = ["node", "device", *(name for name in _LABELS if name != "users")]
_streaming = partial(quantity, labels=_LABELS, experiments=["language-serving"])


def loads(data: Dataset, metric: str) -> Estimates:
    """A metric by server and number of users, in rising order; how long the load lasted, and by how many threads tokens
    were computed, is no label.
    """
    return data.summary("language-serving", metric).ascending(*SERVER, "users").without("seconds", "threads", "dtype")


@_streaming("language_serving.first_token_s", "s")
@says("On {node}, half of all answers begin within {value} ({labels})")
def first_token(data: Dataset) -> Estimates:
    """Median of the time from a request until its first token came."""
    return loads(data, "p50_first_token_latency")


@_streaming("language_serving.p99_first_token_s", "s")
@says("On {node}, 99 of 100 answers begin within {value} ({labels})")
def p99_first_token(data: Dataset) -> Estimates:
    """99th percentile of the time from a request until its first token came, of at least 100 answers in each round."""
    return loads(data, "p99_first_token_latency")


@_streaming("language_serving.p99_token_s", "s")
@says("On {node}, 99 of 100 tokens come within {value} of the one before ({labels})")
def p99_token(data: Dataset) -> Estimates:
    """99th percentile of the time between two tokens of an answer, of at least 100 in each round."""
    return loads(data, "p99_token_latency")


@_streaming("language_serving.answer_s", "s")
@says("On {node}, half of all answers are whole within {value} ({labels})")
def answer(data: Dataset) -> Estimates:
    """Median of the time from a request until its answer was whole."""
    return loads(data, "p50_answer_latency")


@_streaming("language_serving.user_tokens_per_s", "tokens/s")
@says("On {node}, each user's answer streams at {value} ({labels})")
def user_tokens_per_s(data: Dataset) -> Estimates:
    """Tokens a second of an answer after its first token, as its user sees them: the median over answers."""
    return loads(data, "user_tokens_per_s")


@_streaming("language_serving.tokens_per_s", "tokens/s")
@says("On {node}, a server writes {value} for all of its users together ({labels})")
def tokens_per_s(data: Dataset) -> Estimates:
    """Tokens that reach all users together, for each second under the whole load."""
    return loads(data, "tokens_per_s")


@_streaming("language_serving.failed_share", "1")
@says("On {node}, the share of answers that failed is {value} ({labels})")
def failed_share(data: Dataset) -> Estimates:
    """Share of the answers that broke off, had another number of tokens than asked for, or were refused."""
    return loads(data, "failed_share")
