"""Quantities: named functions from tidy data to cases, which claims refer to by name.

A new quantity is one decorated function in any module of this folder.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from report.data.dataset import Dataset, cached_per_dataset
from report.derivations import Formula
from report.estimates import Estimates

MODULES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
TIERS = ("measured", "derived", "published", "documented")
# What a verdict's case is told by besides its labels: no label may be called so.
RESERVED = frozenset(
    {"claim", "part", "label", "labels", "outcome", "estimate", "low", "high", "unit", "behind", "disturbed"}
)


@dataclass(frozen=True)
class Quantity:
    """A registered quantity.

    kinds: the kinds of devices that it cannot do without; empty if any will do.
    labels: what a claim's scope may name. ceiling: what no value can exceed; one that does,
    interval included, shows that a measurement was disturbed and decides nothing.
    formulas: by which its cases are worked out, where they are `DerivedEstimates`. checked: of a derived one, the
    quantity that shows how well its model held against what was measured; ARITHMETIC where figures are merely put
    together; '' where it was not checked, and decides nothing alone. reads: experiments that it reads where they are
    there.
    """

    name: str
    unit: str
    tier: str
    experiments: tuple[str, ...]
    kinds: tuple[str, ...]
    labels: tuple[str, ...]
    compute: Callable[[Dataset], Estimates]
    ceiling: float | None = None
    formulas: tuple[Formula, ...] = ()
    checked: str = ""
    reads: tuple[str, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether it may decide a claim by itself."""
        return self.tier != "derived" or bool(self.checked)

    def estimates(self, data: Dataset) -> Estimates:
        """The quantity's estimates; those that cannot be are left without an interval. Raises MissingSourceError."""
        found = self.compute(data)
        if self.ceiling is None:
            return found
        broken = found["low"] > self.ceiling
        why = f"cannot exceed {self.ceiling:g}: a measurement was disturbed"
        detail = found["detail"].where(~broken, found["detail"].map(lambda text: f"{text}; {why}".strip("; ")))
        return found.label(detail=detail).unknown(broken, "low", "high", "se")


Compute = Callable[[Dataset], Estimates]
_REGISTRY: dict[str, Quantity] = {}


def quantity(
    name: str,
    unit: str,
    labels: tuple[str, ...] = (),
    *,
    experiments: Sequence[str] | None = None,
    device: str = "any",
    tier: str = "measured",
    ceiling: float | None = None,
    formulas: tuple[Formula, ...] = (),
    checked: str = "",
    reads: Sequence[str] = (),
) -> Callable[[Compute], Compute]:
    """Register a function from the data to estimates under a name.

    experiments: that it needs, on a device: cpu, gpu, both or any; of a measured one, unless given, the experiment that
    its name begins with. The rest as `Quantity` has it.
    Raises ValueError if the name is taken, the tier is unknown, or a label means something else in a verdict.

    @quantity("transfer.rate", "B/s", ("direction", "size"), device="gpu")
    def transfer_rate(data: Dataset) -> Estimates:
    """
    if name in _REGISTRY or tier not in TIERS:
        raise ValueError(f"quantity {name}: the name is taken or the tier {tier!r} unknown")
    if checked and tier != "derived":
        raise ValueError(f"quantity {name}: what is {tier} rests on no model that could be checked")
    if RESERVED & set(labels):
        raise ValueError(f"quantity {name}: no label may be called {sorted(RESERVED & set(labels))[0]!r}")
    if experiments is None:
        experiments = [name.partition(".")[0].replace("_", "-")] if tier == "measured" else ()
    kinds = {"both": ("cpu", "gpu"), "cpu": ("cpu",), "gpu": ("gpu",)}.get(device, ())
    common = ("node", "device") if experiments else ()

    def register(compute: Compute) -> Compute:
        # Quantities ask for each other's estimates.
        compute = cached_per_dataset(compute)
        _REGISTRY[name] = Quantity(
            name,
            unit,
            tier,
            tuple(experiments),
            kinds,
            (*common, *labels),
            compute,
            ceiling,
            formulas,
            checked,
            tuple(reads),
        )
        return compute

    return register


def summary_quantity(
    name: str,
    unit: str,
    how: str,
    *,
    labels: tuple[str, ...] = (),
    experiment: str = "",
    metric: str = "",
    device: str = "any",
    by: tuple[str, ...] = (),
    points: Callable[[Dataset, str], Estimates] | None = None,
) -> Compute:
    """Register a quantity that is one metric of an experiment's points; `how` stands for a docstring.

    experiment, metric: as the two parts of its name unless given. by: the only labels that it keeps, if not all.
    points: from the data and a metric to the points, where they are not as the summary has them.
    """
    parts = name.split(".")
    experiment, metric = experiment or parts[0].replace("_", "-"), metric or parts[1]

    def compute(data: Dataset) -> Estimates:
        found = points(data, metric) if points else data.summary(experiment, metric)
        return found.by(*by) if by else found

    compute.__doc__ = how
    return quantity(name, unit, labels, experiments=[experiment], device=device)(compute)


@cache
def quantities() -> Mapping[str, Quantity]:
    """All registered quantities by name."""
    for module in MODULES:
        importlib.import_module(f"report.quantities.{module}")
    return dict(sorted(_REGISTRY.items()))
