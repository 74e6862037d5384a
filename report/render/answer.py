"""The answer that opens the report: declared statements, each told only where the verdicts carry it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import place, read_yaml
from contract.schema import did_you_mean
from report import formatting
from report.judging.findings import ENDS, PLACE, SIDES, cell_of, cells_of, part_of
from report.model import DECIDED, Verdict
from report.render import words

REPORT = Path(__file__).resolve().parent.parent
DECLARED = REPORT / "answer.yaml"
SCHEMA = json.loads((REPORT / "schemas" / "answer.schema.json").read_text(encoding="utf-8"))
_OF_CLAIM = re.compile(r"(?:(\w+) of )?([A-Z]\d\d)(?:\[([^\[\]]+)\])?(?: (\w+))?")
_COUNTED = ("total", "decided", "fares", "close", "waiting")


@dataclass(frozen=True)
class Piece:
    """A stretch of a sentence. claim: the id of the claim whose number it is; head: whether the sentence begins so."""

    text: str
    claim: str = ""
    head: bool = False


Sentence = tuple[Piece, ...]


def plain(sentence: Sentence) -> str:
    """A sentence as text."""
    return "".join(piece.text for piece in sentence)


def answer(document: Mapping[str, Any], declared: Mapping[str, Any] | None = None) -> list[Sentence]:
    """Two sentences on `document` (verdicts.json): whether AI needs a GPU, and how the articles fare.

    declared: as `read_answer` gives it; None for the study's own. Where nothing of one of them can be told, both
    tell the tally. Raises StudyError for a fault in the declaration.
    """
    evidence = _Evidence(document)
    told = [_sentence(one, evidence) for one in (declared or read_answer())["sentences"]]
    if not all(told):
        return [(Piece(text),) for text in words.answer(document["tally"])]
    return told


def read_answer(path: Path = DECLARED) -> dict[str, Any]:
    """The declared statements; the claims that they name are the files of the folder `claims` beside them.

    Raises StudyError with file and line for what the schema does not allow, an unknown claim or part, a place that
    cannot be filled, a number of a claim of which `when` asks nothing, and a version without its reason.
    """
    raw: dict[str, Any] = read_yaml(path, SCHEMA)
    told = {change["version"] for change in raw.get("changes", [])}
    for version in range(2, raw["version"] + 1):
        if version not in told:
            raise StudyError(f"{place(path, 'version')}: version {version} has no reason under 'changes'")
    for at, sentence in enumerate(raw["sentences"]):
        for number, part in enumerate(sentence["parts"]):
            for which, statement in enumerate(part["statements"]):
                _check(path, ("sentences", at, "parts", number, "statements", which), statement)
    return raw


def _check(path: Path, steps: tuple[str | int, ...], statement: Mapping[str, Any]) -> None:
    asked = {name: _asked(one) for name, one in statement["when"].items() if name not in ("gpu", "decided")}
    for name, one in asked.items():
        _known(path, (*steps, "when", name), name, str(one.get("part", "")))
    where = (*steps, "says")
    for given in PLACE.findall(statement["says"]):
        if given in _COUNTED:
            continue
        found = _OF_CLAIM.fullmatch(given)
        if found is None or found[4] not in (None, *SIDES, *ENDS):
            raise StudyError(
                f"{place(path, *where)}: {{{given}}} names nothing that could stand there. Use {{W25}}, {{N04 side}}, "
                f"{{label of N04 side}} or {{N04[part] side}}, side being one of {', '.join((*SIDES, *ENDS))}; or "
                f"{', '.join(f'{{{name}}}' for name in _COUNTED)}.{did_you_mean(given, list(_COUNTED))}"
            )
        _known(path, where, found[2], found[3] or "")
        if found[2] not in asked:
            raise StudyError(
                f"{place(path, *where)}: tells a number of {found[2]}, of which 'when' asks nothing: ask for the "
                "verdict on which the sentence is true"
            )


def _known(path: Path, steps: tuple[str | int, ...], claim: str, part: str) -> None:
    """Raise StudyError unless there is such a claim, and such a part of it where one is named."""
    claims = path.parent / "claims"
    names = sorted(one.stem for one in claims.glob("*.yaml"))
    if claim not in names:
        raise StudyError(f"{place(path, *steps)}: there is no claim {claim!r}.{did_you_mean(claim, names)}")
    parts = [one["name"] for one in read_yaml(claims / f"{claim}.yaml").get("all_of", [])] if part else []
    if part and part not in parts:
        raise StudyError(f"{place(path, *steps)}: claim {claim} has no part {part!r}.{did_you_mean(part, parts)}")


def _asked(given: Any) -> dict[str, Any]:
    """What is asked of a claim: `part`, `is` and `some`, the latter two as lists."""
    raw = given if isinstance(given, Mapping) else {"is": given}
    return {key: [one] if key != "part" and isinstance(one, str) else one for key, one in raw.items()}


@dataclass(frozen=True)
class _Evidence:
    """The verdicts, as conditions and places ask for them."""

    document: Mapping[str, Any]

    def verdict(self, claim: str) -> Mapping[str, Any] | None:
        return next((one for one in self.document["verdicts"] if one["id"] == claim), None)

    @property
    def gpu(self) -> bool:
        """Whether a node with a GPU has reported."""
        return any(device.get("kind") == "gpu" for node in self.document["nodes"] for device in node["devices"])

    @property
    def decided(self) -> int:
        return sum(int(self.document["tally"].get(verdict, 0)) for verdict in DECIDED)

    def count(self, name: str) -> str | None:
        """One of _COUNTED in words; None where there is nothing to count."""
        if name == "total":
            return formatting.count(sum(map(int, self.document["tally"].values())), "claim")
        if name == "decided":
            return f"{self.decided:,}"
        if name == "fares":
            return words.fares(self.document["tally"]) or None
        if name == "close":
            return words.close(self.document["tally"]) or None
        waiting = [
            one
            for one in self.document["verdicts"]
            if one["verdict"] == Verdict.AWAITING_HARDWARE and any(map(_lacks_gpu, one["parts"]))
        ]
        return f"{formatting.count(len(waiting), 'claim')} wait{'s' if len(waiting) == 1 else ''}" if waiting else None

    def holds(self, when: Mapping[str, Any]) -> bool:
        """Whether all conditions do."""
        plain_ones = {"gpu": "measured" if self.gpu else "none", "decided": "some" if self.decided else "none"}
        return all(
            plain_ones[name] == given if name in plain_ones else self._is_so(name, _asked(given))
            for name, given in when.items()
        )

    def _is_so(self, claim: str, asked: Mapping[str, Any]) -> bool:
        verdict = self.verdict(claim)
        if verdict is None:
            return False
        name = asked.get("part", "")
        part = part_of(verdict, name)
        if name and part is None:
            return False
        outcome = part.get("outcome") if part is not None and name else verdict["verdict"]
        sides = {cell.get("outcome") for cell in cells_of(verdict, name)}
        return ("is" not in asked or outcome in asked["is"]) and sides >= set(asked.get("some", ()))

    def fill(self, given: str) -> Piece | None:
        """What stands in a place; None where the evidence has nothing for it."""
        if given in _COUNTED:
            text = self.count(given)
            return Piece(text) if text else None
        found = _OF_CLAIM.fullmatch(given)
        label, claim, name, which = found.groups() if found else (None, "", None, None)
        verdict = self.verdict(claim)
        cell = cell_of(verdict, name or "", which) if verdict is not None else None
        if verdict is None or cell is None:
            return None
        if label:
            value = cell.get(label)
            return None if value is None else Piece(formatting.label_value(label, value))
        part = part_of(verdict, str(cell.get("part") or "")) or verdict
        return Piece(words.with_interval(cell, str(part.get("unit") or "1")), claim)


def _sentence(declared: Mapping[str, Any], evidence: _Evidence) -> Sentence:
    """What can be told of a sentence; empty if nothing can."""
    told: list[Piece] = []
    for part in declared["parts"]:
        for statement in part["statements"]:
            pieces = _filled(statement["says"], evidence) if evidence.holds(statement["when"]) else None
            if pieces:
                told += [Piece(part.get("join", "; "))] if told else _beginning(statement.get("head", ""), pieces)
                told += pieces
                break
    return (*told, Piece(".")) if told else ()


def _beginning(head: str, pieces: list[Piece]) -> list[Piece]:
    """The head with its colon; without one, the first piece gets a capital letter instead."""
    if head:
        return [Piece(f"{head}:", head=True), Piece(" ")]
    pieces[0] = replace(pieces[0], text=formatting.capital(pieces[0].text))
    return []


def _filled(says: str, evidence: _Evidence) -> list[Piece] | None:
    """A statement with its places filled; None if one cannot be."""
    pieces = list(_pieces(PLACE.split(says), evidence))
    return None if None in pieces else [piece for piece in pieces if piece is not None]


def _pieces(split: Sequence[str], evidence: _Evidence) -> Iterator[Piece | None]:
    """Text and places take turns in `split`."""
    for at, text in enumerate(split):
        if at % 2:
            yield evidence.fill(text)
        elif text:
            yield Piece(text)


def _lacks_gpu(part: Mapping[str, Any]) -> bool:
    """Whether a part waits for a GPU, which kept editions from before the field say in words alone."""
    return (part["missing"] or {}).get("device") == "gpu" if "missing" in part else "GPU" in str(part.get("reason"))
