"""Published measurements on single chips: threads, memory, copies, products, and predictions for kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from report.data.dataset import Dataset
from report.data.table_rows import row_dicts
from report.estimates import Estimates, exact_estimates
from report.formatting import format_exact
from report.quantities.published import (
    LABELS,
    estimate_bounds,
    extreme_record,
    gpu_kind,
    groups_varying,
    machine_name,
    published_quantity,
    record_labels,
    with_speeds,
)

# MANY_CORES: fewest cores in a "many-core" CPU. MANY_KERNELS: fewest products, and also fewest memory passes, to fit.
# TOLERATED: scale for Cauchy's loss, in log(predicted / measured).
MANY_CORES, MANY_KERNELS, TOLERATED = 48, 8, 0.1
_STARTS = (1.0, 2.0, 5.0)
# Highest GPU clocks in Hz, from NVIDIA's data sheets and white papers.
CLOCKS = {"H100": 1.98e9, "H100 SXM": 1.98e9, "H200": 1.98e9, "H200 SXM": 1.98e9, "A100": 1.41e9, "A100 SXM": 1.41e9,
          "A100 PCIe": 1.41e9}  # fmt: skip
_HALF = ("float16", "bfloat16")
# Number of arrays that an element-wise kernel reads and writes.
_ARRAYS = {
    **dict.fromkeys(("add", "div", "mul", "pow"), 3),
    **dict.fromkeys(("addu", "divu", "mulu", "powu", "relu", "gelu", "tanh"), 2),
}


@published_quantity("published.mac_per_cycle", "MAC/cycle", (*LABELS, "machine", "dtype"))
def mac_per_cycle(data: Dataset) -> Estimates:
    """Multiply-adds per clock cycle in a whole GPU, in its fastest published product, by GPU kind and format.

    Half the product's operations per second are divided by the highest clock that the maker states. If the GPU ran at a
    lower clock, the true value is higher. Each source has its own case.
    """
    records = data.published.records
    kinds = records["gpu"].map(gpu_kind)
    products = records[(records["task"] == "product") & (records["measure"] == "flops") & kinds.isin(list(CLOCKS))]
    rows = []
    for (_, kind, _), same in products.groupby(["source", kinds, "dtype"], sort=False, observed=True):
        best = extreme_record(same, "value")
        rows.append(
            {**record_labels(data, best, "machine", "dtype"), "estimate": best["value"] / 2 / CLOCKS[str(kind)]}
        )
    return exact_estimates(rows)


@published_quantity("published.threads_for_90_percent", "1", ("source", "family", "machine", "model", "records"))
def threads_for_90_percent(data: Dataset) -> Estimates:
    """Fewest threads tried at which a GPU reached nine tenths of its best throughput.

    low is the next smaller thread count that was tried, because the true threshold lies between the two.
    """
    rows = []
    for labels, threads, rates in _thread_series(data):
        enough = int(np.flatnonzero(rates >= 0.9 * rates.max())[0])
        if enough == len(threads) - 1:
            # Throughput still grows at the most threads tried, so the peak was not reached.
            continue
        before = threads[enough - 1] if enough else threads[enough]
        bounds = {"estimate": threads[enough], "low": before, "high": threads[enough]}
        rows.append({**labels, **bounds, "detail": f"tried: {format_exact(threads[0])} to {format_exact(threads[-1])}"})
    return exact_estimates(rows)


@published_quantity("published.linearity", "1", ("source", "family", "machine", "model", "records"))
def linearity(data: Dataset) -> Estimates:
    """Growth in throughput, divided by the growth in the thread count: 1 if throughput is proportional to threads.

    Both growths start at the fewest threads tried. They end at the most threads tried that are at most half the threads
    to reach nine tenths of the peak; with these, the chip is certainly not full.
    """
    rows = []
    for labels, threads, rates in _thread_series(data):
        enough = int(np.flatnonzero(rates >= 0.9 * rates.max())[0])
        below = [last for last in range(1, enough) if threads[last] <= threads[enough] / 2]
        if not below:
            continue
        last = below[-1]
        rows.append(
            {
                **labels,
                "estimate": (rates[last] / rates[0]) / (threads[last] / threads[0]),
                "detail": f"{format_exact(threads[0])} to {format_exact(threads[last])} threads",
            }
        )
    return exact_estimates(rows)


def _thread_series(data: Dataset) -> Iterator[tuple[dict[str, Any], Any, Any]]:
    """Yield, per source, GPU and kernel: labels, ascending thread counts, and the best throughput at each."""
    records = data.published.records
    records = records[(records["task"] == "threads") & (records["device"] == "gpu")].dropna(subset=["threads"])
    for same in groups_varying(records, ("source", "gpu", "model", "measure", "unit"), "threads"):
        best = with_speeds(same).sort_values("speed").drop_duplicates("threads", keep="last").sort_values("threads")
        if len(best) < 4:
            continue
        first = extreme_record(best, "threads", least=True)
        labels = {
            "source": first["source"],
            "family": data.published.family(str(first["source"])),
            "machine": machine_name(first),
            "model": first["model"],
            "records": " ".join(best["key"]),
        }
        yield labels, best["threads"].to_numpy(float), best["speed"].to_numpy(float)


@published_quantity("published.memory_bound_share", "1", (*LABELS, "phase", "machine"), ceiling=1.0, bound=True)
def memory_bound_share(data: Dataset) -> Estimates:
    """Bounds on the share of GPU time limited by memory, by phase.

    decode: at least the share of time needed to read the weights once per token at the rated bandwidth, or the
    bandwidth share that the source reports. prefill: at most 1 minus the share of time needed for two operations per
    parameter and token, at the rate of the fastest 16-bit product in any record for that GPU kind. training: at most 1
    minus the share of the peak that the source reports. Rated figures are from data/reference/gpus.yaml.
    """
    records = data.published.records
    products = records[(records["task"] == "product") & (records["measure"] == "flops") & records["dtype"].isin(_HALF)]
    best = products.groupby(products["gpu"].map(gpu_kind), observed=True)["value"].max()
    rated, peaks = _rated_bandwidths(data), {str(kind): float(peak) for kind, peak in best.items()}
    rows = []
    for row in row_dicts(data.published.records):
        bounds = _memory_time_bounds(row, rated, peaks) if row["device"] == "gpu" else None
        if bounds is not None:
            phase, low, high = bounds
            labels = record_labels(data, row, "machine")
            bound = low if phase == "decode" else high
            rows.append({**labels, "phase": phase, "estimate": bound, "low": low, "high": high, "detail": row["note"]})
    return exact_estimates(rows)


def _rated_bandwidths(data: Dataset) -> dict[str, float]:
    """Return rated memory bandwidth by GPU kind, except for kinds with more than one rating."""
    ratings_by_kind: dict[str, set[float]] = {}
    for name, entry in data.reference.items():
        if name.endswith(".memory_bytes_per_s") and entry["status"] == "verified":
            ratings_by_kind.setdefault(gpu_kind(str(entry["subject"])), set()).add(float(entry["value"]))
    return {kind: ratings.pop() for kind, ratings in ratings_by_kind.items() if len(ratings) == 1}


def _memory_time_bounds(
    row: Mapping[str, Any], rated: Mapping[str, float], peaks: Mapping[str, float]
) -> tuple[str, float, float] | None:
    """Return the phase, and bounds on the share of time limited by memory; None if the record gives no bound."""
    if row["measure"] == "share" and row["task"] == "train":
        return "training", 0.0, 1 - float(row["value"])
    if row["measure"] == "share" and row["task"] == "generate":
        return "decode", float(row["value"]), 1.0
    kind = gpu_kind(str(row["gpu"]))
    if row["measure"] != "rate" or (row["gpus"] == row["gpus"] and row["gpus"] > 1):
        return None
    if row["task"] == "generate" and row["batch"] == 1 and kind in rated and row["model_bytes"] > 0:
        return "decode", row["value"] * row["model_bytes"] / rated[kind], 1.0
    if row["task"] == "prompt" and row["parameters"] > 0 and row["dtype"] == "float16" and kind in peaks:
        return "prefill", 0.0, max(0.0, 1 - row["value"] * 2 * row["parameters"] / peaks[kind])
    return None


@published_quantity(
    "published.memory_over_copy", "1", ("source", "family", "machine", "direction", "host_memory", "records")
)
def memory_over_copy(data: Dataset) -> Estimates:
    """Best memory pass rate on a GPU, relative to the best copy rate between the GPU and its host.

    Both are from the same card and source.
    """
    records = data.published.records
    records = records[(records["device"] == "gpu") & (records["measure"] == "bandwidth")]
    rows = []
    for (source, _), same in records.groupby(["source", "gpu"], sort=False, observed=True):
        memory = same[same["task"] == "triad"]
        for task, direction in (("copy-in", "host_to_device"), ("copy-out", "device_to_host")):
            copies = same[same["task"] == task]
            pinned = copies["copies"] == "pinned"
            for group, host in ((copies[pinned], "pinned"), (copies[~pinned], "not told")):
                if not len(memory) or not len(group):
                    continue
                above, below = extreme_record(memory, "value"), extreme_record(group, "value")
                rows.append(
                    {
                        "source": source,
                        "family": data.published.family(str(source)),
                        "machine": gpu_kind(str(below["gpu"])),
                        "direction": direction,
                        "host_memory": host,
                        "records": f"{above['key']} {below['key']}",
                        "estimate": above["value"] / below["value"],
                    }
                )
    return exact_estimates(rows)


@published_quantity("published.product_lead", "1", ("source", "family", "cpu", "copied", "records"), bound=True)
def product_lead(data: Dataset) -> Estimates:
    """Upper bound on a GPU's lead over many cores in one float32 product (about 1,000 by 1,000), copies included.

    The CPU's time with its best library is divided by the time to copy two such matrices to a GPU and one back, at the
    fastest pinned rates in any record. Arithmetic on the GPU is taken as free.
    """
    records = data.published.records
    copies = records[(records["measure"] == "bandwidth") & records["task"].isin(("copy-in", "copy-out"))]
    products = records[(records["task"] == "product") & (records["device"] == "cpu") & (records["measure"] == "flops")]
    products = products[(products["cores"] >= MANY_CORES) & products["model"].isin(("960x960x960", "1024x1024x1024"))]
    ways = [copies[copies["task"] == task] for task in ("copy-in", "copy-out")]
    if not len(products) or not all(map(len, ways)):
        return exact_estimates([])
    fastest = [extreme_record(way, "value") for way in ways]
    rows = []
    for _, same in products[products["dtype"] == "float32"].groupby(["source", "cpu"], sort=False, observed=True):
        cpu = extreme_record(same, "value")
        n = int(str(cpu["model"]).partition("x")[0])
        matrix_bytes = 4 * n * n
        copied = 2 * matrix_bytes / fastest[0]["value"] + matrix_bytes / fastest[1]["value"]
        families = {data.published.family(str(record["source"])) for record in (cpu, *fastest)}
        rows.append(
            {
                "source": " and ".join(dict.fromkeys(str(record["source"]) for record in (cpu, *fastest))),
                "family": " and ".join(sorted(families)),
                "cpu": f"{machine_name(cpu)}, {format_exact(cpu['cores'])} cores",
                "copied": f"{gpu_kind(str(fastest[0]['gpu']))}",
                "records": " ".join(record["key"] for record in (cpu, *fastest)),
                "estimate": 2 * n**3 / cpu["value"] / copied,
                "low": 0.0,
            }
        )
    return exact_estimates(rows)


@published_quantity("published.roofline_error", "1", ("source", "family", "machine", "ceilings", "records"))
def roofline_error(data: Dataset) -> Estimates:
    """Median |predicted / measured - 1| over kernels, from a peak and a bandwidth fitted to other kernels.

    The kernels are products and memory passes, whose operations and bytes follow from their shapes. Every second kernel
    is used to fit, with the method in `roofline.prediction_error`, and the others to judge. ceilings: fitted (both
    numbers), arithmetic alone, or bandwidth alone. Memory passes without arithmetic are judged only for `fitted`.
    """
    rows = []
    for (source, kind), kernels in _kernel_records(data):
        fitted, judged = kernels.iloc[::2], kernels.iloc[1::2]
        flop, moved, seconds = (fitted[name].to_numpy(float) for name in ("flop", "bytes", "value"))
        alone = [float(np.nanmedian(seconds / targets)) for targets in (np.where(flop > 0, flop, np.nan), moved)]
        for ceilings, costs in (
            ("fitted", _fit_costs(flop, moved, seconds, alone)),
            ("arithmetic alone", (alone[0], 0.0)),
            ("bandwidth alone", (0.0, alone[1])),
        ):
            # Arithmetic alone cannot predict kernels without arithmetic.
            targets = judged if ceilings == "fitted" else judged[judged["flop"] > 0]
            predicted = np.maximum(targets["flop"] * costs[0], targets["bytes"] * costs[1])
            rows.append(
                {
                    "source": source,
                    "family": data.published.family(str(source)),
                    "machine": kind,
                    "ceilings": ceilings,
                    "records": " ".join(targets["key"]),
                    "estimate": float(np.median(np.abs(predicted / targets["value"] - 1))),
                    "detail": f"{len(targets)} kernels judged",
                }
            )
    return exact_estimates(rows)


def _kernel_records(data: Dataset) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
    """Yield float32 kernels with their operations and bytes, per source and GPU with enough products and memory passes.

    Operations and bytes follow from the shape: a product reads two matrices and writes one, a pass reads and writes its
    arrays.
    """
    records = data.published.records
    records = records[(records["measure"] == "time") & (records["dtype"] == "float32") & (records["device"] == "gpu")]
    m, n, k, products = (records[name] for name in ("m", "n", "k", "products"))
    passed = 4 * records["model"].map(_ARRAYS).astype(float) * m * n
    moved = (4 * (m * k + k * n + m * n) * products).fillna(passed)
    records = records.assign(flop=(2 * m * n * k * products).fillna(0.0), bytes=moved).dropna(subset=["bytes"])
    for (source, gpu), same in records.groupby(["source", "gpu"], sort=True, observed=True):
        if min((same["flop"] > 0).sum(), (same["flop"] == 0).sum()) >= MANY_KERNELS:
            yield (str(source), gpu_kind(str(gpu))), same.sort_values("key")


def _fit_costs(flop: Any, moved: Any, seconds: Any, start: list[float]) -> tuple[float, float]:
    """Fit seconds per operation and per byte to kernels, by least squares on logarithms with Cauchy's loss."""
    from scipy.optimize import least_squares

    def errors(logs: Any) -> Any:
        return np.log(np.maximum(flop * math.exp(logs[0]), moved * math.exp(logs[1])) / seconds)

    def slopes(logs: Any) -> Any:
        arithmetic = flop * math.exp(logs[0]) > moved * math.exp(logs[1])
        return np.column_stack([arithmetic, ~arithmetic]).astype(float)

    # Try several starts, because the loss has local minima. The fit is judged by its median error, so keep the result
    # with the smallest median error. Exact slopes and tight limits give the same digits on any processor.
    starts = [np.log(start) - [math.log(a), math.log(b)] for a in _STARTS for b in _STARTS]
    limits = dict.fromkeys(("xtol", "ftol", "gtol"), 1e-12)
    fits = [least_squares(errors, at, slopes, loss="cauchy", f_scale=TOLERATED, **limits).x for at in starts]
    best = min(fits, key=lambda logs: float(np.median(np.abs(errors(logs)))))
    return math.exp(best[0]), math.exp(best[1])


