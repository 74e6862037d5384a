"""What judging again is tested on: nodes on which every baseline differs, and what the engine says to any threshold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from report.data.dataset import Dataset, MissingSourceError
from report.data.gather import gather
from report.data.gathered import read_dataset
from report.data.reference import REFERENCE, read_reference
from report.estimates import Estimates
from report.judging.claims import Claim, Part, read_claims
from report.judging.client_evaluation import BASELINES, slug, with_label
from report.judging.evaluate import PartResult, QuantityCache, evaluate
from report.judging.filters import select
from report.judging.judge import CLAIMS, judge, whole_verdict
from report.judging.rules import level, outcome_alone
from report.model import Threshold, Verdict
from report.quantities import quantities

from .conftest import Factory, SyntheticNode

# Thresholds at the ends of more intervals than this try nothing new.
MOST_ENDS = 8
EXTREMES = (0.0, 5e-324, 1e-12, 1e12, 1.7976931348623157e308, -1.0)


def machine(factory: Factory, name: str, sockets: int, gpu: float, core: float) -> SyntheticNode:
    """A node that trains four models at several batches; gpu: of a core's rate, growing with the batch; 0 for none."""
    node = factory(name, gpus=1 if gpu else 0, seed=len(name) + sockets, cpu={"sockets": sockets})
    node.gemm(27.9).gemm(14, n=256).gemm(4, dtype="float64").clock()
    for place, model in enumerate(("mlp", "cnn", "gpt", "lstm")):
        for batch in (1, 8, 64, 256):
            for dtype, gain in (("float32", 1.0), ("bfloat16", 1.7)):
                rate = core * gain * (1 + 0.2 * place)
                work: dict[str, Any] = {"params": {"model": model, "batch": batch}, "dtype": dtype}
                work["spread"] = 0.02 + 0.02 * place
                node.point("training", batch / rate, threads=1, **work)
                node.point("training", batch / (rate * 2.5), threads=2, **work)
                if gpu:
                    node.point("training", batch / (rate * gpu * batch**0.25), device="cuda:0", **work)
    return node


def fleet(folder: Path) -> Path:
    """Nodes of one and of two sockets, each with a GPU, and a third whose CPU is faster than both."""
    factory = Factory(folder / "nodes")
    some = (("node-a", 1, 8.0, 10.0), ("node-bb", 2, 1.1, 20.0), ("node-ccc", 1, 0, 60.0))
    return factory.write([machine(factory, *one) for one in some])


def judged_fleet(folder: Path) -> None:
    """The fleet as it is gathered, and the verdicts on it."""
    gather([fleet(folder)], folder / "data", allow_synthetic=True)
    judge(read_dataset(folder / "data", read_reference(REFERENCE)), folder / "verdicts.json", allow_synthetic=True)


@dataclass
class Bench:
    """Every claim judged on some nodes, and what the engine says to other thresholds and baselines.

    Thresholds are as JSON has them: a number, or both ends of a range.
    """

    data: Dataset
    claims: list[Claim]
    document: dict[str, Any]
    evidence: QuantityCache = field(init=False)

    def __post_init__(self) -> None:
        self.evidence = QuantityCache(self.data)
        self._weighed: dict[tuple[str, str], list[PartResult]] = {}

    def parts(self, claim: Claim, baseline: str) -> list[Part]:
        """The parts against another baseline wherever that was measured."""
        return [self._against(part, baseline) if baseline else part for part in claim.parts]

    def _against(self, part: Part, baseline: str) -> Part:
        told_by = quantities()[part.quantity].labels if part.quantity in quantities() else ()
        if part.awaits is not None or "baseline" not in told_by or not len(self._scoped(part)):
            return part
        other = with_label(part, "baseline", baseline, self.data)
        return other if len(self._scoped(other)) else part

    def _scoped(self, part: Part) -> Estimates:
        try:
            return select(self.evidence.estimates(quantities()[part.quantity]), part.scope) * part.scale
        except MissingSourceError:
            return Estimates.empty()

    def weighed(self, claim: Claim, baseline: str) -> list[PartResult]:
        """The parts with the declared thresholds."""
        key = (claim.id, baseline)
        if key not in self._weighed:
            self._weighed[key] = [evaluate(part, claim, self.evidence) for part in self.parts(claim, baseline)]
        return self._weighed[key]

    def outcome(self, claim: Claim, place: int, threshold: Any, baseline: str = "") -> str:
        """The outcome of one part with another threshold."""
        declared = self.weighed(claim, baseline)[place]
        if declared.result is None:
            return declared.outcome
        moved = replace(declared.part, threshold=Threshold.of(threshold))
        return str(outcome_alone(moved, self._scoped(moved), declared.unit))

    def verdict(self, claim: Claim, place: int, outcome: str, baseline: str = "") -> str:
        """The verdict on the claim if one of its parts came out so."""
        weighed = list(self.weighed(claim, baseline))
        weighed[place] = replace(weighed[place], outcome=Verdict(outcome))
        return whole_verdict(weighed, [evaluate(part, claim, self.evidence) for part in claim.when_written])

    def thresholds(self, claim: Claim, place: int, baseline: str = "") -> list[Any]:
        """The declared threshold and its range, extremes, and ends of intervals with the floats beside them."""
        part, ends = claim.parts[place], self.ends(claim, place, baseline)
        near = [one for end in ends for one in (end, np.nextafter(end, -np.inf), np.nextafter(end, np.inf))]
        values = [float(one) for one in (*EXTREMES, *near) if np.isfinite(one)]
        declared = [one.json for one in part.thresholds]
        if part.threshold.high is None:
            return [*declared, *values]
        low, high = part.threshold.ends
        moved = [[low, one] for one in values if one >= low] + [[one, high] for one in values if one <= high]
        return [*declared, *moved, *([one, other] for one in ends for other in ends if one <= other)]

    def ends(self, claim: Claim, place: int, baseline: str) -> list[float]:
        """Ends of the intervals that decide a part's cells, spread over all of them."""
        declared = self.weighed(claim, baseline)[place]
        if declared.result is None:
            return []
        estimates = declared.result.estimates
        found = np.unique(np.concatenate(estimates.ends(level(declared.part.rule, len(estimates)))))
        found = found[np.isfinite(found)]
        return [float(one) for one in found[:: max(1, len(found) // MOST_ENDS)]]


def bench(folder: Path) -> Bench:
    """Every claim of the study judged on what was gathered in a folder; the document as it reads from the file."""
    reference = read_reference(REFERENCE)
    document = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))
    return Bench(read_dataset(folder / "data", reference), read_claims(CLAIMS, reference), document)


def settings(claims: Sequence[Claim], turn: int) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """A threshold of the declared range for every part of every claim, as `what-if --set` takes them and by part."""
    told: list[str] = []
    given: dict[str, dict[str, Any]] = {}
    for claim in claims:
        given[claim.id] = {}
        for part in claim.parts:
            values = [part.threshold, *part.sensitivity]
            value = values[turn % len(values)].json
            given[claim.id][part.name] = value
            middle = f".{slug(part.name)}" if len(claim.parts) > 1 else ""
            told.append(f"{claim.id}{middle}.threshold={json.dumps(value)}")
    return told, given


__all__ = ["BASELINES", "Bench", "bench", "judged_fleet", "machine", "settings"]
