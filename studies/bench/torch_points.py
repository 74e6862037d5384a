"""Points by torch.utils.benchmark, in one process: `python -m studies.bench.torch_points METHOD OUT LABEL…`."""

from __future__ import annotations

import gc
import sys
import time

from torch.utils.benchmark import Timer

from contract.files import write_json
from studies.bench.points import build


def main(method: str, out: str, labels: list[str]) -> None:
    """Write {label: {median, iqr, n, measured_s, wall_s}}. method: blocked_autorange or adaptive_autorange."""
    found = {}
    for label in labels:
        begun = time.perf_counter()
        call, threads = build(label)
        # Timer runs on one thread unless told.
        seen = getattr(Timer("call()", globals={"call": call}, num_threads=threads), method)()
        found[label] = {
            "median": seen.median,
            "iqr": seen.iqr,
            "n": len(seen.times),
            "measured_s": sum(seen.raw_times),
            "wall_s": time.perf_counter() - begun,
        }
        del call
        gc.collect()
    write_json(out, found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