@published_quantity("published.bandwidth_error_over_compute_error", "1", ("source", "family", "machine", "records"))
def bandwidth_error_over_compute_error(data: Dataset) -> Estimates:
    """Median error in times predicted from bandwidth alone, relative to predictions from arithmetic alone.

    Only kernels with arithmetic are included.
    """
    errors = roofline_error(data)
    if not len(errors):
        return errors
    bandwidth_errors = errors.filter(ceilings="bandwidth alone").drop_labels("ceilings")
    return bandwidth_errors / errors.filter(ceilings="arithmetic alone").drop_labels("ceilings")


@published_quantity("published.gpu_busy_share", "1", (*LABELS, "machine", "dtype", "requests_per_s"), bound=True)
def gpu_busy_share(data: Dataset) -> Estimates:
    """Upper bound on the share of time that a GPU is busy: request time times requests per second.

    It is an upper bound, because all request time counts as GPU time. The latency is for one request at a time, on one
    GPU. requests_per_s: 1, 5 or 10.
    """
    records = data.published.records
    alone = (records["device"] == "gpu") & (records["measure"] == "latency") & (records["gpus"].fillna(1) == 1)
    rows = []
    for row in row_dicts(records[alone & ~(records["batch"] > 1) & (records["task"] == "infer")]):
        labels = record_labels(data, row, "machine", "dtype")
        for load in (1.0, 5.0, 10.0):
            rows.append(
                {**labels, "batch": None, "requests_per_s": load, **estimate_bounds(row, load), "detail": row["note"]}
            )
    return exact_estimates(rows)


