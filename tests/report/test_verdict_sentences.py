"""Formatting of numbers, units in singular and plural, labels, and names inside sentences."""

from __future__ import annotations

import math

import pytest

from report.formatting import (
    case_name,
    format_interval,
    format_number,
    format_part,
    label_value,
    threshold_text,
    thresholds_text,
    uncapitalize,
    with_unit,
)


@pytest.mark.parametrize(
    ("formatted", "text"),
    [
        (format_number(3571.2), "3,571"),
        (format_number(3.187e9), "3.19 billion"),
        (format_number(2.4e-9), "2.40e-09"),
        (format_number(float("nan")), "unknown"),
        (with_unit(4.12e11, "FLOP/s"), "412 GFLOP/s"),
        (with_unit(1.0, "h"), "1.00 hours"),
        (with_unit(math.inf, "1"), "without end"),
        (format_interval(27.9, 27.1, 28.7, "MAC/cycle"), "27.9 [27.1, 28.7] MAC/cycle"),
        (format_interval(27, 26.91, 27.02, "1"), "27.0 [26.9, 27.0]"),
        (format_interval(1.0, 0.99996, 1.00004, "1"), "1.00000 [0.99996, 1.00004]"),
        (format_interval(16896, 16896, 16896, "1"), "16,896"),
        (format_interval(2e10, None, None, "B/s"), "20.0 GB/s (no interval)"),
        (thresholds_text([1, 2, 4], "MAC/cycle", "or"), "1, 2 or 4 MAC/cycle"),
        (thresholds_text([1e6, 1e9], "B/s"), "1 MB/s and 1 GB/s"),
        (label_value("traffic", 776e9), "776 billion tokens a day"),
        (label_value("requests_per_s", 1.0), "1 request/s"),
    ],
)
def test_numbers_and_intervals_are_formatted(formatted: str, text: str) -> None:
    assert formatted == text


def test_published_case_name_has_work_hardware_formats_and_source() -> None:
    labels = {"family": "mlperf", "model": "ResNet-50", "gpu": "H100 SXM", "source": "mlperf-training-3.1"}
    for precision, formats in (("mixed over bfloat16", ", mixed over bfloat16"), ("mixed", ""), ("", "")):
        name = case_name({**labels, "cpu": "2 x Xeon Platinum 8480+", "precision": precision}, "MLPerf Training v3.1")
        assert name == (
            f"ResNet-50, H100 SXM over 2 x Xeon Platinum 8480+{formats}, MLPerf Training v3.1 (mlperf-training-3.1)"
        )
    assert case_name({**labels, "of": "int8", "to": "float32", "source": ""}, "") == (
        "ResNet-50, H100 SXM, int8 over float32"
    )


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [(1, "h", "1 hour"), (24, "h", "24 hours"), (1, "d", "1 day"), (1, "servers", "1 server"), (0.5, "h", "0.5 hours"),
     (1, "requests/s", "1 request/s"), (1, "1", "1"), (1, "MAC/cycle", "1 MAC/cycle"), (1, "s", "1 s")],
)  # fmt: skip
def test_unit_is_singular_for_one(value: float, unit: str, expected: str) -> None:
    assert threshold_text(value, unit) == format_interval(value, value, value, unit) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("A product runs", "a product runs"), ("Submitters, all", "submitters, all"),
     *((name, name) for name in ("CUDA cores", "TPU v4 chips", "H100 GPUs", "int8", "Llama 2", "oneDNN", ""))],
)  # fmt: skip
def test_uncapitalize_keeps_names(text: str, expected: str) -> None:
    assert uncapitalize(text) == expected


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0 of 3 cases lie"), (1, "1 of 3 cases lies"), (2, "2 of 3 cases lie"), (3, "3 of 3 cases lie")]
)
def test_verb_agrees_with_part(n: int, text: str) -> None:
    assert format_part(n, 3, "cases", "lies", "lie") == text
