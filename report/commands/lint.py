"""Checks the verdicts against the data and the published figures that they rest on."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from report.data.gathered_files import read_summary
from report.data.reference_figures import REFERENCE, read_reference
from report.data.row_ranges import parse_ranges
from report.formatting import case_nodes, verdict_case_name
from report.outcomes import Verdict
from report.pages.failures import read_failures
from report.quantities import Quantity, quantities
from report.verdicts import read_verdicts

Record = Mapping[str, Any]
# Where, what is wrong, and what to do about it.
Found = Iterator[tuple[str, str, str]]
# Rules that compare something else than the quantity's own estimates.
_TRANSFORMS = ("ratio", "trend", "crossover")
# Units of what is timed, which never has an interval of no width.
_TIMED = ["s", "FLOP/s", "B/s", "Hz", "W", "J"]
_ENDS = ("estimate", "low", "high")
# Columns of the summary that checks read.
_READ = ("node", "unit", "status", "n_rounds", *_ENDS)
_AGAIN = "Gather and judge again"


@dataclass(frozen=True)
class Study:
    """The files of a study, each read when a check asks for it. Raises StudyError for one that cannot be read."""

    verdicts: Path
    data: Path
    reference: Path = REFERENCE
    report: Path | None = None

    @cached_property
    def document(self) -> dict[str, Any]:
        return read_verdicts(self.verdicts)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """The summary's rows by their number, in the columns that checks read."""
        return read_summary(self.data, ["row", *_READ]).set_index("row")

    @cached_property
    def entries(self) -> Mapping[str, Record]:
        return read_reference(self.reference)

    def parts(self) -> Iterator[tuple[str, Record, Record, list[Record]]]:
        """Each part that was judged: where, its verdict, the part, its cases."""
        for verdict in self.document["verdicts"]:
            for part in verdict["parts"]:
                if Verdict(part["outcome"]).judged:
                    where = f"claim {verdict['id']}" + (f", {part['name']}" if part["name"] else "")
                    yield where, verdict, part, [case for case in verdict["cases"] if case["part"] == part["name"]]

    def cases(self) -> Iterator[tuple[str, Record, Quantity, Record]]:
        """Each case: where, its part, the part's quantity, the case."""
        for where, _, part, cases in self.parts():
            for case in cases:
                at = ", ".join(filter(None, (where, verdict_case_name(case))))
                yield at, part, quantities()[part["quantity"]], case

    def rows_behind(self, case: Record) -> pd.DataFrame:
        """The rows of the summary from which a case was made, by their number; one that is missing is empty."""
        numbers = parse_ranges(case["behind"])
        return self.summary.reindex(numbers) if len(numbers) else self.summary.iloc[:0]


CHECKS: dict[str, tuple[str, Callable[[Study], Found]]] = {}


def check(name: str, says: str) -> Callable[[Callable[[Study], Found]], Callable[[Study], Found]]:
    """Register a check under its name; says: what holds where it finds nothing."""

    def register(find: Callable[[Study], Found]) -> Callable[[Study], Found]:
        CHECKS[name] = says, find
        return find

    return register


def faults(study: Study) -> list[str]:
    """A line for each fault. Raises StudyError for a file that is missing or unreadable."""
    failed = [str(one) for one in read_failures(study.report).found] if study.report else []
    return failed + [
        f"{name}: {where}: {what}. {do}" for name, (_, find) in CHECKS.items() for where, what, do in find(study)
    ]


def run(verdicts: Path, data: Path, reference: Path, report: Path | None = None) -> int:
    """Print a line for each fault and for each page of `report` that was not made; 1 if there are any, else 0."""
    study = Study(verdicts, data, reference, report)
    found = faults(study)
    if found:
        print("\n".join(found))
        print(f"{len(found)} fault(s) in {verdicts}", file=sys.stderr)
        return 1
    cases = sum(len(cases) for *_, cases in study.parts())
    print(f"{len(CHECKS)} checks, {len(study.document['verdicts'])} verdicts, {cases} cases: no fault in {verdicts}")
    return 0


def _near(one: float | None, other: Any) -> bool:
    if one is None or pd.isna(other):
        return one is None and bool(pd.isna(other))
    return math.isclose(one, float(other), rel_tol=1e-9)


@check("rule-version", "No verdict without its rule's version, text and threshold, and the reason of each.")
def rule_version(study: Study) -> Found:
    for verdict in study.document["verdicts"]:
        reasons = {change["version"] for change in verdict["changes"] if change["reason"].strip()}
        for missing in sorted(set(range(2, verdict["version"] + 1)) - reasons):
            yield f"claim {verdict['id']}", f"version {missing} of its rule has no reason", "Give it one under changes"
    for where, _, part, _ in study.parts():
        for key in ("rule", "threshold_why", "threshold"):
            if part.get(key) in (None, ""):
                yield where, f"decided without {key}", _AGAIN


