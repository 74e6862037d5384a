"""What several quantities do with rates before they divide them: choose, name and subtract."""

from __future__ import annotations

from report.estimates import Estimates
from report.formatting import count


def most_threads(rates: Estimates, *by: str) -> Estimates:
    """Those with the most threads of each node, or of each group that agrees in these labels."""
    groups = [rates[name] for name in by or ("node",)]
    return rates.at(rates["threads"] == rates["threads"].groupby(groups).transform("max"))


def with_library(rates: Estimates) -> Estimates:
    """The same with a label `library`: its name, and on a CPU its number of threads."""
    pairs = rates.rows("backend", "threads")
    return rates.label(library=[f"{name}, {count(int(n), 'thread')}" if n else str(name) for name, n in pairs])


def over(above: Estimates, below: Estimates) -> Estimates:
    """Their ratio; `detail` says what is compared: 'A over B'."""
    ratio = above / below.label(rival=below["detail"])
    detail = [f"{mine} over {rival}".strip() for mine, rival in ratio.rows("detail", "rival")]
    return ratio.without("rival").label(detail=detail)


def complement(ratios: Estimates) -> Estimates:
    """1 less each ratio, none below zero: a share of time that is lost cannot be gained."""
    ends = {"estimate": "estimate", "low": "high", "high": "low"}
    values = {name: (1 - ratios.numbers(end)).clip(lower=0.0) for name, end in ends.items()}
    return Estimates(ratios.label(**values, se=ratios.numbers("estimate") * ratios.numbers("se")).frame, log=False)


def exact_where_equal(ratios: Estimates) -> Estimates:
    """The same, with no error where a ratio is 1: both sides are then the same measurement."""
    itself = ratios.numbers("estimate") == 1.0
    exact = ratios.label(se=ratios["se"].mask(itself, 0.0), df=ratios["df"].mask(itself, float("inf")))
    return Estimates.from_estimates(exact.frame)
