"""Ends studies at random moments of every stage, and gives the same command again: `python -m tests.workflow.kills`.

A chain is one study: it is ended in each of its stages in turn, by a signal to the head of its process group or to all
of the group, and then left to end by itself. What it must come to is what an undisturbed study comes to. Prints a table
in Markdown. Keep the machine otherwise idle: 20 kills by each signal take some 25 minutes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from contract.tables import read_samples
from tests.workflow.conftest import Clone, clone_into

# Rounds of a few seconds each, by the experiment that starts fastest.
PRESET = """
rounds: 3
target: 0.0001
point_s: 0.5
round_s: 60
max_samples: 1000
experiments:
  clock:
    sweep:
      - grid: {backend: [llvm], threads: [1], chain: [1000000, 1100000, 1200000, 1300000]}
"""
CONFIG = ("preset=mine.yaml", "published=nobody")
MEASURING = ("probe", "plan", "run 1", "run 2", "run 3", "seal")
STAGES = (*MEASURING[:3], "preliminary", *MEASURING[3:], "gather", "judge", "render", "site", "lint")
# The README's commands, and the stages that each of them goes through.
COMMANDS = {
    # -o: the packages are those of this interpreter.
    ("make", "-o", ".venv/study.stamp", "study", f"CONFIG={' '.join(CONFIG)}"): STAGES,
    ("snakemake", "--cores", "all", "--config", *CONFIG): STAGES,
    ("snakemake", "--cores", "all", "--config", *CONFIG, "--", "measured"): MEASURING,
    ("bash", "workflow/measure-offline.sh", "--config", *CONFIG): MEASURING,
}
SIGNALS = ("KILL", "INT", "TERM", "HUP")
# Seconds after which nothing of an ended study may run any more, and after which a study hangs.
GONE_S, HANGS_S = 5.0, 900.0
# How long a stage lasts, until one has been seen to the end.
GUESS_S = 3.0
# How long a process that measures has gone on before it is stopped.
STOP_AFTER_S = 3.0
MARK = "STUDY_TEST_OF_KILLS"


@dataclass
class Kill:
    """One end of a study before its time, and what was left of it after GONE_S."""

    stage: str
    signal: str
    whole_group: bool
    unused: list[str]


@dataclass
class Chain:
    """A study that is ended again and again, in a clone of its own."""

    clone: Clone
    words: Sequence[str]
    stages: Sequence[str]
    lasts: dict[str, float] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)
    finished: dict[str, tuple[int, str]] = field(default_factory=dict)
    remeasured: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        (self.clone.path / "mine.yaml").write_text(PRESET)
        bundle, self.temporary = self.clone.path / "build/bundle/site", self.clone.path.parent / "temporary"
        bundle.mkdir(parents=True)
        self.temporary.mkdir()
        self.clone.extra = {MARK: str(self.clone.path), "TMPDIR": str(self.temporary)}

    def kill(self, stage: str, name: str, whole_group: bool, chance: random.Random) -> bool:
        """Start the study and end it in this stage; False if it came to its own end before."""
        head = self.clone.start(*self.words)
        self._wait_for(stage, head)
        time.sleep(chance.uniform(0.0, self.lasts.get(stage, GUESS_S)))
        # It may have gone on to the next.
        running = self.running()
        met = stage if stage in running else next(iter(running), "between two")
        number = getattr(signal, f"SIG{name}")
        if head.poll() is not None:
            return False
        (os.killpg if whole_group else os.kill)(head.pid, number)
        until = time.monotonic() + GONE_S
        while (head.poll() is None or self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        left = list(self.processes())
        self.kills.append(Kill(met, name, whole_group, [" ".join(words(process)) for process in left]))
        for process in left:
            process.kill()
        head.wait()
        self._compare()
        return True

    def finish(self) -> list[str]:
        """The same command to its end; what is not as it is after an undisturbed run."""
        head = self.clone.start(*self.words)
        began: dict[str, float] = {}
        while head.poll() is None:
            now = self.running()
            for stage in now:
                began.setdefault(stage, time.monotonic())
                self.lasts[stage] = time.monotonic() - began[stage]
            time.sleep(0.05)
        said = (self.clone.path / "said").read_text()
        faults = [] if head.returncode == 0 else [f"exit code {head.returncode}: {said[-3000:]}"]
        self._compare()
        if len(self.finished) != 3:
            faults.append(f"{len(self.finished)} rounds in place of 3")
        if len({run for _, run in self.finished.values()}) != len(self.finished):
            faults.append("two rounds of one process")
        faults += [f"{name} was measured twice" for name in sorted(self.remeasured)]
        if "render" in self.stages:
            made = (self.clone.path / "results/report" / name for name in ("index.html", "report.pdf"))
            faults += [f"no {path.name}" for path in made if not path.is_file()]
        return faults + [f"left: {name}" for name in self.left()]

    def left(self) -> list[str]:
        """Temporary files, in the results and where the system has them."""
        found = [path for path in (self.clone.path / "results").rglob(".*") if not _MEANT.fullmatch(path.name)]
        # Snakemake itself makes an empty folder, which nothing can remove once it has been killed.
        found += [path for path in self.temporary.iterdir() if path.is_file() or any(path.iterdir())]
        return sorted(str(path.relative_to(self.clone.path.parent)) for path in found)

    def files(self) -> set[str]:
        """All that lies in the results."""
        return {str(path.relative_to(self.clone.path)) for path in (self.clone.path / "results").rglob("*")}

    def processes(self) -> Iterator[psutil.Process]:
        """What still runs of all that was ever started here."""
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == str(self.clone.path) and process.status() != psutil.STATUS_ZOMBIE:
                    yield process
            except psutil.Error:
                continue

    def running(self) -> list[str]:
        """Which of STAGES run now: the report is checked while the site's files are added."""
        found = []
        for process in self.processes():
            _, _, said = " ".join(words(process)).partition(" -m ")
            package, _, rest = said.partition(" ")
            command = rest.partition(" ")[0]
            if package in ("experiments", "report"):
                number = re.search(r"--round (\d+)", rest)
                told = f"{command} {number[1]}" if number else command
                told = "preliminary" if "/preliminary/" in rest else told
                if told in STAGES and "--id" not in rest:
                    found.append(told)
        return sorted(set(found), key=STAGES.index)

    def _wait_for(self, stage: str, head: subprocess.Popen[str]) -> None:
        until = time.monotonic() + HANGS_S
        later = self.stages[self.stages.index(stage) :]
        while head.poll() is None and not set(later) & set(self.running()):
            assert time.monotonic() < until, f"{stage} did not begin"
            time.sleep(0.05)

    def _compare(self) -> None:
        """Note the rounds that are finished now, and those that were before and are others now."""
        # A round is written whole: it is finished although Snakemake may not have taken note of it.
        now = {}
        for name, written in self.clone.rounds.items():
            (path,) = (self.clone.path / "results").glob(f"nodes/*/{name}")
            now[name] = written, str(read_samples(path)[0]["run"].iloc[0])
        self.remeasured |= {name for name, seen in self.finished.items() if now.get(name) != seen}
        self.finished.update(now)


