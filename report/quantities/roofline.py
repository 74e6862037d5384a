"""The roofline: machine balance, and the share of step time that memory limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from report.data.dataset import Dataset, cached_per_dataset
from report.estimates import VALUES, Estimates, concat_estimates, exact_estimates, merge_source_rows
from report.quantities import gemm, memory, quantity

_LABELS = ("model", "batch", "phase", "dtype", "backend", "threads")
_PLACE = ["node", "device", "dtype", "threads"]
_CEILINGS = ["gemm", "bandwidth"]
_BELOW = re.compile(r"(?P<measure>\w+)_below\.(?P<limit>[\d.]+)_share")
_roofline_quantity = partial(quantity, experiments=["roofline", *_CEILINGS])


@cached_per_dataset
def peak_arithmetic(data: Dataset) -> Estimates:
    """Return peak arithmetic in FLOP/s by node, device, dtype and threads.

    The peak is the faster of two rates: that of the study's own multiply-add kernel (CPUs only), and that of the
    fastest matrix product with any library and shape. The product is needed because our own kernels use no matrix
    units. `detail` names the faster.
    """
    products = gemm.product_rate(data).filter(backend="best").keep_labels(*_PLACE)
    kernel = gemm.peak_rate(data, "fma").label(of="multiply-adds in registers")
    return concat_estimates([kernel, products.label(of=products["detail"])]).best_per_group(_PLACE, detail=["of"])


@cached_per_dataset
def peak_bandwidth(data: Dataset) -> Estimates:
    """Return memory bandwidth in bytes/s by node, device and threads: the fastest pass of any kind and format."""
    return (
        memory.bandwidth_rate(data)
        .filter(backend="best")
        .best_per_group(["node", "device", "threads"], detail=["op", "dtype"])
    )


@quantity("roofline.balance", "FLOP/B", ("dtype", "threads"), experiments=_CEILINGS, reads=("peak",))
def machine_balance(data: Dataset) -> Estimates:
    """Measured peak arithmetic, divided by measured bandwidth: work with a lower intensity is limited by memory.

    Intensity is FLOP per byte. Source: the ridge point in Williams, Waterman & Patterson 2009, "Roofline",
    Communications of the ACM 52(4):65.
    """
    return peak_arithmetic(data) / peak_bandwidth(data)


@_roofline_quantity("roofline.intensity_over_balance", "1", _LABELS, reads=("peak",))
def intensity_over_balance(data: Dataset) -> Estimates:
    """FLOP in a step's products, divided by the bytes that they have to move, relative to the machine's balance.

    FLOP and bytes are exact counts, so the interval comes from the balance alone.
    """
    return data.summary("roofline", "product_intensity") / machine_balance(data)


@cached_per_dataset
def intensity_distribution(data: Dataset, measure: str) -> dict[tuple[Any, ...], dict[str, NDArray[Any]]]:
    """Return, per step, the cumulative share of `measure` (time, bytes, flop) by operator intensity.

    Each key holds the step's labels as (name, value) pairs. Each value is a dictionary of arrays with shape (limits,):
    `limit`, the ascending intensity limits in FLOP/B, and the columns VALUES, which give the share below each limit.
    """
    metrics = sorted(data.table.loc[data.table["experiment"] == "roofline", "metric"].unique())
    parts = [
        data.summary("roofline", metric).label(limit=float(match["limit"]))
        for metric in metrics
        if (match := _BELOW.fullmatch(metric)) and match["measure"] == measure
    ]
    labels = [name for name in concat_estimates(parts).labels if name != "limit"]
    shares = concat_estimates(parts).sort_by(*labels, "limit")
    starts = np.flatnonzero(~shares.frame.duplicated(labels))
    columns = {name: np.split(shares[name].to_numpy(), starts[1:]) for name in ("limit", *VALUES)}
    return {
        tuple(zip(labels, key, strict=True)): {name: steps[at] for name, steps in columns.items()}
        for at, key in enumerate(shares.take(starts).rows(*labels))
    }


@_roofline_quantity("roofline.memory_bound_share", "1", _LABELS, reads=("peak",))
def memory_bound_share(data: Dataset) -> Estimates:
    """Share of operator time in operators with an intensity below the machine's balance.

    For these operators, bandwidth is the lower ceiling, even if they do not attain it. low: the share up to the last
    recorded intensity below the balance's interval, less the uncertainty from rounds. high: the share up to the first
    recorded intensity above that interval, plus the uncertainty from rounds.
    """
    balances = {tuple(row[name] for name in _PLACE): row for row in machine_balance(data).frame.to_dict("records")}
    rows = []
    for key, part in intensity_distribution(data, "time").items():
        labels = dict(key)
        balance = balances.get(tuple(labels[name] for name in _PLACE))
        if balance is not None:
            values = {
                **share_below(part, balance),
                "df": np.nan,
                "n_rounds": part["n_rounds"].min(),
                "n_samples": part["n_samples"].sum(),
                "detail": f"balance {balance['estimate']:.3g} FLOP/B",
                "source_rows": merge_source_rows([*part["source_rows"], balance["source_rows"]]),
            }
            rows.append({**labels, **values})
    return exact_estimates(rows)


def share_below(part: Mapping[str, NDArray[Any]], balance: Mapping[Any, Any]) -> dict[str, float]:
    """Return a distribution's share below the balance, as estimate, low and high.

    low and high cover the uncertainty both in the shares and in the balance.
    """
    limits, shares = (np.asarray(part[name], float) for name in ("limit", "estimate"))
    # A share of exactly 0 or 1 means that no operators, or all operators, are below the limit. If several rounds agree
    # on this, the share is certain, so low and high equal it.
    counted = ((shares == 0) | (shares == 1)) & (np.asarray(part["n_rounds"], int) > 1)
    lows, highs = (np.where(counted, shares, np.asarray(part[end], float)) for end in ("low", "high"))
    low = high = np.nan
    if not np.isnan([balance["low"], balance["high"]]).any():
        floor, ceiling = np.flatnonzero(limits <= balance["low"]), np.flatnonzero(limits >= balance["high"])
        low = float(lows[floor[-1]]) if len(floor) else 0.0
        high = float(highs[ceiling[0]]) if len(ceiling) else 1.0
    return {"estimate": float(np.interp(np.log(balance["estimate"]), np.log(limits), shares)), "low": low, "high": high}


@quantity("inference.matmul_time_share", "1", _LABELS, experiments=["roofline"])
def matmul_time_share(data: Dataset) -> Estimates:
    """Share of operator time in products, convolutions, attention and recurrent layers, for inference.

    The profiler measures the times. The phases are forward, prefill and decode.
    """
    return data.summary("roofline", "matmul_time_share").filter(phase=["forward", "prefill", "decode"])
