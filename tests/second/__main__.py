"""`python -m tests.second`: five results again, by other means."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats

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


AGAIN = (
    Again("N03", "multiply-adds per cycle and core", measure.mac_per_cycle,
          "SciPy's BLAS on one thread, over a clock from a chain of additions in C"),
    Again("W14", "one core", measure.peak_share, "SciPy's BLAS on one thread, over a peak from intrinsics in C"),
    Again("G13", "accuracy rises with the batch", measure.accuracy_per_doubling,
          "scikit-learn's network and optimiser on its digits, ten seeds"),
    Again("G30", "", measure.engine_gain, "three networks written for this, timed call by call"),
    Again("W29", "", measure.service_latency,
          "the standard library's server, a linear classifier, a client thread for each request"),
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    top = argparse.ArgumentParser(prog="python -m tests.second", description=__doc__)
    top.add_argument("--verdicts", type=Path, default=Path("results/verdicts.json"), metavar="FILE")
    top.add_argument("--out", type=Path, metavar="FILE")
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
        rows.append(row(one, part, one.measure()))
        print(told(rows[-1]), flush=True)
    if given.out:
        write_json(given.out, {"origin": "measured", "commit": document["commit"], "rows": rows})
    return 0 if all(one["agrees"] for one in rows) else 1


def row(one: Again, part: Mapping[str, Any], values: Sequence[float]) -> dict[str, Any]:
    """Both results side by side. agrees: whether the middle of the second lies on the first's side of the threshold."""
    middle = statistics.median(values)
    spread = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    first, threshold = part["estimate"], part["threshold"]
    return {
        "claim": one.claim,
        "part": one.part,
        "means": one.means,
        "unit": part["unit"],
        "threshold": threshold,
        "first": {name: part[name] for name in ("estimate", "low", "high")},
        "second": {"median": middle, "low": middle - spread, "high": middle + spread, "values": list(values)},
        "agrees": (first >= threshold) == (middle >= threshold),
    }


def told(one: Mapping[str, Any]) -> str:
    first, second = one["first"], one["second"]
    return (
        f"{one['claim']} {'agrees' if one['agrees'] else 'DISAGREES'}: {first['estimate']:.4g} "
        f"[{first['low']:.4g}, {first['high']:.4g}] first, {second['median']:.4g} [{second['low']:.4g}, "
        f"{second['high']:.4g}] second, threshold {one['threshold']:.4g} {one['unit']}: {one['means']}"
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (StudyError, RuntimeError) as fault:
        sys.exit(f"error: {fault}")
