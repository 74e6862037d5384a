"""Checks the verdicts against the data and the published figures that they rest on."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from report.data.gathered import read_summary
from report.data.ranges import parse_ranges
from report.data.reference import REFERENCE, read_reference
from report.model import Verdict, read_verdicts
from report.quantities import Quantity, quantities

# Where, what is wrong, and what to do about it.
Found = Iterator[tuple[str, str, str]]
# Rules that compare something else than the quantity's own cells.
_TRANSFORMS = ("ratio", "trend", "crossover")
# How a quantity asks for samples in place of the summary's medians.
_OF_SAMPLES = {"percentile", "readings", "samples", "of_samples"}
_NEAR = 1e-9
# How a cell's detail says why it has no interval.
_WHY_NONE = ("cannot exceed", "too close to tell")
_AGAIN = "Gather and judge again"


@dataclass(frozen=True)
class Study:
    """The files of a study, each read when a check asks for it. Raises StudyError for one that cannot be read."""

    verdicts: Path
    data: Path
    reference: Path = REFERENCE

    @cached_property
    def document(self) -> dict[str, Any]:
        return read_verdicts(self.verdicts)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """The summary's rows by their number."""
        table = read_summary(self.data)
        return table.set_index("row", drop=False) if "row" in table else table

    @cached_property
    def entries(self) -> Mapping[str, Mapping[str, Any]]:
        return read_reference(self.reference)

    def parts(self) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], list[dict[str, Any]]]]:
        """Each part that was judged: where, its verdict, the part, its cells."""
        for verdict in self.document["verdicts"]:
            for part in verdict["parts"]:
                if Verdict(part["outcome"]).judged:
                    where = f"claim {verdict['id']}" + (f", {part['name']}" if part["name"] else "")
                    yield where, verdict, part, [one for one in verdict["cells"] if one["part"] == part["name"]]


@dataclass(frozen=True)
class Check:
    """says: what holds where it finds nothing."""

    name: str
    says: str
    find: Callable[[Study], Iterable[tuple[str, str, str]]]


CHECKS: dict[str, Check] = {}


def check(name: str, says: str) -> Callable[[Callable[[Study], Found]], Callable[[Study], Found]]:
    """Register a check under its name."""

    def register(find: Callable[[Study], Found]) -> Callable[[Study], Found]:
        CHECKS[name] = Check(name, says, find)
        return find

    return register


def faults(study: Study) -> list[str]:
    """A line for each fault. Raises StudyError for a file that is missing or unreadable."""
    return [f"{one.name}: {where}: {what}. {do}" for one in CHECKS.values() for where, what, do in one.find(study)]


def run(verdicts: Path, data: Path, reference: Path) -> int:
    """Print a line for each fault; 1 if there are any, else 0 and what was looked at."""
    study = Study(verdicts, data, reference)
    found = faults(study)
    if found:
        print("\n".join(found))
        print(f"{len(found)} fault(s) in {verdicts}", file=sys.stderr)
        return 1
    cells = sum(len(cells) for *_, cells in study.parts())
    print(f"{len(CHECKS)} checks, {len(study.document['verdicts'])} verdicts, {cells} cells: no fault in {verdicts}")
    return 0


def _known(part: Mapping[str, Any]) -> Quantity | None:
    return quantities().get(part["quantity"])


def _tier(part: Mapping[str, Any]) -> str:
    quantity = _known(part)
    return quantity.tier if quantity else ""


def _near(one: float | None, other: Any) -> bool:
    if one is None or pd.isna(other):
        return one is None and bool(pd.isna(other))
    return math.isclose(one, float(other), rel_tol=_NEAR)


def _named(where: str, cell: Mapping[str, Any]) -> str:
    return f"{where}, {cell['label']}" if cell["label"] else where


