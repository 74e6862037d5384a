"""What is kept of an edition, how editions are read, and which of them came before."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from report.pages.editions.edition_record import (
    earlier_editions,
    edition_digest,
    extract_edition,
    read_editions,
    write_editions,
)
from tests.report.pages.edition_files import Judged

Edit = Callable[[dict[str, Any]], object]


def test_an_edition_counts_the_cases_and_names_their_machines(second: Judged) -> None:
    made = extract_edition(second.document, "verdicts.json")
    verdicts = {verdict["id"]: verdict for verdict in second.document["verdicts"]}
    assert [claim["id"] for claim in made["claims"]] == list(verdicts)
    for claim in made["claims"]:
        cases = verdicts[claim["id"]]["cases"]
        assert sum(sum(part["cells"].values()) for part in claim["parts"]) == len(cases)
        assert {name for part in claim["parts"] for name in part["nodes"]} == {c["node"] for c in cases if c["node"]}
    (part,) = next(claim for claim in made["claims"] if claim["id"] == "N03")["parts"]
    assert part["nodes"] == ["node-a", "node-b"] and part["cells"] == {"supports": 2}
    listed = {entry["id"]: entry for entry in second.document["references"]}
    assert made["figures"] and all(
        made["figures"][name]["status"] == listed[name]["status"] for name in made["figures"]
    )
    assert len(json.dumps(made)) < len(json.dumps(second.document))


def test_editions_are_read_as_they_were_written_the_oldest_first(first: Judged, second: Judged, tmp_path: Path) -> None:
    made = [extract_edition(one.document, one.verdicts) for one in (second, first)]
    write_editions(tmp_path / "editions.json", made)
    assert read_editions(tmp_path / "editions.json") == made[::-1]
    assert read_editions(first.verdicts) == [made[1]]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda document: document.pop("verdicts"), "holds neither verdicts"),
        (lambda document: document.pop("generated_utc"), "generated_utc"),
        (
            lambda document: document["verdicts"][3].pop("parts"),
            "verdicts.3: missing: parts. .*write the verdicts again",
        ),
        (
            lambda document: document["verdicts"][3].pop("cases"),
            "verdicts.3: missing: cases. .*write the verdicts again",
        ),
        (lambda document: document.update(generated_utc="yesterday"), "generated_utc"),
        (lambda document: document["verdicts"][0].update(id="<b>"), "verdicts.0.id"),
        (lambda document: document["verdicts"][0]["parts"][0].update(estimate="much"), "verdicts.0.parts.0.estimate"),
        (lambda document: document["verdicts"][0]["parts"][0].update(threshold=[1]), "verdicts.0.parts.0.threshold"),
        (lambda document: document["verdicts"].append(document["verdicts"][0]), "a claim occurs twice"),
        (lambda document: document.update(verdicts={}), "verdicts"),
    ],
)
def test_a_file_of_no_edition_is_refused_in_a_sentence(edit: Edit, said: str, first: Judged, tmp_path: Path) -> None:
    document = copy.deepcopy(first.document)
    edit(document)
    (tmp_path / "old.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(StudyError, match=rf"old\.json.*{said}") as refused:
        read_editions(tmp_path / "old.json")
    assert "\n" not in str(refused.value)


def test_the_same_verdicts_judged_again_are_no_edition_of_their_own(first: Judged, second: Judged) -> None:
    one, two = (extract_edition(each.document, each.verdicts) for each in (first, second))
    again = {**two, "generated_utc": "2026-03-01T00:00:00Z", "commit": "another"}
    assert edition_digest(again) == edition_digest(two) != edition_digest(one)
    assert earlier_editions([two, one], again) == [one]
    assert earlier_editions([one], two) == [one]
    assert earlier_editions([one, two, {**two, "generated_utc": "2026-02-15T00:00:00Z"}], again) == [one]
    assert earlier_editions([{**one, "generated_utc": two["generated_utc"]}], two) == [], (
        "what came at once is not before"
    )
    assert earlier_editions([one], one) == []
    assert earlier_editions([two], one) == [], "what came later is not before"
    third = copy.deepcopy(two)
    third["claims"][0]["verdict"] = "challenged" if two["claims"][0]["verdict"] != "challenged" else "supported"
    assert earlier_editions([one, two], {**third, "generated_utc": "2026-03-01T00:00:00Z"}) == [one, two]
