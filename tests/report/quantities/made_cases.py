"""Tables of what quantities should say of made-up nodes: a case is a quantity, a scope, and what is found there."""

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

Build = Callable[[Factory], SyntheticNode | Sequence[SyntheticNode]]
Made = Callable[[Build], Dataset]


@dataclass(frozen=True)
class Case:
    """What a quantity should say in a scope.

    estimate: that of the only one; with `by`, those of all by their value of these labels; None: there is none.
    width: of the interval: open, exact, unknown, or any of the first two; low and high: its ends, where they are known.
    labels: all of the only one's. sources: the experiments that it rests on, unless those that the quantity needs.
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
        known = quantities()[self.name]
        found = select(known.estimates(data), self.scope)
        expected = {} if self.estimate is None else self.estimate if self.by else {(): self.estimate}
        keys = found.rows(*self.by) if len(self.by) != 1 else found[self.by[0]].tolist()
        keys = keys or [()] * len(found)
        assert sorted(keys) == sorted(expected), found.rows("low", "estimate", "high")
        assert dict(zip(keys, found["estimate"], strict=True)) == pytest.approx(expected, rel=self.rel)
        for row in range(len(found)):
            self._check_interval(*(found.value(name, row) for name in ("low", "estimate", "high")))
            rows = data.table.loc[list(found.value("source_rows", row))]
            assert set(rows["experiment"]) == set(known.experiments if self.sources is None else self.sources)
            assert set(rows["status"]) <= {"ok"} and self.detail in (None, found.value("detail", row))
            assert self.labels is None or found.label_values(row) == self.labels

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
    """A case; what is no field of `Case` is a label of its scope."""
    fields = {key: more.pop(key) for key in list(more) if key in Case.__dataclass_fields__}
    if isinstance(fields.get("by"), str):
        fields["by"] = (fields["by"],)
    return Case(name, estimate, more, **fields)


def holding(build: Build, *table: Case) -> Callable[..., None]:
    """A test that these cases hold of the nodes that a function builds."""

    @pytest.mark.parametrize("one", table, ids=str)
    def test(made: Made, one: Case) -> None:
        one.check(made(build))

    return test


def cases(name: str, evidence: Dataset, /, **scope: Any) -> Estimates:
    """The estimates of a quantity that are in scope."""
    return select(quantities()[name].estimates(evidence), scope)


def only(name: str, evidence: Dataset, /, **scope: Any) -> dict[str, Any]:
    """Labels and values of the one estimate in scope."""
    (row,) = cases(name, evidence, **scope).frame.to_dict("records")
    return {str(key): value for key, value in row.items()}
