"""What is written to judge a part again: the intervals that decide, what is settled, other baselines, its form."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report.judging.threshold_sensitivity import SIDES
from report.verdicts import JUDGED

from report.commands.what_if import what_if
from report.data.dataset import Dataset
from report.data.nodes import Nodes
from report.data.reference import REFERENCE, read_reference
from report.estimates import Estimates, exact
from report.judging.claims import Claim, Part
from report.judging.client_evaluation import MOST_NAMED, again
from report.judging.evaluate import PartResult, QuantityCache
from report.judging.overrides import changes
from report.judging.rules import decide, level, of_counts, sides
from report.render.rejudged import as_script, can_be_tried, rejudged

from .rejudging import BASELINES, Bench, bench, judged_fleet
from .rendering import once

EMPTY = Dataset(Nodes([], []), {}, pd.DataFrame(columns=["experiment", "metric", "status"]))
CLAIM = Claim("W01", "whygpu", "A section", "Something.", "measured", 1, Path("W01.yaml"))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Every claim, on three nodes of which two have a GPU."""
    return bench(once(tmp_path_factory, "fleet", judged_fleet))


def record(cells: Estimates, rule: str, threshold: Any, **options: Any) -> dict[str, Any]:
    part = Part("", "q", rule, threshold, "why", options=options)
    ruling = decide(rule, cells, threshold, "1", options)
    return again(PartResult(part, ruling.outcome, "", "1", None, cells, ruling), CLAIM, QuantityCache(EMPTY))


def rejudged_by_hand(part: dict[str, Any], threshold: Any) -> str:
    """The outcome from the record alone."""
    told = part["rejudge"]
    low, high = (np.array([float(cell[end]) for cell in told["cells"]]) for end in (0, 1))
    found = sides(low, high, threshold, told["how"])
    pro, contra, _ = (n + found.count(side) for n, side in zip(told["settled"], SIDES, strict=True))
    return of_counts(part["rule"], len(found) + sum(told["settled"]), pro, contra, told["share"])


def test_every_decided_part_comes_out_as_it_did_and_as_it_does_over_its_range(judged: Bench) -> None:
    seen = 0
    for verdict in judged.document["verdicts"]:
        for part in verdict["parts"]:
            if part["outcome"] in JUDGED:
                assert rejudged_by_hand(part, part["threshold"]) == part["outcome"], verdict["id"]
                for tried in part["robustness"]["thresholds"]:
                    assert rejudged_by_hand(part, tried["threshold"]) == tried["outcome"], verdict["id"]
                seen += 1
            else:
                assert part["rejudge"]["cells"] == [] and part["rejudge"]["settled"] == [0, 0, 0]
    assert seen > 10