_MEANT = re.compile(r"\.(run\.lock|nojekyll|round\.\d+|preliminary)")


def words(process: psutil.Process) -> list[str]:
    """A process's command line; nothing if it has ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def campaign(folder: Path, kills: int, names: Sequence[str], seed: int) -> tuple[list[Kill], list[str]]:
    """So many kills by each signal at least; all of them, and every fault that came of them."""
    chance, counted = random.Random(seed), Counter[str]()
    made: list[Kill] = []
    undisturbed = Chain(new_clone(folder, 0), *list(COMMANDS.items())[1])
    faults = [f"undisturbed: {fault}" for fault in undisturbed.finish()]
    expected = undisturbed.files()
    for number, (command, stages) in enumerate(itertools.cycle(COMMANDS.items()), 1):
        if min(counted[name] for name in names) >= kills:
            return made, faults
        chain = Chain(new_clone(folder, number), command, stages, dict(undisturbed.lasts))
        for stage in stages:
            fewest = min(counted[name] for name in names)
            name = chance.choice([name for name in names if counted[name] == fewest])
            # A terminal tells the whole group; told alone, make waits for what it has started.
            whole_group = chance.random() < 0.5 or (command[0] == "make" and name in ("INT", "HUP"))
            if chain.kill(stage, name, whole_group, chance):
                counted[name] += 1
                print(f"{number}: {chain.kills[-1]}", file=sys.stderr, flush=True)
        found = chain.finish()
        found += [f"not in an undisturbed study: {name}" for name in sorted(chain.files() - expected)]
        faults += [f"chain {number}, {' '.join(command)}: {fault}" for fault in found]
        print(f"{number}: {found or 'as undisturbed'}", file=sys.stderr, flush=True)
        made += chain.kills
        shutil.rmtree(chain.clone.path.parent)
    raise AssertionError


def new_clone(folder: Path, number: int) -> Clone:
    (folder / str(number)).mkdir()
    return clone_into(folder / str(number) / "a clone")


def table(kills: Sequence[Kill]) -> str:
    """Kills by signal and stage in Markdown: how many, and processes left after GONE_S."""
    cells: dict[tuple[str, str], list[Kill]] = defaultdict(list)
    for kill in kills:
        cells[kill.stage, kill.signal].append(kill)
    names = sorted({kill.signal for kill in kills}, key=SIGNALS.index)
    met = sorted({kill.stage for kill in kills}, key=lambda stage: (*STAGES, stage).index(stage))
    lines = [f"| stage | {' | '.join(names)} | orphans after {GONE_S:g} s |", "|---" * (len(names) + 2) + "|"]
    for stage in [*met, "all"]:
        own = [[kill for kill in kills if kill.signal == name and stage in (kill.stage, "all")] for name in names]
        unused = sum(len(kill.unused) for some in own for kill in some)
        lines.append(f"| {stage} | {' | '.join(str(len(some)) for some in own)} | {unused} |")
    return "\n".join(lines)


def stopped(folder: Path) -> int:
    """Stop what measures products for 20 s in round 2, go on, and tell what became of samples and verdicts."""
    command = ("snakemake", "--cores", "all", "--config", "preset=tests/workflow/tiny.yaml")
    chain = Chain(new_clone(folder, 0), command, STAGES)
    assert chain.clone.start(*command).wait() == 0, (chain.clone.path / "said").read_text()
    path = chain.clone.path / "results"
    before = _verdicts(path)
    (round_,) = path.glob("nodes/*/gemm.cpu.2.parquet")
    # Of the study, this round alone is to be done again, and what is made of all of them.
    round_.unlink()
    kept = {path / "node.json", path / "plan.json", *path.glob("nodes/*/*.parquet"), *path.glob("nodes/*/.*")}
    for one in path.rglob("*"):
        if one.is_file() and one not in kept:
            one.unlink()
    head = chain.clone.start(*command)
    while not (found := [one for one in chain.processes() if "experiments.worker" in words(one)]):
        assert head.poll() is None, (chain.clone.path / "said").read_text()
        time.sleep(0.05)
    # Past its start, in a point.
    time.sleep(STOP_AFTER_S)
    found[0].suspend()
    time.sleep(20.0)
    found[0].resume()
    assert head.wait() == 0, (chain.clone.path / "said").read_text()
    samples = read_samples(round_)[0]
    told = samples["flags"].str.contains("stopped")
    after = _verdicts(path)
    moved = [f"{name}: {verdict} -> {after[name]}" for name, verdict in before.items() if after[name] != verdict]
    decided = sum(verdict in ("supported", "challenged", "depends") for verdict in before.values())
    print(f"samples flagged as stopped: {told.sum()} of {len(samples)}")
    print(f"verdicts moved: {'; '.join(moved) or 'none'} (of {len(before)}, {decided} decided)")
    return int(not told.any() or bool(moved))


def _verdicts(results: Path) -> dict[str, str]:
    return {one["id"]: one["verdict"] for one in json.loads((results / "verdicts.json").read_text())["verdicts"]}


def main() -> int:
    """Run what the command line asks for; returns 1 if anything was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.workflow.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="by each signal, at least")
    parser.add_argument("--signals", nargs="+", choices=SIGNALS, default=list(SIGNALS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stop", action="store_true", help="stop the measuring process for 20 s instead")
    arguments = parser.parse_args()
    # `nohup` and a shell's background ignore them, and so would all that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        if arguments.stop:
            return stopped(Path(folder))
        kills, faults = campaign(Path(folder), arguments.kills, arguments.signals, arguments.seed)
    print(table(kills))
    print(f"\n{len(kills)} kills, seed {arguments.seed}; not as after an undisturbed run: {len(faults)}")
    for fault in faults:
        print(f"- {fault}")
    return int(bool(faults) or any(kill.unused for kill in kills))


if __name__ == "__main__":
    sys.exit(main())
