"""Rehearses the measuring of a rented GPU, without one: `python -m tests.workflow.rehearsal --cuts 3`.

The workflow measures a machine that is played (`tests.workflow.standin`), as `measure-offline.sh` does on a rented one.
It is cut off at random moments by SIGINT, as `timeout -s INT` cuts; its results alone are carried to a fresh copy of
the tree, with files' times shuffled, in which another host of the same kind goes on. After every cut, and at the end,
the node as it stands is gathered beside the published ones and judged. Prints how it stood then, what became of points
and of the claims that wait for a GPU in the last edition, and everything that is not as it should be.

`--at 5 10 15` cuts once the jobs are measured that the plan has in its first 5, 10 and 15 minutes, in place of random
moments.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from contract.node import PARTIAL, RECORD, record_path
from contract.tables import read_samples
from experiments.jobs import JOB_S, Plan, read_plan
from experiments.outcomes import outcomes
from report.data.gather import gather
from report.data.gathered import read_dataset
from report.data.reference import REFERENCE, read_reference
from report.judging.judge import judge
from tests.workflow.clones import HANGS_S, MARK, ROOT, Clone

EDITION = ROOT / "data/editions/1/verdicts.json"
PUBLISHED = ROOT / "data/nodes"
COMMAND = ("snakemake", "--cores", "all", "--profile", "gpu")
PATH = "tests/workflow/standin/path"
DECIDED = ("supported", "challenged", "depends")
# Why a claim may go on waiting although a GPU was measured.
MAY_WAIT = {
    "W01": "its base is a laptop, and no laptop has been measured",
    "W07": "its base is a desktop with DDR5 memory, and none has been measured",
    "G28": "its energy half needs the CPU's, which a rented machine does not show",
}
# The longest that a cut comes late.
LATE_S = 3.0


@dataclass(frozen=True)
class Row:
    """How the study stands at an end: of a host's turn, or of all.

    pairs: points that the CPU and a GPU have measured, as `pairs` counts them.
    """

    turn: str
    seconds: float
    measured: int
    planned: int
    pairs: int
    record: str
    gathered: str
    verdicts: dict[str, str]

    def __str__(self) -> str:
        """The row in words."""
        every, waited = list(self.verdicts.values()), [self.verdicts.get(name, "awaiting") for name in waiting()]
        judged = sum(not one.startswith("awaiting") for one in waited)
        return (
            f"{self.turn}, {self.seconds:.0f} s: {self.measured} of {self.planned} jobs, {self.record}, gathered: "
            f"{self.gathered}; points on both CPU and GPU: {self.pairs}; decided: "
            f"{sum(map(every.count, DECIDED))} claims of {len(every)}, and "
            f"{sum(map(waited.count, DECIDED))} ({judged} judged) of {len(waited)} that wait for a GPU"
        )


@dataclass
class Rehearsal:
    """A study of a machine that is played, in copies of the tree under `folder`.

    spoilt: experiments that go wrong, by how: crash, hang, nonsense.
    """

    folder: Path
    preset: str
    chance: random.Random
    faster: float = 30.0
    spoilt: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    finished: dict[str, tuple[str, str]] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)
    clone: Clone = field(init=False)

    def __post_init__(self) -> None:
        self.clone = self._copied()
        counts = self.clone.run(sys.executable, "-m", "tests.workflow.standin.counts", self.preset, self._counts)
        assert counts.returncode == 0, counts.stderr

    def run(self, cuts: int) -> None:
        """Measure, cut off so many times and carried on by another host each time."""
        shares = enumerate(sorted(self.chance.random() for _ in range(cuts)), 1)
        self._run({f"cut {number}": partial(self._has_share, share) for number, share in shares}, LATE_S)

    def run_until(self, minutes: Sequence[float]) -> None:
        """Measure, cut off after so many minutes of the plan and carried on by another host each time."""
        self._run({f"{least:g} min": partial(self._has_minutes, least) for least in sorted(minutes)}, 0.0)

    def _run(self, cuts: Mapping[str, Callable[[], bool]], late_s: float) -> None:
        """Measure in turns: each is cut off at random within `late_s` seconds after its condition holds."""
        for name, enough in cuts.items():
            if not self._turn(name, enough, late_s):
                break
            self._carry()
        else:
            self._turn("end", None, late_s)
        self._check()

    @property
    def node(self) -> Path:
        """The node's folder."""
        (found,) = (self.clone.path / "results/nodes").iterdir()
        return found

    @property
    def plan(self) -> Plan:
        """What is to be measured."""
        return read_plan(self.clone.path / "results/plan.json")

    @property
    def _counts(self) -> str:
        return str(self.folder / "counts.json")

    def _copied(self) -> Clone:
        """A fresh copy of the tree, on another host."""
        at = self.folder / f"host {len(self.hosts) + 1}"
        order = ["git", "-C", str(ROOT), "ls-files", "-zco", "--exclude-standard"]
        listed = subprocess.run(order, capture_output=True, check=True, text=True)
        for name in filter(None, listed.stdout.split("\0")):
            if not name.startswith("data/editions/") and (ROOT / name).is_file():
                (at / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, at / name)
        if Path(self.preset).is_file():
            shutil.copyfile(self.preset, at / Path(self.preset).name)
            self.preset = str(at / Path(self.preset).name)
        self.hosts.append(f"{self.chance.getrandbits(24):06x}")
        place = self.folder / f"place {len(self.hosts)}"
        place.mkdir()
        extra = {
            "PYTHONPATH": str(at / PATH), MARK: str(self.folder), "STANDIN_COUNTS": self._counts,
            "STANDIN_PLACE": str(place), "STANDIN_FASTER": str(self.faster), "STANDIN_HOST": self.hosts[-1],
            **{f"STANDIN_{how.upper()}": name for how, name in self.spoilt.items()},
        }  # fmt: skip
        return Clone(at, extra)

    def _carry(self) -> None:
        """Go on with the results alone in a fresh copy, where no file has the time that it had."""
        before = self.clone
        self.clone = self._copied()
        shutil.copytree(before.path / "results", self.clone.path / "results")
        now = time.time()
        for path in self.clone.path.rglob("*"):
            at = now - self.chance.uniform(0, 1e6)
            os.utime(path, (at, at))

    def _turn(self, name: str, enough: Callable[[], bool] | None, late_s: float) -> bool:
        """Let a host measure until it is enough and up to `late_s` seconds more, or to the end. True if cut."""
        preset = Path(self.preset).name if Path(self.preset).is_file() else self.preset
        begun = time.monotonic()
        head = self.clone.start(*COMMAND, "--config", f"preset={preset}", "results=results", "--", "measured")
        while head.poll() is None and (enough is None or not enough()):
            assert time.monotonic() - begun < HANGS_S, f"{name}: hangs"
            time.sleep(0.1)
        cut = False
        if enough is not None:
            until = time.monotonic() + self.chance.uniform(0.0, late_s)
            while head.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
            cut = head.poll() is None
        took = time.monotonic() - begun
        if cut:
            left = self.clone.end(head, signal.SIGINT, whole_group=True)
            self.faults += [f"{name}: it left {words}" for words in left]
        said = self.clone.said[-3000:]
        if "Traceback" in said or (head.returncode and not cut):
            self.faults.append(f"{name}: exit code {head.returncode}: {said}")
        self._compare(name)
        self.rows.append(self._row(name if cut else "end", took))
        print(self.rows[-1], file=sys.stderr, flush=True)
        return cut

    @property
    def _has_plan(self) -> bool:
        return (self.clone.path / "results/plan.json").exists()

    def _measured(self) -> int:
        """Number of finished jobs."""
        # Files that are being written begin with a dot.
        return len(list((self.clone.path / "results").glob("nodes/*/[!.]*.parquet")))

    def _has_share(self, share: float) -> bool:
        """True if this share of all jobs is measured."""
        return self._has_plan and self._measured() >= share * len(self._planned_s())

    def _has_minutes(self, minutes: float) -> bool:
        """Whether all jobs are measured that end within so many minutes of the plan."""
        return self._has_plan and self._measured() >= sum(
            end <= 60 * minutes for end in itertools.accumulate(self._planned_s())
        )

    def _planned_s(self) -> list[float]:
        """Planned seconds of every job, in the order in which they run."""
        return [job.seconds(number) + JOB_S for number, job in self.plan.order]

    def _compare(self, name: str) -> None:
        """Note the rounds that are finished, by which process on which host; those finished before stay as they are."""
        now = self.clone.rounds
        lost = [round_ for round_, seen in self.finished.items() if now.get(round_) != seen]
        self.faults += [f"{name}: {round_} was measured twice, or is lost" for round_ in lost]
        hosts = {host for round_, (_, host) in now.items() if round_ not in self.finished}
        if hosts - {self.hosts[-1]}:
            self.faults.append(f"{name}: rounds of another host, {', '.join(sorted(hosts))}")
        self.finished = now

    def _row(self, name: str, took: float) -> Row:
        planned = len(self._planned_s()) if self._has_plan else 0
        if not self.finished:
            return Row(name, took, 0, planned, 0, "none", "-", {})
        record = {RECORD: "sealed", PARTIAL: "partial"}[record_path(self.node).name]
        refused, verdicts = judged([PUBLISHED, self.node.parent], self.folder / name)
        return Row(name, took, len(self.finished), planned, pairs(self.node), record, refused or "ok", verdicts)

    def _check(self) -> None:
        """What has to be true of a node that is measured to the end."""
        if self.rows[-1].record != "sealed":
            self.faults.append(f"the node is not sealed: {self.clone.said[-3000:]}")
            return
        if (self.clone.path / "results/data").exists():
            self.faults.append("more was done than to measure")
        record = json.loads((self.node / RECORD).read_text())
        if record.get("hosts") != sorted({host for _, host in self.finished.values()}):
            self.faults.append(f"node.json names the hosts {record.get('hosts')}, rounds were measured by {self.hosts}")
        if record["origin"] != "synthetic":
            self.faults.append("node.json does not say that it was made up")
        for number in range(1, self.plan.rounds + 1):
            for job in self.plan.in_round(number):
                table, _ = read_samples(self.node / f"{job.name}.{number}.parquet")
                there = set(table[["backend", "dtype", "threads", "params"]].itertuples(index=False, name=None))
                asked = {tuple(point.columns.values()) for point in job.in_round(number)}
                if there != asked:
                    self.faults.append(f"{job.name}.{number}: {len(asked - there)} points have no row")
                if not table["origin"].eq("synthetic").all():
                    self.faults.append(f"{job.name}.{number}: does not say that it was made up")
        badly = [row for row in self.rows if row.gathered not in ("ok", "-")]
        self.faults += [f"gathered at the {row.turn}: {row.gathered}" for row in badly]


