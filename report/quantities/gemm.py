"""Dense matrix products: rates, measured peaks, clock rates, and the effect of matrix content."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from report.data.dataset import SETTLED, Dataset
from report.data.summary import POINT
from report.estimates import Estimates, concat_estimates, device_kind
from report.quantities import quantity
from report.quantities.shared_rounds import pair_rounds

_LABELS = ("dtype", "threads", "backend", "shape", "m", "n", "k")
_POINT = ["node", "device", "dtype", "threads"]
# Metrics for a product's time, each with a pattern for the library's name. With `time`, the host launches the products;
# with `graph_time`, a graph launches them.
METRICS = {"time": "{}", "graph_time": "{} graph"}
_cpu_quantity = partial(quantity, device="cpu")


def with_shape(products: Estimates) -> Estimates:
    """Add m, n and k as one label."""
    return products.label(shape=[f"{m}x{n}x{k}" for m, n, k in products.rows("m", "n", "k")])


def with_best(rates: Estimates) -> Estimates:
    """Add each library's best rate over all shapes, and the best rate over all libraries and shapes.

    The added rows have the value `best` in the label `shape`, and the best over all libraries also in the label
    `backend`. A claim that uses the added rows has to name these values in its scope.
    """
    rates = with_shape(rates)
    per_library = rates.best_per_group([*_POINT, "backend"], detail=["backend", "shape"]).label(shape="best")
    overall = rates.best_per_group(_POINT, detail=["backend", "shape"]).label(backend="best", shape="best")
    return concat_estimates([rates, per_library, overall])


def point_rates(data: Dataset, experiment: str) -> Estimates:
    """Return the rate in FLOP/s at each point, for single calls and, if they were measured, for calls in a graph."""
    return _join_metrics([data.summary(experiment, metric, "flop_per_s") for metric in METRICS])


def _join_metrics(per_metric: Sequence[Estimates]) -> Estimates:
    """Join the rates for each of METRICS, given in that order, and name the libraries by the metric's pattern."""
    pairs = zip(per_metric, METRICS.values(), strict=True)
    return concat_estimates(
        [rates.label(backend=[name.format(library) for library in rates["backend"]]) for rates, name in pairs]
    )


def core_clock(data: Dataset) -> Estimates:
    """Return one core's clock in Hz, by node.

    The fastest chain of operations gives the clock, because slower chains were disturbed.
    """
    return data.summary("clock", metric="clock").filter(device="cpu").best_per_group(["node"])


def peak_rate(data: Dataset, kernel: str) -> Estimates:
    """Return the peak FMA rate in FLOP/s, by node, device, dtype and threads, measured by the project's own kernel."""
    return data.summary("peak", value="flop_per_s").filter(kernel=kernel).best_per_group(_POINT)


def divide_by_clock(data: Dataset, rates: Estimates) -> Estimates:
    """Convert rates in FLOP/s on CPUs to multiply-adds per clock cycle, summed over all cores.

    If a rate and the clock were measured beside each other, they are divided in each round.
    """
    return pair_rounds(data, rates / 2 / core_clock(data), (-1, -1))


def _per_core(per_cycle: Estimates) -> Estimates:
    return per_cycle.scaled_by(1 / per_cycle.numbers("threads"))


def _peak_per_cycle(data: Dataset, kernel: str) -> Estimates:
    """Return a kernel's peak in multiply-adds per clock cycle, by node, device, dtype and threads."""
    # The kernels' ratios moderate each other's variances.
    rates = data.summary("peak", value="flop_per_s").best_per_group([*_POINT, "kernel"])
    return divide_by_clock(data, rates).filter(kernel=kernel).drop_labels("kernel")


def share_of_peak(data: Dataset, rates: Estimates) -> Estimates:
    """Divide rates in FLOP/s by the measured peak: the FMA rate on a CPU, and the best matrix product on a GPU."""
    products = product_rate(data).filter(device="gpu", backend="best").keep_labels("node", "device", "dtype")
    return concat_estimates(
        [rates.filter(device="cpu") / peak_rate(data, "fma"), rates.filter(device="gpu") / products]
    )


@quantity("gemm.rate", "FLOP/s", _LABELS)
def product_rate(data: Dataset) -> Estimates:
    """Rate of a matrix product: 2*m*n*k FLOP, divided by the median time."""
    return with_best(point_rates(data, "gemm"))


