"""Read claim files; check them against the schema, the quantities and each other."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_yaml, yaml_place
from contract.schema import did_you_mean
from report import PACKAGE
from report.findings import unknown_placeholders
from report.judging.claim_words import WORDS, misfit, missing_word
from report.outcomes import Threshold, Tier
from report.quantities import Quantity, quantities

SCHEMA = json.loads((PACKAGE / "schemas" / "claim.schema.json").read_text(encoding="utf-8"))
ARTICLES = {
    "nuface": "Why AI Training Requires GPUs and CUDA",
    "gpuserver": "Why AI Models Require GPUs for Faster and Efficient Training",
    "whygpu": "Why Does AI Need a GPU?",
}
_PART = ("quantity", "machine", "scope", "scale", "rule", "threshold", "sensitivity", "options", "cases", "awaits")
# Labels that may take only the listed values. The claim schema enforces the lists, because a misspelt value would
# silently match no estimates.
CLOSED = {
    "device": ["cpu", "gpu"],
    "dtype": ["float64", "float32", "tf32", "bfloat16", "float16", "float8", "int8"],
    "baseline": ["core", "node", "fleet", "server", "desktop", "laptop"],
    "precision": ["equal", "best"],
    "phase": ["forward", "backward", "update", "training", "prefill", "decode"],
    "kernel": ["chain", "chase", "branches", "states"],
    "chains": ["one", "full"],
    "method": ["cell_order", "permuted", "summation", "split_k", "threads", "libraries", "repeat"],
    "transfers": ["none", "excluded", "included"],
    "layer": ["convolution", "lstm", "product"],
    "learning_rate": ["fixed", "linear", "tuned"],
    "scale": ["small", "large"],
}


@dataclass(frozen=True)
class Part:
    """Claim part: a quantity, the rule to judge it, and the rule's threshold.

    cases_why: the reason why the cases are a chosen list; '' if they are not.
    machine: a machine kind from `contract.machine_kinds.KINDS`, whose nodes alone decide the part; '' means all nodes.
    declared: the claim's threshold, if `threshold` is another one to try; None if it is not.
    word: the article's word for this part's strength; '' if it is the claim's word.
    margin, margin_why: for published figures, those of `PublishedEvidence`.
    evidence: for an earlier version's part, the name that today's part has whose published evidence judges it; None
    if both have the same name.
    """

    name: str
    quantity: str
    rule: str
    threshold: Threshold
    why: str
    scope: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0
    scale_why: str = ""
    sensitivity: tuple[Threshold, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    cases_why: str = ""
    machine: str = ""
    awaits: dict[str, str] | None = None
    declared: Threshold | None = None
    word: str = ""
    margin: float | None = None
    margin_why: str = ""
    evidence: str | None = None

    def with_threshold(self, threshold: Threshold) -> Part:
        """Return the part with another threshold to try."""
        return replace(self, threshold=threshold, declared=self.declared or self.threshold)

    @property
    def entries(self) -> list[str]:
        """Reference entries that the scope names under the label `entry`."""
        named = self.scope.get("entry", [])
        return [str(name) for name in (named if isinstance(named, list) else [named])]

    @property
    def compare(self) -> str:
        """Way to compare each estimate with the threshold (at_least, at_most or within), from the rule or `options`."""
        own = self.rule in ("at_least", "at_most", "within")
        return self.rule if own else str(self.options.get("compare", "at_least"))

    @property
    def quantifier(self) -> str:
        """How many cases must be on the claim's side: most, or every."""
        return str(self.options.get("quantifier", "most"))

    @property
    def counts_any_minority(self) -> bool:
        """True if cases on the smaller side count although none is sure, as earlier versions had it."""
        return self.options.get("minority") == "any"

    @property
    def share(self) -> float:
        """Fraction of units (such as models) that must reach the threshold; only the rule for_share_of uses it."""
        return float(self.options.get("share", 1.0))

    @property
    def thresholds(self) -> list[Threshold]:
        """All declared thresholds in ascending order: the deciding `threshold` and the others in `sensitivity`."""
        return sorted({*self.sensitivity, self.threshold})


@dataclass(frozen=True)
class PublishedEvidence:
    """Published records, selected to test a claim part by its own rule and threshold.

    strength: 'direct' evidence may decide the part; 'indirect' evidence is only shown.
    why: the common points and the differences between the records and the claim.
    of: for the rule for_share_of, the label whose values are counted, such as model; '' for the label in the part's
    options.
    margin: the factor by which a figure must lie beyond the threshold to decide without a second source; None to use
    CLEAR. margin_why: the reason to use another one.
    """

    part: str
    quantity: str
    strength: str
    why: str
    scope: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0
    scale_why: str = ""
    of: str = ""
    margin: float | None = None
    margin_why: str = ""


