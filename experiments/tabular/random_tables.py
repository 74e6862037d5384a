"""Random tables, and for each operation a check that knows the right result from the table's construction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.tabular.table_libraries import Columns

if TYPE_CHECKING:
    import numpy as np

ROWS_PER_KEY = 100
FEWEST_KEYS = 10
ROWS_PER_PARTNER = 10
# Number of distinct keys in the left table per row in the right table. Rows in the right table have distinct keys, so
# one left row in five finds no partner.
KEYS_PER_PARTNER = 1.25
LONGEST_NAME = 8


@dataclass(frozen=True)
class Case:
    """One operation's inputs, and a check for its result.

    inputs: tables as NumPy arrays by column, or one text. error: function that takes a result on the host. For a result
    that must be exact, the function returns the share of wrong rows (inf for a wrong row count). For computed numbers,
    it returns the relative error against float64.
    """

    inputs: tuple[Any, ...]
    error: Callable[[Columns], float]


def make_case(op: str, rows: int, random: np.random.Generator) -> Case:
    """Draw random inputs with `rows` rows for an operation in `Library`."""
    if op in ("parse_csv", "parse_json"):
        return _text_case(op, rows, random)
    return {"filter": _filter_case, "sort": _sort_case, "group_by": _group_by_case, "join": _join_case}[op](
        rows, random
    )


def _random_series(rows: int, random: np.random.Generator) -> Columns:
    import numpy as np

    return {"row": np.arange(rows), "value": random.standard_normal(rows)}


def _random_identifiers(count: int, random: np.random.Generator) -> np.ndarray:
    """Draw distinct whole numbers in random order, spread out like identifiers."""
    import numpy as np

    identifiers: np.ndarray = np.cumsum(random.integers(1, 1000, count))
    random.shuffle(identifiers)
    return identifiers


def _filter_case(rows: int, random: np.random.Generator) -> Case:
    table = _random_series(rows, random)
    positive = table["value"] > 0
    return Case(
        (table,), lambda result: differing_share(result, {name: column[positive] for name, column in table.items()})
    )


def _sort_case(rows: int, random: np.random.Generator) -> Case:
    table = _random_series(rows, random)

    def error(result: Columns) -> float:
        """Check that rows are in order, complete, unique, and paired with their own values."""
        import numpy as np

        row, value = result["row"], result["value"]
        if len(row) != rows or len(value) != rows or (len(row) and not 0 <= row.min() <= row.max() < rows):
            return math.inf
        missing = np.count_nonzero(np.bincount(row, minlength=rows) == 0)
        # The comparison is negated so that nan counts as out of order.
        unordered = np.count_nonzero(~(value[:-1] <= value[1:]))
        return float(missing + unordered + np.count_nonzero(table["value"][row] != value)) / rows

    return Case((table,), error)


def _group_by_case(rows: int, random: np.random.Generator) -> Case:
    import numpy as np

    keys = _random_identifiers(max(FEWEST_KEYS, rows // ROWS_PER_KEY), random)
    group = random.integers(0, len(keys), rows)
    table = {"key": keys[group], "value": random.standard_normal(rows)}

    def error(result: Columns) -> float:
        """Compare totals and means with those computed from the group numbers, which the libraries never see."""
        total = np.bincount(group, weights=table["value"], minlength=len(keys))
        count = np.bincount(group, minlength=len(keys))
        present = np.flatnonzero(count)
        present = present[np.argsort(keys[present])]
        order = np.argsort(result["key"])
        wrong = differing_share({"key": result["key"][order]}, {"key": keys[present]})
        if wrong:
            return wrong
        totals = relative_error(result["total"][order], total[present])
        means = relative_error(result["mean"][order], total[present] / count[present])
        return float(np.max([totals, means]))  # np.max propagates nan, unlike max()

    return Case((table,), error)


def _join_case(rows: int, random: np.random.Generator) -> Case:
    import numpy as np

    partners = max(1, rows // ROWS_PER_PARTNER)
    keys = _random_identifiers(math.ceil(partners * KEYS_PER_PARTNER), random)
    indices = random.integers(0, len(keys), rows)
    left = {"key": keys[indices], "row": np.arange(rows)}
    right = {"key": keys[:partners], "weight": random.standard_normal(partners)}

    def error(result: Columns) -> float:
        """Sort the result by left row, and compare it with the left rows that have a key in the right table."""
        row = np.flatnonzero(indices < partners)
        order = np.argsort(result["row"], kind="stable")
        expected = {"key": left["key"][row], "row": row, "weight": right["weight"][indices[row]]}
        return differing_share({name: column[order] for name, column in result.items()}, expected)

    return Case((left, right), error)


def _text_case(op: str, rows: int, random: np.random.Generator) -> Case:
    import numpy as np

    # Round to six decimals by a division, which gives the same float as parsing the text.
    value = np.rint(random.standard_normal(rows) * 1e6) / 1e6
    table = {"id": _random_identifiers(rows, random), "value": value, "name": _random_words(rows, random)}
    lines = zip(*(column.tolist() for column in table.values()), strict=True)
    if op == "parse_csv":
        text = "id,value,name\n" + "".join(f"{id_},{value:.6f},{name}\n" for id_, value, name in lines)
    else:
        text = "".join(f'{{"id":{id_},"value":{value:.6f},"name":"{name}"}}\n' for id_, value, name in lines)

    def error(result: Columns) -> float:
        exact = {name: np.asarray(result[name], dtype=table[name].dtype.kind) for name in ("id", "name")}
        wrong = differing_share(exact, {name: table[name] for name in exact})
        return wrong or relative_error(result["value"], table["value"])

    return Case((text.encode(),), error)


def _random_words(count: int, random: np.random.Generator) -> np.ndarray:
    """Draw random words with three letters or more, none of which means a missing value (nan, null, …)."""
    import numpy as np

    letters = random.integers(ord("a"), ord("z") + 1, (count, LONGEST_NAME), dtype=np.uint8)
    letters[:, 0] = random.integers(ord("a"), ord("n"), count)
    length = random.integers(3, LONGEST_NAME + 1, (count, 1))
    letters[np.arange(LONGEST_NAME) >= length] = 0
    words: np.ndarray = letters.view(f"S{LONGEST_NAME}")[:, 0].astype(str)
    return words


def differing_share(result: Columns, expected: Columns) -> float:
    """Return the share of rows that differ in any column; inf if columns or lengths differ."""
    import numpy as np

    if set(result) != set(expected) or any(len(result[name]) != len(expected[name]) for name in expected):
        return math.inf
    first, *other_names = expected
    wrong = np.not_equal(result[first], expected[first])
    for name in other_names:
        wrong |= np.not_equal(result[name], expected[name])
    return float(wrong.mean()) if len(wrong) else 0.0


def relative_error(result: Any, exact: np.ndarray) -> float:
    """Return the difference's Euclidean norm relative to the exact column's norm; inf if the lengths differ."""
    import numpy as np

    if len(result) != len(exact):
        return math.inf
    norm = float(np.linalg.norm(exact))
    return float(np.linalg.norm(result - exact)) / norm if norm else float(np.any(result != exact))
