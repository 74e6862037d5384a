"""`python -m studies.bench`: benchmark the measuring core, and write bench.json and bench.md."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jinja2

from contract.arguments import parse_path
from contract.errors import StudyError, run_command
from contract.files import read_json, write_json, write_text
from contract.node import utc_time
from experiments import hardware
from experiments.children import ChildError
from experiments.doctor.finding import Level
from experiments.doctor.machine_checks import load, watch_others
from experiments.lock import node_lock
from experiments.sweep import read_preset
from studies.bench import aa_study, bench_points, core_over_bare

# Seconds to watch the machine's load before measuring.
WATCH_S = 5.0
ANYWAY_VARIABLE = "BENCH_ANYWAY"
PRESET = "quick"
RUNS, REPETITIONS = 4, 8
# Target range for the fraction of intervals that contain the true ratio.
SHARE_BAND = (0.93, 0.97)
TEMPLATE = Path(__file__).with_name("page.md")
# Points to measure with `--quick`, by label. Together they cover every code path.
QUICK = ("triad in L2, 1 thread", "OpenBLAS float32 1000, 1 thread")
# Maximum seconds to wait until another measurement on this machine ends.
LOCK_WAIT_S = 30


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Raises StudyError if the machine is busy."""
    parser = argparse.ArgumentParser(prog="python -m studies.bench", description=__doc__)
    parser.add_argument("--out", type=parse_path, default=Path("docs"), help="folder for bench.json and bench.md")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a minute, into a scratch folder")
    parser.add_argument("--draw", action="store_true", help="measure nothing: write the page of the data in --out")
    options = parser.parse_args(argv)
    out = options.out
    if options.quick and out == Path("docs"):
        # Keep a smoke run from overwriting real results.
        out = Path(tempfile.mkdtemp(prefix="bench-"))
    if not options.draw:
        check_idle()
        with nullcontext() if options.quick else node_lock(LOCK_WAIT_S):
            try:
                data = _measure(options.quick)
            except ChildError as fault:
                raise StudyError(f"bench: {fault}: its message stands above") from None
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "bench.json", data)
    write_text(out / "bench.md", render_page(read_json(out / "bench.json")))
    print(out / "bench.md")
    return 0


def check_idle() -> None:
    """Raise StudyError if the machine is busy, unless BENCH_ANYWAY=1."""
    if os.environ.get(ANYWAY_VARIABLE) == "1":
        return
    finding = load(watch_others(WATCH_S), hardware.usable_cores())
    if finding.level is Level.WARNING:
        raise StudyError(f"bench: {finding.seen}. {finding.mend}, or set {ANYWAY_VARIABLE}=1 to measure anyway")


def _measure(quick: bool) -> dict[str, Any]:
    preset = read_preset(PRESET) | ({"point_s": 0.1} if quick else {})
    limits = {key: preset[key] for key in ("target", "point_s", "round_s", "max_samples")}
    policy = {"target": limits["target"], "budget_s": limits["point_s"], "max_samples": limits["max_samples"]}
    chosen = [case for case in bench_points.bench_cases() if not quick or case.label in QUICK]
    runs, rounds, repetitions = (2, 2, 2) if quick else (RUNS, preset["rounds"], REPETITIONS)
    data = {
        "schema": 2,
        "smoke": quick,
        "anyway": os.environ.get(ANYWAY_VARIABLE) == "1",
        "preset": {"name": PRESET, "rounds": rounds, **limits},
        "started_utc": utc_time(),
        "truth": core_over_bare.measure([case for case in chosen if case.group], policy, repetitions),
        "aa": aa_study.measure(chosen, limits, runs, rounds),
        "ended_utc": utc_time(),
    }
    # Describe the machine in a new process, because there libraries choose the same kernels as in measuring processes.
    probe = [sys.executable, "-m", "experiments", "probe"]
    return {**data, "machine": json.loads(subprocess.check_output(probe))}


def render_page(data: dict[str, Any]) -> str:
    """Render a run's data as a Markdown page."""
    points = core_over_bare.point_ratios(data["truth"])
    outcomes = [core_over_bare.band_outcome(low, high) for low, high in zip(points["low"], points["high"], strict=True)]
    methods = [(name, *aa_study.method_row(data["aa"], method)) for method, name in aa_study.NAMES.items()]
    options: dict[str, Any] = {"trim_blocks": True, "keep_trailing_newline": True, "undefined": jinja2.StrictUndefined}
    return jinja2.Template(TEMPLATE.read_text("utf-8"), **options).render(
        **data,
        points=points.assign(outcome=outcomes).to_dict("records"),
        tally={word: sum(outcome.startswith(word) for outcome in outcomes) for word in ("met", "undecided", "missed")},
        methods=[(name, aa_study.coverage_outcome(seen, SHARE_BAND), seen, *cost) for name, seen, *cost in methods],
        flagged=aa_study.flagged_share(data["aa"]),
        bands=(core_over_bare.BAND, SHARE_BAND),
    )


if __name__ == "__main__":
    sys.exit(run_command(main))