@check("rule-version", "No verdict without its rule's version, text and threshold, and the reason of each.")
def rule_version(study: Study) -> Found:
    for verdict in study.document["verdicts"]:
        where, version = f"claim {verdict['id']}", verdict.get("version")
        if not isinstance(version, int) or version < 1:
            yield where, "its rule has no version", "Give the claim's file a version"
            continue
        told = {one["version"] for one in verdict["changes"] if one["reason"].strip()}
        for missing in sorted(set(range(2, version + 1)) - told):
            yield where, f"version {missing} of its rule has no reason", "Give it one under changes in the claim's file"
    for where, _, part, _ in study.parts():
        for key, what in (("rule_text", "rule"), ("threshold_why", "reason of the threshold")):
            if not str(part.get(key) or "").strip():
                yield where, f"decided without a {what}", _AGAIN
        if part.get("threshold") is None:
            yield where, "decided without a threshold", _AGAIN


@check("interval", "Every cell has an interval that holds its estimate, or says why none is known.")
def intervals(study: Study) -> Found:
    for where, _, part, cells in study.parts():
        for cell in cells:
            estimate, low, high = (cell[name] for name in ("estimate", "low", "high"))
            at = _named(where, cell)
            if estimate is None:
                if not cell["label"]:
                    yield at, "neither an estimate nor a word why there is none", "Give the cell a detail"
            elif low is None or high is None:
                if _lost(study, cell) and not any(why in cell["label"] for why in _WHY_NONE):
                    what = "no interval, though all behind it have one"
                    yield at, what, f"Let the quantity carry them, or say why ({' or '.join(_WHY_NONE)})"
                if cell["outcome"] != "undecided":
                    yield at, f"{cell['outcome']} without an interval", "What has no interval decides nothing"
            elif not low <= estimate <= high:
                yield at, f"the estimate {estimate:g} is not within [{low:g}, {high:g}]", "Mend the quantity"
            elif low == high and _tier(part) == "measured" and not _exact(study, cell):
                yield at, f"{estimate:g} is told as exact, though it was timed", "Let the quantity carry the interval"


def _lost(study: Study, cell: Mapping[str, Any]) -> bool:
    """Whether a cell lacks an interval that its rows have: one round, or rounds that are all equal, give none."""
    return bool(study.summary.reindex(parse_ranges(cell["behind"]))["low"].notna().all())


def _exact(study: Study, cell: Mapping[str, Any]) -> bool:
    """Whether a cell may be without spread: nothing measured is behind it, or only what was counted."""
    rows = study.summary.reindex(parse_ranges(cell["behind"]))
    timed = rows["unit"].isin(["s", "FLOP/s", "B/s", "Hz", "W", "J"]) & (rows["low"] != rows["high"])
    return not timed.any()


@check("counts", "Every measured cell says how many rounds and samples it is from.")
def counts(study: Study) -> Found:
    for where, _, part, cells in study.parts():
        quantity = _known(part)
        if quantity is None or not quantity.experiments:
            continue
        for cell in cells:
            if cell["node"] and not (cell["n_rounds"] and cell["n_samples"]):
                yield _named(where, cell), "no number of rounds or of samples", "Let the quantity count its inputs"


@check("unit", "Every number has a unit: 1 if it is none, and for a published figure that of its entry.")
def unit(study: Study) -> Found:
    for where, _, part, cells in study.parts():
        if not part["unit"]:
            yield where, "no unit", "Give the quantity one, or entries of one unit"
        for cell in cells:
            entry = study.entries.get(str(cell.get("entry")))
            if entry is not None and part["rule"] not in _TRANSFORMS and str(entry["unit"]) != part["unit"]:
                yield _named(where, cell), f"in {part['unit']}, while its entry is in {entry['unit']}", _AGAIN


@check("rows", "Every measured cell rests on rows of the summary that are there, gave a result, and are of its node.")
def rows(study: Study) -> Found:
    ok = study.summary["status"] == "ok"
    good, nodes = set(study.summary.index[ok]), study.summary["node"].to_dict()
    for where, _, part, cells in study.parts():
        quantity = _known(part)
        for cell in cells:
            at, behind = _named(where, cell), parse_ranges(cell["behind"])
            if not behind:
                if quantity is not None and quantity.experiments and quantity.tier == "measured":
                    yield at, "no row of the summary is behind it", "Let the quantity carry `behind`"
                continue
            lost = [number for number in behind if number not in good]
            if lost:
                yield at, f"row {lost[0]} is not in the summary, or gave no result", _AGAIN
            elif cell["node"] and cell["node"] not in {nodes[number] for number in behind}:
                yield at, f"no row behind it is of {cell['node']}", _AGAIN


