"""Words around numbers: names within a sentence, units of one and of many, labels with their units."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.data.reference import REFERENCE, read_reference
from report.formatting import interval, label_value, threshold_text, thresholds_text, with_unit, within


@pytest.mark.parametrize(
    "name",
    ["CUDA cores", "TPU v4 chips", "GPUs of it", "MLPerf Inference", "STREAM triad", "H100 GPUs", "BabelStream", "int8",
     "Intel says so", "Llama 2", "Pythia-1.4B", "oneDNN", "ResNet-18", "CPU", ""],
)  # fmt: skip
def test_a_name_keeps_its_letters_within_a_sentence(name: str) -> None:
    assert within(name) == name


@pytest.mark.parametrize(
    ("text", "told"),
    [("A product runs", "a product runs"), ("Pre-training tokens", "pre-training tokens"), ("Price.", "price."),
     ("Submitters, all", "submitters, all"), ("For matrices", "for matrices")],
)  # fmt: skip
def test_an_ordinary_word_does_not(text: str, told: str) -> None:
    assert within(text) == told


def test_no_published_figure_loses_a_name() -> None:
    entries = read_reference(REFERENCE).values()
    names = {
        word for entry in entries for word in str(entry["subject"]).replace(",", " ").split() if word[:1].isupper()
    }
    plain = {"Model", "Training"}
    for entry in entries:
        first = str(entry["what"]).split()[0]
        if first in names - plain:
            assert within(entry["what"]) == entry["what"]


@given(st.text())
def test_nothing_but_the_first_letter_changes(text: str) -> None:
    assert within(text)[1:] == text[1:]


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [(1, "h", "1 hour"), (24, "h", "24 hours"), (1, "d", "1 day"), (1, "servers", "1 server"), (0.5, "h", "0.5 hours"),
     (1, "requests/s", "1 request/s"), (1, "1", "1"), (1, "MAC/cycle", "1 MAC/cycle"), (1, "s", "1 s")],
)  # fmt: skip
def test_one_is_singular(value: float, unit: str, told: str) -> None:
    assert threshold_text(value, unit) == interval(value, value, value, unit) == told


def test_of_several_thresholds_the_unit_is_plural() -> None:
    assert thresholds_text([1, 10], "h", "or") == "1 or 10 hours"
    # A measured number shows its digits.
    assert with_unit(1.0, "h") == "1.00 hours"


def test_labels_have_their_units() -> None:
    assert label_value("traffic", 776e9) == "776 billion tokens a day"
    assert label_value("requests_per_s", 1.0) == "1 request/s"


def test_what_is_without_end_is_no_code() -> None:
    assert with_unit(math.inf, "1") == "without end"
