"""What is written to judge a part again: the intervals that decide, what is settled, other baselines, its form."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report.commands.what_if import settings, what_if
from report.estimates import Estimates, exact
from report.judging import rules
from report.judging.claims import Claim
from report.judging.client_evaluation import client_evaluation, slug
from report.judging.evaluate import PartResult, QuantityCache
from report.model import JUDGED, Side, Threshold
from report.render.rejudged import as_script, can_be_tried

from .deciding import NO_DATA, cells, log_cells, part
from .rejudging import BASELINES, Bench, bench, judged_fleet
from .rendering import once

CLAIM = Claim("W01", "whygpu", "A section", "Something.", "measured", 1, Path("W01.yaml"))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Every claim, on three nodes of which two have a GPU."""
    return bench(once(tmp_path_factory, "fleet", judged_fleet))


def record(estimates: Estimates, rule: str, threshold: Any, **options: Any) -> dict[str, Any]:
    one = part(rule, threshold, options)
    result = rules.decide(one, estimates)
    found = PartResult(one, result.outcome, None, "1", None, estimates, result)
    return client_evaluation(found, CLAIM, QuantityCache(NO_DATA))


def from_the_record(one: dict[str, Any], threshold: Any) -> str:
    """The outcome of a part by what its record holds alone."""
    told = one["rejudge"]
    if one["unchecked"]:
        return "undecided"
    if told["turns"]:
        sign = -1 if told["how"] == "at_most" else 1
        supported, challenged = (None if turn is None else sign * float(turn) for turn in told["turns"])
        if supported is not None and sign * threshold <= supported:
            return "supported"
        return "challenged" if challenged is not None and sign * threshold >= challenged else "undecided"
    low, high = (np.array([float(cell[end]) for cell in told["cells"]]) for end in (0, 1))
    found = rules.sides_of(low, high, Threshold.of(threshold), told["how"])
    pro, contra, _ = (n + found.count(side) for n, side in zip(told["settled"], Side, strict=True))
    return rules.of_counts(one["rule"], len(found) + sum(told["settled"]), pro, contra)


def test_every_decided_part_comes_out_as_it_did_and_as_it_does_over_its_range(judged: Bench) -> None:
    seen = 0
    for claim, verdict in zip(judged.claims, judged.document["verdicts"], strict=True):
        for place, one in enumerate(verdict["parts"]):
            if one["outcome"] not in JUDGED:
                assert one["rejudge"]["cells"] == [] and one["rejudge"]["settled"] == [0, 0, 0]
                continue
            assert from_the_record(one, one["threshold"]) == one["outcome"], claim.id
            for tried in one["robustness"]["thresholds"]:
                assert from_the_record(one, tried["threshold"]) == tried["outcome"], claim.id
            # Numbers come back from the file as they were.
            ends = {float(end) for cell in one["rejudge"]["cells"] for end in cell[:2]}
            assert set(judged.ends(claim, place, "")) <= ends, claim.id
            seen += 1
    assert seen > 10


def test_where_one_cell_is_enough_the_intervals_are_wider_than_the_drawn() -> None:
    some = log_cells([1.0, 2.0, 3.0], place=["a", "b", "c"])
    one, every = record(some, "exists", 2.0), record(some, "at_least", 2.0)
    ends = zip(*(side.tolist() for side in some.ends(rules.level("exists", 3))), strict=True)
    assert [cell[:2] for cell in one["cells"]] == [list(pair) for pair in ends]
    pairs = zip(one["cells"], every["cells"], strict=True)
    assert all(a[0] < b[0] and b[1] < a[1] for a, b in pairs), "as many chances to be wrong as there are cells"


def test_series_that_never_change_places_are_settled() -> None:
    rows = [
        {"estimate": value, "kind": kind, "batch": batch, "model": model}
        for model, ahead in (("mlp", (2.0, 3.0, 4.0)), ("cnn", (0.5, 2.0, 3.0)))
        for kind, values in (("x", ahead), ("y", (1.0, 1.0, 1.0)))
        for batch, value in zip((1, 2, 4), values, strict=True)
    ]
    told = record(exact(rows), "crossover", 3.0, over="kind", of="x", to="y", along="batch")
    assert told["settled"] == [0, 1, 0] and [cell[:2] for cell in told["cells"]] == [[1.0, 2.0]]


def test_a_cell_without_an_interval_is_settled_and_an_infinite_end_is_a_word() -> None:
    told = record(cells((math.nan, math.nan), (-math.inf, math.inf), place=["a", "b"]), "at_least", 1.0)
    assert told["settled"] == [0, 0, 1] and [cell[:2] for cell in told["cells"]] == [["-Infinity", "Infinity"]]
    json.dumps(told, allow_nan=False)


def test_a_baseline_comes_to_what_what_if_makes_of_it(judged: Bench) -> None:
    offered = [
        (verdict["id"] + (f".{slug(known['name'])}" if len(verdict["parts"]) > 1 else ""), known, baseline)
        for verdict in judged.document["verdicts"]
        for known in verdict["parts"]
        for baseline in known["rejudge"]["baselines"]
    ]
    assert {baseline for *_, baseline in offered} == set(BASELINES)
    for baseline in BASELINES:
        mine = [(name, known) for name, known, other in offered if other == baseline]
        asked = settings([f"{name}.baseline={baseline}" for name, _ in mine], judged.claims, judged.data)
        found = {one.claim.id: one for one in what_if(judged.data, judged.claims, asked, {}, allow_synthetic=True)}
        for name, known in mine:
            told = known["rejudge"]["baselines"][baseline]
            assert told["outcome"] == found[name.partition(".")[0]].parts[known["name"]][1], name
            record = {**known, "rejudge": {**known["rejudge"], **told}}
            assert from_the_record(record, known["threshold"]) == told["outcome"], name


def test_no_text_ends_the_script_of_the_page(judged: Bench) -> None:
    verdicts = json.loads(json.dumps(judged.document["verdicts"]))
    one = next(one for verdict in verdicts if can_be_tried(verdict) for one in verdict["parts"])
    one["name"] = "</script><!--<script>&\u2028"
    inner = as_script(verdicts).removeprefix('<script type="application/json" id="rejudge-data">')
    inner = inner.removesuffix("</script>\n")
    assert "<" not in inner and "\u2028" not in inner
    assert one["name"] in [part["name"] for claim in json.loads(inner)["claims"].values() for part in claim["parts"]]