@dataclass(frozen=True)
class Change:
    """New version of a claim's rule.

    date: as YYYY-MM-DD.
    data_seen: True if the earlier version had been judged on data when the rule changed.
    parts: the earlier version's parts; empty if its rule is the same, or cannot be judged today.
    gone: the reason why the earlier rule cannot be judged today; '' if it can.
    before: the earlier version's verdict on that day's evidence, if its rule is the same but its evidence is computed,
    selected or combined otherwise; '' if it is not.
    """

    version: int
    date: str
    data_seen: bool
    reason: str
    parts: tuple[Part, ...] = ()
    gone: str = ""
    before: str = ""


@dataclass(frozen=True)
class Claim:
    """Claim from an article, with the parts that decide it; a judgement or an untestable claim has no parts.

    word: the article's word that carries the claim's strength, such as can or most; none without such a word.
    findings: for each outcome, the sentences for the report; the first sentence whose numbers are known is used.
    when_written: the parts as they would be judged on the article's date.
    question: a key that all claims with the same question have in common.
    untestable: the reason why no rule can decide the claim.
    published: published measurements that test the claim too.
    published_findings: like `findings`, for a verdict that published measurements decide.
    unpublished: the reason why no published measurement decides the claim.
    """

    id: str
    article: str
    section: str
    says: str
    word: str
    kind: str
    version: int
    path: Path
    findings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    when_written: tuple[Part, ...] = ()
    question: str = ""
    untestable: str = ""
    published: tuple[PublishedEvidence, ...] = ()
    published_findings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unpublished: str = ""
    same_as: str | None = None
    see_also: tuple[str, ...] = ()
    bears_on: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    note: str = ""
    changes: tuple[Change, ...] = ()


def read_claims(directory: Path, reference: Mapping[str, Any]) -> list[Claim]:
    """Read all claims in `directory` (*.yaml); sort them by article and id.

    reference: the reference entries that a claim may name. Raises StudyError with file, line and key for the first
    mistake.
    """
    paths = sorted(directory.glob("*.yaml"))
    if not paths:
        raise StudyError(f"{directory}: no claim files (*.yaml)")
    schema = full_schema()
    claims = [_parse_claim(read_yaml(path, schema), path) for path in paths]
    known = {claim.id: claim for claim in claims}
    for claim in claims:
        _check_links(claim, known, reference)
    inherited = [_inherit_parts(claim, known) for claim in claims]
    for claim in inherited:
        _check_words(claim)
    return sorted(inherited, key=lambda claim: (list(ARTICLES).index(claim.article), claim.id))


def full_schema() -> dict[str, Any]:
    """Extend the claim schema to allow only the names and labels that the registered quantities have."""
    schema = copy.deepcopy(SCHEMA)
    present = {"not": {"required": ["awaits"]}}
    measured = [name for name, item in quantities().items() if item.tier != Tier.PUBLISHED]
    rules: list[dict[str, Any]] = [
        {"if": present, "then": {"properties": {"quantity": {"enum": measured}}}},
    ]
    for labels, names in _group_by_labels(quantities().values()).items():
        condition = {"properties": {"quantity": {"enum": names}}, "required": ["quantity"], **present}
        values = {label: _enum_schema(CLOSED[label]) if label in CLOSED else {} for label in labels}
        scope = {"properties": values, "additionalProperties": False}
        sides = {"properties": {key: {"enum": list(labels)} for key in ("over", "along")}}
        share = {"properties": {"rule": {"const": "for_share_of"}}, "required": ["rule"]}
        of = {"properties": {"options": {"properties": {"of": {"enum": list(labels)}}}}}
        then = {"properties": {"scope": scope, "options": sides}, "if": share, "then": of}
        rules.append({"if": condition, "then": then})
    for label, allowed in CLOSED.items():
        condition = {"properties": {"options": {"properties": {"over": {"const": label}}, "required": ["over"]}}}
        sides = {"properties": {key: {"enum": allowed} for key in ("of", "to")}}
        rules.append({"if": {**condition, "required": ["options"]}, "then": {"properties": {"options": sides}}})
    schema["$defs"]["rules"]["allOf"] += rules
    schema["$defs"]["word"]["enum"] = list(WORDS)
    schema["$defs"]["earlier_part"]["properties"]["quantity"] = {"enum": measured}
    evidence = schema["$defs"]["published"]["properties"]["evidence"]["items"]
    published = [quantity for quantity in quantities().values() if quantity.tier == Tier.PUBLISHED]
    evidence["properties"]["quantity"] = {"enum": [other.name for other in published]}
    evidence["allOf"] = [
        {
            "if": {"properties": {"quantity": {"enum": names}}, "required": ["quantity"]},
            "then": {
                "properties": {
                    "scope": {"properties": {label: {} for label in labels}, "additionalProperties": False},
                    "of": {"enum": list(labels)},
                }
            },
        }
        for labels, names in _group_by_labels(published).items()
    ]
    return schema


