"""Findings: short sentences per claim and outcome, with placeholders for numbers."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from report import findings
from report.data.reference_figures import REFERENCE, read_reference
from report.judging.claim_files import Claim, read_claims
from report.judging.judge import CLAIMS
from report.outcomes import Verdict
from report.quantities import quantities

LONGEST = 30
KEPT = Path(__file__).parents[1] / "golden" / "kept"
# Internal terms and intervals, which findings must not show.
BANNED = re.compile(r"\bcells?\b|\bscope\b|holds (up to|from)|fails (up to|from)|told apart|\[\d", re.I)


@cache
def own_claims() -> dict[str, Claim]:
    """Read the claims by id. They are read in a test, because each pytest process imports this module."""
    return {claim.id: claim for claim in read_claims(CLAIMS, read_reference(REFERENCE))}


def possible_outcomes(claim: Claim) -> set[str]:
    """List the outcomes that a claim's rules allow."""
    if not claim.parts:
        return {"not testable"}
    quantities_used = [quantities()[part.quantity] for part in claim.parts]
    measured = any(quantity.experiments for quantity in quantities_used)
    shares = all(part.rule == "for_share_of" for part in claim.parts)
    exists = all(part.rule == "exists" for part in claim.parts)
    outcomes = {"supported", "challenged", "awaiting"}
    # A claim whose only rule is `for_share_of` or `exists` cannot get `depends`, because one outcome covers all cases.
    if len(claim.parts) > 1 or (measured and not shares and not exists):
        outcomes.add("depends")
    if measured or shares:
        outcomes.add("undecided")
    return outcomes | ({"outdated"} if claim.when_written else set())


@pytest.mark.parametrize("name", sorted(path.stem for path in CLAIMS.glob("*.yaml")))
def test_claims_have_short_findings_for_every_outcome(name: str) -> None:
    claim = own_claims()[name]
    missing = possible_outcomes(claim) - set(claim.findings)
    assert not missing, f"{claim.id} has no sentence for {missing}"
    for outcome, sentences in claim.findings.items():
        for sentence in sentences:
            words = findings.PLACEHOLDER.sub("12 x", sentence).split()
            assert len(words) <= LONGEST + 6, f"{claim.id}, {outcome}: {len(words)} words"
            assert not BANNED.search(findings.PLACEHOLDER.sub("", sentence)), f"{claim.id}, {outcome}: {sentence}"
            assert sentence[-1] in ".", f"{claim.id}, {outcome}: no full stop"


@pytest.mark.parametrize("name", ["published", "fleet"])
def test_findings_in_kept_verdicts_are_short_and_complete(name: str) -> None:
    document = read_kept_verdicts(name)
    for verdict in document["verdicts"]:
        text = verdict["finding"]
        assert "{" not in text and not BANNED.search(text), f"{verdict['id']}: {text}"
        general = any(findings.PLACEHOLDER.sub("", sentence) in text for sentence in findings.GENERAL.values())
        assert text and (verdict["verdict"] == "not testable" or not general), f"{verdict['id']}: general sentence"
        assert len(text.split()) <= LONGEST, f"{verdict['id']}: {len(text.split())} words: {text}"


def read_kept_verdicts(name: str) -> dict[str, Any]:
    path = KEPT / f"{name}.verdicts.json.gz"
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def verdict(**more: Any) -> dict[str, Any]:
    """Build a verdict with two parts: a time with three cases, and a share."""
    cases = [
        {"part": "time", "labels": {"run": name, "parameters": size}, "estimate": value, "low": value / 1.5,
         "high": value * 1.5, "outcome": side}
        for name, size, value, side in (
            ("a", 4.2e6, 0.5, "challenges"), ("b", 8.56e7, 4.0, "challenges"), ("c", 7e9, 48.5, "supports"),
        )
    ]  # fmt: skip
    share = {"estimate": 0.84, "low": 0.5, "high": 0.97, "units": 12, "of": "model"}
    parts = [
        {"name": "time", "unit": "h", "threshold": 24.0, "estimate": 48.5, "low": 48.5 / 1.5, "high": 48.5 * 1.5},
        {"name": "share", "unit": "B", "threshold": 1.2e10, "estimate": None, "share": share},
    ]
    number = {"estimate": 48.5, "low": 48.5 / 1.5, "high": 48.5 * 1.5, "unit": "h", "threshold": 24.0}
    return {"verdict": "depends", "untestable": "", "cases": cases, "parts": parts, **number, **more}


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("estimate", "2.0 days"), ("low", "32 hours"), ("least", "30 minutes"), ("most:number", "48"),
        ("challenges", "4.0 hours"), ("run of supports", "c"), ("estimate for run=a", "30 minutes"),
        ("parameters of [time] challenges", "86 million parameters"), ("count", "3"), ("count challenges", "2"),
        ("share", "84%"), ("[share] share low", "50%"), ("units", "12"), ("threshold", "24 hours"),
        ("[share] threshold", "12 GB"), ("most:exact", "48.5"), ("[share] estimate", None), ("least:percent", "50%"),
        ("nothing", None), ("run of estimate for run=z", None),
    ],
)  # fmt: skip
def test_placeholders_are_filled(place: str, expected: str | None) -> None:
    assert findings.fill_placeholder(place, verdict()) == expected


