"""Evaluate one claim part: its estimates in scope, its outcome or missing evidence, and published results.

Published records are judged by the part's own rule and threshold. They decide the part only if this study's
measurements cannot; otherwise they are shown beside these measurements. Only direct evidence decides: its records
compare two sides (such as CPU and GPU) on the same work, and state the number formats. `rules.PublishedEnds` defines
the margin that a record needs to decide. Indirect evidence is only shown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import structs

from contract.errors import StudyError
from contract.machine_kinds import KINDS
from contract.node import kind_of_node
from contract.sample_table import metric_unit
from report.data.dataset import Dataset, DataUse, MissingSourceError
from report.data.looks import datasets_at_looks, look_nodes
from report.data.machine_kinds import nodes_of_kind
from report.estimates import Estimates, device_kind, merge_source_rows
from report.formatting import label_value
from report.judging.claim_files import Claim, Part
from report.judging.looks import transform_at_looks
from report.judging.rules import RuleResult, apply_rule, decide
from report.outcomes import Verdict
from report.quantities import Quantity, quantities
from report.verdicts import Failure, Missing


def select(estimates: Estimates, scope: Mapping[str, Any]) -> Estimates:
    """Select the estimates in a scope.

    `backend: best` also selects `shape: best`, unless the scope names a shape or the estimates have no label `shape`.
    Estimates labelled best are aggregates; they are selected only if the scope asks for them. `threads: all` selects,
    for each node and device kind, the largest measured thread count.
    """
    for name, value in _scope_values(scope, estimates).items():
        estimates = _narrow(estimates, name, value)
    return _drop_undecidable(estimates)


def _drop_undecidable(estimates: Estimates) -> Estimates:
    """Drop each estimate without an interval if another machine of its kind has one for the same case.

    A machine with a single round has no interval. If it were pooled with machines that have intervals, the case could
    stay undecided although these machines decide it.
    """
    has_interval = estimates["low"].notna().to_numpy(bool)
    if "node" not in estimates.labels or has_interval.all():
        return estimates
    keys = estimates.frame[estimates.keys].assign(node=estimates["node"].map(kind_of_node, na_action="ignore"))
    cases = keys.groupby(estimates.keys, dropna=False, sort=False, observed=True).ngroup().to_numpy()
    return estimates.take(has_interval | ~np.isin(cases, cases[has_interval]))


def _scope_values(scope: Mapping[str, Any], estimates: Estimates) -> dict[str, Any]:
    wanted = dict(scope)
    if wanted.get("backend") == "best" and "shape" in estimates.labels:
        wanted.setdefault("shape", "best")
    for name in ("backend", "shape"):
        if name in estimates.labels and name not in wanted:
            wanted[name] = [value for value in estimates[name].dropna().unique() if value != "best"]
    return wanted


def _narrow(estimates: Estimates, name: str, value: Any) -> Estimates:
    if name not in estimates.labels:
        return estimates.take([])
    if name == "threads" and value == "all":
        threads = estimates.numbers("threads")
        most = threads.groupby([estimates["node"], estimates["device"].map(device_kind)], observed=True).transform(
            "max"
        )
        return estimates.take(threads == most)
    return estimates.filter(**{name: value})


def kinds_needed(part: Part, quantity: Quantity) -> list[str]:
    """List the device kinds (cpu, gpu) that the part's quantity, scope or comparison between devices needs."""
    scope_kinds = part.scope.get("device", [])
    kinds = {*quantity.kinds, *(scope_kinds if isinstance(scope_kinds, list) else [scope_kinds])}
    if part.options.get("over") == "device":
        kinds |= {str(part.options["of"]), str(part.options["to"])}
    return sorted(kind if kind in ("cpu", "gpu") else device_kind(kind) for kind in kinds)


def find_missing(part: Part, quantity: Quantity, estimates: Estimates, data: Dataset) -> Missing:
    """Find the evidence that a part lacks, if its rule has nothing to compare, and the machine to supply it.

    estimates: all estimates for the part's quantity, in scope or not.
    """
    return _with_machine(_find_evidence(part, quantity, estimates, data), part, quantity, data)


