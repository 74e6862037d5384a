"""Published speeds on the same work: GPU speed-ups, and gains from batches, libraries and cores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from report.data.dataset import Dataset
from report.estimates import Estimates, exact_estimates
from report.formatting import format_count, format_exact
from report.quantities.published import (
    LABELS,
    extreme_record,
    gpu_kind,
    groups_varying,
    machine_name,
    published_quantity,
    record_labels,
    row_groups_varying,
    value_or_default,
    with_speeds,
)

# Fewest cores per machine to count as a server.
SERVER_CORES = 32
# RECURRENT: MLPerf Inference's recurrent network. TRANSFORMER: the transformer to compare it with.
RECURRENT, TRANSFORMER = "RNN-T", "BERT-large"
_SPEEDS = ("time", "rate", "latency", "bandwidth", "flops")
# PLAIN: tasks without a choice of number format. _NO_FORMAT: the value of their label `precision`.
PLAIN, _NO_FORMAT = ("table", "triad", "load-latency", "copy-in", "copy-out", "branch"), "the same on both sides"
_SAME_WORK = ("source", "task", "model", "setting", "batch", "measure", "unit")
# Baseline: one processor in a server.
PROCESSOR = "server processor"
SPEEDUP_LABELS = (*LABELS, "gpu", "cpu", "baseline", "precision", "transfers", "cpu_result")
# Baseline that each back end is compared to. A variant that is not listed is compared to float32.
_AGAINST = {"vulkan": "cuda", "opencl": "cuda", "cudnn": "plain kernels"}


def speedup_rows(data: Dataset, measures: tuple[str, ...] = _SPEEDS) -> Iterator[dict[str, Any]]:
    """Yield one GPU's speed relative to one machine without GPUs, by source, work, GPU kind and baseline.

    If several entries have the same GPU kind and format, those with the fewest GPUs and the fastest library give the
    median and the range. The CPU is, for each baseline, the fastest entry in any format among those with the fewest
    machines.
    """
    records = with_speeds(data.published.records)
    records = records[records["measure"].isin(measures)]
    records = records.assign(
        baseline=np.where(_is_server(records), "server", "one processor"), kind=records["gpu"].map(gpu_kind)
    )
    for same in row_groups_varying(records, _SAME_WORK, "device"):
        gpus = _group_rows([row for row in same if row["device"] == "gpu"], "kind", "dtype")
        for (baseline,), below in _group_rows([row for row in same if row["device"] == "cpu"], "baseline").items():
            cpu = max(_with_fewest(below, "nodes"), key=itemgetter("speed"))
            for (kind, _), entries in gpus.items():
                yield _speedup_row(data, cpu, baseline, kind, entries)


def _group_rows(rows: Iterable[dict[str, Any]], *names: str) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Group the records that agree in some columns, and sort the groups by these columns."""

    def key(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(row[name] for name in names)

    return {values: list(group) for values, group in groupby(sorted(rows, key=key), key)}


def _with_fewest(rows: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Select the records with the fewest GPUs or machines; a number that is not reported counts as 1."""
    fewest = min(value_or_default(row[name], 1.0) for row in rows)
    return [row for row in rows if value_or_default(row[name], 1.0) == fewest]


def _speedup_row(
    data: Dataset, cpu: Mapping[str, Any], baseline: str, kind: str, gpus: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    variants = _group_rows(_with_fewest(gpus, "gpus"), "variant").values()
    entries = max(variants, key=_median_speed)
    formats = str(entries[0]["dtype"]), str(cpu["dtype"])
    many, machines = value_or_default(entries[0]["gpus"], 1.0), value_or_default(cpu["nodes"], 1.0)
    scaled = " and ".join(
        format_count(int(number), name) for number, name in ((many, "GPU"), (machines, "machine")) if number > 1
    )
    return {
        "source": cpu["source"],
        "family": data.published.family(str(cpu["source"])),
        "task": cpu["task"],
        "model": cpu["model"],
        "setting": cpu["setting"],
        "batch": None if math.isnan(float(cpu["batch"])) else float(cpu["batch"]),
        "measure": cpu["measure"],
        "gpu": kind,
        "cpu": f"{machine_name(cpu)}",
        "baseline": baseline,
        "precision": _NO_FORMAT if cpu["task"] in PLAIN else " over ".join(formats) if all(formats) else "",
        "transfers": "included" if all(row["copies"] == "included" for row in entries) else "",
        "cpu_result": cpu["copy_of"] or cpu["key"],
        "records": " ".join(row["key"] for row in (*entries, cpu)),
        "estimate": _median_speed(entries) / float(cpu["speed"]),
        "low": min(row["slowest"] for row in entries) / float(cpu["fastest"]),
        "high": max(row["fastest"] for row in entries) / float(cpu["slowest"]),
        "detail": f"{'at most, ' if machines > 1 else ''}scaled from {scaled}" if scaled else "",
    }


def _median_speed(rows: Sequence[dict[str, Any]]) -> float:
    return median(row["speed"] for row in rows)


def _is_server(records: pd.DataFrame) -> pd.Series:
    """Return True for records from servers: machines with SERVER_CORES or more cores, or two or more processors."""
    return (records["cores"] / records["nodes"].fillna(1) >= SERVER_CORES) | (
        records["cpus"] / records["nodes"].fillna(1) >= 2
    )


@published_quantity("published.speedup", "1", SPEEDUP_LABELS)
def speedup(data: Dataset) -> Estimates:
    """Speed of one GPU, relative to one machine without a GPU, on the same work in one source.

    baseline: server, or one processor. Results for several GPUs or machines are divided by their number, as if each
    worked as well alone, and `detail` gives the number. The more machines work together, the more time is lost between
    them, so a speed-up over a part of several machines is the most that it can be. precision: formats on both sides; ''
    if a format is not reported. cpu_result: the CPU's record, or the earlier record that it repeats. Scores follow
    MLCommons' training and inference policies (the mean over the runs without the fastest and the slowest).
    """
    return exact_estimates(list(speedup_rows(data)))


@published_quantity("published.speedup_over_servers", "1", SPEEDUP_LABELS)
def speedup_over_servers(data: Dataset) -> Estimates:
    """Speed of one GPU, relative to one server processor and to one whole server of several, on the same work.

    baseline: server processor, or server. A server's result is divided by its processors, as if each worked as well
    alone. For the rest, see `published.speedup`.
    """
    rows = []
    for row in speedup_rows(data):
        record = data.published.records_by_key[row["records"].split()[-1]]
        processors = value_or_default(record["cpus"], 1.0) / value_or_default(record["nodes"], 1.0)
        if row["baseline"] == "server" and processors > 1:
            rows += [_over_processor(row, processors), row]
    return exact_estimates(rows)


def _over_processor(row: Mapping[str, Any], processors: float) -> dict[str, Any]:
    """Return the speed-up over one processor in a server, from that over the server."""
    return {
        **row,
        "baseline": PROCESSOR,
        "cpu": str(row["cpu"]).removeprefix(f"{int(processors)} x "),
        **{name: row[name] * processors for name in ("estimate", "low", "high")},
    }


@published_quantity("published.energy_ratio", "1", SPEEDUP_LABELS)
def energy_ratio(data: Dataset) -> Estimates:
    """Joules on the CPU, divided by joules on the GPU, for the same work in one source, as the source metered them.

    The source's note describes what each meter covers.
    """
    return exact_estimates(list(speedup_rows(data, ("energy",))))


@published_quantity("published.growth_with_batch", "1", tuple(name for name in SPEEDUP_LABELS if name != "batch"))
def growth_with_batch(data: Dataset) -> Estimates:
    """Exponent p with which a speed-up grows with the batch: speed-up ~ batch^p.

    It follows from the smallest and the largest batch for the same work, which must be 8 times apart or more. Both
    batches use the same hardware and format on both sides.
    """
    rows = []
    same = [name for name in SPEEDUP_LABELS if name not in ("batch", "records")]
    speedups = speedup(data)
    sizes = speedups.take(speedups["batch"].notna().to_numpy(bool)) if len(speedups) else speedups
    for labels, rows_of_group in sizes.positions(*same):
        if len(rows_of_group) < 2:
            continue
        by_batch = sizes.take(rows_of_group).frame.sort_values("batch")
        if by_batch["batch"].iloc[-1] < 8 * by_batch["batch"].iloc[0]:
            continue
        first, last = by_batch.iloc[0], by_batch.iloc[-1]
        wide = math.log(last["batch"] / first["batch"])
        rows.append(
            {
                **dict(zip(same, labels, strict=True)),
                "records": f"{first['records']} {last['records']}",
                "estimate": math.log(last["estimate"] / first["estimate"]) / wide,
                "low": math.log(last["low"] / first["high"]) / wide,
                "high": math.log(last["high"] / first["low"]) / wide,
                "detail": f"batch {format_exact(first['batch'])} to {format_exact(last['batch'])}",
            }
        )
    return exact_estimates(rows)


@published_quantity("published.batch_gain", "1", (*LABELS, "device", "machine", "dtype", "software"))
def batch_gain(data: Dataset) -> Estimates:
    """Samples per second at the largest batch, relative to those at the largest batch that is at most an eighth of it.

    Hardware, format and software are the same. A step time is converted to throughput as batch / time; other times are
    used as reported.
    """
    records = with_speeds(data.published.records).dropna(subset=["batch"])
    records = records[records["task"].isin(("train", "fine-tune", "infer"))]
    steps = records["measure"].isin(("time", "latency")) & records["setting"].str.contains("step")
    per = np.where(steps, records["batch"], 1.0)
    records = records.assign(throughput=records["speed"].to_numpy(float) * per)
    names = ["source", "task", "model", "setting", "measure", "device", "gpu", "cpu", "dtype", "software", "variant"]
    rows = []
    for same in groups_varying(records, names, "batch"):
        last = extreme_record(same, "batch")
        below = same[same["batch"] <= last["batch"] / 8]
        if not len(below):
            continue
        first = extreme_record(below, "batch")
        rows.append(
            {
                **record_labels(data, last, "device", "machine", "dtype", "software"),
                "records": f"{last['key']} {first['key']}",
                "estimate": last["throughput"] / first["throughput"],
                "detail": f"batch {format_exact(last['batch'])} over {format_exact(first['batch'])}",
            }
        )
    return exact_estimates(rows)


@published_quantity("published.core_scaling", "1", (*LABELS, "machine", "dtype", "software", "cores"))
def core_scaling(data: Dataset) -> Estimates:
    """Training rate on the most cores, divided by the one-core rate and by the core count: 1 if proportional to cores.

    Network, machine and software are the same, in one source; the batch may grow with the cores.
    """
    records = with_speeds(data.published.records).dropna(subset=["cores"])
    records = records[(records["device"] == "cpu") & (records["task"] == "train") & (records["measure"] == "rate")]
    rows = []
    same = ["source", "model", "setting", "cpu", "dtype", "software"]
    for group in groups_varying(records, same, "cores"):
        first, last = extreme_record(group, "cores", least=True), extreme_record(group, "cores")
        if first["cores"] == 1 and last["cores"] >= SERVER_CORES:
            rows.append(
                {
                    **record_labels(data, last, "machine", "dtype", "software"),
                    "batch": None,
                    "cores": last["cores"],
                    "records": f"{last['key']} {first['key']}",
                    "estimate": last["speed"] / first["speed"] / last["cores"],
                }
            )
    return exact_estimates(rows)


@published_quantity("published.gain", "1", (*LABELS, "device", "machine", "of", "to"))
def variant_gain(data: Dataset) -> Estimates:
    """Gain in speed from a format, a library or an interface: speed with it, divided by speed without it.

    of: a format, compared to float32; Vulkan or OpenCL, compared to CUDA; or cuDNN, compared to plain kernels. to: what
    it is compared to. Work, hardware and source are the same, with the source's fastest result on each side.
    """
    records = with_speeds(data.published.records)
    same = ["source", "task", "model", "setting", "batch", "measure", "device", "gpu", "cpu", "gpus", "cores"]
    rows = []
    for column, more in ((records["dtype"], []), (records["back_end"], ["dtype"])):
        variants = records.assign(of=column)[column != ""]
        for work in row_groups_varying(variants, [*same, *more], "of"):
            best = {str(work[index]["of"]): work[index] for index in np.argsort([row["speed"] for row in work])}
            for variant in best:
                reference = _AGAINST.get(variant, "float32")
                if variant != reference and reference in best:
                    rows.append(_gain_row(data, best[variant], best[reference]))
    return exact_estimates(rows)


def _gain_row(data: Dataset, above: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **record_labels(data, above, "device", "machine"),
        "of": above["of"],
        "to": below["of"],
        "records": f"{above['key']} {below['key']}",
        "estimate": above["speed"] / below["speed"],
        "low": above["slowest"] / below["fastest"],
        "high": above["fastest"] / below["slowest"],
    }


@published_quantity("published.recurrent_over_transformer", "1", ("source", "family", "scenario", "gpu", "records"))
def recurrent_over_transformer(data: Dataset) -> Estimates:
    """Speed-up for MLPerf's recurrent network, relative to that for its transformer, on the same GPU and CPU."""
    rows, place = [], ("source", "family", "scenario", "gpu")
    speedups = speedup(data).filter(baseline="server", model=[RECURRENT, TRANSFORMER])
    if not len(speedups):
        return speedups
    speedups = speedups.label(
        scenario=[data.published.records_by_key[keys.split()[0]]["scenario"] for keys in speedups["records"]]
    )
    for labels, group in speedups.groups(*place):
        recurrent, other = (group.filter(model=name) for name in (RECURRENT, TRANSFORMER))
        for above in range(len(recurrent)):
            for below in range(len(other)):
                rows.append(
                    {
                        **dict(zip(place, labels, strict=True)),
                        "records": f"{recurrent.value('records', above)} {other.value('records', below)}",
                        "estimate": recurrent.value("estimate", above) / other.value("estimate", below),
                        "low": recurrent.value("low", above) / other.value("high", below),
                        "high": recurrent.value("high", above) / other.value("low", below),
                    }
                )
    return exact_estimates(rows)


def _timed_models(data: Dataset) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield each source's labels, and the speed-ups of its models with a reported size, in parameters, as `size`."""
    speedups, names = speedup(data).filter(task="infer"), ("source", "family", "gpu", "cpu", "precision")
    for labels, group in speedups.groups(*names):
        timed = group.frame[group["measure"].isin(("time", "latency"))]
        sizes = [data.published.records_by_key[records.split()[-1]]["parameters"] for records in timed["records"]]
        if len(timed := timed.assign(size=sizes).dropna(subset=["size"])):
            yield dict(zip(names, labels, strict=True)), timed


@published_quantity("published.crossover_parameters", "1", ("source", "family", "gpu", "cpu", "precision", "records"))
def crossover_parameters(data: Dataset) -> Estimates:
    """Parameters in the largest model that a CPU answers sooner than a GPU, for single requests; 0 if there is none.

    The models are those with a reported size and with times on both devices, at batch 1, in one source. There is an
    estimate only if the GPU is sooner on a larger model.
    """
    rows = []
    for labels, timed in _timed_models(data):
        order = timed[timed["batch"] == 1].sort_values("size")
        sooner = order[order["estimate"] < 1]
        if len(order) < 4:
            continue
        largest = float(sooner["size"].max()) if len(sooner) else 0.0
        beyond = order[(order["size"] > largest) & (order["estimate"] > 1)]
        rows.append(
            {
                **labels,
                "records": " ".join(order["records"]),
                "estimate": largest if len(beyond) else math.nan,
                "detail": f"{len(sooner)} of {len(order)} models sooner on the CPU",
            }
        )
    return exact_estimates(rows)


@published_quantity(
    "published.sooner_on_cpu_parameters", "1", ("source", "family", "gpu", "cpu", "precision", "records")
)
def sooner_on_cpu_parameters(data: Dataset) -> Estimates:
    """Parameters in the largest model whose single requests a CPU answers sooner than a GPU in every run; 0 if none.

    There is an estimate only if the GPU is sooner on more work in the same source: on a larger model, or on a larger
    batch. Unlike `published.crossover_parameters`, one model suffices.
    """
    rows = []
    for labels, timed in _timed_models(data):
        single = timed["batch"] == 1
        sooner = timed[single & (timed["high"] < 1)]
        largest = float(sooner["size"].max()) if len(sooner) else 0.0
        more = timed[((timed["size"] > largest) | (timed["batch"] > 1)) & (timed["low"] > 1)]
        if len(more):
            rows.append(
                {
                    **labels,
                    "records": " ".join(timed["records"]),
                    "estimate": largest,
                    "detail": f"{len(sooner)} of {int(single.sum())} single requests sooner on the CPU",
                }
            )
    return exact_estimates(rows)