@_cpu_quantity("gemm.mac_per_cycle_per_core", "MAC/cycle", _LABELS, experiments=["gemm", "clock"])
def mac_per_cycle_per_core(data: Dataset) -> Estimates:
    """Multiply-adds retired per clock cycle and core: rate / 2 / threads / clock.

    The clock is measured with one busy core. With all cores busy it may be lower, so the result is a lower bound. Needs
    the experiment `gemm` on the CPU, and `clock` on the same node. If both ran within a minute, the rate is divided by
    the clock in each round.
    """
    return _per_core(divide_by_clock(data, product_rate(data).filter(device="cpu")))


@quantity("gemm.mac_per_cycle", "MAC/cycle", _LABELS, reads=("clock",))
def mac_per_cycle(data: Dataset) -> Estimates:
    """Multiply-adds retired per clock cycle, summed over all cores in a device.

    On a CPU, the formula is rate / 2 / clock, with the clock measured on the same node. On a GPU, it is m*n*k / (time *
    clock) for each sample, with the clock read next to the sample. If that clock is lower, the rate is lower too, so
    their ratio is stable.
    """
    on_gpus = with_best(_join_metrics([_counter_rates(data, metric) for metric in METRICS]))
    return concat_estimates([on_gpus, divide_by_clock(data, product_rate(data).filter(device="cpu"))])


def _counter_rates(data: Dataset, metric: str) -> Estimates:
    """Compute multiply-adds per cycle for products on GPUs.

    Only samples from the later half of each round are used, because clocks read earlier include the ramp-up.
    """
    samples = data.samples("gemm")
    read = samples[(samples["metric"] == metric) & (samples["status"] == "ok")]
    read = read[(read["device"].map(device_kind) == "gpu") & (read["clock_mhz"] > 0)]
    read = read[read.groupby([*POINT, "round"], observed=True)["elapsed_s"].rank(pct=True) > SETTLED]
    counted = read["flop"] / 2 / (read["value"] * read["clock_mhz"] * 1e6)
    return data.estimates_from_samples(read.assign(value=counted, unit="MAC/cycle"))


@_cpu_quantity("gemm.peak_share", "1", _LABELS, experiments=["gemm", "peak"], ceiling=1.0)
def peak_share(data: Dataset) -> Estimates:
    """Rate of a matrix product, divided by the measured peak FMA rate with the same node, dtype and threads."""
    return product_rate(data).filter(device="cpu") / peak_rate(data, "fma")


@_cpu_quantity("peak.scalar_mac_per_cycle", "MAC/cycle", ("dtype", "threads"), experiments=["peak", "clock"])
def scalar_mac_per_cycle(data: Dataset) -> Estimates:
    """Multiply-adds per clock cycle in one core that uses only scalar instructions.

    If the rate and the clock were measured within a minute, they are divided in each round.
    """
    return _peak_per_cycle(data, "scalar_fma").filter(threads=1)


@quantity("clock.rate", "Hz", device="cpu")
def clock_rate(data: Dataset) -> Estimates:
    """Clock of one busy core: the highest rate in a chain of dependent one-cycle operations.

    The clock is not read from a counter, because virtual machines report a nominal clock or none.
    """
    return data.summary("clock", metric="clock").filter(device="cpu").best_per_group(["node", "device"])


@_cpu_quantity("peak.mac_per_cycle", "MAC/cycle", ("dtype", "threads"), experiments=["peak", "clock"])
def peak_mac_per_cycle(data: Dataset) -> Estimates:
    """Multiply-adds per clock cycle and core with the widest vectors: rate / 2 / threads / clock.

    All operands stay in registers. The clock is measured with one busy core. With several busy cores it may be lower,
    so the result is a lower bound. If the rate and the clock were measured within a minute, they are divided in each
    round.
    """
    return _per_core(_peak_per_cycle(data, "fma"))


# Content to compare with: all other experiments multiply matrices with this content.
BASE = "normal"


@quantity("content.speed_ratio", "1", ("content", *_LABELS))
def speed_ratio(data: Dataset) -> Estimates:
    """Rate of a matrix product on some content, relative to its rate on random normal data, with all else equal."""
    products = with_shape(data.summary("content", value="flop_per_s"))
    return products.take(products["content"] != BASE) / products.filter(content=BASE).drop_labels("content")