@check("interval", "Every case has an interval that holds its estimate, or says why none is known.")
def intervals(study: Study) -> Found:
    for at, _, quantity, case in study.cases():
        rows = study.rows_behind(case)
        estimate, low, high = (case[name] for name in _ENDS)
        # One round, or rounds that are all equal, give no interval; what a disturbed measurement gave says so.
        lost = rows["low"].notna().all() and not any(
            why in case.get("detail", "") for why in ("cannot exceed", "too close")
        )
        timed = rows["unit"].isin(_TIMED) & (rows["low"] != rows["high"])
        if estimate is None:
            if not case.get("detail"):
                yield at, "neither an estimate nor a word why there is none", "Give the estimate a detail"
        elif low is None or high is None:
            if lost:
                yield at, "no interval, though all behind it have one", "Let the quantity carry them, or say why not"
            if case["outcome"] != "undecided":
                yield at, f"{case['outcome']} without an interval", "What has no interval decides nothing"
        elif not low <= estimate <= high:
            yield at, f"the estimate {estimate:g} is not within [{low:g}, {high:g}]", "Mend the quantity"
        elif low == high and quantity.tier == "measured" and timed.any():
            yield at, f"{estimate:g} is exact, though it was timed", "Let the quantity carry the interval"


@check("counts", "Every measured case says how many rounds and samples it is from.")
def counts(study: Study) -> Found:
    for at, _, quantity, case in study.cases():
        if quantity.experiments and case["node"] and not (case["n_rounds"] and case["n_samples"]):
            yield at, "no number of rounds or of samples", "Let the quantity count its inputs"


@check("unit", "Every number has a unit: 1 if it is none, and for a published figure that of its entry.")
def unit(study: Study) -> Found:
    for at, part, _, case in study.cases():
        entry = study.entries.get(str(case["labels"].get("entry")))
        if not part["unit"]:
            yield at, "no unit", "Give the quantity one, or entries of one unit"
        elif entry is not None and part["rule"] not in _TRANSFORMS and str(entry["unit"]) != part["unit"]:
            yield at, f"in {part['unit']}, while its entry is in {entry['unit']}", _AGAIN


@check("rows", "Every measured case rests on rows of the summary that are there, gave a result, and are of its node.")
def rows(study: Study) -> Found:
    for at, _, quantity, case in study.cases():
        behind = study.rows_behind(case)
        lost = behind.index[behind["status"] != "ok"]
        if not len(behind):
            if quantity.experiments and quantity.tier == "measured":
                yield at, "no row of the summary is behind it", "Let the quantity carry its source rows"
        elif len(lost):
            yield at, f"row {lost[0]} is not in the summary, or gave no result", _AGAIN
        elif without := set(case_nodes(case)) - set(behind["node"]):
            yield at, f"no row behind it is of {min(without)}", _AGAIN


@check("reading", "A case that is one row of the summary, without arithmetic, says what the row says.")
def reading(study: Study) -> Found:
    for at, part, quantity, case in study.cases():
        plain = quantity.tier == "measured" and part["rule"] not in _TRANSFORMS and part["scale"] == 1
        if not plain or part["from_samples"]:
            continue
        behind = study.rows_behind(case)
        if len(behind) != 1:
            continue
        row = behind.iloc[0]
        if row["unit"] not in ("1", part["unit"]):
            continue
        # What was counted in a single round is exact, though a single round gives no interval.
        counted = row["n_rounds"] == 1 and case["low"] == case["high"]
        for name in ("estimate",) if counted else _ENDS:
            # What cannot be negative is cut at nothing.
            cut = name == "low" and case["low"] == 0 and row["low"] < 0
            if not cut and not _near(case[name], row[name]):
                yield at, f"{name} {case[name]} is not row {behind.index[0]}'s {row[name]}", _AGAIN


@check("entries", "Every published figure is an entry of the reference, verified, and belongs to what it decides.")
def entries(study: Study) -> Found:
    for where, _, part, _ in study.parts():
        tier, named = quantities()[part["quantity"]].tier, sorted(part["entries"])
        asked = part["scope"].get("entry", [])
        for name in named:
            if name not in study.entries:
                yield where, f"there is no entry {name!r} in the reference", "Add it with its source"
            elif study.entries[name]["status"] != "verified":
                yield where, f"rests on {name}, which was not verified", "Verify it in its source"
            elif tier == "documented" and name not in (asked if isinstance(asked, list) else [asked]):
                yield where, f"names the entry {name}, which decides nothing here", _AGAIN
        if tier == "measured" and named:
            yield where, f"measured, and rests on {', '.join(named)}", "Make its tier derived"
    for at, part, quantity, case in study.cases():
        if quantity.tier == "documented" and part["rule"] not in _TRANSFORMS:
            entry = study.entries.get(str(case["labels"].get("entry")))
            listed = entry.get("distribution") or [entry["value"]] if entry else []
            if not any(_near(case["estimate"], float(one) * part["scale"]) for one in listed):
                yield at, f"{case['estimate']} is not what its entry says", _AGAIN


@check("key-number", "The number of a verdict is one of its parts', and that of a part one of its cases'.")
def key_number(study: Study) -> Found:
    for where, verdict, part, cases in study.parts():
        for at, whole, pieces in ((where, part, cases), (f"claim {verdict['id']}", verdict, verdict["parts"])):
            same = any(all(whole[name] == piece[name] for name in _ENDS) for piece in pieces)
            if whole["estimate"] is not None and not same:
                yield at, f"its number {whole['estimate']:g} is none of what it is made of", _AGAIN
