"""`python -m studies.bench.scale_step`: gather or judge a fleet, in a process that loads what a person's would."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any


def main(step: str, work: Path, nodes: int) -> None:
    """One step, and on standard output what it took and made."""
    made: dict[str, Any] = {}
    if step == "gather":
        from report.data.gather import gather

        gather(sorted((work / "fleet").iterdir())[:nodes], work / "data", allow_synthetic=True)
    else:
        from report.data.gathered import read_dataset
        from report.data.reference import REFERENCE, read_reference
        from report.judging.judge import judge

        out = work / "verdicts.json"
        document = judge(read_dataset(work / "data", read_reference(REFERENCE)), out, allow_synthetic=True)
        made = {
            "claims": len(document["verdicts"]),
            "cells": sum(len(one["cells"]) for one in document["verdicts"]),
            "megabytes_written": out.stat().st_size / 1e6,
        }
    times = os.times()
    # Linux counts in kilobytes, macOS in bytes.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    peak = {whose: resource.getrusage(of).ru_maxrss / unit
            for whose, of in (("parent", resource.RUSAGE_SELF), ("worker", resource.RUSAGE_CHILDREN))}  # fmt: skip
    print(json.dumps({"cpu_s": sum(times[:4]), "peak_mb": peak, **made}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
