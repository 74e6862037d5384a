"""Records in `verdicts.json`: judging writes them, readers validate them, and a JSON schema publishes their format.

Records hold fields only; `verdict_sentences` formats them. Infinite and unknown numbers are None.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from contract.errors import StudyError
from contract.files import read_json
from report import ROOT
from report.outcomes import Side, Tier, Verdict

# File format number. It is incremented when a reader would misread older files.
FORMAT = 4
# Verdicts and data of this folder's study, and the folder with all editions.
STUDY_VERDICTS, STUDY_DATA = Path("results/verdicts.json"), Path("results/data")
EDITIONS = ROOT / "data" / "editions"

Number = float | None
# One number, or both ends of a range.
Limit = float | list[float]
Label = str | float | bool | None


class Trial(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part judged again with one assumption changed: the part's outcome and the verdict on its claim."""

    kind: Annotated[
        Literal["threshold", "scope", "without", "input", "margin", "nothing"],
        Meta(description="threshold: another one; scope: another value of a label; without: something left out; "
             "input: a figure of the arithmetic; of a turn alone, margin: it is close, nothing: nothing turns it"),
    ]  # fmt: skip
    outcome: Verdict | None = None
    verdict: Verdict | None = None
    threshold: Annotated[Limit | None, Meta(description="The other threshold")] = None
    side: Annotated[
        Literal["above", "from", "to", "below", "range"] | None,
        Meta(description="Side of the nearest threshold that turns the verdict; from and to include it"),
    ] = None
    factor: Annotated[Number, Meta(description="Ratio between that threshold and the declared one, at least 1")] = None
    label: Annotated[str, Meta(description="The label of the scope")] = ""
    value: Annotated[Label, Meta(description="The label's or input's other value")] = None
    now: Annotated[Label, Meta(description="The declared value")] = None
    plain_loop: Annotated[
        bool, Meta(description="The other value is plain code without a library, which does not count")
    ] = False
    of: Annotated[str, Meta(description="Kind of item left out: a case, a machine, or a unit of a share")] = ""
    what: Annotated[str, Meta(description="Its name")] = ""
    id: Annotated[str, Meta(description="The id of a machine's first node")] = ""
    number: Annotated[int, Meta(description="Number of items that each turn it, if too many to name")] = 1
    one_case: Annotated[bool, Meta(description="The machine has one case only")] = False
    symbol: Annotated[str, Meta(description="The input of the arithmetic")] = ""
    means: str = ""
    unit: str = ""


