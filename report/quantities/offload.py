"""One request from end to end: what of it is computing, what the way to the GPU and back, and from where on it pays.

A request's time is the host's, from the first launch until the result lies in host
memory. Beside it stands what the GPU takes for each part with no host in its way: the
rest of the whole is launching and waiting, while the GPU has nothing to do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from report.data.dataset import Dataset
from report.estimates import VALUES, Estimates, concat
from report.formatting import count
from report.quantities import quantity
from report.transforms import crossings

PARTS = ("h2d", "compute", "d2h")
HOST_PARTS = ("enqueue_h2d", "enqueue_compute", "enqueue_d2h", "launch", "synchronise")
REST = "launch_and_wait"
WORK = ("op", "m", "n", "k", "size", "uses", "dtype")
WAY = ("host_memory", "launch")
# The CPU that the article speaks of.
CORES = 100
_ITEMSIZE = {"float64": 8, "float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
_GPU = {"experiments": ["offload"], "device": "gpu"}
_BOTH = {"experiments": ["offload"], "device": "both"}
_LABELS = (*WORK, *WAY)


def size(op: str, m: int, n: int, k: int, dtype: str) -> int:
    """Bytes of a request's data that travel there and back, as the experiment defines its operations."""
    elements = {"elementwise": 2 * m, "gemv": k + m, "gemm": m * k + k * n + m * n, "mlp": 2 * m * k}[op]
    return elements * _ITEMSIZE[dtype]


def requests(data: Dataset, metric: str = "time") -> Estimates:
    """What the experiment measured under a metric, with the size of each request."""
    return _sized(data.summary("offload", metric))


def _sized(cells: Estimates) -> Estimates:
    shapes = cells.frame[["op", "m", "n", "k", "dtype"]].itertuples(index=False) if len(cells) else ()
    return cells.label(size=[size(*shape) for shape in shapes])


def on_gpu(data: Dataset) -> Estimates:
    """Seconds of whole requests to a GPU."""
    cells = requests(data)
    return cells.only(device="gpu").without("threads", "backend") if len(cells) else cells


def on_device(data: Dataset, part: str) -> Estimates:
    """Seconds that a GPU takes for one of PARTS, whichever way the request is launched."""
    cells = requests(data, f"device_time.{part}")
    return cells.without("threads", "backend", "launch") if len(cells) else cells


def added(*parts: Estimates) -> Estimates:
    """The sum of times that were measured in the same rounds, whose luck they share: their errors add up."""
    total, *others = parts
    for one in others:
        if not len(total) or not len(one):
            return Estimates.empty()
        pairs = total.frame.merge(one.frame, on=total.labels, suffixes=("", "_other"))
        both = pairs["estimate"] + pairs["estimate_other"]
        error = pairs["estimate"] * pairs["se"] + pairs["estimate_other"] * pairs["se_other"]
        sums = pairs.assign(
            estimate=both,
            se=error / both,
            df=pairs[["df", "df_other"]].min(axis=1),
            n_rounds=pairs[["n_rounds", "n_rounds_other"]].min(axis=1),
            n_samples=pairs["n_samples"] + pairs["n_samples_other"],
            source_rows=pairs["source_rows"] + pairs["source_rows_other"],
        )
        total = Estimates.from_estimates(sums[[*total.labels, *VALUES]])
    return total


def transfers(data: Dataset) -> Estimates:
    """Seconds that a GPU takes for both copies."""
    return added(on_device(data, "h2d"), on_device(data, "d2h"))


def per_second(times: Estimates) -> Estimates:
    """One over each time; the interval's ends swap places."""
    return Estimates.from_estimates(times.frame.assign(estimate=1 / times.frame["estimate"])) if len(times) else times