def test_where_one_cell_is_enough_the_intervals_are_wider_than_the_drawn() -> None:
    frame = pd.DataFrame({"estimate": [1.0, 2.0, 3.0], "se": 0.01, "df": 10.0, "n_rounds": 3, "n_samples": 15})
    cells = Estimates.from_estimates(frame.assign(place=["a", "b", "c"]))
    one, all_ = record(cells, "exists", 2.0), record(cells, "at_least", 2.0)
    low, high = cells.ends(level("exists", 3))
    assert [cell[:2] for cell in one["cells"]] == [[a, b] for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    assert all(a[0] < b[0] and b[1] < a[1] for a, b in zip(one["cells"], all_["cells"], strict=True)), (
        "as many chances to be wrong as there are cells"
    )


def test_series_that_never_change_places_are_settled() -> None:
    rows = [
        {"estimate": value, "kind": kind, "batch": batch, "model": model}
        for model, ahead in (("mlp", (2.0, 3.0, 4.0)), ("cnn", (0.5, 2.0, 3.0)))
        for kind, values in (("x", ahead), ("y", (1.0, 1.0, 1.0)))
        for batch, value in zip((1, 2, 4), values, strict=True)
    ]
    told = record(exact(rows), "crossover", 3.0, over="kind", of="x", to="y", along="batch")
    assert told["settled"] == [0, 1, 0]
    assert [cell[:2] for cell in told["cells"]] == [[1.0, 2.0]]


def test_a_cell_without_an_interval_is_settled_and_an_infinite_end_is_a_word() -> None:
    rows = [
        {"estimate": 1.0, "low": math.nan, "high": math.nan, "place": "a"},
        {"estimate": 2.0, "low": -math.inf, "high": math.inf, "place": "b"},
    ]
    told = record(exact(rows), "at_least", 1.0)
    assert told["settled"] == [0, 0, 1]
    assert [cell[:2] for cell in told["cells"]] == [["-Infinity", "Infinity"]]
    json.dumps(told, allow_nan=False)
    assert [float(end) for end in told["cells"][0][:2]] == [-math.inf, math.inf]


def test_numbers_come_back_from_the_file_as_they_were(judged: Bench) -> None:
    for claim, verdict in zip(judged.claims, judged.document["verdicts"], strict=True):
        for place, part in enumerate(verdict["parts"]):
            ends = {float(end) for cell in part["rejudge"]["cells"] for end in cell[:2]}
            assert set(judged.ends(claim, place, "")) <= ends, claim.id


def test_cells_are_named_and_where_there_are_several_nodes_by_them_too() -> None:
    rows = [{"estimate": 1.0, "batch": 1}, {"estimate": 2.0, "batch": 2}]
    assert [cell[2] for cell in record(exact(rows), "at_least", 1.0)["cells"]] == ["batch 1", "batch 2"]
    assert [cell[2] for cell in record(exact(rows[:1]), "at_least", 1.0)["cells"]] == [""]
    many = [{"estimate": 1.0, "batch": batch} for batch in range(MOST_NAMED + 1)]
    assert {cell[2] for cell in record(exact(many), "at_least", 1.0)["cells"]} == {""}


def test_cells_of_several_nodes_bear_their_names(judged: Bench) -> None:
    named = [
        cell[2]
        for verdict in judged.document["verdicts"]
        for part in verdict["parts"]
        if part["quantity"] == "training.speedup" and len(part["rejudge"]["cells"]) <= MOST_NAMED
        for cell in part["rejudge"]["cells"]
    ]
    labels = {node["label"] for node in judged.document["nodes"]}
    assert named and all(name.split("; ")[0] in labels for name in named)


def test_the_baselines_are_those_that_what_if_accepts(judged: Bench) -> None:
    by_id = {verdict["id"]: verdict for verdict in judged.document["verdicts"]}
    offered = set()
    for baseline in BASELINES:
        changed = changes(judged.claims, read_reference(REFERENCE), swaps={"baseline": baseline})
        answer = what_if(judged.data, judged.claims, changed, judged.document, allow_synthetic=True)
        refused = {note.split(":")[0] for note in answer["notes"] if "not measured with" in note}
        for one in answer["claims"]:
            has = [part for part in by_id[one["id"]]["parts"] if baseline in part["rejudge"]["baselines"]]
            for part in has:
                assert part["rejudge"]["baselines"][baseline]["outcome"] == one["is"]["parts"][part["name"]], one["id"]
            if one["parts_moved"]:
                assert has, f"{one['id']}: moves against {baseline}, and the page would not know"
            if one["id"] in refused:
                assert len(has) < len(by_id[one["id"]]["parts"])
            offered |= {baseline} if has else set()
    assert offered == set(BASELINES)


# ------------------------------------------------------------------ what the page is given


def test_the_page_is_given_every_claim_and_a_form_for_those_that_are_decided(judged: Bench) -> None:
    verdicts = judged.document["verdicts"]
    told = rejudged(verdicts)
    assert set(told["claims"]) == {verdict["id"] for verdict in verdicts}
    for verdict in verdicts:
        claim = told["claims"][verdict["id"]]
        assert claim["verdict"] == verdict["verdict"]
        assert len(claim["parts"]) == len(verdict["parts"])
        if can_be_tried(verdict):
            assert any("before" in part for part in claim["parts"])
        if verdict["verdict"] not in JUDGED:
            assert not can_be_tried(verdict)
    n = sum(map(can_be_tried, verdicts))
    assert 10 < n < len(verdicts)


def test_a_field_stands_in_the_words_of_its_rule(judged: Bench) -> None:
    told = rejudged(judged.document["verdicts"])["claims"]
    by_id = {verdict["id"]: verdict for verdict in judged.document["verdicts"]}
    for name, claim in told.items():
        for form, part in zip(claim["parts"], by_id[name]["parts"], strict=True):
            if "before" not in form:
                continue
            assert form["before"].startswith("Supported if") and not any(
                form["before"].endswith(end) for end in (" ", ".")
            )
            first = form["before"][0].lower() + form["before"][1:]
            bound = part["threshold"]
            if isinstance(bound, list) and bound[0] == bound[1]:
                # One number is told as such; its field has two ends for all that.
                first = first.replace("within", "exactly")
            assert part["rule_text"].startswith(first), name
            assert form["tries"] == [] or [one for one, _ in form["tries"]] == sorted(
                [one for one, _ in form["tries"]], key=lambda value: value if isinstance(value, list) else [value]
            )
            assert sum("(declared)" in text for _, text in form["tries"]) == (1 if form["tries"] else 0)


def test_what_is_too_large_for_the_page_says_what_to_type(judged: Bench) -> None:
    verdicts = judged.document["verdicts"]
    most = 20_000
    told = rejudged(verdicts, most)["claims"]
    kept = {name: claim for name, claim in told.items() if "parts" in claim}
    left = {name: claim for name, claim in told.items() if "parts" not in claim}
    assert kept and left
    assert len(json.dumps([kept, rejudged(verdicts, most)["cells"]])) <= 1.1 * most
    forms = {verdict["id"] for verdict in verdicts if can_be_tried(verdict)}
    assert all(f"python -m report what-if --set '{name}" in left[name]["left_out"] for name in forms & set(left))
    assert set(told) == set(rejudged(verdicts)["claims"])
    # Those with a form come before those without, and of these the small ones.
    sizes = {verdict["id"]: len(verdict["cells"]) for verdict in verdicts if verdict["id"] in forms}
    assert min(sizes, key=lambda name: sizes[name]) in kept and max(sizes, key=lambda name: sizes[name]) in left


def test_no_text_ends_the_script(judged: Bench) -> None:
    verdicts = json.loads(json.dumps(judged.document["verdicts"]))
    part = next(part for verdict in verdicts if can_be_tried(verdict) for part in verdict["parts"])
    part["name"] = "</script><!--<script>&\u2028"
    text = as_script(verdicts)
    inner = text.removeprefix('<script type="application/json" id="rejudge-data">').removesuffix("</script>\n")
    assert "<" not in inner and "\u2028" not in inner
    names = [part["name"] for claim in json.loads(inner)["claims"].values() for part in claim["parts"]]
    assert part["name"] in names


def test_verdicts_of_an_earlier_edition_have_no_forms(judged: Bench) -> None:
    verdicts = json.loads(json.dumps(judged.document["verdicts"]))
    for verdict in verdicts:
        for part in verdict["parts"]:
            del part["rejudge"]
    assert as_script(verdicts) == ""
    assert not any(map(can_be_tried, verdicts))
