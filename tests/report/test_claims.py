"""Parsers for claim and reference files: contents, and error messages with file and line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from report.data.reference_figures import read_reference
from report.judging.claim_files import ARTICLES, CLOSED, read_claims
from report.judging.rules import RULES
from report.outcomes import Threshold

from .claim_mistakes import reported_line, write_yaml

FLAT: dict[str, Any] = {
    "id": "W15", "article": "whygpu", "section": "A section", "says": "Something about cores.", "word": "none",
    "kind": "measured",
    "quantity": "gemm.rate", "scope": {"device": "cpu", "dtype": "float32"}, "rule": "at_most",
    "threshold": {"value": 1000, "why": "generous"}, "note": "A note.", "version": 1,
}  # fmt: skip
PART = {"name": "a part", "quantity": "gemm.rate", "rule": "exists", "threshold": {"value": 1, "why": "one"}}
CHANGE: dict[str, Any] = {"version": 2, "date": "2026-01-01", "data_seen": True, "reason": "better"}
EARLIER: dict[str, Any] = {"quantity": "gemm.rate", "rule": "at_most", "threshold": 10}
BARE: dict[str, Any] = dict.fromkeys(("quantity", "scope", "rule", "threshold"))


def make_entry(name: str = "chip.cores", value: float | None = 192, unit: str = "1", **more: Any) -> dict[str, Any]:
    """Build a reference entry. If `value` is None, its status is `not verified`."""
    source = {"title": "A datasheet", "publisher": "A maker", "url": "https://example.org/", "where": "page 1"}
    about = {"id": name, "subject": "A chip", "what": "Cores of one", "date": "2024", "source": source}
    status = "not verified" if value is None else "verified"
    return {**about, "status": status, "value": value, "unit": unit, **more}


def write_claim(folder: Path, name: str = "W15", **changes: Any) -> Path:
    """Write the claim FLAT with `changes` to a file, and return its path. The value None removes a key."""
    claim = {**FLAT, "id": name, **changes}
    return write_yaml(folder / f"{name}.yaml", {key: value for key, value in claim.items() if value is not None})


def write_references(folder: Path, *entries: dict[str, Any]) -> Path:
    write_yaml(folder / "chips.yaml", list(entries))
    return folder


def test_flat_claim_has_one_part(tmp_path: Path) -> None:
    write_claim(tmp_path, scale={"by": 128, "why": "a server"}, sensitivity=[2000, 200])
    (claim,) = read_claims(tmp_path, {})
    (part,) = claim.parts
    assert (claim.id, part.name, part.threshold, part.scale) == ("W15", "", Threshold(1000), 128)
    assert part.thresholds == [Threshold(200), Threshold(1000), Threshold(2000)], "sorted, with the declared"


def test_same_as_copies_rules_only_to_claims_without_any(tmp_path: Path) -> None:
    write_claim(tmp_path, **BARE, all_of=[PART, {**PART, "name": "b", "quantity": "clock.rate"}])
    write_claim(tmp_path, "W16", **BARE, same_as="W15", says="Something else.")
    write_claim(tmp_path, "W14", same_as="W15")
    own, first, second = read_claims(tmp_path, {})
    assert [part.name for part in first.parts] == ["a part", "b"]
    assert second.parts == first.parts and (second.id, second.says) == ("W16", "Something else.")
    assert len(own.parts) == 1, "a claim with its own rule keeps it"


EVERY_RULE = f"Allowed: {', '.join(RULES)}."
EVERY_DTYPE = f"Allowed: {', '.join(CLOSED['dtype'])}."
NUMBERS = "not a finite number"

# For each mistake: the changes to FLAT, a text in the line to which the error points, and texts in the message.
MISTAKES: dict[str, tuple[dict[str, Any], str, Sequence[str]]] = {
    "unknown rule": ({"rule": "at_mots"}, "rule: at_mots", [EVERY_RULE, "Did you mean 'at_most'?"]),
    "unknown quantity": ({"quantity": "gemm.rat"}, "quantity: gemm.rat", ["gemm.peak_share", "'gemm.rate'?"]),
    "no quantity at all": ({"quantity": "Rate"}, "quantity: Rate", ["'Rate'"]),
    "unknown label": ({"scope": {"dtpye": "float32"}}, "dtpye: float32", ["Allowed: node, device, dtype", "'dtype'?"]),
    "unknown value of a closed label": ({"scope": {"dtype": "flaot32"}}, "dtype: flaot32", [EVERY_DTYPE, "'float32'?"]),
    "threshold that is text": ({"threshold": {"value": "many", "why": "?"}}, "value: many", ["'many'"]),
    "threshold that is yes": ({"threshold": {"value": True, "why": "?"}}, "value: true", ["threshold.value"]),
    "threshold that is no number": ({"threshold": {"value": math.nan, "why": "?"}}, "value: .nan", [NUMBERS]),
    "threshold that is a range": ({"threshold": {"value": [1, 2], "why": "?"}}, "value:", ["not of type number"]),
    "threshold that is no range": ({"rule": "within"}, "value: 1000", ["not of type array"]),
    "range that ends before it begins": (
        {"rule": "within", "threshold": {"value": [9, 1], "why": "?"}}, "threshold:", ["the range [9, 1] ends"]
    ),
    "missing threshold": ({"threshold": None}, "id: W15", ["missing: threshold"]),
    "missing why": ({"threshold": {"value": 3}}, "threshold:", ["threshold: missing: why"]),
    "sensitivity that is text": ({"sensitivity": [1, "many"]}, "- many", ["'many'"]),
    "sensitivity without end": ({"sensitivity": [1, -math.inf]}, "- -.inf", [f"sensitivity.1: {NUMBERS}"]),
    "sensitivity of too many": ({"sensitivity": list(range(51))}, "sensitivity:", ["has 51 entries"]),
    "sensitivity that is a range": ({"sensitivity": [[1, 2]]}, "- - 1", ["not of type number"]),
    "sensitivity that ends before it begins": (
        {"rule": "within", "threshold": {"value": [1, 9], "why": "?"}, "sensitivity": [[9, 1]]}, "sensitivity:",
        ["the range [9, 1] ends"],
    ),
    "scale by nothing": ({"scale": {"by": 0, "why": "?"}}, "by: 0", ["scale.by"]),
    "scale without end": ({"scale": {"by": math.inf, "why": "?"}}, "by: .inf", [f"scale.by: {NUMBERS}"]),
    "unknown article": ({"article": "whygpus"}, "article: whygpus", [f"Allowed: {', '.join(ARTICLES)}.", "'whygpu'?"]),
    "unknown kind": ({"kind": "measures"}, "kind: measures", ["Allowed: measured, derived, documented, judgement."]),
    "bad id": ({"id": "W155"}, "id: W155", ["one capital letter and two digits"]),
    "id of another file": ({"id": "W16"}, "id: W16", ["the file's name says 'W15'"]),
    "unknown key": ({"sensitvity": [1]}, "sensitvity:", ["Allowed: id, article", "Did you mean 'sensitivity'?"]),
    "ratio without options": ({"rule": "ratio"}, "id: W15", ["missing: options"]),
    "ratio without its sides": ({"rule": "ratio", "options": {"over": "device"}}, "options:", ["missing: of, to"]),
    "trend along nothing": ({"rule": "trend", "options": {"of": "gpu"}}, "options:", ["missing: along"]),
    "share of nothing": ({"rule": "for_share_of", "options": {"along": "m"}}, "options:", ["missing: share, of"]),
    "share of what no label tells": (
        {"rule": "for_share_of", "options": {"share": 0.5, "of": "modle"}}, "of: modle", ["Allowed: node, device"]
    ),
    "share within two ends": (
        {"rule": "for_share_of", "options": {"share": 0.5, "of": "dtype", "compare": "within"},
         "threshold": {"value": [1, 2], "why": "?"}}, "compare: within", ["Allowed: at_least, at_most."],
    ),
    "untestable with a rule": ({"untestable": "no figures"}, "quantity: gemm.rate", ["remove 'quantity'"]),
    "unknown kind of machine": ({"machine": "desk"}, "machine: desk", ["Allowed: laptop, desktop, server, many-core."]),
    "finding of no outcome": ({"findings": {"suported": "So."}}, "suported: So.", ["Did you mean 'supported'?"]),
    "finding that is too long": ({"findings": {"supported": "a " * 151}}, "supported:", ["has 302 characters"]),
    "finding of an unknown part": (
        {"findings": {"depends": "It took {[time] least}."}}, "depends: It took", ["{[time] least} is no known"]
    ),
    "option that is no value of its label": (
        {"rule": "ratio", "options": {"over": "device", "of": "tpu", "to": "cpu"}}, "of: tpu", ["Allowed: cpu, gpu."]
    ),
    "part without a name": ({**BARE, "all_of": [{**PART, "name": ""}]}, "name: ''", ["all_of.0.name"]),
    "two parts of one name": ({**BARE, "all_of": [PART, {**PART}]}, "- name: a part", ["two parts are named 'a part'"]),
    "mistake within a part": (
        {**BARE, "all_of": [PART, {**PART, "name": "b", "rule": "exist"}]}, "rule: exist", [EVERY_RULE, "'exists'?"]
    ),
    "part beside a rule": ({"all_of": [PART]}, "quantity: gemm.rate", ["'quantity' cannot be combined with 'all_of'"]),
    "judgement with a rule": ({"kind": "judgement", "bears_on": []}, "quantity: gemm.rate", ["remove 'quantity'"]),
    "link to an unknown claim": ({"see_also": ["W15", "W99"]}, "- W99", ["see_also: there is no claim 'W99'"]),
    "link with a line break": ({"see_also": ["W16\n"]}, "W16", ["see_also.0"]),
    "same as itself": ({**BARE, "same_as": "W15"}, "same_as: W15", ["W15 names itself"]),
    "link to itself": ({"see_also": ["W15"]}, "see_also:", ["see_also: W15 names itself"]),
    "published figure that is not named": (
        {"quantity": "reference.value", "scope": None}, "quantity: reference.value", ["needs a scope"]
    ),
    "no note": ({"note": None}, "id: W15", ["missing: note"]),
    "unknown source": ({"sources": ["chip.core"]}, "- chip.core", ["Did you mean 'chip.cores'?"]),
    "unknown entry in a part": (
        {**BARE, "all_of": [{**PART, "quantity": "reference.value", "scope": {"entry": ["chip.core"]}}]},
        "- chip.core", ["scope.entry: there is no reference entry"],
    ),
    "version beyond all": ({"version": 10**6}, "version: 1000000", ["greater than the maximum"]),
    "change without a reason": ({"version": 2}, "version: 2", ["version 2 has no reason under 'changes'"]),
    "change that skips a version": (
        {"version": 3, "changes": [{**CHANGE, "version": 3}]}, "changes:", ["version 2 has no reason"]
    ),
    "change without a date": (
        {"version": 2, "changes": [{"version": 2, "data_seen": True, "reason": "better"}]}, "- version: 2",
        ["missing: date"],
    ),
    "earlier rule that is gone and known": (
        {"version": 2, "changes": [{**CHANGE, "was": [EARLIER], "gone": "lost"}]}, "- version: 2", ["changes.0"]
    ),
    "earlier rule of an unknown quantity": (
        {"version": 2, "changes": [{**CHANGE, "was": [{**EARLIER, "quantity": "gemm.rat"}]}]},
        "- quantity: gemm.rat", ["Did you mean 'gemm.rate'?"],
    ),
    "unknown word": ({"word": "perhaps"}, "word: perhaps", ["Allowed: none, can, may"]),
    "word that the paraphrase lacks": ({"word": "most"}, "word: most", ["'most' is not among the words of 'says'"]),
    "one case for all": (
        {"says": "Something can be fast.", "word": "can"}, "word: can", ["use the rule exists or crossover"]
    ),
    "most cases for every": (
        {"says": "Every core is fast.", "word": "every"}, "word: every", ["use a rule with the quantifier every"]
    ),
    "every case for most": (
        {"says": "Most cores are fast.", "word": "most", "options": {"quantifier": "every"}}, "word: most",
        ["'most' asks for most cases"],
    ),
    "word of a part that does not fit": (
        {**BARE, "all_of": [{**PART, "rule": "at_least", "word": "may"}]}, "word: none",
        ["part 'a part'", "'may' asks for one case"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_claim_file_errors_report_line_and_allowed_values(tmp_path: Path, mistake: str) -> None:
    changes, line, messages = MISTAKES[mistake]
    path = write_claim(tmp_path, **changes)
    with pytest.raises(StudyError) as caught:
        read_claims(tmp_path, {"chip.cores": make_entry()})
    assert line in reported_line(caught.value, path)
    for message in messages:
        assert message in str(caught.value)


def test_reference_dates_stay_text_for_all_yaml_date_forms(tmp_path: Path) -> None:
    for date in ("2024-07-23", "2024", "2024-07", "not stated"):
        (tmp_path / "chips.yaml").write_text(
            f"- {{id: a, subject: s, what: w, value: 1, unit: h, date: {date}, status: verified,\n"
            "   source: {title: t, publisher: p, url: 'https://example.org', where: x}}\n"
        )
        assert read_reference(tmp_path)["a"]["date"] == date


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({end: value}, "does not lie between low and high") for end, value in (("low", 200), ("high", 100))),
        ({"value": ...}, "missing: value"),
        ({"status": "verifed"}, "Did you mean 'verified'?"),
        ({"value": math.inf}, "0.value: not a finite number"),
        ({"value": -1}, "-1 is less than the minimum of 0"),
        ({"high": 1e31}, "greater than the maximum"),
        *(({"unit": unit}, "is not a unit that is known here") for unit in ("GB/s", "h\n")),
        ({"unit": "yes or no"}, "192 is not of type"),
        ({"date": "last year"}, "'last year' is no date: write 2024"),
        ({"id": "chip\n"}, "does not match"),
    ],
)
def test_reference_file_errors_report_file_and_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    changed = {key: value for key, value in {**make_entry(), **changes}.items() if value is not ...}
    with pytest.raises(StudyError) as caught:
        read_reference(write_references(tmp_path, changed))
    assert message in str(caught.value) and "chips.yaml, line " in str(caught.value)


def test_duplicate_entry_id_reports_both_files(tmp_path: Path) -> None:
    (write_references(tmp_path, make_entry()) / "chips.yaml").rename(tmp_path / "a.yaml")
    with pytest.raises(StudyError, match=r"chips.yaml: the id 'chip.cores' is used twice, first in .*a.yaml"):
        read_reference(write_references(tmp_path, make_entry()))


def test_folder_without_claims_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"no claim files"):
        read_claims(tmp_path, {})
