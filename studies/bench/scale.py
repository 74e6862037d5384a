"""`python -m studies.bench.scale`: what gathering, judging and publishing cost where many machines have reported.

A fleet of synthetic nodes like the published one is written, and the first hundred, three hundred and thousand of them
are gathered and judged on all claims, each step by a process of its own; of all of them the site is made. Writes
scale.json, and from it scale.md. For a thousand nodes, six gigabytes of a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from contract.arguments import path
from contract.errors import StudyError, run_command
from contract.files import read_json, write_json, write_text
from contract.node import utc
from experiments.lock import node_lock
from report.data.published import PUBLISHED
from studies.bench import __main__ as bench
from studies.bench import fleet
from studies.bench.methods import ROOT
from studies.bench.page import table

NODES, SERIES = 1000, 2000
# Shares of the nodes that show whether time grows in proportion.
SHARES = (0.1, 0.3, 1.0)
# What NODES with SERIES each may take on CORES idle cores.
CORES, SECONDS, MEGABYTES = 2, 90.0, 2048.0
# What their site may take beside, and weigh: its front page with all that it loads, and any page by itself.
SITE_SECONDS, FRONT_KB, PAGE_KB = 180.0, 400.0, 1000.0
QUICK_NODES, QUICK_SERIES = 5, 100
STEPS = ("gather", "judge")
SITE = "site"


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Raises StudyError if the machine is busy, or the published node has too few series."""
    parser = argparse.ArgumentParser(prog="python -m studies.bench.scale", description=__doc__)
    parser.add_argument("--out", type=path, default=Path("docs"), help="folder for scale.json and scale.md")
    parser.add_argument("--nodes", type=int, default=NODES, help="how many nodes there are at most")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a minute or two, into a scratch folder")
    parser.add_argument("--draw", action="store_true", help="measure nothing: write the page of the data in --out")
    arguments = parser.parse_args(argv)
    out = arguments.out
    if arguments.quick and out == Path("docs"):
        # The figures of a smoke run are worth nothing: they may not take the place of those of a real one.
        out = Path(tempfile.mkdtemp(prefix="scale-"))
    if not arguments.draw:
        os.chdir(ROOT)
        bench.idle()
        with nullcontext() if arguments.quick else node_lock(bench.PATIENCE_S):
            data = _measured(QUICK_NODES if arguments.quick else arguments.nodes, arguments.quick)
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "scale.json", data)
    write_text(out / "scale.md", text(read_json(out / "scale.json")))
    print(out / "scale.md")
    return 0


def _measured(nodes: int, quick: bool) -> dict[str, Any]:
    series = QUICK_SERIES if quick else SERIES
    published = (path.parent for path in (ROOT / "data" / "nodes").glob("*/node.json"))
    source = max(published, key=lambda folder: len(list(folder.iterdir())))
    started = utc()
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        work = Path(folder)
        # To judge by what others published takes far longer than ten nodes do.
        others = work / "nobody" if quick else PUBLISHED
        try:
            fleet.write(work / "fleet", source, nodes, series)
        except ValueError as few:
            raise StudyError(f"scale: {few}") from None
        rows = [_row(work, max(1, round(share * nodes)), others) for share in SHARES]
        site = _step(work, SITE, rows[-1]["nodes"], others)
    return {
        "schema": 2,
        "smoke": quick,
        "anyway": os.environ.get(bench.ANYWAY) == "1",
        "started_utc": started,
        "ended_utc": utc(),
        "machine": bench.machine(),
        "series": series,
        "rows": rows,
        "site": site,
    }


def _row(work: Path, nodes: int, others: Path) -> dict[str, Any]:
    """What so many nodes cost; `others`: the share of all cores that others took meanwhile."""
    begun, busy = time.perf_counter(), _busy_s()
    steps = {step: _step(work, step, nodes, others) for step in STEPS}
    wall = time.perf_counter() - begun
    own = sum(one["cpu_s"] for one in steps.values())
    share = (_busy_s() - busy - own) / (wall * (os.cpu_count() or 1))
    return {"nodes": nodes, "others": max(0.0, share), **steps}