def host_rates(data: Dataset) -> Estimates:
    """Requests per second of a CPU alone, by the fastest library measured for each; `detail` says which.

    baseline: core, one thread; node, as many threads as suit it, where all were tried as well.
    What the experiment gemm measured counts too: its products start and end in host memory.
    """
    mine, products = requests(data), data.summary("gemm")
    if len(mine):
        mine = mine.only(device="cpu")
    if len(products):
        products = _sized(products.only(device="cpu", dtype=list(_ITEMSIZE)).label(op="gemm", uses=1))
    known = [cells.by("node", *WORK, "backend", "threads") for cells in (mine, products) if len(cells)]
    cells = per_second(concat(known))
    if not len(cells):
        return cells
    threads = cells.frame["threads"].astype(int)
    library = [f"{name}, {count(n, 'thread')}" for name, n in zip(cells.frame["backend"], threads, strict=True)]
    cells = cells.label(library=library)
    most = threads.groupby(cells.frame["node"]).transform("max")
    tried = threads.groupby([cells.frame[name] for name in ("node", *WORK)]).transform("max")
    by_baseline = {"core": cells.only(threads=1), "node": cells.at((tried == most).to_numpy(bool))}
    return concat(
        [part.best(["node", *WORK], of=["library"]).label(baseline=name) for name, part in by_baseline.items()]
    )


def _over(gpu: Estimates, cpu: Estimates) -> Estimates:
    """Rates of a GPU over those of a CPU; `detail` says what is compared."""
    if not len(gpu) or not len(cpu):
        return Estimates.empty()
    ratio = gpu / cpu.label(rival=cpu.frame["detail"])
    pairs = zip(ratio.frame["detail"], ratio.frame["rival"], strict=True)
    return ratio.without("rival").label(detail=[f"{mine} over {rival}".strip() for mine, rival in pairs])


@quantity(
    "offload.request_time",
    unit="s",
    needs={"experiments": ["offload"], "device": "any"},
    labels=(*_LABELS, "backend", "threads"),
    says="On {node}, a request ({labels}) is answered after {value}",
)
def request_time(data: Dataset) -> Estimates:
    """Time of one request on the host's clock, from the first launch until its result lies in host memory.

    On a CPU nothing travels and host_memory is none.
    """
    return requests(data)


@quantity(
    "offload.phase_share",
    unit="1",
    needs=_GPU,
    labels=(*_LABELS, "clock", "phase"),
    says="On {node}, {value} of a request's time goes to one of its phases ({labels})",
)
def phase_share(data: Dataset) -> Estimates:
    """Share of a request's time by phase, seen by either clock.

    clock device: what the GPU takes for h2d, compute and d2h, and launch_and_wait, the
    rest, with the ends of the others' intervals. clock host: until each launch returns, and
    then until the GPU is done (synchronise). The shares of either clock add up to 1.
    """
    whole = on_gpu(data)
    if not len(whole):
        return whole
    parts = {name: on_device(data, name) for name in PARTS}
    shares = [(part / whole).label(phase=name, clock="device") for name, part in parts.items() if len(part)]
    busy = added(*parts.values())
    if len(busy):
        used = (busy / whole).frame
        ends = {"estimate": "estimate", "low": "high", "high": "low"}
        left: dict[str, Any] = {end: (1 - used[other]).clip(0, 1) for end, other in ends.items()}
        shares.append(Estimates(used.assign(**left, se=np.nan), log=False).label(phase=REST, clock="device"))
    for name in HOST_PARTS:
        part = requests(data, f"time.{name}")
        if len(part):
            shares.append((part.without("threads", "backend") / whole).label(phase=name, clock="host"))
    return concat(shares)


@quantity(
    "offload.transfer_share",
    unit="1",
    needs=_GPU,
    labels=("op", "batch", "size", "uses", "dtype", *WAY),
    says="On {node}, the transfers take {value} of the time of a request ({labels})",
)
def transfer_share(data: Dataset) -> Estimates:
    """Time of both copies on the GPU's clock over that of the whole request, from pinned memory.

    batch: the rows of an mlp's request. uses: how often its data are computed on once they are there.
    """
    copies, whole = transfers(data), on_gpu(data)
    return _batched(copies / whole) if len(copies) and len(whole) else Estimates.empty()