def pairs(node: Path) -> int:
    """Number of points that both the CPU and a GPU of a node have measured.

    Backend and threads may differ, and so may parameters for which the two sides of an experiment share no value
    (`host_memory` is none on a CPU).
    """
    sides: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}
    for path in node.glob("*.parquet"):
        samples, _ = read_samples(path)
        measured = samples[samples["status"] == "ok"].drop_duplicates(["dtype", "params"])
        for device, dtype, params in measured[["device", "dtype", "params"]].itertuples(index=False, name=None):
            both = sides.setdefault(path.name.partition(".")[0], ([], []))
            both[device != "cpu"].append({"dtype": dtype, **json.loads(params)})
    return sum(_shared(*both) for both in sides.values())


def _shared(cpu: Sequence[dict[str, Any]], gpu: Sequence[dict[str, Any]]) -> int:
    if not cpu or not gpu:
        return 0
    names = [name for name in cpu[0] if {one[name] for one in cpu} & {one[name] for one in gpu}]
    return len(set.intersection(*({tuple(one[name] for name in names) for one in side} for side in (cpu, gpu))))


def judged(nodes: Sequence[Path], out: Path) -> tuple[str, dict[str, str]]:
    """What was refused of these nodes, in words, and every claim's verdict on them."""
    gather(nodes, out / "data", allow_synthetic=True)
    data = read_dataset(out / "data", read_reference(REFERENCE))
    document = judge(data, out / "verdicts.json", allow_synthetic=True)
    refused = "; ".join(f"{Path(one['file']).name}: {one['reason']}" for one in document["refused"])
    return refused, {one["id"]: one["verdict"] for one in document["verdicts"]}


