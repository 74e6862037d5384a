"""`python -m studies.bench.scale_step`: gather, judge or publish a fleet, as a person's process would."""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import sys
from pathlib import Path
from typing import Any


def main(step: str, work: Path, nodes: int, others: Path) -> None:
    """One step, and on standard output what it took and made. others: a folder of what others published."""
    made: dict[str, Any] = {}
    if step == "gather":
        from report.data.gather import gather

        gather(sorted((work / "fleet").iterdir())[:nodes], work / "data", allow_synthetic=True)
    elif step == "judge":
        from report.data.gathered import read_dataset
        from report.data.published import read_published
        from report.data.reference import REFERENCE, read_reference
        from report.judging.judge import judge

        out = work / "verdicts.json"
        data = read_dataset(work / "data", read_reference(REFERENCE), read_published(others))
        document = judge(data, out, allow_synthetic=True)
        made = {
            "claims": len(document["verdicts"]),
            "cells": sum(len(one["cells"]) for one in document["verdicts"]),
            "megabytes_written": out.stat().st_size / 1e6,
        }
    else:
        from report.pages import downloads
        from report.pages.render import render

        site, verdicts = work / "report", work / "verdicts.json"
        render(verdicts, site, "pandoc", work / "data")
        downloads.build(site, verdicts, work / "data")
        made = {
            "front_kb": loaded(site / "index.html") / 1e3,
            "heaviest_kb": max(path.stat().st_size for path in site.rglob("*.html")) / 1e3,
        }
    times = os.times()
    # Linux counts in kilobytes, macOS in bytes.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    peak = {whose: resource.getrusage(of).ru_maxrss / unit
            for whose, of in (("parent", resource.RUSAGE_SELF), ("worker", resource.RUSAGE_CHILDREN))}  # fmt: skip
    print(json.dumps({"cpu_s": sum(times[:4]), "peak_mb": peak, **made}))


def loaded(page: Path) -> int:
    """Bytes of a page and of all that it loads."""
    named = re.findall(r'(?:src|srcset)="([^"]+)"|rel="stylesheet" href="([^"]+)"', page.read_text(encoding="utf-8"))
    files = {(page.parent / one).resolve() for one in itertools.chain(*named) if one and "://" not in one}
    return sum(path.stat().st_size for path in {page.resolve(), *files})


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