def _with_machine(need: Missing, part: Part, quantity: Quantity, data: Dataset) -> Missing:
    """Add the kind of machine, the devices and the energy counters that can supply the evidence."""
    kinds, baseline = kinds_needed(part, quantity), _baseline(part)
    # Nodes of other kinds supply the other side of a comparison with a kind of machine.
    devices = list(filter(None, [KINDS[baseline].device])) if baseline else kinds
    energy = [kind for kind in kinds if _lacks_energy(quantity, kind, data)]
    return structs.replace(need, baseline=baseline, devices=devices, energy=energy)


def _baseline(part: Part) -> str:
    """Return the machine kind that a part needs; '' if it needs none."""
    machine = part.machine or str(part.scope.get("baseline"))
    return machine if machine in KINDS else ""


def _lacks_energy(quantity: Quantity, kind: str, data: Dataset) -> bool:
    """Tell if a quantity reads energy, and no node has counted any on this kind of device."""
    with data.track_use() as used:
        quantity.estimates(data)
    energy = [place for place in used.rows if metric_unit(place[1]) == "J"]
    kinds = {device_kind(device) for place in energy for device in data.summary(*place)["device"]}
    return bool(energy) and kind not in kinds


def _find_evidence(part: Part, quantity: Quantity, estimates: Estimates, data: Dataset) -> Missing:
    kinds = kinds_needed(part, quantity)
    wanted = list(quantity.experiments)
    for kind in kinds:
        if not data.nodes_with_device(kind):
            return Missing(Verdict.AWAITING_HARDWARE, wanted, device=kind)
    machine = _baseline(part)
    if machine and not nodes_of_kind(data, machine):
        return Missing(Verdict.AWAITING_HARDWARE, wanted, machine=machine, device=KINDS[machine].device)
    device_kinds = kinds or sorted({kind for node in data.nodes.nodes for kind in node.kinds()})
    for experiment in wanted:
        failures = [_experiment_failure(experiment, kind, data) for kind in device_kinds]
        failed = [failure for failure in failures if failure is not None]
        if failed and (kinds or len(failed) == len(device_kinds)):
            return Missing(Verdict.AWAITING_EXPERIMENT, [experiment], failures=failed)
    return _missing_label(part, estimates, wanted[0] if wanted else quantity.name)


def _experiment_failure(experiment: str, kind: str, data: Dataset) -> Failure | None:
    """Find an experiment's most common failure on a device kind; None if the experiment has results there."""
    rows = data.statuses(experiment, kind)
    if (rows["status"] == "ok").any():
        return None
    nodes = list(data.group_labels(data.nodes_with_device(kind)))
    if not len(rows):
        return Failure(kind, nodes)
    commonest = rows.groupby(["status", "reason"], observed=True).size().idxmax()
    return Failure(kind, nodes, *(commonest if isinstance(commonest, tuple) else (commonest,)))


def _missing_label(part: Part, estimates: Estimates, experiment: str) -> Missing:
    """Find the first scope label whose value leaves no measurements.

    If measurements remain after the last label, the rule ratio, trend or crossover found nothing to compare among them,
    so the result names this rule.
    """
    remaining, missing = estimates, Missing(Verdict.AWAITING_EXPERIMENT, [experiment])
    for name, value in _scope_values(part.scope, estimates).items():
        narrowed = _narrow(remaining, name, value)
        if not len(narrowed):
            measured = sorted(remaining[name].dropna().unique(), key=str) if name in remaining.labels else []
            wanted = value if isinstance(value, list) else [value]
            words = [[label_value(name, value) for value in values] for values in (wanted, measured)]
            return Missing(missing.verdict, missing.experiments, label=name, wanted=words[0], measured=words[1])
        remaining = narrowed
    if part.rule in ("ratio", "trend", "crossover") and len(remaining):
        return Missing(missing.verdict, missing.experiments, rule=part.rule, estimates=len(remaining))
    return missing


