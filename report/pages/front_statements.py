"""Sentences on the front page, declared in front.yaml; each appears only if verdicts and measurements support it.

Placeholders: `{W29 most}` is the value `most` from claim W29 (see `report.findings`); `{replaced training}` and other
names in FACTS come from `front_page.collect_facts`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_yaml, yaml_place
from contract.schema import did_you_mean
from report import findings
from report.findings import PLACEHOLDER
from report.outcomes import Verdict
from report.pages import verdict_words
from report.pages.markdown import Markdown, clean, escape, identifier

REPORT = Path(__file__).resolve().parent.parent
DECLARED = REPORT / "front.yaml"
SCHEMA = json.loads((REPORT / "schemas" / "front.schema.json").read_text(encoding="utf-8"))
_OF_CLAIM = re.compile(r"([A-Z]\d\d) (.+)")
# Names of all facts that `front_page.collect_facts` can return.
FACTS = (
    "replaced training", "replaced inference", "tuned gain", "tuned model", "tuned cores", "writing least",
    "writing most", "writing gpu", "writing gpu name", "machines", "records", "sources", "robust", "sensitive",
    "rules rules", "rules unchanged", "rules before", "rules after", "rules turned", "again", "level",
    "again agree", "ladder gain", "ladder equal", "ladder sure", "ladder networks",
    "hours nanogpt", "hours resnet18", "hours cores",
)  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """A value for a placeholder.

    text: the value in words.
    tier: evidence tier, '' for none.
    page: page to link the value to, '' for none.
    """

    text: str
    tier: str = ""
    page: str = ""


class Statements:
    """The evidence to fill sentences from.

    facts: values from `front_page.collect_facts`.
    root: relative path from the page to the site root.
    marks: True adds links and evidence marks to numbers; False gives plain text.
    """

    def __init__(
        self, document: Mapping[str, Any], facts: Mapping[str, Fact], root: str = "", marks: bool = True
    ) -> None:
        self.verdicts = {str(verdict["id"]): verdict for verdict in document["verdicts"]}
        self.gpu = any(device.get("kind") == "gpu" for node in document["nodes"] for device in node["devices"])
        self.facts, self.root, self.marks = facts, root, marks

    def first_that_holds(self, statements: Sequence[Mapping[str, Any]]) -> Markdown | None:
        """Fill the first statement that can be filled and whose conditions hold; return None if there is none."""
        for statement in statements:
            text = self.fill(str(statement["says"])) if self.holds(statement.get("when") or {}) else None
            if text is not None:
                return text
        return None

    def texts(self, parts: Sequence[Sequence[Mapping[str, Any]]]) -> list[Markdown]:
        """Return from each list in `parts` the first statement that `first_that_holds` finds, if there is any."""
        return [text for text in map(self.first_that_holds, parts) if text is not None]

    def holds(self, when: Mapping[str, Any]) -> bool:
        """True if all conditions hold. when: conditions as in front.yaml."""
        return all(
            self.gpu == (condition == "measured")
            if name == "gpu"
            else self._claim_holds(name, _normalize_condition(condition))
            for name, condition in when.items()
        )

    def _claim_holds(self, claim: str, condition: Mapping[str, Any]) -> bool:
        verdict = self.verdicts.get(claim)
        if verdict is None:
            return False
        name = str(condition.get("part", ""))
        part = findings.find_part(verdict, name) if name else None
        if name and part is None:
            return False
        outcome = part["outcome"] if part is not None else verdict["verdict"]
        sides = {case.get("outcome") for case in findings.cases_with_interval(verdict, name)}
        return ("is" not in condition or outcome in condition["is"]) and sides >= set(condition.get("some", ()))

    def fill(self, says: str) -> Markdown | None:
        """Fill the placeholders in a sentence, with marks and links; return None if a placeholder cannot be filled."""
        pieces = []
        split = PLACEHOLDER.split(says)
        for index, text in enumerate(split):
            piece = (
                self._fill_place(text, findings.surrounding_text(split, index))
                if index % 2
                else _escape_between(text)
                if self.marks
                else Markdown(text)
            )
            if piece is None:
                return None
            pieces.append(piece)
        return Markdown("".join(pieces))

    def _fill_place(self, placeholder: str, around: tuple[str, str]) -> Markdown | None:
        if placeholder in self.facts:
            return self._with_mark(self.facts[placeholder])
        match = _OF_CLAIM.fullmatch(placeholder)
        verdict = self.verdicts.get(match[1]) if match else None
        text = findings.fill_placeholder(match[2], verdict, around) if match and verdict else None
        if text is None or match is None or verdict is None:
            return None
        return self._with_mark(Fact(text, str(verdict["evidence_tier"]), f"claims/{identifier(match[1])}"))

    def _with_mark(self, fact: Fact) -> Markdown:
        if not self.marks:
            return Markdown(clean(fact.text))
        text = escape(fact.text)
        if fact.page:
            text = Markdown(f"[{text}]({self.root}{fact.page}.qmd){{.told}}")
        tier = verdict_words.tier(fact.tier)
        return Markdown(f'{text}[{tier.sign}]{{.tier title="{tier.means}"}}') if tier else text


def _escape_between(text: str) -> Markdown:
    """Escape the text between two placeholders. Escaping drops spaces at both ends, so they are put back."""
    inner = escape(text) if text.strip() else Markdown("")
    before = " " if text[:1].isspace() else ""
    after = " " if text[-1:].isspace() and text.strip() else ""
    return Markdown(f"{before}{inner}{after}")


def _normalize_condition(condition: Any) -> dict[str, Any]:
    """Convert a condition on a claim to a mapping with any of these keys.

    part: the part of the claim to check; without it, the whole claim is checked.
    is: list of accepted verdicts.
    some: list of outcomes, each of which at least one case must have.
    """
    raw = condition if isinstance(condition, Mapping) else {"is": condition}
    return {key: [value] if key != "part" and isinstance(value, str) else value for key, value in raw.items()}


def read_front(path: Path = DECLARED, claims: Path = REPORT / "claims") -> dict[str, Any]:
    """Read the declared front page.

    Raises StudyError with file and line for a schema violation, an unknown claim, part or outcome, or a placeholder
    that cannot be filled.
    """
    raw: dict[str, Any] = read_yaml(path, SCHEMA)
    declared = {file.stem: read_yaml(file) for file in sorted(claims.glob("*.yaml"))}
    parts = {name: [str(part["name"]) for part in claim.get("all_of", [])] for name, claim in declared.items()}
    for steps, says, when in _walk_statements(raw):
        for name, condition in when.items():
            if name != "gpu":
                place = (*steps[:-1], "when", name)
                _check_claim(path, place, name, str(_normalize_condition(condition).get("part", "")), parts)
                _check_outcomes(path, place, _normalize_condition(condition))
        for placeholder in PLACEHOLDER.findall(says):
            match = _OF_CLAIM.fullmatch(placeholder)
            if placeholder in FACTS:
                continue
            if match is None:
                raise StudyError(
                    f"{yaml_place(path, *steps)}: {{{placeholder}}} is unknown: use {{W25 least}} "
                    f"or one of {', '.join(FACTS)}.{did_you_mean(placeholder, list(FACTS))}"
                )
            _check_claim(path, steps, match[1], "", parts)
            if list(findings.unknown_placeholders(f"{{{match[2]}}}", parts[match[1]])):
                raise StudyError(f"{yaml_place(path, *steps)}: claim {match[1]} has no number {{{placeholder}}}")
    return raw


def _walk_statements(raw: Any, steps: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str, Any]]:
    """Yield every sentence with its path in the file and its conditions."""
    if isinstance(raw, Mapping):
        when = raw.get("when") or {}
        for key, value in raw.items():
            if isinstance(value, str) and "{" in value:
                yield (*steps, key), value, when
            elif key != "when":
                yield from _walk_statements(value, (*steps, key))
        if when and "says" in raw and "{" not in raw["says"]:
            yield (*steps, "says"), raw["says"], when
    elif isinstance(raw, list):
        for index, value in enumerate(raw):
            yield from _walk_statements(value, (*steps, index))


def _check_outcomes(path: Path, steps: tuple[str | int, ...], condition: Mapping[str, Any]) -> None:
    """Raise StudyError for an unknown outcome, because a condition with it would never hold."""
    for key, outcomes in (("is", list(map(str, Verdict))), ("some", [*findings.SIDES, "undecided"])):
        for outcome in condition.get(key, ()):
            if outcome not in outcomes:
                raise StudyError(
                    f"{yaml_place(path, *steps)}: unknown outcome {outcome!r}.{did_you_mean(outcome, outcomes)}"
                )


def _check_claim(
    path: Path, steps: tuple[str | int, ...], claim: str, part: str, parts: Mapping[str, list[str]]
) -> None:
    """Raise StudyError unless the claim exists and, if a part is named, has that part."""
    if claim not in parts:
        raise StudyError(f"{yaml_place(path, *steps)}: there is no claim {claim!r}.{did_you_mean(claim, list(parts))}")
    if part and part not in parts[claim]:
        raise StudyError(
            f"{yaml_place(path, *steps)}: claim {claim} has no part {part!r}.{did_you_mean(part, parts[claim])}"
        )
