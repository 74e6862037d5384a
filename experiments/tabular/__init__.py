"""Libraries that work on tables, behind one interface, and tables with results that are known beforehand."""

from __future__ import annotations

from experiments.devices import Device
from experiments.tabular.base import Library
from experiments.tabular.with_arrays import CupyLibrary, NumpyLibrary
from experiments.tabular.with_pandas import PandasLibrary
from experiments.tabular.with_polars import PolarsLibrary
from experiments.tabular.with_python import PythonLibrary
from experiments.tabular.with_torch import TorchLibrary
from experiments.work import Unsupported

LIBRARIES: dict[str, type[Library]] = {
    library.name: library
    for library in (PandasLibrary, PolarsLibrary, NumpyLibrary, PythonLibrary, TorchLibrary, CupyLibrary)
}


def open_library(name: str, device: Device, op: str) -> Library:
    """The library `name` on `device`, for an operation of `Library`.

    Raises Unsupported where it does not run, lacks the operation or is not installed.
    """
    library = LIBRARIES[name]
    if device.kind not in library.fits:
        raise device.unsupported(name)
    if op in library.without:
        raise Unsupported(f"{name} {library.without[op]}")
    return library(device)