@dataclass(frozen=True)
class PublishedResult:
    """Published evidence for one part, with the result of judging it.

    part: the part, with the published evidence's quantity, scope and scale in place of its own.
    strength: 'direct' or 'indirect'.
    why: the common points and the differences between the records and the claim.
    estimates: all estimates for the published quantity.
    chosen: the estimates in scope, after scaling.
    result: the rule's result; None if it had nothing to compare.
    """

    part: Part
    strength: str
    why: str
    unit: str
    estimates: Estimates
    chosen: Estimates
    result: RuleResult | None

    @property
    def outcome(self) -> Verdict | None:
        """The rule's outcome; None if it had nothing to compare."""
        return self.result.outcome if self.result else None

    @property
    def records(self) -> list[str]:
        """Keys of the compared published records, without duplicates."""
        if self.result is None or "records" not in self.result.estimates.labels:
            return []
        return list(dict.fromkeys(" ".join(map(str, self.result.estimates["records"])).split()))


@dataclass
class PartResult:
    """Claim part with its outcome.

    missing: the evidence that the part awaits; None if its rule could be applied.
    estimates: all estimates for the part's quantity, before scope and scale.
    result: the rule's result; None if the rule could not be applied.
    unchecked: True if the part is undecided because nothing checks the quantity's model.
    others: the results from published evidence.
    waits: if published evidence decides the part, the evidence that the part would await without it; otherwise None.
    """

    part: Part
    outcome: Verdict
    missing: Missing | None = None
    unit: str = ""
    quantity: Quantity | None = None
    estimates: Estimates = field(default_factory=Estimates.empty)
    result: RuleResult | None = None
    unchecked: bool = False
    others: tuple[PublishedResult, ...] = ()
    waits: Missing | None = None


class QuantityCache:
    """Cache for each quantity's estimates on one dataset. It also records the data that each quantity used.

    before: the cache as of the look before. new: experiments that were measured after that look. Quantities that read
    none of them are as they were.
    """

    def __init__(self, data: Dataset, before: QuantityCache | None = None, new: Collection[str] = ()) -> None:
        self.data, self._before, self._new = data, before, new
        self._estimates: dict[str, Estimates] = {}
        self._used: dict[str, DataUse] = {}
        self._read: dict[str, dict[str, tuple[int, ...]]] = {}

    @cached_property
    def looks(self) -> list[QuantityCache]:
        """Return a cache for the dataset as of each look; empty if no node has looks."""
        caches: list[QuantityCache] = []
        for data, new in datasets_at_looks(self.data):
            caches.append(QuantityCache(data, caches[-1] if caches else None, new))
        return caches

    def estimates(self, quantity: Quantity) -> Estimates:
        """Return a quantity's estimates. Raises MissingSourceError if a figure that it needs is not verified."""
        if quantity.name not in self._estimates and self._before:
            estimates = self._before.estimates(quantity)
            if not self._before._experiments_read(quantity) & set(self._new):
                self._estimates[quantity.name], self._used[quantity.name] = estimates, self._before._used[quantity.name]
        if quantity.name not in self._estimates:
            with self.data.track_use() as used:
                self._used[quantity.name] = used
                self._estimates[quantity.name] = quantity.estimates(self.data)
        return self._estimates[quantity.name]

    def entries(self, quantity: Quantity) -> list[str]:
        """Return the reference entries that a quantity used."""
        return sorted(self._used.get(quantity.name, DataUse()).entries)

    def undeclared_experiments(self, quantity: Quantity) -> list[str]:
        """Return the experiments that a quantity read but declares neither in `experiments` nor in `reads`."""
        return sorted(self._experiments_read(quantity) - {*quantity.experiments, *quantity.reads})

    def _experiments_read(self, quantity: Quantity) -> set[str]:
        return {experiment for experiment, _ in self._used.get(quantity.name, DataUse()).rows}

    def from_samples(self, quantity: Quantity) -> bool:
        """Return True if a quantity read samples, not just the summary's medians."""
        return any(not metric for _, metric in self._used.get(quantity.name, DataUse()).rows)

    def source_rows(self, quantity: Quantity, followed: tuple[int, ...], nodes: Sequence[str]) -> tuple[int, ...]:
        """Find the summary rows behind an estimate; return their numbers.

        followed: the row numbers that were tracked through the quantity's arithmetic. If there are none, all rows that
        the quantity read for `nodes` are returned. A published figure has no node, so it has no rows.
        """
        if followed or not quantity.experiments or not nodes:
            return followed
        if quantity.name not in self._read:
            self._read[quantity.name] = self.data.row_numbers_by_node(self._used[quantity.name])
        return merge_source_rows(self._read[quantity.name].get(node, ()) for node in nodes)


