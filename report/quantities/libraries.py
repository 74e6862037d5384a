"""Quantities of vendors' libraries: what they gain over what stands in for them, and where they come from."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import quantity

_POINT = ["node", "device", "layer", "shape", "batch", "passes", "threads"]
_LABELS = ("layer", "shape", "batch", "passes", "threads")
_NEEDS = {"experiments": ["libraries"], "device": "any"}
# What computes a layer where no library does.
WITHOUT = ["native", "naive", "tiled"]
# Devices for which PyTorch's operators may have kernels, as the experiment names them.
KEYS = ("cpu", "cuda", "mps", "xpu")


def rates(data: Dataset) -> Estimates:
    """FLOP/s of one call by layer, shape, batch, passes, variant, dtype and threads."""
    cells = data.summary("libraries", value="flop_per_s")
    return cells.without("backend") if len(cells) else cells


def _of(cells: Estimates, *variants: str) -> Estimates:
    return cells.only(variant=list(variants)) if len(cells) else cells


def gains_over(cells: Estimates, variant: str) -> Estimates:
    """Rate of a variant that uses the library over that of the fastest that goes without it."""
    used, without = _of(cells, variant), _of(cells, *WITHOUT)
    if not len(used) or not len(without):
        return Estimates.empty()
    without = without.best([*_POINT, "dtype"], of=["variant"])
    return used.without("variant") / without.label(variant=list(without.frame["detail"]))


@quantity(
    "libraries.rate",
    unit="FLOP/s",
    needs=_NEEDS,
    labels=(*_LABELS, "dtype", "variant"),
    says="On {node}, a layer ({labels}) runs at {value}",
)
def rate(data: Dataset) -> Estimates:
    """Rate of a layer. Source: the FLOP of its products over the median time."""
    return rates(data)


@quantity(
    "libraries.gain",
    unit="1",
    needs=_NEEDS,
    labels=(*_LABELS, "dtype", "variant"),
    says="On {node}, a layer ({labels}) takes {value} times as long without the vendor's library as with it",
)
def gain(data: Dataset) -> Estimates:
    """Time without the library over the time with it as PyTorch uses it; same shape, batch, passes, format and device.

    Label `variant` says what stands in for the library: PyTorch's own kernels where
    the library is switched off, and for a product the fastest kernel of this project.
    """
    return gains_over(rates(data), "library")


@quantity(
    "libraries.search_gain",
    unit="1",
    needs=_NEEDS,
    labels=(*_LABELS, "dtype"),
    says="On {node}, cuDNN that tries its algorithms first is {value} times as fast as by its own choice ({labels})",
)
def search_gain(data: Dataset) -> Estimates:
    """Time with the library as it comes over the time after it has tried its algorithms on that shape."""
    cells = rates(data)
    searched, plain = _of(cells, "searched"), _of(cells, "library")
    return searched.without("variant") / plain.without("variant") if len(searched) and len(plain) else Estimates.empty()


@quantity(
    "libraries.float32_sums_cost",
    unit="1",
    needs={"experiments": ["libraries"], "device": "gpu"},
    labels=(*_LABELS, "dtype"),
    says="On {node}, a product ({labels}) takes {value} times as long with partial sums in float32 as without",
)
def float32_sums_cost(data: Dataset) -> Estimates:
    """Time of a product that adds its partial sums in float32 over that of one that may round them to fewer bits."""
    cells = rates(data)
    whole, rounded = _of(cells, "float32_sums"), _of(cells, "library")
    return rounded.without("variant") / whole.without("variant") if len(whole) and len(rounded) else Estimates.empty()


@quantity(
    "libraries.matrix_unit_gain",
    unit="1",
    needs={"experiments": ["libraries"], "device": "gpu"},
    labels=_LABELS,
    says="On {node}, float32 on matrix units ({labels}) is {value} times as fast as without them",
)
def matrix_unit_gain(data: Dataset) -> Estimates:
    """Best rate with matrix units allowed for float32 (TF32) over the best with them forbidden; same shape and inputs.

    Both are the best of all variants that were measured, also of this project's own kernels.
    """
    cells = rates(data)
    if not len(cells):
        return cells
    allowed, forbidden = (cells.only(dtype=dtype).best(_POINT, of=["variant"]) for dtype in ("tf32", "float32"))
    return allowed / forbidden if len(allowed) and len(forbidden) else Estimates.empty()


@quantity(
    "libraries.own_kernel_share",
    unit="1",
    needs={"experiments": ["libraries"], "device": "gpu"},
    labels=(*_LABELS, "dtype", "variant"),
    says="On {node}, a product kernel as one would first write it ({labels}) reaches {value} of the library's rate",
)
def own_kernel_share(data: Dataset) -> Estimates:
    """Rate of this project's naive and tiled products over the library's, same shape and format."""
    cells = rates(data)
    own, library = _of(cells, "naive", "tiled"), _of(cells, "library")
    return own / library.without("variant") if len(own) and len(library) else Estimates.empty()


def _observed(data: Dataset, metric: str) -> Estimates:
    """What was observed once for a device, without the labels of the point that did."""
    cells = data.summary("libraries", metric)
    return cells.by("node", "device") if len(cells) else cells


@quantity(
    "libraries.system_toolkit_loaded",
    unit="1",
    needs={"experiments": ["libraries"], "device": "gpu"},
    says="On {node}, libraries of the CUDA toolkit or cuDNN came from the system (1) or all from Python packages (0): "
    "{value}",
)
def system_toolkit_loaded(data: Dataset) -> Estimates:
    """1 if the process that measured had loaded any such library from outside the environment's packages, else 0."""
    return _observed(data, "system_toolkit_loaded")


@quantity(
    "libraries.system_driver_loaded",
    unit="1",
    needs={"experiments": ["libraries"], "device": "gpu"},
    says="On {node}, the driver came from the system (1) or from Python packages (0): {value}",
)
def system_driver_loaded(data: Dataset) -> Estimates:
    """1 if the process that measured had loaded the driver from outside the environment's packages, else 0."""
    return _observed(data, "system_driver_loaded")


@quantity(
    "libraries.dispatch_coverage",
    unit="1",
    needs=_NEEDS,
    labels=("key", "names"),
    says="On {node}, {value} of PyTorch's operators have a kernel of their own ({labels})",
)
def dispatch_coverage(data: Dataset) -> Estimates:
    """Share of the installed PyTorch's operators that have a kernel of their own for a kind of device (label key).

    names: all, or public, without those that begin with an underscore. A build has
    kernels only for devices that it was made for: keys of others give no cell.
    """
    parts = []
    for names, prefix in (("all", ""), ("public", "public_")):
        operators = _observed(data, f"{prefix}operators")
        for key in KEYS:
            have = _observed(data, f"{prefix}kernels_{key}")
            if len(have):
                parts.append((have / operators).label(key=key, names=names))
    return concat(parts)
