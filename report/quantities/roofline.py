"""Quantities of the roofline: a machine's balance, and on which side of it the time of a step is spent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from report.data.dataset import Dataset, once
from report.estimates import VALUES, Estimates, concat, merged
from report.quantities import gemm, memory, quantity

_LABELS = ("model", "batch", "phase", "dtype", "threads")
_PLACE = ["node", "device", "dtype", "threads"]
_NEEDS = {"experiments": ["roofline"], "device": "any"}
_BELOW = re.compile(r"(?P<measure>\w+)_below\.(?P<limit>[\d.]+)_share")


@once
def arithmetic(data: Dataset) -> Estimates:
    """Peak arithmetic in FLOP/s by node, device, dtype and threads.

    The faster of the study's own multiply-add kernel (CPUs) and the fastest matrix product of any
    library and shape: no kernel of ours reaches matrix units. `detail` says which.
    """
    products = gemm.rate(data)
    found = [gemm.peak(data, "fma").label(of="multiply-adds in registers")] if len(gemm.peak(data, "fma")) else []
    if len(products):
        best = products.only(backend="best")
        found.append(best.by(*_PLACE).label(of=list(best.frame["detail"])))
    return concat(found).best(_PLACE, of=["of"]) if found else Estimates.empty()


@once
def bandwidth(data: Dataset) -> Estimates:
    """Bandwidth of memory in bytes/s by node, device and threads: the fastest pass of any kind and format."""
    rates = memory.bandwidth_rate(data)
    if not len(rates):
        return rates
    return rates.only(backend="best").best(["node", "device", "threads"], of=["op", "dtype"])


@quantity(
    "roofline.balance",
    unit="FLOP/B",
    needs={"experiments": ["gemm", "bandwidth"], "device": "any"},
    labels=("dtype", "threads"),
    says="{node} can do {value} for each byte that its memory moves ({labels})",
)
def balance(data: Dataset) -> Estimates:
    """Measured peak arithmetic over measured bandwidth: work of a lower intensity is limited by memory.

    Source: Williams, Waterman & Patterson 2009, "Roofline", Communications of the ACM 52(4):65, the ridge point.
    """
    peak, moved = arithmetic(data), bandwidth(data)
    return peak / moved if len(peak) and len(moved) else Estimates.empty()


@quantity(
    "roofline.intensity_over_balance",
    unit="1",
    needs={"experiments": ["roofline", "gemm", "bandwidth"], "device": "any"},
    labels=_LABELS,
    says="On {node}, the products of a step do {value} times the operations per byte that balance memory ({labels})",
)
def intensity_over_balance(data: Dataset) -> Estimates:
    """FLOP of a step's products over the bytes that they have to move, over the machine's balance.

    FLOP and bytes are counted; the interval is that of the balance.
    """
    return data.summary("roofline", "product_intensity") / balance(data)


@once
def distribution(data: Dataset, measure: str) -> dict[tuple[Any, ...], dict[str, NDArray[Any]]]:
    """For each step the share of `measure` (time, bytes, flop) in operators up to an intensity.

    By rising `limit` (FLOP/B), the columns of cells, each of shape (limits,); keys: the step's labels as sorted items.
    """
    table = data.table
    told = sorted(table.loc[table["experiment"] == "roofline", "metric"].unique())
    names = {name: float(seen["limit"]) for name in told if (seen := _BELOW.fullmatch(name))
             and seen["measure"] == measure}  # fmt: skip
    parts = [data.summary("roofline", name).label(limit=limit) for name, limit in names.items()]
    parts = [part for part in parts if len(part)]
    if not parts:
        return {}
    labels = [name for name in parts[0].labels if name != "limit"]
    frame = pd.concat([part.frame for part in parts], ignore_index=True).dropna(subset=labels)
    frame = frame.sort_values([*labels, "limit"], kind="stable", ignore_index=True)
    starts = np.flatnonzero(~frame.duplicated(labels).to_numpy(bool))
    columns = {name: np.split(frame[name].to_numpy(), starts[1:]) for name in ("limit", *VALUES)}
    keys = frame.loc[starts, labels].itertuples(index=False, name=None)
    return {
        tuple(zip(labels, key, strict=True)): {name: parts[at] for name, parts in columns.items()}
        for at, key in enumerate(keys)
    }


@quantity(
    "roofline.memory_bound_share",
    unit="1",
    needs={"experiments": ["roofline", "gemm", "bandwidth"], "device": "any"},
    labels=_LABELS,
    says="On {node}, {value} of the operators' time is spent in operators that memory limits ({labels})",
)
def memory_bound_share(data: Dataset) -> Estimates:
    """Share of operator time in operators whose intensity is below the machine's balance.

    Bandwidth is then the lower of their two ceilings, whether they reach it or not. low is the share up
    to the last intensity told below the balance's interval, less the uncertainty from rounds; high that up to
    the first one above it.
    """
    limits = {tuple(row[name] for name in _PLACE): row for row in balance(data).frame.to_dict("records")}
    rows = []
    for key, part in distribution(data, "time").items():
        labels = dict(key)
        at = limits.get(tuple(labels[name] for name in _PLACE))
        if at is None:
            continue
        counts = {"n_rounds": part["n_rounds"].min(), "n_samples": part["n_samples"].sum()}
        told = f"balance {at['estimate']:.3g} FLOP/B"
        values = {**share_below(part, at), "se": np.nan, "df": np.nan, **counts}
        rows.append(
            {**labels, **values, "detail": told, "source_rows": merged([*part["source_rows"], at["source_rows"]])}
        )
    return Estimates(pd.DataFrame(rows), log=False) if rows else Estimates.empty()


def share_below(part: Mapping[str, NDArray[Any]], at: Any) -> dict[str, float]:
    """estimate, low and high of a distribution at an intensity that has itself an estimate, low and high."""
    x, estimate = (np.asarray(part[name], float) for name in ("limit", "estimate"))
    # That all operators lie below an intensity, or none, is counted, whatever they took.
    told = ((estimate == 0) | (estimate == 1)) & (np.asarray(part["n_rounds"], int) > 1)
    lows, highs = (np.where(told, estimate, np.asarray(part[end], float)) for end in ("low", "high"))
    if np.isnan(at["low"]) or np.isnan(at["high"]):
        low = high = np.nan
    else:
        floor, ceiling = np.flatnonzero(x <= at["low"]), np.flatnonzero(x >= at["high"])
        low = float(lows[floor[-1]]) if len(floor) else 0.0
        high = float(highs[ceiling[0]]) if len(ceiling) else 1.0
    return {"estimate": float(np.interp(np.log(at["estimate"]), np.log(x), estimate)), "low": low, "high": high}


@quantity(
    "inference.matmul_time_share",
    unit="1",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, matrix products and convolutions take {value} of the time of inference ({labels})",
)
def matmul_time_share(data: Dataset) -> Estimates:
    """Share of operator time in products, convolutions, attention and recurrent layers, without training.

    Timed by the profiler; phases forward, prefill and decode.
    """
    cells = data.summary("roofline", "matmul_time_share")
    return cells.only(phase=["forward", "prefill", "decode"]) if len(cells) else cells
