"""What every table of expected values asks of a quantity: one estimate in scope, its interval, and where it is from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from report.data.dataset import Dataset
from report.judging.filters import select
from report.quantities import quantities

from .conftest import Factory, SyntheticNode
from .evidence import data

Case = tuple[str, dict[str, Any], Any]


def cases(*rows: Case) -> pytest.MarkDecorator:
    """Parametrise a test by quantity, scope and what is expected: the estimate, or labels and values by name."""
    return pytest.mark.parametrize(
        ("name", "scope", "expected"), [pytest.param(*row, id=f"{row[0]} {row[1]}") for row in rows]
    )


def dataset(factory: pytest.TempPathFactory, *build: Callable[[Factory], SyntheticNode]) -> Dataset:
    """The evidence of the nodes that these functions build."""
    synthetic = Factory(factory.mktemp("nodes"))
    return data(synthetic, *(one(synthetic) for one in build))


def check(
    found: Dataset,
    name: str,
    scope: dict[str, Any],
    expected: Any,
    rel: float = 1e-3,
    made_of: set[str] | None = None,
    exact: bool = False,
) -> None:
    """The quantity has one estimate in scope, as expected, within its interval, with the rows that it is made of.

    made_of: the experiments of those rows, if not all that it needs. exact: without an interval, as what is counted
    in equal rounds (se 0) is in any case.
    """
    quantity = quantities()[name]
    (row,) = select(quantity.compute(found), scope).frame.to_dict("records")
    for key, value in (expected if isinstance(expected, dict) else {"estimate": expected}).items():
        assert row[key] == (pytest.approx(value, rel=rel) if isinstance(value, float) else value), key
    low, estimate, high = (row[end] for end in ("low", "estimate", "high"))
    assert low == estimate == high if exact or row["se"] == 0 else low < estimate < high
    rows = found.table.loc[list(row["source_rows"])]
    assert (made_of or set(quantity.experiments)) <= set(rows["experiment"]) and set(rows["status"]) == {"ok"}
    assert row["node"] in set(rows["node"])