def evaluate_part(part: Part, claim: Claim, cache: QuantityCache) -> PartResult:
    """Decide one part by its rule, or find the evidence that it lacks.

    Raises StudyError with the claim's file if the rule's options do not fit the estimates, if the quantity is unknown,
    or if the part declares that it awaits data, but these data exist.
    """
    quantity = quantities().get(part.quantity)
    if part.machine:
        part = replace(part, scope={**part.scope, "node": nodes_of_kind(cache.data, part.machine)})
    if part.awaits is not None:
        return _awaiting_result(part, claim, quantity, cache)
    if quantity is None:
        raise StudyError(f"{claim.path}: quantity: there is no {part.quantity!r}")
    data = cache.data
    try:
        estimates = cache.estimates(quantity)
        if quantity.tier == "documented":
            for name in part.entries:
                data.entry(name)
    except MissingSourceError as lacking:
        need = Missing(Verdict.AWAITING_SOURCE, source=lacking.what)
        return PartResult(part, need.verdict, need, quantity.unit, quantity)
    unit = _compared_unit(part, quantity, data)
    try:
        if cache.looks and quantity.experiments:
            looks = [select(look.estimates(quantity), part.scope) * part.scale for look in cache.looks]
            compared = transform_at_looks(part, looks, look_nodes(data), unit)
            result = decide(part, compared, data.group_label)
            estimates = cache.looks[-1].estimates(quantity)
        else:
            result = apply_rule(part, select(estimates, part.scope) * part.scale, unit, data.group_label)
    except StudyError as fault:
        raise StudyError(f"{claim.path}: {fault}") from None
    if not len(result.estimates):
        need = find_missing(part, quantity, estimates, data)
        return PartResult(part, need.verdict, need, unit, quantity)
    unchecked = not quantity.decides and result.outcome.is_decided
    outcome = Verdict.UNDECIDED if unchecked else result.outcome
    return PartResult(part, outcome, None, result.unit, quantity, estimates, result, unchecked)


def _awaiting_result(part: Part, claim: Claim, quantity: Quantity | None, cache: QuantityCache) -> PartResult:
    """Return the result for a part that declares `awaits`. Raises StudyError if the data that it awaits exist."""
    if quantity is not None and _has_data(part, quantity, cache):
        raise StudyError(
            f"{claim.path}: awaits: remove it, for {part.quantity} is implemented and has data in this scope"
        )
    awaits = part.awaits or {}
    if "experiment" in awaits:
        need = Missing(Verdict.AWAITING_EXPERIMENT, [awaits["experiment"]], why=awaits["why"])
    else:
        need = Missing(Verdict.AWAITING_SOURCE, source=awaits["source"], why=awaits["why"])
    return PartResult(
        part, need.verdict, need, _compared_unit(part, quantity, cache.data) if quantity else "", quantity
    )


def _has_data(part: Part, quantity: Quantity, cache: QuantityCache) -> bool:
    try:
        return len(select(cache.estimates(quantity), part.scope)) > 0
    except MissingSourceError:
        return False


def _compared_unit(part: Part, quantity: Quantity, data: Dataset) -> str:
    """Return the unit in which the rule compares values with the threshold.

    The unit is 1 for the rules ratio, trend and crossover. For other rules it is the quantity's unit; if the quantity
    is documented and has no unit, it is the published entries' unit, or '' if their units differ.
    """
    if part.rule in ("ratio", "trend", "crossover"):
        return "1"
    if quantity.tier != "documented" or quantity.unit:
        return quantity.unit
    units = {str(data.reference[name]["unit"]) for name in part.entries if name in data.reference}
    return units.pop() if len(units) == 1 else ""