@published_quantity("published.operator_share", "1", (*LABELS, "machine", "operators"), ceiling=1.0)
def operator_share(data: Dataset) -> Estimates:
    """Share of a training step that a class of operators takes, as reported.

    setting: whether the share is of time or of operations. operators: the class, such as matrix products; `all others`
    is what matrix products leave.
    """
    records = data.published.records
    rows = []
    for row in row_dicts(records[(records["task"] == "operators") & (records["measure"] == "share")]):
        labels = record_labels(data, row, "machine")
        shares = {row["variant"]: row["value"]}
        if row["variant"] == "matrix products":
            shares["all others"] = 1 - row["value"]
        rows += [
            {**labels, "operators": name, "estimate": value, "detail": row["note"]} for name, value in shares.items()
        ]
    return exact_estimates(rows)


_CHAIN = ("source", "family", "model", "gpu", "cpu", "precision", "records")


@published_quantity("published.chain_speed_ratio", "1", _CHAIN)
def chain_speed_ratio(data: Dataset) -> Estimates:
    """Steps per second of one chain on a CPU core, divided by those on one GPU thread.

    Both sides run the same steps in one source, at two lengths or more. A step's time is the difference of the times of
    the longest and the shortest chain, divided by that of their steps, so that starting and compiling drop out.
    """
    return exact_estimates(list(_chain_rows(data)))