class Turn(Trial, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The nearest change that turns the verdict on a claim."""

    part: Annotated[str | None, Meta(description="The part changed; None for several at once")] = None


class Robustness(Struct, kw_only=True, forbid_unknown_fields=True):
    """Robustness for a part's outcome."""

    margin_widths: Annotated[Number, Meta(description="Distance from the threshold in widths of the interval")]
    exact: Annotated[bool, Meta(description="The figure has no interval")]
    fact: Annotated[bool, Meta(description="Exact published figures or arithmetic on them, not varied")] = False
    verdict: Annotated[Verdict, Meta(description="Verdict on the claim")]
    decides: Annotated[bool, Meta(description="Another outcome of this part alone would turn the claim")]
    fragile: Annotated[
        bool, Meta(description="The margin is below one interval width, or a near trial turns the verdict")
    ]
    trials: list[Trial]


class Failure(Struct, frozen=True):
    """An experiment's failure on one kind of device."""

    device: str
    nodes: list[str]
    status: Annotated[str, Meta(description="Most common status; empty if it was not run")] = ""
    reason: str = ""


class Missing(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Evidence that a waiting part lacks."""

    verdict: Verdict
    experiments: list[str] = []
    machine: Annotated[str, Meta(description="Kind of machine that no node has")] = ""
    device: Annotated[str, Meta(description="Kind of device")] = ""
    failures: Annotated[list[Failure], Meta(description="Devices without results for the experiment")] = []
    label: Annotated[str, Meta(description="Scope label without measurements")] = ""
    wanted: Annotated[list[str], Meta(description="The label's values in the scope")] = []
    measured: Annotated[list[str], Meta(description="The label's measured values")] = []
    rule: Annotated[str, Meta(description="Rule without anything to compare")] = ""
    estimates: Annotated[int, Meta(description="Estimates in scope")] = 0
    single_rounds: Annotated[int, Meta(description="Estimates of one round, without an interval")] = 0
    source: Annotated[str, Meta(description="The published figure")] = ""
    why: Annotated[str, Meta(description="Why it is missing")] = ""
    baseline: Annotated[str, Meta(description="Kind of machine that the part needs, measured or not")] = ""
    devices: Annotated[list[str], Meta(description="Kinds of devices that a machine needs to supply it")] = []
    energy: Annotated[list[str], Meta(description="Kinds of devices whose energy the part needs and no node has")] = []


class OpenCase(Struct, kw_only=True, forbid_unknown_fields=True):
    """Undecided case that more rounds could decide."""

    rounds: Annotated[int | None, Meta(description="Rounds that would decide it; null if it was measured in one round")]
    behind: Annotated[str, Meta(description="Rows of the summary behind it, as '3-5 9'")]


class MoreRounds(Struct, kw_only=True, forbid_unknown_fields=True):
    """Rounds that would decide an undecided part's cases, if their estimates and spreads stay as they are."""

    cases: Annotated[int, Meta(description="Undecided cases")]
    in_one_round: Annotated[int, Meta(description="Those measured in one round, without an interval")]
    decided_by: Annotated[dict[str, int], Meta(description="How many cases would be decided by this number of rounds")]
    near: Annotated[
        list[OpenCase], Meta(description="Cases that few enough rounds would decide, and those measured in one round")
    ]


class Others(Struct, kw_only=True, forbid_unknown_fields=True):
    """Published measurements for a part."""

    quantity: str
    scope: dict[str, Any]
    strength: Annotated[str, Meta(description="direct, which may decide, or indirect")]
    why: Annotated[str, Meta(description="What both sides have in common, and what differs")]
    unit: str
    decides: bool
    outcome: Verdict | None
    least: Number
    most: Number
    trials: Annotated[list[Trial], Meta(description="Where it decides: other thresholds")]
    beside: Annotated[Number, Meta(description="Our estimate divided by the published one")]
    records: Annotated[
        list[str], Meta(description="Keys of the published records compared; where it decides, the cases name them")
    ]


class Part(Struct, kw_only=True, forbid_unknown_fields=True):
    """One quantity, rule and threshold in a claim, with the outcome."""

    name: str
    quantity: str
    unit: str
    rule: str
    options: dict[str, Any]
    threshold: Limit
    threshold_why: str
    sensitivity: Annotated[list[Limit], Meta(description="Other fair thresholds")]
    scope: dict[str, Any]
    scale: float
    scale_why: str
    how: Annotated[str | None, Meta(description="Definition of the quantity")]
    ends: Annotated[
        Literal["interval", "interval and assumptions", "assumptions", "source", "bound", "none"],
        Meta(description="What the ends of its cases' numbers are: an interval from rounds, the range of assumptions, "
             "the range told by the source, or a bound on one side"),
    ]  # fmt: skip
    margin: Annotated[
        Number, Meta(description="Factor by which a published figure clears the threshold; null where rounds decide")
    ]
    margin_why: Annotated[str, Meta(description="Why it is not the usual factor")]
    entries: Annotated[list[str], Meta(description="Reference entries used")]
    from_samples: Annotated[bool, Meta(description="Computed from samples, not from the summary's medians")]
    followed: Annotated[bool, Meta(description="The source rows behind each case are known exactly")]
    outcome: Verdict
    tier: Tier
    missing: Annotated[Missing | None, Meta(description="What it waits for")]
    waits: Annotated[Missing | None, Meta(description="What it would wait for without the published runs")]
    others: list[Others]
    more_rounds: Annotated[MoreRounds | None, Meta(description="Rounds that would decide it, if it is undecided")]
    unchecked: Annotated[bool, Meta(description="Its model was not checked, so it decides nothing")]
    checked: Annotated[str | None, Meta(description="Quantity that checked its model; empty: none")]
    check: Annotated[dict[str, float] | None, Meta(description="Agreement between model and measurements")]
    cases_why: Annotated[str, Meta(description="Reason for a chosen list of cases")]
    n_cases: int
    share: Annotated[dict[str, Any] | None, Meta(description="Share that reaches the threshold, with interval")]
    boundary: Annotated[dict[str, Any] | None, Meta(description="Label that separates where it holds")]
    estimate: Annotated[Number, Meta(description="Estimate for the representative case")]
    low: Number
    high: Number
    robustness: Robustness | None
    arithmetic: dict[str, Any] | None


class Case(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One compared estimate in a part."""

    part: str
    node: Annotated[str | None, Meta(description="None for published figures")]
    device: str | None
    labels: dict[str, Label]
    estimate: Number
    low: Number
    high: Number
    n_rounds: int
    n_samples: int
    outcome: Side
    behind: Annotated[str, Meta(description="Rows of the summary behind it, as '3-5 9'")]
    detail: Annotated[str, Meta(description="Note on its arithmetic, or why it has no estimate")] = ""
    disturbed: Annotated[float, Meta(description="Share of disturbed rows among these")] = 0.0
    session_spread: Annotated[bool, Meta(description="Its interval includes the spread between sessions")] = False
    instances: Annotated[list[str], Meta(description="Nodes pooled in this case")] = []
    machines: Annotated[str, Meta(description="The pooled machines in words")] = ""
    instance_low: Annotated[Number, Meta(description="Smallest estimate among them")] = None
    instance_high: Annotated[Number, Meta(description="Largest estimate among them")] = None


class Change(Struct, kw_only=True, forbid_unknown_fields=True):
    """A new version of a claim's rule, with what the version before says today."""

    version: int
    date: str
    data_seen: Annotated[bool, Meta(description="The version before had been judged on data when the rule changed")]
    reason: str
    same_rule: Annotated[bool, Meta(description="Only a quantity is computed otherwise")]
    earlier: Annotated[Verdict | None, Meta(description="Verdict by the version before, on today's evidence")]
    gone: Annotated[str, Meta(description="Why the version before cannot be judged today")]
    before: Annotated[
        Verdict | None, Meta(description="With the same rule: the verdict before, on the evidence of that day")
    ]


class Claim(Struct, kw_only=True, forbid_unknown_fields=True):
    """The verdict on one claim."""

    id: str
    article: str
    article_title: str
    section: str
    says: str
    word: Annotated[str, Meta(description="The article's word that carries the claim's strength; none without one")]
    kind: str
    question: str
    verdict: Verdict
    finding: Annotated[str, Meta(description="The finding in one sentence")]
    finding_part: Annotated[str, Meta(description="The part that the sentence names first")]
    untestable: Annotated[str, Meta(description="Why no rule decides it")]
    quantity: Annotated[
        str | None, Meta(description="From the part that represents the claim, like the next six fields")
    ]
    unit: str | None
    estimate: Number
    low: Number
    high: Number
    threshold: Limit | None
    threshold_why: str | None
    cases: list[Case]
    parts: list[Part]
    by_threshold: Annotated[list[dict[str, Any]], Meta(description="Outcome and verdict over a range of thresholds")]
    when_written: Annotated[list[dict[str, Any]], Meta(description="Parts as of the article's date")]
    robust: Literal["robust", "sensitive", "on a chosen list", "not varied"] | None
    turn: Turn | None
    evidence_tier: Annotated[Tier, Meta(description="Weakest tier that the verdict rests on")]
    decided_on: Annotated[Literal["here", "others", ""], Meta(description="Origin of the deciding measurements")]
    hangs_on: Annotated[str, Meta(description="Contributed node that alone decides it")]
    unpublished: Annotated[str, Meta(description="Why no published record decides it")]
    see_also: list[str]
    same_as: str | None
    bears_on: list[str]
    note: str
    sources: list[dict[str, Any]]
    version: int
    changes: list[Change]


class Document(Struct, kw_only=True, forbid_unknown_fields=True):
    """All verdicts, with their context."""

    format: int
    generated_utc: str
    commit: str
    study_version: str
    origin: Literal["measured", "synthetic"]
    nodes: list[dict[str, Any]]
    refused: Annotated[list[dict[str, Any]], Meta(description="Files left out, with the reason")]
    tally: dict[str, int]
    decided: Annotated[
        dict[str, int],
        Meta(description="Number of claims by what decides them: an evidence tier, or open, or not testable"),
    ]
    multiplicity: Annotated[
        dict[str, float],
        Meta(description="Cases with an interval from rounds, decided ones, expected errors among them, and cases that "
             "stand at a false discovery rate of 1%"),
    ]  # fmt: skip
    questions: Annotated[list[dict[str, Any]], Meta(description="Claims grouped by question")]
    verdicts: list[Claim]
    contradictions: list[dict[str, Any]]
    triangulation: list[dict[str, Any]]
    references: list[dict[str, Any]]
    published: Annotated[list[dict[str, Any]], Meta(description="Sources of published measurements, with their users")]
    replaced: Annotated[list[dict[str, Any]], Meta(description="Server processors that one GPU replaces")]
    counterparts: Annotated[list[dict[str, Any]], Meta(description="Our CPU figures beside published ones")]


def representative_part(parts: Sequence[Part], verdict: str) -> Part | None:
    """Return the part whose number stands for a claim; None for a claim without parts.

    It is the first part that has a number and the same outcome as the claim, or else the first part with a number, or
    else the first part.
    """
    known = [part for part in parts if part.estimate is not None]
    return next((part for part in known if part.outcome == verdict), [*known, *parts, None][0])


def verdict_schema() -> dict[str, Any]:
    """Return the JSON schema for `verdicts.json`."""
    return msgspec.json.schema(Document)


def upgrade_cells(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert the `cells` in a file from before format 3 to `cases`, in which the labels are a separate mapping."""
    verdicts = document.get("verdicts")
    if not isinstance(verdicts, list) or not all(isinstance(verdict, dict) for verdict in verdicts):
        return document

    def case(cell: Mapping[str, Any]) -> dict[str, Any]:
        own = {name: value for name, value in cell.items() if name in Case.__struct_fields__}
        labels = {name: value for name, value in cell.items() if name not in own and name != "label"}
        return {**own, "labels": labels}

    upgraded = [
        {"cases": [*map(case, verdict["cells"])], **verdict} if "cells" in verdict else verdict for verdict in verdicts
    ]
    return {**document, "verdicts": upgraded}


def newest_edition(into: Path = EDITIONS) -> int | None:
    """Return the highest edition number; None if there is none."""
    return max((int(path.name) for path in into.glob("[0-9]*") if path.name.isdigit() and path.is_dir()), default=None)


def print_fallback(path: Path, replacement: str) -> None:
    """Print a note to stderr: a file of the study does not exist yet, and other results are shown."""
    print(f"note: no study here yet ({path}): {replacement}", file=sys.stderr)


def find_verdicts(path: Path | None) -> Path:
    """Return `path`, else the study's verdicts, else the newest edition's; for an edition, print a note to stderr."""
    number = newest_edition()
    if path is not None or STUDY_VERDICTS.exists() or number is None:
        return path or STUDY_VERDICTS
    print_fallback(STUDY_VERDICTS, f"these are the verdicts of edition {number}")
    return Path(os.path.relpath(EDITIONS / str(number) / "verdicts.json"))


def read_any_format(path: Path) -> Mapping[str, Any]:
    """Read `verdicts.json` in this format or, for an edition, in an earlier one, which lacks fields.

    Raises StudyError if the file is missing, holds no verdicts, or is invalid.
    """
    if EDITIONS in path.resolve().parents and path.exists():
        document = read_json(path)
        if isinstance(document, dict) and document.get("format") != FORMAT:
            return upgrade_cells(document)
    return read_verdicts(path)


def read_verdicts(path: Path) -> dict[str, Any]:
    """Read `verdicts.json`. Raises StudyError if the file is missing, has another format, or is invalid."""
    if not path.exists():
        raise StudyError(f"{path}: no such file. `make study` writes it; --verdicts FILE names another")
    document = read_json(path)
    released = EDITIONS in path.resolve().parents
    again = (
        "`make study` makes new ones" if released else f"Make it with: python -m report judge --data DIR --out {path}"
    )
    if not isinstance(document, dict) or "verdicts" not in document:
        raise StudyError(f"{path}: holds no verdicts. {again}")
    if len({str(verdict.get("id")) for verdict in document["verdicts"]}) != len(document["verdicts"]):
        raise StudyError(f"{path}: an id occurs twice. {again}")
    if document.get("format") != FORMAT:
        raise StudyError(f"{path}: was written by another version of this study. {again}")
    try:
        msgspec.convert(document, Document)
    except msgspec.ValidationError as fault:
        raise StudyError(f"{path}: {fault}. {again}") from None
    return document


def threshold_ends(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return both ends of a verdict's threshold; they are equal unless the threshold is a range."""
    threshold = verdict["threshold"]
    low, high = threshold if isinstance(threshold, list) else (threshold, threshold)
    return {"threshold_low": low, "threshold_high": high}
