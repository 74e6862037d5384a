"""`python -m studies.replication`: five results again, by other means. On the machine of the node that they are of."""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy import stats

from contract.arguments import path
from contract.encoding import escape_unprintable
from contract.errors import StudyError
from contract.files import read_json, write_json

from . import measure


@dataclass(frozen=True)
class Again:
    """A part of a claim, how it is measured again, and by which means."""

    claim: str
    part: str
    measure: Callable[[], list[float]]
    means: str
    # What tells the case that is measured again from the others; without it, the case that stands for the part.
    labels: Mapping[str, str] = field(default_factory=dict)


AGAIN = (
    Again(
        "N03",
        "multiply-adds per cycle and core",
        measure.mac_per_cycle,
        "SciPy's BLAS on one thread, over a clock from a chain of additions in C",
    ),
    Again(
        "G13",
        "accuracy rises with the batch",
        measure.accuracy_per_doubling,
        "scikit-learn's network and optimiser on its digits, ten seeds",
        {"data": "digits", "model": "mlp"},
    ),
    Again("G30", "", measure.engine_gain, "three networks written for this, timed call by call"),
)


def main(argv: Sequence[str] | None = None) -> int:
    top = argparse.ArgumentParser(prog="python -m studies.replication", description=__doc__)
    top.add_argument("--verdicts", type=path, default=Path("results/verdicts.json"), metavar="FILE")
    top.add_argument("--out", type=path, metavar="FILE")
    top.add_argument("--only", nargs="+", metavar="CLAIM")
    given = top.parse_args(argv)
    document = read_json(given.verdicts)
    verdicts = {str(one["id"]): one for one in document["verdicts"]}
    rows = []
    for one in AGAIN:
        if given.only and one.claim not in given.only:
            continue
        part = next((part for part in verdicts[one.claim]["parts"] if part["name"] == one.part), None)
        if part is None:
            raise StudyError(f"{given.verdicts}: claim {one.claim} has no part {one.part!r}")
        rows.append(row(one, part, _case(one, part, verdicts[one.claim]["cases"]), one.measure()))
        print(told(rows[-1]), flush=True)
    if given.out:
        node = {str(row.pop("node")) for row in rows}
        if len(node) != 1:
            raise StudyError(f"{given.verdicts}: the results are of {', '.join(sorted(node))}: measure one machine")
        write_json(given.out, {"origin": "measured", "commit": document["commit"], "node": node.pop(), "rows": rows})
    return 0 if all(one["agrees"] for one in rows) else 1


def _case(one: Again, part: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The case that is measured again. Raises StudyError if there is none, or if there are several."""
    mine = [case for case in cases if case["part"] == one.part and case["estimate"] is not None]
    if one.labels:
        mine = [
            case for case in mine if all(str(case["labels"].get(name)) == value for name, value in one.labels.items())
        ]
    else:
        mine = [case for case in mine if case["estimate"] == part["estimate"]]
    if len(mine) != 1:
        raise StudyError(f"{one.claim}, {one.part!r}: {len(mine)} cases are what is measured again, one is needed")
    return mine[0]


def row(one: Again, part: Mapping[str, Any], case: Mapping[str, Any], values: Sequence[float]) -> dict[str, Any]:
    """Both results side by side. agrees: whether the middle of the second lies on the first's side of the threshold."""
    middle, (low, high) = statistics.median(values), _interval(values)
    first, threshold = case["estimate"], part["threshold"]
    return {
        "node": case["node"],
        "claim": one.claim,
        "part": one.part,
        "labels": case["label"],
        "means": one.means,
        "unit": part["unit"],
        "threshold": threshold,
        "first": {name: case[name] for name in ("estimate", "low", "high")},
        "second": {"median": middle, "low": low, "high": high, "values": list(values)},
        "agrees": (first >= threshold) == (middle >= threshold),
    }


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's t at 95% for the mean of the values; of their logarithms where all are above zero."""
    scaled = [math.log(value) for value in values] if min(values) > 0 else list(values)
    middle = statistics.fmean(scaled)
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(scaled) / len(values) ** 0.5
    ends = (middle - half, middle + half)
    return (math.exp(ends[0]), math.exp(ends[1])) if min(values) > 0 else ends


def told(one: Mapping[str, Any]) -> str:
    first, second = one["first"], one["second"]
    return (
        f"{one['claim']} {'agrees' if one['agrees'] else 'DISAGREES'}: {first['estimate']:.4g} "
        f"[{first['low']:.4g}, {first['high']:.4g}] first, {second['median']:.4g} [{second['low']:.4g}, "
        f"{second['high']:.4g}] second, threshold {one['threshold']:.4g} {one['unit']}: {one['means']}"
    )


if __name__ == "__main__":
    escape_unprintable()
    try:
        sys.exit(main())
    except (StudyError, RuntimeError) as fault:
        sys.exit(f"error: {fault}")
