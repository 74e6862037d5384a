"""What is found of each claim is told in one plain sentence, with its numbers filled in."""

from __future__ import annotations

import gzip
import json
import re
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
# Private words of the engine, and intervals.
BANNED = re.compile(r"\bcells?\b|\bscope\b|holds (up to|from)|fails (up to|from)|told apart|\[\d", re.I)


def own() -> list[Claim]:
    return read_claims(CLAIMS, read_reference(REFERENCE))


def possible(claim: Claim) -> set[str]:
    """The outcomes that a claim's rule can come to."""
    if not claim.parts:
        return {"not testable"}
    known = [quantities()[part.quantity] for part in claim.parts]
    measured = any(quantity.experiments for quantity in known)
    shares = all(part.rule == "for_share_of" for part in claim.parts)
    exists = all(part.rule == "exists" for part in claim.parts)
    found = {"supported", "challenged", "awaiting"}
    if len(claim.parts) > 1 or (measured and not shares and not exists):
        found.add("depends")
    if measured or shares:
        found.add("undecided")
    return found | ({"outdated"} if claim.when_written else set())


@pytest.mark.parametrize("claim", own(), ids=lambda claim: claim.id)
def test_each_claim_has_a_plain_sentence_for_every_outcome(claim: Claim) -> None:
    missing = possible(claim) - set(claim.findings)
    # A share over exact figures, and a claim of which every part is one, has no case that differs.
    assert not missing, f"{claim.id} has no sentence for {missing}"
    for outcome, sentences in claim.findings.items():
        for sentence in sentences:
            words = findings.PLACEHOLDER.sub("12 x", sentence).split()
            assert len(words) <= LONGEST + 6, f"{claim.id}, {outcome}: {len(words)} words"
            assert not BANNED.search(findings.PLACEHOLDER.sub("", sentence)), f"{claim.id}, {outcome}: {sentence}"
            assert sentence[-1] in ".", f"{claim.id}, {outcome}: no full stop"


@pytest.mark.parametrize("which", ["published", "fleet"])
def test_what_is_told_of_known_nodes_is_short_and_whole(which: str) -> None:
    document = kept(which)
    for one in document["verdicts"]:
        said = one["finding"]
        assert "{" not in said and not BANNED.search(said), f"{one['id']}: {said}"
        general = any(findings.PLACEHOLDER.sub("", sentence) in said for sentence in findings.GENERAL.values())
        assert said and (one["verdict"] == "not testable" or not general), f"{one['id']} has no sentence of its own"
        assert len(said.split()) <= LONGEST, f"{one['id']}: {len(said.split())} words: {said}"


def kept(which: str) -> dict[str, Any]:
    path = KEPT / f"{which}.verdicts.json.gz"
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def verdict(**more: Any) -> dict[str, Any]:
    """A claim of two parts: one of three cases in hours, and a share."""
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
    ("place", "told"),
    [
        ("estimate", "2.0 days"), ("low", "32 hours"), ("least", "30 minutes"), ("most:number", "48"),
        ("challenges", "4.0 hours"), ("run of supports", "c"), ("estimate for run=a", "30 minutes"),
        ("parameters of [time] challenges", "86 million parameters"), ("count", "3"), ("count challenges", "2"),
        ("share", "84%"), ("[share] share low", "50%"), ("units", "12"), ("threshold", "24 hours"),
        ("[share] threshold", "12 GB"), ("most:exact", "48.5"), ("[share] estimate", None), ("least:percent", "50%"),
        ("nothing", None), ("run of estimate for run=z", None),
    ],
)  # fmt: skip
def test_places_are_filled(place: str, told: str | None) -> None:
    assert findings.fill_placeholder(place, verdict()) == told


@pytest.mark.parametrize(("share", "told"), [(0.0, "0%"), (1e-5, "less than 0.01%"), (0.0024, "0.24%"), (0.78, "78%")])
def test_small_shares_are_not_rounded_away(share: float, told: str) -> None:
    assert findings.sentence_number(share, "1", "percent") == told


