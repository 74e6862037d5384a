"""The map of contradictions: every side stands in the columns of its articles with its claims, and fares as judged."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from report.judging.contradictions import STANDINGS
from report.render.central.disputed import FIGURE
from report.render.central.sides import LOOKS
from report.render.figures import keep
from tests.report.render.conftest import document
from tests.report.render.test_contradictions import decided


@pytest.fixture(scope="module")
def judged() -> dict[str, Any]:
    """Synthetic verdicts with three contradictions that they decide."""
    made = document()
    made["contradictions"] = decided(made)
    return made


def rows(shown: Any) -> dict[str, dict[str, Any]]:
    return {" ".join(row["label"]): row for group in shown.drawing.shows["groups"] for row in group["rows"]}


def test_each_side_stands_where_its_claims_are_from(judged: dict[str, Any], tmp_path: Path) -> None:
    shown = FIGURE.show([], judged)
    assert shown is not None
    articles = {one["id"]: one["article_title"] for one in judged["verdicts"]}
    columns = shown.drawing.shows["columns"]
    found = rows(shown)
    assert len(found) == len(judged["contradictions"]) == 3
    for one in judged["contradictions"]:
        row = found[" ".join(one["title"].split())]
        placed = {(columns[place], side["name"], claim["id"], side["standing"])
                  for place, cell in enumerate(row["cells"]) for side in cell for claim in side["claims"]}  # fmt: skip
        assert placed == {(articles[claim["id"]], side["name"], claim["id"], side["standing"])
                          for side in one["sides"] for claim in side["claims"]}  # fmt: skip
    assert keep(shown.drawing, tmp_path, None)


def test_every_standing_and_every_verdict_has_a_look_of_its_own(judged: dict[str, Any], tmp_path: Path) -> None:
    assert set(LOOKS) == set(STANDINGS)
    assert len({look[:3] for look in LOOKS.values()}) == len(LOOKS)
    one = judged["contradictions"][0]
    told = set()
    for standing in STANDINGS:
        sides = [side | {"standing": standing} for side in copy.deepcopy(one["sides"])]
        shown = FIGURE.show([], judged | {"contradictions": [one | {"sides": sides}]})
        assert shown is not None
        (row,) = rows(shown).values()
        told.add(row["told"])
    assert len(told) == len(STANDINGS)


@pytest.mark.parametrize("verdict", ["not testable", "depends", "awaiting hardware"])
def test_a_lone_claim_that_fares_otherwise_than_its_side_shows_its_own_verdict(
    judged: dict[str, Any], verdict: str
) -> None:
    one = copy.deepcopy(judged["contradictions"][0])
    side = one["sides"][0]
    side["standing"] = "holds"
    (carrier,) = side["claims"]
    verdicts = [one | {"verdict": verdict} if one["id"] == carrier["id"] else one for one in judged["verdicts"]]
    shown = FIGURE.show([], judged | {"verdicts": verdicts, "contradictions": [one]})
    assert shown is not None
    (row,) = rows(shown).values()
    (drawn,) = [each for cell in row["cells"] for each in cell if each["name"] == side["name"]]
    (claim,) = drawn["claims"]
    assert drawn["marked"] and claim["standing"] not in ("holds", "fails")
    assert f"{carrier['id']} {verdict}" in claim["words"]
