"""Quantities: named functions that compute estimates from tidy data. Claims refer to them by name.

To add a quantity, decorate a function with `quantity` in any module here.
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
# Fields that each case has in a verdict. No label may share their names.
RESERVED = frozenset(
    {"claim", "part", "label", "labels", "outcome", "estimate", "low", "high", "unit", "behind", "disturbed"}
)


@dataclass(frozen=True)
class Quantity:
    """A registered quantity.

    kinds: device kinds that the quantity needs; empty if any kind will do.
    labels: labels that a claim's scope may use.
    ceiling: largest possible value. A case whose whole interval lies above it decides nothing, because a measurement
    was disturbed.
    formulas: formulas behind the quantity's `DerivedEstimates`.
    checked: for a derived quantity, the name of another quantity that compares the model behind it to measurements, or
    ARITHMETIC if the derived quantity only combines figures. If `checked` is '' because nothing checks the derived
    quantity, it cannot decide a claim alone.
    reads: experiments whose data the quantity uses if they are present.
    common_error: True if one correction applies to many estimates, so that they may err together.
    bound: True if each estimate is the most, or the least, that is possible, so that only one end is known.
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
    common_error: bool = False
    bound: bool = False

    @property
    def decides(self) -> bool:
        """Tell if the quantity may decide a claim alone."""
        return self.tier != "derived" or bool(self.checked)

    def estimates(self, data: Dataset) -> Estimates:
        """Compute the estimates. Raises MissingSourceError for a published figure that is missing or not verified.

        If an estimate's whole interval lies above the ceiling, its bounds and standard error become unknown.
        """
        estimates = self.compute(data)
        if self.ceiling is None:
            return estimates
        broken = estimates["low"] > self.ceiling
        why = f"cannot exceed {self.ceiling:g}: a measurement was disturbed"
        detail = estimates["detail"].where(~broken, estimates["detail"].map(lambda text: f"{text}; {why}".strip("; ")))
        return estimates.label(detail=detail).set_unknown(broken, "low", "high", "se")


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
    common_error: bool = False,
    bound: bool = False,
) -> Callable[[Compute], Compute]:
    """Register a function that computes estimates from the data as the quantity `name`.

    experiments: experiments that the quantity requires. By default, a measured quantity requires the experiment named
    in the first part of `name`, and any other quantity requires none.
    device: device kinds that the quantity needs: cpu, gpu, both or any.
    `Quantity` describes the other arguments.

    Raises ValueError if the name is taken, the tier is unknown, a label is reserved, or `checked` is set for a tier
    other than derived.

    @quantity("transfer.rate", "B/s", ("direction", "size"), device="gpu")
    def transfer_rate(data: Dataset) -> Estimates:
    """
    if name in _REGISTRY or tier not in TIERS:
        raise ValueError(f"quantity {name}: the name is already registered, or the tier {tier!r} is unknown")
    if checked and tier != "derived":
        raise ValueError(f"quantity {name}: `checked` is for derived quantities, not for {tier} ones")
    if RESERVED & set(labels):
        raise ValueError(
            f"quantity {name}: the label {sorted(RESERVED & set(labels))[0]!r} is reserved, choose another"
        )
    if experiments is None:
        experiments = [name.partition(".")[0].replace("_", "-")] if tier == "measured" else ()
    kinds = {"both": ("cpu", "gpu"), "cpu": ("cpu",), "gpu": ("gpu",)}.get(device, ())
    common = ("node", "device") if experiments else ()

    def register(compute: Compute) -> Compute:
        # The result is cached per dataset, because quantities call each other.
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
            common_error,
            bound,
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
    """Register an experiment's metric as the quantity `name`, with the docstring `how`.

    experiment, metric: by default, the two parts of the quantity's name.
    by: labels to keep; by default, all labels stay.
    points: function that returns the metric's estimates; by default, `data.summary` returns them.
    """
    parts = name.split(".")
    experiment, metric = experiment or parts[0].replace("_", "-"), metric or parts[1]

    def compute(data: Dataset) -> Estimates:
        estimates = points(data, metric) if points else data.summary(experiment, metric)
        return estimates.keep_labels(*by) if by else estimates

    compute.__doc__ = how
    return quantity(name, unit, labels, experiments=[experiment], device=device)(compute)


@cache
def quantities() -> Mapping[str, Quantity]:
    """Return all registered quantities by name."""
    for module in MODULES:
        importlib.import_module(f"report.quantities.{module}")
    return dict(sorted(_REGISTRY.items()))