def _group_by_labels(registered: Iterable[Quantity]) -> dict[tuple[str, ...], list[str]]:
    """Group quantities by their labels; return their names.

    A schema with a condition per group takes half as long to validate as a schema with a condition per quantity.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for quantity in registered:
        groups.setdefault(tuple(quantity.labels), []).append(quantity.name)
    return groups


def _enum_schema(allowed: list[str]) -> dict[str, Any]:
    return {"if": {"type": "array"}, "then": {"items": {"enum": allowed}}, "else": {"enum": allowed}}


def _parse_claim(raw: dict[str, Any], path: Path) -> Claim:
    if raw["id"] != path.stem:
        raise StudyError(
            f"{yaml_place(path, 'id')}: the id is {raw['id']!r}, the file's name says {path.stem!r}: make them the same"
        )
    flat = [key for key in _PART if key in raw]
    if flat and "all_of" in raw:
        raise StudyError(
            f"{yaml_place(path, flat[0])}: {flat[0]!r} cannot be combined with 'all_of': move it into one of the parts"
        )
    if (raw["kind"] == "judgement" or "untestable" in raw) and (flat or "all_of" in raw):
        key, what = (flat or ["all_of"])[0], "a judgement" if raw["kind"] == "judgement" else "what cannot be tested"
        raise StudyError(f"{yaml_place(path, key)}: {what} is not decided by a rule: remove {key!r}")
    parts = [_parse_part(part) for part in raw.get("all_of", [raw] if flat else [])]
    for number, part in enumerate(parts):
        within: tuple[str | int, ...] = ("all_of", number) if "all_of" in raw else ()
        for key, bounds in (("threshold", [part.threshold]), ("sensitivity", part.sensitivity)):
            for bound in bounds:
                if bound.high is not None and bound.low > bound.high:
                    raise StudyError(
                        f"{yaml_place(path, *within, key)}: {key}: the range {bound.json} ends before it begins"
                    )
    names = [part.name for part in parts]
    duplicate = next((number for number, name in enumerate(names) if name in names[:number]), None)
    if duplicate is not None:
        where = yaml_place(path, "all_of", duplicate, "name")
        raise StudyError(f"{where}: all_of: two parts are named {names[duplicate]!r}: give each a name of its own")
    findings = _parse_sentences(raw.get("findings", {}), names, path, "findings")
    published = raw.get("published", {})
    for number, evidence in enumerate(published.get("evidence", [])):
        if evidence.get("part", "") not in names and parts:
            where = yaml_place(path, "published", "evidence", number)
            raise StudyError(
                f"{where}: published: there is no part {evidence.get('part', '')!r}. Parts: {', '.join(names)}"
            )
    changed = {change["version"] for change in raw.get("changes", [])}
    for version in range(2, raw["version"] + 1):
        if version not in changed:
            where = yaml_place(path, "changes" if "changes" in raw else "version")
            raise StudyError(f"{where}: version {version} has no reason under 'changes'")
    return Claim(
        id=raw["id"],
        article=raw["article"],
        section=raw["section"],
        says=raw["says"],
        word=raw["word"],
        kind=raw["kind"],
        version=raw["version"],
        path=path,
        findings=findings,
        parts=tuple(parts),
        when_written=tuple(map(_parse_part, raw.get("when_written", []))),
        published=tuple(map(_parse_evidence, published.get("evidence", []))),
        published_findings=_parse_sentences(published.get("findings", {}), names, path, "published", "findings"),
        unpublished=published.get("none", ""),
        question=raw.get("question", ""),
        untestable=raw.get("untestable", ""),
        same_as=raw.get("same_as"),
        note=raw["note"],
        changes=tuple(map(_parse_change, raw.get("changes", []))),
        **{key: tuple(raw.get(key, [])) for key in ("see_also", "bears_on", "sources")},
    )


def _parse_sentences(raw: Mapping[str, Any], names: list[str], path: Path, *steps: str) -> dict[str, tuple[str, ...]]:
    """Parse the sentences for each outcome. Raises StudyError for an unknown placeholder."""
    by_outcome = {name: (text,) if isinstance(text, str) else tuple(text) for name, text in raw.items()}
    for outcome, sentences in by_outcome.items():
        for fault in (place_ for sentence in sentences for place_ in unknown_placeholders(sentence, names)):
            where = yaml_place(path, *steps, outcome)
            raise StudyError(
                f"{where}: {'.'.join(steps)}: {{{fault}}} is no known placeholder (see report/findings.py)"
            )
    return by_outcome


def _parse_scope(raw: dict[str, Any]) -> dict[str, Any]:
    """Parse the keys `scope` and `scale`, which parts and published evidence have in common."""
    scale = raw.get("scale", {"by": 1.0, "why": ""})
    return {"scope": raw.get("scope", {}), "scale": float(scale["by"]), "scale_why": scale["why"]}


def _parse_evidence(raw: dict[str, Any]) -> PublishedEvidence:
    fields = {key: raw[key] for key in ("quantity", "strength", "why")}
    margin = raw.get("margin", {"by": None, "why": ""})
    return PublishedEvidence(
        part=raw.get("part", ""),
        of=raw.get("of", ""),
        margin=margin["by"],
        margin_why=margin["why"],
        **fields,
        **_parse_scope(raw),
    )


def _parse_part(raw: dict[str, Any]) -> Part:
    return Part(
        name=raw.get("name", ""),
        quantity=raw["quantity"],
        rule=raw["rule"],
        threshold=Threshold.from_json(raw["threshold"]["value"]),
        why=raw["threshold"]["why"],
        **_parse_scope(raw),
        sensitivity=tuple(map(Threshold.from_json, raw.get("sensitivity", []))),
        options=raw.get("options", {}),
        cases_why=raw.get("cases", "as declared" if raw.get("listed") else ""),
        machine=raw.get("machine", ""),
        awaits=raw.get("awaits"),
        word=raw.get("word", ""),
        evidence=raw.get("evidence"),
    )


def _parse_change(raw: dict[str, Any]) -> Change:
    parts = [_parse_part({**part, "threshold": {"value": part["threshold"], "why": ""}}) for part in raw.get("was", [])]
    fields = {key: raw[key] for key in ("version", "date", "data_seen", "reason")}
    return Change(parts=tuple(parts), gone=raw.get("gone", ""), before=raw.get("before", ""), **fields)


def _check_words(claim: Claim) -> None:
    """Check that the paraphrase keeps the article's word, and that the parts' rules fit it. Raises StudyError."""
    if missing_word(claim.word, claim.says):
        raise StudyError(
            f"{yaml_place(claim.path, 'word')}: word: {claim.word!r} is not among the words of 'says': keep it there"
        )
    for part in claim.parts:
        fault = misfit(part.word or claim.word, part.rule, part.quantifier)
        if fault:
            where = f"part {part.name!r}: " if part.name else ""
            raise StudyError(f"{yaml_place(claim.path, 'word')}: word: {where}{fault}")


def _check_links(claim: Claim, known: Mapping[str, Claim], reference: Mapping[str, Any]) -> None:
    same = [claim.same_as] if claim.same_as else []
    for key, ids in (("see_also", claim.see_also), ("bears_on", claim.bears_on), ("same_as", same)):
        _check_known(claim, (key,), ids, known, "claim")
        if claim.id in ids:
            raise StudyError(f"{yaml_place(claim.path, key)}: {key}: {claim.id} names itself: name other claims")
    _check_known(claim, ("sources",), claim.sources, reference, "reference entry")
    for number, part in enumerate(claim.parts):
        if part.quantity == "reference.value" and not part.awaits:
            within = ("all_of", number) if part.name else ()
            steps = (*within, "scope", "entry")
            if not part.entries:
                where = yaml_place(claim.path, *within, "quantity")
                raise StudyError(f"{where}: quantity: reference.value needs a scope that names its entry, or several")
            _check_known(claim, steps, part.entries, reference, "reference entry")


def _check_known(
    claim: Claim, steps: tuple[str | int, ...], ids: Iterable[str], known: Iterable[str], what: str
) -> None:
    names = list(known)
    for number, name in enumerate(ids):
        if name not in names:
            where, key = yaml_place(claim.path, *steps, number), ".".join(map(str, steps))
            raise StudyError(f"{where}: {key}: there is no {what} {name!r}.{did_you_mean(str(name), names)}")


def _inherit_parts(claim: Claim, known: Mapping[str, Claim]) -> Claim:
    """Copy the parts from the claim named in `same_as` if this claim has none and a rule could decide it.

    Raises StudyError if the other claim has no parts either.
    """
    if claim.parts or claim.kind == "judgement" or claim.untestable or claim.same_as is None:
        return claim
    other = known[claim.same_as]
    if not other.parts:
        raise StudyError(
            f"{yaml_place(claim.path, 'same_as')}: same_as: {other.id} has no rule of its own to take over"
        )
    return Claim(**{**claim.__dict__, "parts": other.parts})