@pytest.mark.parametrize(("share", "text"), [(0.0, "0%"), (1e-5, "less than 0.01%"), (0.0024, "0.24%"), (0.78, "78%")])
def test_small_shares_do_not_round_to_zero(share: float, text: str) -> None:
    assert findings.sentence_number(share, "1", "percent") == text


@pytest.mark.parametrize(("share", "expected"), [(0.0, "none"), (0.002, "1%"), (0.998, "99%"), (1.0, "all")])
def test_shares_below_one_are_never_all(share: float, expected: str) -> None:
    assert findings.fill_placeholder("share", verdict(parts=[{"share": {"estimate": share, "units": 9}}])) == expected


def test_first_sentence_with_all_numbers_is_used() -> None:
    declared = {"depends": ("It took {estimate for run=z}.", "it took {challenges}."), "supported": ("Yes.",)}
    assert findings.finding(verdict(), declared) == "It took 4.0 hours."
    assert findings.finding(verdict(verdict="supported"), declared) == "Yes."
    assert "2 of the 3" not in findings.finding(verdict(), {})
    assert findings.finding(verdict(), {}).startswith("It holds for 1 of the 3")
    assert findings.finding(verdict(verdict=Verdict.CHALLENGED), {}).startswith("It does not hold for 2 of the 3")


def test_unknown_placeholders_are_listed() -> None:
    template = "{estimate} {[time] least} {[other] least} {estimate:loud} {threshold} {cow} {run of most}"
    assert list(findings.unknown_placeholders(template, ["time"])) == ["[other] least", "estimate:loud", "cow"]


def machines_verdict(*cases: dict[str, Any], unit: str = "MAC/cycle") -> dict[str, Any]:
    """Build a verdict with one part, and with one case per machine. The first case gives the verdict's own numbers."""
    cases = tuple(
        {"part": "", "node": f"node-{index}", "labels": {"dtype": "float32"}, "outcome": "challenges", **case}
        for index, case in enumerate(cases)
    )
    first = {name: cases[0][name] for name in findings.NUMBER}
    return {"cases": cases, "parts": [{"name": "", "unit": unit, "threshold": 8.0, **first}], **first, "unit": unit}


def case(value: float, spread: float = 1.1, **more: Any) -> dict[str, Any]:
    return {"estimate": value, "low": value / spread, "high": value * spread, **more}


def test_number_is_the_range_over_machines_with_equal_labels() -> None:
    two = machines_verdict(case(15.0), case(28.0), case(99.0, labels={"dtype": "float16"}))
    assert findings.fill_sentence("A core finishes {estimate:number} multiply-adds.", two) == (
        "A core finishes 15 to 28 multiply-adds."
    )
    assert findings.fill_placeholder("challenges:number", two) == "15 to 28"
    assert findings.fill_placeholder("least for dtype=float16", two) == "99 MAC/cycle"


@pytest.mark.parametrize(("spread", "expected"), [(1.05, "97% to 100%"), (1.5, "68% to 100%")])
def test_shares_are_capped_at_their_ceiling(spread: float, expected: str) -> None:
    beyond = machines_verdict(case(1.02, spread), unit="1")
    beyond["parts"][0]["quantity"] = "training.mfu"
    assert (
        findings.fill_sentence("It reaches {estimate:percent} of the peak.", beyond)
        == f"It reaches {expected} of the peak."
    )


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [("It took {estimate}.", "It took 10 to 40 hours."), ("It took at least {least}.", "It took at least 10 hours."),
     ("It took {least:number} to {most:number} hours.", "It took 10 to 40 hours.")],
)  # fmt: skip
def test_wide_interval_becomes_a_range_or_a_bound(sentence: str, expected: str) -> None:
    assert findings.fill_sentence(sentence, machines_verdict(case(20.0, 2.0), unit="h")) == expected


def test_ratio_near_one_keeps_its_digits() -> None:
    nearly = machines_verdict(case(1.02, 1.001), unit="1")
    assert findings.fill_sentence("At most {most:number} times as fast.", nearly) == "At most 1.02 times as fast."


def test_share_with_interval_zero_to_one_is_dropped() -> None:
    open_share = machines_verdict({"estimate": 0.66, "low": 0.0, "high": 1.0}, unit="1")
    assert findings.fill_sentence("It takes {estimate:percent} of the time.", open_share) is None