@published_quantity("published.gpu_over_cpu_one_thread", "1", _CHAIN)
def gpu_over_cpu_one_thread(data: Dataset) -> Estimates:
    """Steps per second of one chain on one GPU thread, divided by those on a CPU core: 1 / chain_speed_ratio."""
    return exact_estimates([{**row, "estimate": 1 / row["estimate"]} for row in _chain_rows(data)])


def _chain_rows(data: Dataset) -> Iterator[dict[str, Any]]:
    records = data.published.records
    records = records[(records["task"] == "chain") & (records["measure"] == "time")].dropna(subset=["items"])
    for same in groups_varying(records, ("source", "model", "dtype"), "device"):
        gpu, cpu = (_step_time(same[same["device"] == device]) for device in ("gpu", "cpu"))
        if gpu and cpu:
            first = same.iloc[0]
            yield {
                "source": first["source"],
                "family": data.published.family(str(first["source"])),
                "model": first["model"],
                "gpu": gpu_kind(str(gpu[1]["gpu"])),
                "cpu": machine_name(cpu[1]),
                "precision": f"{first['dtype']} over {first['dtype']}" if first["dtype"] else "",
                "records": " ".join(same["key"]),
                "estimate": gpu[0] / cpu[0],
                "detail": f"{gpu[0] * 1e9:.3g} ns and {cpu[0] * 1e9:.3g} ns a step",
            }


