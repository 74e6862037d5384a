"""Which side of a contradiction stands, from the verdicts on the claims that carry it, and a sentence that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from report.formatting import capital, several
from report.model import OPINION, Verdict

# In the order in which a sentence tells them.
STANDINGS = ("holds", "in part", "fails", "undecided", "open", "opinion")
OUTCOMES = ("one stands", "some stand", "all stand", "in part", "none stands", "undecided", "open", "opinion")
_VERBS = {
    "holds": ("stands", "stand"),
    "in part": ("stands in part", "stand in part"),
    "fails": ("does not stand", "do not stand"),
    "undecided": ("is too close to call", "are too close to call"),
    "open": ("is still open", "are still open"),
    "opinion": ("is an opinion", "are opinions"),
}
_OF_CLAIMS = {
    "supported": ("is supported", "are supported"),
    "challenged": ("is challenged", "are challenged"),
    "depends": ("holds in part", "hold in part"),
    "undecided": ("is undecided", "are undecided"),
    "not testable": ("is an opinion", "are opinions"),
}
_LACKS = {
    "awaiting hardware": "hardware",
    "awaiting experiment": "an experiment",
    "awaiting source": "a source",
}
_BY_DENIAL = {
    "holds": "What refutes the other side carries this one.",
    "fails": "What carries the other side refutes this one.",
}


@dataclass(frozen=True)
class Carried:
    """A claim, or one part of it, as it carries a side. parts: what was judged, as `verdicts.json` has it."""

    id: str
    part: str
    verdict: str
    tier: str
    evidence: str
    parts: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, verdict: Mapping[str, Any], part: str) -> Carried:
        """`verdict`: a record of `verdicts.json`; `part`: the name of one of its parts, or '' for all of it."""
        judged = tuple(one for one in verdict["parts"] if part in ("", one["name"]))
        whole = judged[0] if part else verdict
        told = Verdict(whole["outcome"] if part else whole["verdict"])
        # The tier is the claim's: its weakest. A part that waits has none yet.
        tier = "none" if told.awaits else str(verdict["evidence_tier"])
        return cls(str(verdict["id"]), part, told, tier, _evidence(told, whole, judged), judged)

    def record(self) -> dict[str, Any]:
        """As `verdicts.json` has it."""
        return {key: getattr(self, key) for key in ("id", "part", "verdict", "tier", "evidence")}


def _evidence(verdict: Verdict, whole: Mapping[str, Any], judged: Sequence[Mapping[str, Any]]) -> str:
    """What decided a claim, or what it lacks."""
    if verdict.awaits:
        waiting = [part for part in judged if part["missing"]]
        waiting.sort(key=lambda part: bool(part["outcome"] != verdict))
        texts = [
            waiting[0]["missing"]["says"],
            *(part["reason"] for part in waiting[1:] if part["reason"] != waiting[0]["reason"]),
        ]
        return "; ".join(dict.fromkeys(texts))
    if verdict is Verdict.NOT_TESTABLE:
        return OPINION
    if verdict is Verdict.DEPENDS and whole["boundary"]:
        return str(whole["boundary"])
    # Where all parts agree, the first speaks for them: the claim's own reason would repeat every one.
    return str((judged[0] if len(judged) > 1 else whole)["reason"])


def standing(verdicts: Sequence[str]) -> str:
    """Where a side stands, from the verdicts on its claims; opinions count only where there is nothing else.

    A side with one claim that holds and one that fails is right in part, whatever
    the others still wait for.
    """
    testable = {verdict for verdict in verdicts if verdict != "not testable"}
    if not testable:
        return "opinion"
    if "depends" in testable or {"supported", "challenged"} <= testable:
        return "in part"
    if any(Verdict(verdict).awaits for verdict in testable):
        return "open"
    if "undecided" in testable:
        return "undecided"
    return "holds" if testable == {"supported"} else "fails"


def opposed(standings: Sequence[str]) -> list[str]:
    """Two sides of which each denies the other: what decides one decides the other, where nothing else does."""
    by = {"holds": "fails", "fails": "holds"}
    one, other = standings
    free = ("open", "opinion", "undecided")
    return [
        by.get(other, one) if one in free else one,
        by.get(one, other) if other in free else other,
    ]


def outcome(standings: Sequence[str]) -> str:
    """What became of the contradiction: open while a side that could change it is, else by who stands."""
    decided = [one for one in standings if one != "opinion"]
    if not decided:
        return "opinion"
    for waiting in ("open", "undecided"):
        if waiting in decided:
            return waiting
    if "in part" in decided:
        return "in part"
    n = decided.count("holds")
    if n == len(decided):
        return "all stand" if n > 1 else "one stands"
    return {0: "none stands", 1: "one stands"}.get(n, "some stand")


def said(
    names: Sequence[str],
    carried: Sequence[Sequence[Carried]],
    own: Sequence[str],
    standings: Sequence[str],
    conflict: str,
) -> tuple[str, str]:
    """Which side stands, in a few words; and the same with the verdicts and the evidence that it rests on.

    own: where each side stands by its own claims; standings: with what the other side's fall adds.
    """
    groups = {kind: [name for name, stood in zip(names, standings, strict=True) if stood == kind] for kind in STANDINGS}
    told = [
        f"side{'s' if len(group) > 1 else ''} {several(group)} {_VERBS[kind][len(group) > 1]}"
        for kind, group in groups.items()
        if group
    ]
    answer = several(told)
    sentences = [f"{capital(answer)}."]
    for name, claims, before, after in zip(names, carried, own, standings, strict=True):
        by_denial = f" {_BY_DENIAL[after]}" if before != after else ""
        sentences.append(f"{name}: {_verdicts(claims)}.{by_denial}")
    if conflict == "real" and outcome(standings) == "all stand":
        sentences.append("As they are read here they do not collide: the thresholds leave room for all of them.")
    return sentences[0].removesuffix("."), " ".join(sentences)


def _verdicts(claims: Sequence[Carried]) -> str:
    """'W29 and W31 are supported (measured); W30 awaits hardware'."""
    groups: dict[tuple[str, str], list[str]] = {}
    for claim in claims:
        shown = f"{claim.id} ({claim.part})" if claim.part else claim.id
        groups.setdefault((claim.verdict, claim.tier), []).append(shown)
    told = []
    for (verdict, tier), ids in groups.items():
        many = len(ids) > 1
        if verdict in _LACKS:
            told.append(f"{several(ids)} {'await' if many else 'awaits'} {_LACKS[verdict]}")
        else:
            on = "" if tier == "none" else f" ({tier})"
            told.append(f"{several(ids)} {_OF_CLAIMS[verdict][many]}{on}")
    return "; ".join(told)