def _step(work: Path, step: str, nodes: int, others: Path) -> dict[str, Any]:
    """What one step took and made. Raises StudyError if it fails."""
    start = time.perf_counter()
    asked = [sys.executable, "-m", "studies.bench.scale_step", step, str(work), str(nodes), str(others)]
    done = subprocess.run(asked, capture_output=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode:
        raise StudyError(f"scale: {step} of {nodes} nodes failed: {done.stderr.strip()[-500:]}")
    return {"wall_s": time.perf_counter() - start, **json.loads(done.stdout.splitlines()[-1])}


def _busy_s() -> float:
    """Seconds that all cores together have worked, or were withheld, since the machine began."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def wall_s(row: dict[str, Any]) -> float:
    """Seconds for gathering and judging."""
    return float(sum(row[step]["wall_s"] for step in STEPS))


def cpu_s(row: dict[str, Any]) -> float:
    """Seconds of one core for both."""
    return float(sum(row[step]["cpu_s"] for step in STEPS))


def each_more_s(rows: Sequence[dict[str, Any]]) -> list[float]:
    """Seconds of one core that each node more takes from one row to the next, of shape (rows - 1,)."""
    return [(cpu_s(row) - cpu_s(last)) / (row["nodes"] - last["nodes"]) for last, row in pairwise(rows)]


def peak_mb(row: dict[str, Any], cores: int) -> float:
    """The most that is held at once, or more: a step and as many workers as there are cores, each at its peak."""
    return max(row["gather"]["peak_mb"]["parent"] + cores * row["gather"]["peak_mb"]["worker"],
               row["judge"]["peak_mb"]["parent"])  # fmt: skip


def text(data: dict[str, Any]) -> str:
    """The page, in Markdown. Every number comes from the data."""
    cpu, last = data["machine"]["hardware"]["cpu"], data["rows"][-1]
    cores, judged = int(cpu["usable_cores"]), last["judge"]
    warnings = ["**A smoke run: figures worth nothing.**"] if data["smoke"] else []
    if data["anyway"]:
        warnings.append(
            "**Measured without asking whether the machine was idle (BENCH_ANYWAY=1): others slowed it down.**"
        )
    more = ["", *(f"{1e3 * one:.0f}" for one in each_more_s(data["rows"]))]
    rows = [
        [
            f"{row['nodes']:,}", f"{row['gather']['wall_s']:.1f}", f"{row['judge']['wall_s']:.1f}",
            f"{wall_s(row):.1f}", f"{cpu_s(row):.1f}", one_more, f"{peak_mb(row, cores):,.0f}", f"{row['others']:.0%}",
        ]
        for row, one_more in zip(data["rows"], more, strict=True)
    ]  # fmt: skip
    columns = ["nodes", "gathered in s", "judged in s", "together in s", "CPU s", "CPU ms for each node more",
               "peak MB", "others took"]  # fmt: skip
    return "\n\n".join(
        [
            "# Gathering, judging and publishing many nodes",
            "Written by `make bench` from [scale.json](scale.json), the data of one run: not edited by hand.",
            *warnings,
            f"{cpu['model']}, {cores} cores; {data['started_utc']} to {data['ended_utc']}; commit "
            f"{data['machine']['study']['commit']}. Synthetic nodes, each with {data['series']:,} series (points and "
            f"metrics) of the published one in {fleet.ROUNDS} rounds. Judged: {judged['claims']} claims; of "
            f"{last['nodes']:,} nodes they compare {judged['cells']:,} cells, and verdicts.json has "
            f"{judged['megabytes_written']:.0f} MB.",
            table(columns, rows, right=len(columns)),
            "Time is from the start of a process to its end. CPU: of all cores and processes. Peak: of the step that "
            "holds more, a parent and as many workers as cores, each at its own peak.",
            _growth(data["rows"]),
            _site(data),
            *_targets(data, cores),
        ]
    ) + "\n"  # fmt: skip


def _growth(rows: Sequence[dict[str, Any]]) -> str:
    """Whether time grows in proportion, in a sentence."""
    before, after = each_more_s(rows)[-2:]
    few, some, many = (f"{row['nodes']:,}" for row in rows[-3:])
    return (
        f"From {some} to {many} nodes, each node more takes {after / before:.2f} times the CPU time that it takes from "
        f"{few} to {some}: 1 where time grows in proportion."
    )


def _site(data: dict[str, Any]) -> str:
    """What the site of the most nodes took and weighs, in a sentence."""
    site = data["site"]
    return (
        f"The site of {data['rows'][-1]['nodes']:,} nodes, its PDFs and its tables were made in {site['wall_s']:.1f} s "
        f"({site['cpu_s']:.1f} s of one core). Its front page weighs {site['front_kb']:,.0f} kB with all that it "
        f"loads, its heaviest page by itself {site['heaviest_kb']:,.0f} kB."
    )


def _targets(data: dict[str, Any], cores: int) -> list[str]:
    """Whether each target was met, in sentences."""
    last, site = data["rows"][-1], data["site"]
    tried = (last["nodes"], data["series"]) == (NODES, SERIES)
    targets = {
        f"{NODES:,} nodes of {SERIES:,} series gathered and judged within {SECONDS:.0f} s and {MEGABYTES:,.0f} MB on "
        f"{CORES} idle cores": wall_s(last) <= SECONDS and peak_mb(last, cores) <= MEGABYTES,
        f"their site within {SITE_SECONDS:.0f} s, its front page within {FRONT_KB:,.0f} kB and each page by itself "
        f"within {PAGE_KB:,.0f} kB": site["wall_s"] <= SITE_SECONDS
        and site["front_kb"] <= FRONT_KB
        and site["heaviest_kb"] <= PAGE_KB,
    }
    where = f"on {cores} cores of which others took {last['others']:.0%}"
    return [
        f"Target: {target}: " + (f"{'met' if met else 'missed'}, {where}." if tried else "not tried.")
        for target, met in targets.items()
    ]


if __name__ == "__main__":
    sys.exit(run_command(main))
