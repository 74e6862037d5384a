"""Quantities of language models as people run them: prompts, and tokens after them, one text at a time."""

from __future__ import annotations

from functools import partial

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import quantity, says
from report.quantities.memory import over_memory

EXPERIMENT = "language-models"
# Phases: a fresh prompt is read; tokens are written after one.
PROMPT, DECODE = "prompt", "decode"
_WORK = ("model", "format", "phase", "tokens")
_language = partial(quantity, experiments=[EXPERIMENT])
_of_points = partial(_language, labels=(*_WORK, "backend", "threads"))


@_of_points("language.tokens_per_s", "tokens/s")
@says("On {node}, a language model reads or writes {value} ({labels})")
def tokens_per_s(data: Dataset) -> Estimates:
    """Tokens over the median time: those of a prompt that is read, or those that are written after one.

    phase: prompt or decode. tokens: of the prompt, or of the text before the written ones. format: of the file.
    backend: the runtime.
    """
    calls = data.summary(EXPERIMENT).inverse().without("dtype")
    return calls.scaled_by(calls.numbers("tokens").where(calls["phase"] == PROMPT, 1))


@_language("language.fastest", "tokens/s", (*_WORK, "runtime", "threads"))
@says("On {node}, a language model reads or writes {value} in the fastest runtime ({labels})")
def fastest(data: Dataset) -> Estimates:
    """`language.tokens_per_s` of the fastest runtime and number of threads, for each format and for the best of all.

    format: of the file, or `best`, where `detail` names it. runtime: the fastest.
    """
    rates = tokens_per_s(data)
    by, of = ["node", "device", "model", "phase", "tokens"], ["threads"]
    each = rates.best([*by, "format"], of, ["backend", "threads"])
    best = rates.best(by, ["format", *of], ["backend", "threads"]).label(format="best")
    found = concat([each, best])
    return found.label(runtime=found["backend"]).without("backend")


@_of_points("language.bandwidth_share", "1", experiments=[EXPERIMENT, "bandwidth"])
@says("On {node}, writing text ({labels}) takes {value} of the memory's measured bandwidth")
def bandwidth_share(data: Dataset) -> Estimates:
    """Bytes that a written token reads (weights and cache, each once) over its time and over the measured bandwidth.

    Bandwidth as for `generation.bandwidth_share`; so are models left out that could stay in caches. It may exceed 1.
    """
    rates = data.summary(EXPERIMENT, value="bytes_per_s").only(phase=DECODE)
    bytes_read = data.summary(EXPERIMENT, value="bytes").only(phase=DECODE)
    return over_memory(data, rates, bytes_read).without("dtype")