@check("reading", "A cell that is one row of the summary, without arithmetic, says what the row says.")
def reading(study: Study) -> Found:
    for where, _, part, cells in study.parts():
        quantity = _known(part)
        if quantity is None or quantity.tier != "measured" or part["rule"] in _TRANSFORMS or part["scale"] != 1:
            continue
        if _reads_samples(quantity.name):
            continue
        for cell in cells:
            behind = parse_ranges(cell["behind"])
            if len(behind) != 1 or behind[0] not in study.summary.index:
                continue
            row = study.summary.loc[behind[0]]
            if row["unit"] not in ("1", part["unit"]):
                continue
            # What was counted in a single round is exact, though a single round gives no interval.
            counted = row["n_rounds"] == 1 and cell["low"] == cell["high"]
            for name in ("estimate",) if counted else ("estimate", "low", "high"):
                # What cannot be negative is cut at nothing.
                cut = name == "low" and cell["low"] == 0 and row["low"] < 0
                if not cut and not _near(cell[name], row[name]):
                    yield _named(where, cell), f"{name} {cell[name]} is not row {behind[0]}'s {row[name]}", _AGAIN


@cache
def _reads_samples(name: str) -> bool:
    """Whether a quantity of this name, or a function that it calls, asks for samples."""
    compute = inspect.unwrap(quantities()[name].compute)
    seen, ahead = set(), [compute]
    while ahead:
        one = ahead.pop()
        if one in seen:
            continue
        seen.add(one)
        names = set(one.__code__.co_names)
        if names & _OF_SAMPLES:
            return True
        called = (one.__globals__.get(name) for name in names)
        ahead += [inspect.unwrap(other) for other in called if inspect.isfunction(other)]
    return False


@check("entries", "Every published figure is an entry of the reference, verified, and belongs to what it decides.")
def entries(study: Study) -> Found:
    for where, _, part, cells in study.parts():
        quantity = _known(part)
        for name in part["entries"]:
            entry = study.entries.get(name)
            if entry is None:
                yield where, f"there is no entry {name!r} in the reference", "Add it with its source"
            elif entry["status"] != "verified":
                yield where, f"rests on {name}, which was not verified", "Verify it in its source"
        named = set(part["entries"])
        if quantity is None:
            continue
        if quantity.tier == "measured" and named:
            yield where, f"told as measured, and rests on {', '.join(sorted(named))}", "Make its tier derived"
        if quantity.tier != "documented":
            continue
        asked = part["scope"].get("entry", [])
        for name in sorted(named - set(asked if isinstance(asked, list) else [asked])):
            yield where, f"names the entry {name}, which decides nothing here", _AGAIN
        for cell in cells:
            entry = study.entries.get(str(cell.get("entry")))
            if part["rule"] not in _TRANSFORMS and (
                entry is None or not _near(cell["estimate"], float(entry["value"]) * part["scale"])
            ):
                yield _named(where, cell), f"{cell['estimate']} is not what its entry says", _AGAIN


@check("key-number", "The number that a verdict and its parts are told with is one of their cells.")
def key_number(study: Study) -> Found:
    for where, verdict, part, cells in study.parts():
        if part["estimate"] is not None and not any(_same(part, cell) for cell in cells):
            yield where, f"its number {part['estimate']:g} is none of its cells'", _AGAIN
        if verdict["estimate"] is not None and not any(_same(verdict, one) for one in verdict["parts"]):
            yield f"claim {verdict['id']}", f"its number {verdict['estimate']:g} is none of its parts'", _AGAIN


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one[name] == other[name] for name in ("estimate", "low", "high"))


@check("ratio-base", "A quantity that states a multiple says of what.")
def ratio_base(_study: Study) -> Found:
    for name, quantity in quantities().items():
        said = quantity.says.replace("({labels})", "").strip()
        for compared, rest in re.findall(r"\{value\} times( as \w+)?(.*)", said):
            if not (" as " in rest if compared else rest.strip(" .")):
                yield f"quantity {name}", f"{said!r} does not say times what", "Name the base case in its sentence"