def _step_time(records: pd.DataFrame) -> tuple[float, dict[str, Any]] | None:
    """Return seconds per step by the longest and the shortest chain, and the longest one's record."""
    long, short = extreme_record(records, "items"), extreme_record(records, "items", least=True)
    steps = long["items"] - short["items"]
    return ((long["value"] - short["value"]) / steps, long) if steps else None


@published_quantity("published.whole_chip_ratio", "1", (*LABELS, "gpu", "cpu", "precision"))
def whole_chip_ratio(data: Dataset) -> Estimates:
    """Multiply-adds per second of a whole GPU, divided by those of the fastest machine without GPUs in that format.

    One program measured both sides, in one source, on registers alone. The fastest GPU of a kind counts.
    """
    records = data.published.records
    records = records[(records["task"] == "threads") & (records["measure"] == "flops") & records["threads"].isna()]
    rows = []
    for same in groups_varying(records[records["dtype"] != ""], ("source", "model", "setting", "dtype"), "device"):
        cpu = extreme_record(same[same["device"] == "cpu"], "value")
        gpus = same[same["device"] == "gpu"]
        for kind, entries in gpus.groupby(gpus["gpu"].map(gpu_kind), observed=True):
            best = extreme_record(entries, "value")
            rows.append(
                {
                    **record_labels(data, best),
                    "gpu": kind,
                    "cpu": machine_name(cpu),
                    "precision": f"{best['dtype']} over {cpu['dtype']}",
                    "records": f"{best['key']} {cpu['key']}",
                    "estimate": best["value"] / cpu["value"],
                    "detail": cpu["note"],
                }
            )
    return exact_estimates(rows)
