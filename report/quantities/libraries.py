"""Vendor libraries: gains over their fallbacks, install locations, and interfaces other than CUDA."""

from __future__ import annotations

from functools import partial

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.quantities import quantity, summary_quantity

_POINT = ["node", "device", "layer", "shape", "batch", "passes", "threads"]
_LABELS = ("layer", "shape", "batch", "passes", "threads")
# Variants that compute a layer without the vendor library.
WITHOUT = ["native", "naive", "tiled"]
_variant_quantity = partial(quantity, labels=(*_LABELS, "dtype", "variant"))
_DEVICE = ("node", "device")
_device_quantity = partial(summary_quantity, device="gpu", by=_DEVICE)


@_variant_quantity("libraries.rate", "FLOP/s")
def layer_rates(data: Dataset) -> Estimates:
    """Layer rate: the FLOP in a layer's products, divided by the median time.

    A layer that takes a GPU less than 50 microseconds is timed in a graph, to exclude launches by the host.
    """
    return data.device_summary("libraries", "flop_per_s").drop_labels("backend")


def gain_over_fallback(rates: Estimates, variant: str) -> Estimates:
    """Divide a library variant's rate by the fastest rate without the library."""
    without = rates.filter(variant=WITHOUT).best_per_group([*_POINT, "dtype"], detail=["variant"])
    return rates.filter(variant=variant).drop_labels("variant") / without.label(variant=without["detail"])


@_variant_quantity("libraries.gain", "1")
def library_gain(data: Dataset) -> Estimates:
    """A layer's time without the vendor library, divided by its time with the library as PyTorch uses it.

    Shape, batch, passes, format and device are the same. The time without the library comes from the fastest fallback,
    which the label `variant` names: PyTorch's own kernels with the library switched off, and for a product also this
    project's fastest kernel.
    """
    return gain_over_fallback(layer_rates(data), "library")


@quantity("libraries.matrix_unit_gain", "1", _LABELS, device="gpu")
def matrix_unit_gain(data: Dataset) -> Estimates:
    """A layer's best float32 rate with matrix units allowed (TF32), divided by its best rate without matrix units.

    Shape and inputs are the same. Each rate is the best over all measured variants, including this project's own
    kernels.
    """
    return layer_rates(data).best_per_group([*_POINT, "dtype"], detail=["variant"]).ratio("dtype", "tf32", "float32")


_device_quantity(
    "libraries.system_toolkit_loaded",
    "1",
    "1 if the measuring process loaded a CUDA library from outside the environment's packages, else 0.",
)
_device_quantity(
    "libraries.system_driver_loaded",
    "1",
    "1 if the measuring process loaded the driver from outside the environment's packages, else 0.",
)


CUDA = "cuda"
_KERNEL = ("kernel", "n", "backend")
_interface_quantity = partial(quantity, device="gpu")


def kernel_rates(data: Dataset) -> Estimates:
    """Return FLOP/s by device, kernel, n and interface."""
    return data.summary("without-cuda", value="flop_per_s").drop_labels("dtype", "threads")


@_interface_quantity("without_cuda.rate_share", "1", _KERNEL)
def rate_share(data: Dataset) -> Estimates:
    """A kernel's rate through an interface other than CUDA, relative to CUDA, with the same chip, kernel and size."""
    rates = kernel_rates(data)
    return rates.take(rates["backend"] != CUDA) / rates.filter(backend=CUDA).drop_labels("backend")


def library_rates(data: Dataset) -> Estimates:
    """Return the fastest library's FLOP/s for float32 products of two n x n matrices, by GPU and n."""
    products = data.device_summary("gemm", "flop_per_s").filter(device="gpu", dtype="float32")
    square = products.take((products["m"] == products["n"]) & (products["n"] == products["k"]))
    return square.best_per_group(["node", "device", "n"], detail=["backend"])


@_interface_quantity("without_cuda.naive_over_library", "1", ("n",), experiments=["without-cuda", "gemm"])
def naive_over_library(data: Dataset) -> Estimates:
    """Rate of the naive matrix product in CUDA, relative to the fastest library, both in float32 at the same size."""
    return kernel_rates(data).filter(kernel="naive", backend=CUDA).drop_labels("kernel", "backend") / library_rates(
        data
    )
