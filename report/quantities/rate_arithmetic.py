"""Functions that select, label, divide and subtract rates, shared by several quantities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from report.estimates import RUNTIMES, Estimates, concat_estimates
from report.formatting import format_count

# Labels in results from `best_ratios`, besides node, device and the labels in `by`.
BEST_LABELS = ("precision", "dtype", *RUNTIMES)


def most_threads(rates: Estimates, *by: str) -> Estimates:
    """Select the rates with the most threads on each node, or in each group that agrees in the labels `by`."""
    groups = [rates[name] for name in by or ("node",)]
    return rates.take(rates["threads"] == rates["threads"].groupby(groups, observed=True).transform("max"))


def with_library(rates: Estimates) -> Estimates:
    """Add a label `library`: the backend's name, and on a CPU its thread count."""
    pairs = rates.rows("backend", "threads")
    return rates.label(library=[f"{name}, {format_count(int(n), 'thread')}" if n else str(name) for name, n in pairs])


# Function that divides estimates; Any stands for Estimates or a subclass.
Divide = Callable[[Estimates, Estimates], Any]


def ratio_with_detail(above: Estimates, below: Estimates, divide: Divide = Estimates.__truediv__) -> Any:
    """Divide `above` by `below`, and set `detail` to 'A over B', where A and B are the two details."""
    ratio = divide(above, below.label(rival=below["detail"]))
    detail = [f"{mine} over {rival}".strip() if rival else mine for mine, rival in ratio.rows("detail", "rival")]
    return ratio.drop_labels("rival").label(detail=detail)


def best_ratios(
    gpu: Estimates, cpu: Estimates, by: Sequence[str], of: Sequence[str] = (), divide: Divide = Estimates.__truediv__
) -> list[Any]:
    """Divide each GPU's best rate by a CPU's best rate: at equal precision, and with each side at its best precision.

    gpu, cpu: rates with a label `backend`.
    by: labels that must be equal on both sides, in addition to `node` and `device`. If only one side has one of these
    labels, each of the label's values gives a case.
    of: labels whose values `detail` gives for each side.
    If the rates have no label `dtype`, there is a single comparison, and no label `precision`. The labels runtime and
    cpu_runtime name the backends on the GPU and on the CPU.
    """
    precisions = (("equal", ["dtype"]), ("best", [])) if "dtype" in gpu.labels else (("", []),)
    result = []
    for precision, agree in precisions:
        details = [*of, *(["dtype"] if precision == "best" else [])]
        above, below = (
            _best_rates(side, ["node", "device", *by, *agree], details, runtime)
            for side, runtime in zip((gpu, cpu), RUNTIMES, strict=True)
        )
        ratios = ratio_with_detail(above, below, divide)
        result.append(ratios.label(precision=precision) if precision else ratios)
    return result


def best_over_host(rates: Estimates, by: Sequence[str], of: Sequence[str] = ()) -> Estimates:
    """Divide each GPU's best rate by its host CPU's best, as in `best_ratios`."""
    return concat_estimates(
        best_ratios(rates.filter(device="gpu"), rates.filter(device="cpu").drop_labels("device"), by, of)
    )


def _best_rates(rates: Estimates, by: Sequence[str], of: Sequence[str], runtime: str) -> Estimates:
    """Select the best rate per group that agrees in the labels `by`.

    of: labels whose values `detail` gives. runtime: new name for the label `backend`.
    """
    keys, details = ([name for name in names if name in rates.labels] for names in (by, of))
    best = rates.best_per_group(keys, details, ["backend"])
    return best.label(**{runtime: best["backend"]}).drop_labels("backend")


def complement(ratios: Estimates) -> Estimates:
    """Subtract each ratio from 1, and raise negative results to 0, because a share lost cannot be negative."""
    ends = {"estimate": "estimate", "low": "high", "high": "low"}
    values = {name: (1 - ratios.numbers(end)).clip(lower=0.0) for name, end in ends.items()}
    return Estimates(ratios.label(**values, se=ratios.numbers("estimate") * ratios.numbers("se")).frame, log=False)


def without_error_where_equal(ratios: Estimates) -> Estimates:
    """Set the error to 0 where a ratio is 1, because both sides are then the same measurement."""
    itself = ratios.numbers("estimate") == 1.0
    exact = ratios.label(se=ratios["se"].mask(itself, 0.0), df=ratios["df"].mask(itself, float("inf")))
    return Estimates.from_estimates(exact.frame)
