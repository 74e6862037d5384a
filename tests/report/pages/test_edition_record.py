"""Edition records: contents, reading, and order in time."""

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
from tests.report.pages.edition_files import Study

Edit = Callable[[dict[str, Any]], object]


def test_edition_counts_cases_and_names_machines(edition_2: Study) -> None:
    record = extract_edition(edition_2.document, "verdicts.json")
    verdicts = {verdict["id"]: verdict for verdict in edition_2.document["verdicts"]}
    assert [claim["id"] for claim in record["claims"]] == list(verdicts)
    for claim in record["claims"]:
        cases = verdicts[claim["id"]]["cases"]
        assert sum(sum(part["cells"].values()) for part in claim["parts"]) == len(cases)
        assert {name for part in claim["parts"] for name in part["nodes"]} == {c["node"] for c in cases if c["node"]}
    (part,) = next(claim for claim in record["claims"] if claim["id"] == "N03")["parts"]
    assert part["nodes"] == ["node-a", "node-b"] and part["cells"] == {"supports": 2}
    listed = {entry["id"]: entry for entry in edition_2.document["references"]}
    assert record["figures"] and all(
        record["figures"][name]["status"] == listed[name]["status"] for name in record["figures"]
    )
    assert len(json.dumps(record)) < len(json.dumps(edition_2.document))


def test_editions_are_read_oldest_first(edition_1: Study, edition_2: Study, tmp_path: Path) -> None:
    records = [extract_edition(study.document, study.verdicts) for study in (edition_2, edition_1)]
    write_editions(tmp_path / "editions.json", records)
    assert read_editions(tmp_path / "editions.json") == records[::-1]
    assert read_editions(edition_1.verdicts) == [records[1]]


@pytest.mark.parametrize(
    ("edit", "fault"),
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
def test_invalid_edition_file_is_refused_in_one_line(edit: Edit, fault: str, edition_1: Study, tmp_path: Path) -> None:
    document = copy.deepcopy(edition_1.document)
    edit(document)
    (tmp_path / "old.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(StudyError, match=rf"old\.json.*{fault}") as refused:
        read_editions(tmp_path / "old.json")
    assert "\n" not in str(refused.value)


def test_rejudged_identical_verdicts_are_no_new_edition(edition_1: Study, edition_2: Study) -> None:
    first, second = (extract_edition(study.document, study.verdicts) for study in (edition_1, edition_2))
    rejudged = {**second, "generated_utc": "2026-03-01T00:00:00Z", "commit": "another"}
    assert edition_digest(rejudged) == edition_digest(second) != edition_digest(first)
    assert earlier_editions([second, first], rejudged) == [first]
    assert earlier_editions([first], second) == [first]
    assert earlier_editions([first, second, {**second, "generated_utc": "2026-02-15T00:00:00Z"}], rejudged) == [first]
    assert earlier_editions([{**first, "generated_utc": second["generated_utc"]}], second) == [], (
        "an edition from the same time is not earlier"
    )
    assert earlier_editions([first], first) == []
    assert earlier_editions([second], first) == [], "a later edition is not earlier"
    third = copy.deepcopy(second)
    third["claims"][0]["verdict"] = "challenged" if second["claims"][0]["verdict"] != "challenged" else "supported"
    assert earlier_editions([first, second], {**third, "generated_utc": "2026-03-01T00:00:00Z"}) == [first, second]
