"""Expected estimates on synthetic nodes: a case is a quantity, a scope, and the result in that scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.judging.part_evaluation import select
from report.quantities import quantities
from tests.report.conftest import Factory, SyntheticNode

NodeBuilder = Callable[[Factory], SyntheticNode | Sequence[SyntheticNode]]
DatasetOf = Callable[[NodeBuilder], Dataset]


@dataclass(frozen=True)
class Case:
    """Expected estimates from a quantity in a scope.

    estimate: value in the only row, or values by the labels `by`, or None if no row is expected.
    width: type of the interval: open, exact or unknown, or `any` if it may be open or exact.
    low, high: ends of the interval; `width` is then ignored. If only one end is given, the other end must be nan.
    labels: all labels that the estimate must have, with their values.
    sources: experiments whose rows the estimates use, by default those that the quantity declares.
    """

    name: str
    estimate: Any
    scope: Mapping[str, Any]
    by: tuple[str, ...] = ()
    rel: float = 1e-3
    width: str = "open"
    low: float | None = None
    high: float | None = None
    detail: str | None = None
    labels: Mapping[str, Any] | None = None
    sources: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"{self.name} {' '.join(map(str, self.scope.values()))}"

    def check(self, data: Dataset) -> None:
        quantity = quantities()[self.name]
        estimates = select(quantity.estimates(data), self.scope)
        expected = {} if self.estimate is None else self.estimate if self.by else {(): self.estimate}
        keys = estimates.rows(*self.by) if len(self.by) != 1 else estimates[self.by[0]].tolist()
        keys = keys or [()] * len(estimates)
        assert sorted(keys) == sorted(expected), estimates.rows("low", "estimate", "high")
        assert dict(zip(keys, estimates["estimate"], strict=True)) == pytest.approx(expected, rel=self.rel)
        for row in range(len(estimates)):
            self._check_interval(*(estimates.value(name, row) for name in ("low", "estimate", "high")))
            rows = data.table.loc[list(estimates.value("source_rows", row))]
            assert set(rows["experiment"]) == set(quantity.experiments if self.sources is None else self.sources)
            assert set(rows["status"]) <= {"ok"} and self.detail in (None, estimates.value("detail", row))
            assert self.labels is None or estimates.label_values(row) == self.labels

    def _check_interval(self, low: float, estimate: float, high: float) -> None:
        if self.low is not None or self.high is not None:
            nan = float("nan")
            ends = [nan if end is None else end for end in (self.low, self.high)]
            assert [low, high] == pytest.approx(ends, rel=self.rel, nan_ok=True)
        elif self.width == "unknown":
            assert low != low and high != high
        else:
            assert low <= estimate <= high and self.width in ("any", "open" if low < high else "exact")


def case(name: str, estimate: Any, **more: Any) -> Case:
    """Make a case. Arguments that are no fields of `Case` become labels of its scope."""
    fields = {key: more.pop(key) for key in list(more) if key in Case.__dataclass_fields__}
    if isinstance(fields.get("by"), str):
        fields["by"] = (fields["by"],)
    return Case(name, estimate, more, **fields)


def case_test(build: NodeBuilder, *table: Case) -> Callable[..., None]:
    """Make a test that checks these cases on the nodes from a builder."""

    @pytest.mark.parametrize("expected", table, ids=str)
    def test(dataset_of: DatasetOf, expected: Case) -> None:
        expected.check(dataset_of(build))

    return test


def select_rows(name: str, evidence: Dataset, /, **scope: Any) -> Estimates:
    """Return a quantity's estimates in scope."""
    return select(quantities()[name].estimates(evidence), scope)


def select_row(name: str, evidence: Dataset, /, **scope: Any) -> dict[str, Any]:
    """Return the only estimate in scope, with its labels."""
    (row,) = select_rows(name, evidence, **scope).frame.to_dict("records")
    return {str(key): value for key, value in row.items()}