def waiting() -> list[str]:
    """Claims that wait for a GPU in the last edition."""
    verdicts = json.loads(EDITION.read_text(encoding="utf-8"))["verdicts"]
    return [one["id"] for one in verdicts if one["verdict"] == "awaiting hardware"]


def main() -> int:
    """Run what the command line asks for; returns 1 if anything was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.workflow.rehearsal", description=__doc__)
    cutting = parser.add_mutually_exclusive_group()
    cutting.add_argument("--cuts", type=int, default=3, help="at so many random moments")
    cutting.add_argument("--at", type=float, nargs="+", metavar="MINUTES", help="after so many planned minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--preset", default="rented", help="one of the study's, or a .yaml file")
    parser.add_argument("--faster", type=float, default=30.0, help="how many times as fast time passes")
    for how in ("crash", "hang", "nonsense"):
        parser.add_argument(f"--{how}", metavar="EXPERIMENT", help="one that goes so wrong now and then")
    arguments = parser.parse_args()
    # `nohup` and a shell's background ignore it, and so would all that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    spoilt = {how: given for how in ("crash", "hang", "nonsense") if (given := getattr(arguments, how))}
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
        rehearsal = Rehearsal(Path(folder), arguments.preset, random.Random(arguments.seed), arguments.faster, spoilt)
        if arguments.at:
            rehearsal.run_until(arguments.at)
        else:
            rehearsal.run(arguments.cuts)
        verdicts, faults = rehearsal.rows[-1].verdicts, rehearsal.faults
        if verdicts:
            print(outcomes([rehearsal.node]))
    for name in waiting():
        verdict = verdicts.get(name, "awaiting")
        print(f"{name}: {verdict} ({MAY_WAIT.get(name, 'a GPU decides it')})")
        if verdict.startswith("awaiting") and name not in MAY_WAIT:
            faults.append(f"{name} still waits, for no reason that is known")
    print(f"\nnot as it should be: {len(faults)}")
    for fault in faults:
        print(f"- {fault}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