@pytest.mark.parametrize(("share", "told"), [(0.0, "none"), (0.002, "1%"), (0.998, "99%"), (1.0, "all")])
def test_a_share_that_is_nearly_all_is_not_told_as_all(share: float, told: str) -> None:
    assert findings.fill_placeholder("share", verdict(parts=[{"share": {"estimate": share, "units": 9}}])) == told


def test_the_first_sentence_is_told_whose_numbers_are_there() -> None:
    declared = {"depends": ("It took {estimate for run=z}.", "it took {challenges}."), "supported": ("Yes.",)}
    assert findings.finding(verdict(), declared) == "It took 4.0 hours."
    assert findings.finding(verdict(verdict="supported"), declared) == "Yes."
    assert "2 of the 3" not in findings.finding(verdict(), {})
    assert findings.finding(verdict(), {}).startswith("It holds for 1 of the 3")
    assert findings.finding(verdict(verdict=Verdict.CHALLENGED), {}).startswith("2 of the 3")


def test_places_that_mean_nothing_are_named() -> None:
    said = "{estimate} {[time] least} {[other] least} {estimate:loud} {threshold} {cow} {run of most}"
    assert list(findings.unknown_placeholders(said, ["time"])) == ["[other] least", "estimate:loud", "cow"]


def machines(*cases: dict[str, Any], unit: str = "MAC/cycle") -> dict[str, Any]:
    """A claim of one part whose case several machines measured; told is the first."""
    cases = tuple(
        {"part": "", "node": f"node-{at}", "labels": {"dtype": "float32"}, "outcome": "challenges", **case}
        for at, case in enumerate(cases)
    )
    told = {name: cases[0][name] for name in findings.NUMBER}
    return {"cases": cases, "parts": [{"name": "", "unit": unit, "threshold": 8.0, **told}], **told, "unit": unit}


def case(value: float, spread: float = 1.1, **more: Any) -> dict[str, Any]:
    return {"estimate": value, "low": value / spread, "high": value * spread, **more}


def test_a_number_is_the_range_over_the_machines_that_measured_the_same() -> None:
    two = machines(case(15.0), case(28.0), case(99.0, labels={"dtype": "float16"}))
    assert findings.fill_sentence("A core finishes {estimate:number} multiply-adds.", two) == (
        "A core finishes 15 to 28 multiply-adds."
    )
    assert findings.fill_placeholder("challenges:number", two) == "15 to 28"
    assert findings.fill_placeholder("least for dtype=float16", two) == "99 MAC/cycle"


@pytest.mark.parametrize(("spread", "told"), [(1.05, "97% to 100%"), (1.5, "68% to 100%")])
def test_a_share_above_its_ceiling_is_told_as_far_as_is_possible(spread: float, told: str) -> None:
    beyond = machines(case(1.02, spread), unit="1")
    beyond["parts"][0]["quantity"] = "training.mfu"
    assert (
        findings.fill_sentence("It reaches {estimate:percent} of the peak.", beyond)
        == f"It reaches {told} of the peak."
    )


@pytest.mark.parametrize(
    ("sentence", "told"),
    [("It took {estimate}.", "It took 10 to 40 hours."), ("It took at least {least}.", "It took at least 10 hours."),
     ("It took {least:number} to {most:number} hours.", "It took 10 to 40 hours.")],
)  # fmt: skip
def test_a_number_whose_interval_spans_a_factor_of_three_is_a_range_or_a_bound(sentence: str, told: str) -> None:
    assert findings.fill_sentence(sentence, machines(case(20.0, 2.0), unit="h")) == told


def test_a_ratio_of_about_one_is_not_told_as_one() -> None:
    nearly = machines(case(1.02, 1.001), unit="1")
    assert findings.fill_sentence("At most {most:number} times as fast.", nearly) == "At most 1.02 times as fast."


def test_a_share_that_may_be_anything_is_not_told() -> None:
    open_share = machines({"estimate": 0.66, "low": 0.0, "high": 1.0}, unit="1")
    assert findings.fill_sentence("It takes {estimate:percent} of the time.", open_share) is None