DIRECT = "direct"


def judge_published(part: Part, claim: Claim, cache: QuantityCache) -> list[PublishedResult]:
    """Judge all published evidence that a claim declares for a part.

    Raises StudyError with the claim's file if the part's rule does not fit the records.
    """
    results = []
    for declared in claim.published:
        if declared.part != (part.name if part.evidence is None else part.evidence):
            continue
        quantity = quantities()[declared.quantity]
        estimates = cache.estimates(quantity)
        published_part = replace(
            part,
            quantity=declared.quantity,
            rule=_published_rule(part, quantity.labels),
            scope=dict(declared.scope),
            scale=declared.scale,
            scale_why=declared.scale_why,
            options={**part.options, **({"of": declared.of} if declared.of else {})},
            machine="",
            awaits=None,
            margin=declared.margin,
            margin_why=declared.margin_why,
        )
        chosen = select(estimates, published_part.scope) * published_part.scale
        if declared.strength == DIRECT:
            chosen = _with_stated_formats(chosen)
        try:
            result = apply_rule(published_part, chosen, quantity.unit) if len(chosen) else None
        except StudyError as fault:
            raise StudyError(f"{claim.path}: published: {fault}") from None
        if result is not None and not len(result.estimates):
            result = None
        unit = result.unit if result else quantity.unit
        results.append(
            PublishedResult(published_part, declared.strength, declared.why, unit, estimates, chosen, result)
        )
    return results


def _published_rule(part: Part, labels: Sequence[str]) -> str:
    """Return the rule to judge published records: the part's rule, or only its comparison (such as at_least).

    If the records lack the label that the rule ratio, trend or crossover needs, they are ratios, slopes or crossings
    already, so the comparison suffices.
    """
    needs = {"ratio": "over", "crossover": "over", "trend": "along"}.get(part.rule)
    return part.compare if needs and part.options[needs] not in labels else part.rule


def _with_stated_formats(estimates: Estimates) -> Estimates:
    """Drop the published estimates that do not state the number formats or are marked as indirect evidence."""
    for label, unfit in (("precision", ""), ("strength", "indirect")):
        if label in estimates.labels:
            estimates = estimates.take((estimates[label] != unfit).to_numpy(bool))
    return estimates


def add_published_results(part_result: PartResult, claim: Claim, cache: QuantityCache) -> PartResult:
    """Judge published evidence for a part, and add the results to the part.

    A part that lacks evidence or rounds takes the outcome of the first direct evidence that decides, if there is any.
    """
    waits = part_result.missing or _missing_rounds(part_result, cache.data)
    others = judge_published(part_result.part, claim, cache)
    deciding = next(
        (other for other in others if other.strength == DIRECT and other.outcome and other.outcome.is_decided), None
    )
    if waits is None or deciding is None or deciding.result is None:
        return replace(part_result, others=tuple(others))
    return PartResult(
        part=deciding.part,
        outcome=deciding.result.outcome,
        unit=deciding.unit,
        quantity=quantities()[deciding.part.quantity],
        estimates=deciding.estimates,
        result=deciding.result,
        others=tuple(others),
        waits=waits,
    )


def _missing_rounds(part_result: PartResult, data: Dataset) -> Missing | None:
    """Ask for more rounds if a part is undecided and most estimates have one round and no interval."""
    if part_result.result is None or part_result.quantity is None or part_result.outcome is not Verdict.UNDECIDED:
        return None
    single, every = int(part_result.result.single_round.sum()), len(part_result.result.estimates)
    if 2 * single <= every:
        return None
    wanted = list(part_result.quantity.experiments)
    need = Missing(Verdict.AWAITING_EXPERIMENT, wanted, single_rounds=single, estimates=every)
    return _with_machine(need, part_result.part, part_result.quantity, data)
