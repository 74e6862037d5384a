"""Measure a round, and write its samples and metadata into a file."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.node import utc_time
from experiments import hardware, rounds, worker_environment


def print_removed_variables() -> None:
    """Print the variables that the measuring process's environment lacks, to stderr."""
    # Do not report thread counts: Snakemake sets them, and each point overrides them.
    blocked = [name for name in worker_environment.blocked_variables() if not name.endswith("_THREADS")]
    if blocked:
        print(
            f"note: removed from the measuring process's environment: {', '.join(blocked)} "
            "(they would affect the measurement)",
            file=sys.stderr,
        )


def measure_into_file(
    out: Path, measured: rounds.Round, node: str, options: Mapping[str, Any], planned: str = ""
) -> float:
    """Measure a round, write it to `out`, and return the seconds that it ran, without pauses.

    The caller holds the node's lock. options: the run's preset and seed. planned: digest of the round's plan, if it has
    one. Further attempts at the round are removed if this is its first attempt, since they belong to the file before.
    Raises OSError if the file cannot be written.
    """
    started = time.perf_counter()
    measured.run()
    samples = rounds.samples_table(measured, node, uuid.uuid4().hex[:12])
    wall, job = time.perf_counter() - started, measured.job
    about = {
        "seed": measured.seed,
        # Read the system clock only after the round, and derive the start from `wall`: then start and end are
        # consistent even if the clock was set during the round.
        "started_utc": utc_time(wall),
        "ended_utc": utc_time(),
        "wall_s": wall,
        **({"stood_s": measured.stood_s} if measured.stood_s else {}),
        "warmup_s": measured.warmup_s,
        "timed_s": measured.timed_s,
        "workers": measured.workers,
        "host": hardware.machine_instance(),
        "options": dict(options),
        "left_out_of_environment": worker_environment.blocked_variables(),
        "environments": measured.environments,
        **({"planned": planned} if planned else {}),
        "protocol": job.protocol,
        **({"metric_protocols": job.metric_protocols} if job.metric_protocols else {}),
    }
    from contract.sample_table import write_unchecked

    if measured.attempt == 1:
        from contract.node_pack import repeat_files

        for path in repeat_files(out):
            path.unlink()
    write_unchecked(out, samples, about)
    return wall - measured.stood_s
