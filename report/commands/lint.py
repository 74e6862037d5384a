"""Check verdicts against their data and published figures."""

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
# A fault has a location, a description and a remedy.
Faults = Iterator[tuple[str, str, str]]
# Rules that transform a quantity's estimates before they compare them with the threshold.
_TRANSFORMS = ("ratio", "trend", "crossover")
# Units for timed values, whose intervals never have zero width.
_TIMED = ["s", "FLOP/s", "B/s", "Hz", "W", "J"]
_ENDS = ("estimate", "low", "high")
# Summary columns that the checks read.
_READ = ("node", "unit", "status", "n_rounds", *_ENDS)
_AGAIN = "Gather and judge again"


@dataclass(frozen=True)
class Study:
    """A study's files, each read on first use. Access raises StudyError if a file cannot be read."""

    verdicts: Path
    data: Path
    reference: Path = REFERENCE
    report: Path | None = None

    @cached_property
    def document(self) -> dict[str, Any]:
        return read_verdicts(self.verdicts)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Summary rows with the columns in _READ, indexed by row number."""
        return read_summary(self.data, ["row", *_READ]).set_index("row")

    @cached_property
    def entries(self) -> Mapping[str, Record]:
        return read_reference(self.reference)

    def parts(self) -> Iterator[tuple[str, Record, Record, list[Record]]]:
        """Yield location, verdict, part and cases for each judged part."""
        for verdict in self.document["verdicts"]:
            for part in verdict["parts"]:
                if Verdict(part["outcome"]).is_judged:
                    where = f"claim {verdict['id']}" + (f", {part['name']}" if part["name"] else "")
                    yield where, verdict, part, [case for case in verdict["cases"] if case["part"] == part["name"]]

    def cases(self) -> Iterator[tuple[str, Record, Quantity, Record]]:
        """Yield (location, part, quantity, case) for each case."""
        for where, _, part, cases in self.parts():
            for case in cases:
                at = ", ".join(filter(None, (where, verdict_case_name(case))))
                yield at, part, quantities()[part["quantity"]], case

    def rows_behind(self, case: Record) -> pd.DataFrame:
        """Return the summary rows behind a case, indexed by row number.

        A row that the summary lacks is filled with NaN.
        """
        numbers = parse_ranges(case["behind"])
        return self.summary.reindex(numbers) if len(numbers) else self.summary.iloc[:0]


CHECKS: dict[str, tuple[str, Callable[[Study], Faults]]] = {}


def register_check(name: str, says: str) -> Callable[[Callable[[Study], Faults]], Callable[[Study], Faults]]:
    """Register a check under its name.

    says: a statement that is true if the check finds no fault.
    """

    def register(find: Callable[[Study], Faults]) -> Callable[[Study], Faults]:
        CHECKS[name] = says, find
        return find

    return register


def find_faults(study: Study) -> list[str]:
    """Return a line per fault. Raises StudyError if a file is missing or unreadable."""
    failed = [str(failure) for failure in read_failures(study.report).items] if study.report else []
    return failed + [
        f"{name}: {where}: {what}. {do}" for name, (_, find) in CHECKS.items() for where, what, do in find(study)
    ]


def print_faults(verdicts: Path, data: Path, reference: Path, report: Path | None = None) -> int:
    """Print a line for each fault in the verdicts, and for each page in `report` that could not be made.

    Return 1 if there are any, otherwise 0.
    """
    study = Study(verdicts, data, reference, report)
    faults = find_faults(study)
    if faults:
        print("\n".join(faults))
        print(f"{len(faults)} fault(s) in {verdicts}", file=sys.stderr)
        return 1
    cases = sum(len(cases) for *_, cases in study.parts())
    print(f"{len(CHECKS)} checks, {len(study.document['verdicts'])} verdicts, {cases} cases: no fault in {verdicts}")
    return 0


def _close(left: float | None, right: Any) -> bool:
    """Return True if two numbers agree within rounding errors, or if both are missing."""
    if left is None or pd.isna(right):
        return left is None and bool(pd.isna(right))
    return math.isclose(left, float(right), rel_tol=1e-9)


@register_check("rule-version", "No verdict without its rule's version, text and threshold, and the reason of each.")
def rule_version_faults(study: Study) -> Faults:
    for verdict in study.document["verdicts"]:
        reasons = {change["version"] for change in verdict["changes"] if change["reason"].strip()}
        for missing in sorted(set(range(2, verdict["version"] + 1)) - reasons):
            yield f"claim {verdict['id']}", f"version {missing} of its rule has no reason", "Give it one under changes"
    for where, _, part, _ in study.parts():
        for key in ("rule", "threshold_why", "threshold"):
            if part.get(key) in (None, ""):
                yield where, f"decided without {key}", _AGAIN


@register_check("interval", "Every case has an interval that holds its estimate, or says why none is known.")
def interval_faults(study: Study) -> Faults:
    for at, _, quantity, case in study.cases():
        behind = study.rows_behind(case)
        estimate, low, high = (case[name] for name in _ENDS)
        # The interval was lost if every row behind the case has an interval, the case has several rounds, and its
        # detail does not explain why it has none. A row has no interval if it has one round, or the same value in all
        # rounds. A case has fewer rounds than its row if some rounds have too few samples for a percentile.
        explained = case["n_rounds"] == 1 or any(
            why in case.get("detail", "") for why in ("cannot exceed", "too close")
        )
        lost = behind["low"].notna().all() and not explained
        timed = behind["unit"].isin(_TIMED) & (behind["low"] != behind["high"])
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


@register_check("counts", "Every measured case says how many rounds and samples it is from.")
def count_faults(study: Study) -> Faults:
    for at, _, quantity, case in study.cases():
        if quantity.experiments and case["node"] and not (case["n_rounds"] and case["n_samples"]):
            yield at, "no number of rounds or of samples", "Let the quantity count its inputs"


@register_check("unit", "Every number has a unit: 1 if it is none, and for a published figure that of its entry.")
def unit_faults(study: Study) -> Faults:
    for at, part, _, case in study.cases():
        entry = study.entries.get(str(case["labels"].get("entry")))
        if not part["unit"]:
            yield at, "no unit", "Give the quantity one, or entries of one unit"
        elif entry is not None and part["rule"] not in _TRANSFORMS and str(entry["unit"]) != part["unit"]:
            yield at, f"in {part['unit']}, while its entry is in {entry['unit']}", _AGAIN


@register_check(
    "rows", "Every measured case rests on rows of the summary that are there, gave a result, and are of its node."
)
def row_faults(study: Study) -> Faults:
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


@register_check("reading", "A case that is one row of the summary, without arithmetic, says what the row says.")
def reading_faults(study: Study) -> Faults:
    looks = {node["id"] for node in study.document["nodes"] if node.get("looks")}
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
        # If a count comes from one round, the case is exact (low = high), but the summary row has no interval, so only
        # the estimates are compared.
        counted = row["n_rounds"] == 1 and case["low"] == case["high"]
        looked = row["node"] in looks
        if looked and case["n_rounds"] != row["n_rounds"]:
            continue
        # The interval of a look has a higher level than that of the row.
        for name in ("estimate",) if counted or looked else _ENDS:
            # A non-negative quantity's low end is clipped at 0, so it may differ from the low end in the summary row.
            cut = name == "low" and case["low"] == 0 and row["low"] < 0
            if not cut and not _close(case[name], row[name]):
                yield at, f"{name} {case[name]} is not row {behind.index[0]}'s {row[name]}", _AGAIN


@register_check(
    "entries", "Every published figure is an entry of the reference, verified, and belongs to what it decides."
)
def entry_faults(study: Study) -> Faults:
    for where, _, part, _ in study.parts():
        tier, entry_ids = quantities()[part["quantity"]].tier, sorted(part["entries"])
        scope = part["scope"].get("entry", [])
        for name in entry_ids:
            if name not in study.entries:
                yield where, f"there is no entry {name!r} in the reference", "Add it with its source"
            elif study.entries[name]["status"] != "verified":
                yield where, f"rests on {name}, which was not verified", "Verify it in its source"
            elif tier == "documented" and name not in (scope if isinstance(scope, list) else [scope]):
                yield where, f"names the entry {name}, which decides nothing here", _AGAIN
        if tier == "measured" and entry_ids:
            yield where, f"measured, and rests on {', '.join(entry_ids)}", "Make its tier derived"
    for at, part, quantity, case in study.cases():
        if quantity.tier == "documented" and part["rule"] not in _TRANSFORMS:
            entry = study.entries.get(str(case["labels"].get("entry")))
            listed = entry.get("distribution") or [entry["value"]] if entry else []
            if not any(_close(case["estimate"], float(value) * part["scale"]) for value in listed):
                yield at, f"{case['estimate']} is not what its entry says", _AGAIN


@register_check("key-number", "The number of a verdict is one of its parts', and that of a part one of its cases'.")
def key_number_faults(study: Study) -> Faults:
    for where, verdict, part, cases in study.parts():
        for at, whole, pieces in ((where, part, cases), (f"claim {verdict['id']}", verdict, verdict["parts"])):
            same = any(all(whole[name] == piece[name] for name in _ENDS) for piece in pieces)
            if whole["estimate"] is not None and not same:
                yield at, f"its number {whole['estimate']:g} is none of what it is made of", _AGAIN
