"""The algebra of estimates: ratios along a label, and rows with estimates that were made beside them."""

from __future__ import annotations

import numpy as np
import pytest

from report import statistics
from report.estimates import Estimates


def rates() -> Estimates:
    known = {"se": 0.01, "df": 4.0, "n_rounds": 3, "n_samples": 15}
    rows = [("a", "torch", 2.0, (1,)), ("a", "onnx", 6.0, (2,)), ("b", "torch", 5.0, (3,))]
    return Estimates.of(
        [{"model": m, "backend": b, "estimate": e, "source_rows": at, **known} for m, b, e, at in rows], log=True
    )


def test_a_ratio_is_of_what_agrees_in_all_other_labels() -> None:
    ratio = rates().ratio("backend", "onnx", "torch")
    assert ratio.rows("model", "estimate", "n_samples", "source_rows") == [("a", pytest.approx(3.0), 30, (2, 1))]
    assert ratio.labels == ["model"]
    assert list(ratio["se"]) == pytest.approx([0.01 * 2**0.5])
    assert not len(rates().ratio("backend", "inductor", "torch"))
    assert not len(Estimates.empty().ratio("backend", "onnx", "torch"))


def test_rows_take_the_estimates_that_were_made_of_them() -> None:
    points = statistics.on_log_scale([[1.0, 1.1], [2.0, 2.2]], np.arange(2))
    made = Estimates.from_points([{"model": "a"}, {"model": "b"}], points, log=True)
    assert made.rows("model", "estimate") == list(zip("ab", points.estimate, strict=True)) and made.log
    assert made.rows("low", "high", "se", "df") == list(zip(points.low, points.high, points.se, points.df, strict=True))
    assert not len(Estimates.from_points([], statistics.on_log_scale([])))