@quantity(
    "offload.transfer_over_compute",
    unit="1",
    needs=_GPU,
    labels=("op", "batch", "size", "uses", "dtype", "host_memory"),
    says="On {node}, the transfers take {value} times as long as computing on what they bring ({labels})",
)
def transfer_over_compute(data: Dataset) -> Estimates:
    """Time of both copies over that of the computation, both on the GPU's clock, from pinned memory."""
    copies, compute = transfers(data), on_device(data, "compute")
    return _batched(copies / compute) if len(copies) and len(compute) else Estimates.empty()


def _batched(cells: Estimates) -> Estimates:
    """Under the number of rows of an mlp's request, and under the size of any other."""
    rows = cells.frame["op"] == "mlp"
    size, batch = cells.frame["size"].mask(rows, None), cells.frame["m"].where(rows, None)
    return cells.without("m", "n", "k").label(size=size, batch=batch)


@quantity(
    "offload.speedup",
    unit="1",
    needs=_BOTH,
    labels=(*_LABELS, "baseline"),
    says="On {node}, a request to the GPU is answered {value} times as fast as by its host's CPU ({labels})",
)
def speedup(data: Dataset) -> Estimates:
    """Time of the CPU's fastest library over that of the whole request to the GPU, same work and number format."""
    return _over(per_second(on_gpu(data)), host_rates(data))


@quantity(
    "offload.speedup_over_100_cores",
    unit="1",
    needs={"experiments": ["offload", "gemm"], "device": "both"},
    labels=("m", "n", "k", "dtype", "transfers"),
    says="On {node}, the GPU multiplies {value} times as fast as 100 cores would ({labels})",
)
def speedup_over_100_cores(data: Dataset) -> Estimates:
    """Time of a matrix product on 100 cores over that on the GPU, in the same number format.

    The cores: 100 times the rate of the fastest library on one, which takes it that all keep
    the clock of one and share the work without loss; real ones do neither. The GPU:
    transfers included, the fastest of the ways that a whole request was made; excluded, computing alone.
    """
    cpu = host_rates(data)
    if not len(cpu):
        return cpu
    one = cpu.only(op="gemm", uses=1, baseline="core").without("baseline")
    ways = {"included": per_second(on_gpu(data)), "excluded": per_second(on_device(data, "compute"))}
    best = [
        cells.best(["node", "device", *WORK], of=[name for name in WAY if name in cells.labels]).label(transfers=name)
        for name, cells in ways.items()
        if len(cells)
    ]
    return _over(concat(best), one * CORES).without("op", "uses", "size") if best and len(one) else Estimates.empty()


@quantity(
    "offload.crossover",
    unit="B",
    needs=_BOTH,
    labels=("op", "uses", "dtype", *WAY, "baseline"),
    says="On {node}, a GPU answers a request before its host's CPU does from {value} on ({labels})",
)
def crossover(data: Dataset) -> Estimates:
    """Size of a request from which on the GPU answers first: bytes that travel there and back.

    low: the last size at which the CPU surely does, high: the first at which the GPU does; the
    estimate lies between, by the ratio of their times. Where the GPU does not overtake there
    is no estimate, and `detail` says who is ahead.
    """
    gain = speedup(data)
    if not len(gain):
        return gain
    gain = gain.without("m", "n", "k")
    even = Estimates(gain.frame.assign(estimate=1.0, low=1.0, high=1.0, se=0.0, df=np.inf))
    sides = concat([gain.label(side="the GPU"), even.label(side="the CPU")])
    found = crossings(sides, {"over": "side", "of": "the GPU", "to": "the CPU", "along": "size"}).estimates
    back = found.frame["detail"].str.startswith("the CPU").to_numpy(bool)
    return found.label(**{name: found.frame[name].mask(back) for name in ("estimate", "low", "high")})
