"""Ends studies at random moments of every stage, and gives the same command again: `python -m tests.workflow.kills`.

A chain is one study: it is ended in each of its stages in turn, by a signal to the head of its process group or to all
of the group, and then left to end by itself. What it must come to is what an undisturbed study comes to. Keep the
machine otherwise idle: eight chains, two by each of the README's commands, take some 25 minutes.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.workflow.clones import HANGS_S, STAGES, Clone, clone_into

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
CONFIG = {"preset": "mine.yaml"}
MEASURING = tuple(stage for stage in STAGES[: STAGES.index("gather")] if stage != "preliminary")
SIGNALS = ("KILL", "INT", "TERM", "HUP")
# A stage is ended within so many seconds of its beginning, or in the next.
WITHIN_S = 4.0
LOOK_S = 0.2
# Files with a dot that are there for good; all others are on their way.
MEANT = re.compile(r"\.(run\.lock|nojekyll|round\.\d+|preliminary|complete)")


def commands(config: dict[str, str]) -> dict[tuple[str, ...], Sequence[str]]:
    """The README's commands, and the stages that each of them goes through."""
    words = [f"{key}={value}" for key, value in config.items()]
    snakemake = ("snakemake", "--cores", "all", "--config", *words)
    return {
        # -o: the packages are those of this interpreter.
        ("make", "-o", ".venv/study.stamp", "study", f"CONFIG={shlex.join(words).replace('$', '$$')}"): STAGES,
        snakemake: STAGES,
        (*snakemake, "--", "measured"): MEASURING,
        ("bash", "workflow/measure-offline.sh", "--config", *words): MEASURING,
    }


@dataclass
class Chain:
    """A study that is ended again and again; `faults` is what is not as it is in one that is left alone."""

    clone: Clone
    preset: str = PRESET
    finished: dict[str, tuple[str, str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.clone.path / "mine.yaml").write_text(self.preset)
        (self.clone.path / "build/bundle/site").mkdir(parents=True)
        self.temporary = self.clone.path.parent / "temporary"
        self.temporary.mkdir()
        self.clone.extra["TMPDIR"] = str(self.temporary)

    def kill(self, head: subprocess.Popen[str], stage: str, name: str, whole_group: bool, after_s: float) -> str:
        """End a study so many seconds after a stage has begun; the stage that it was in, '' if it had ended before."""
        until = time.monotonic() + HANGS_S
        while not set(STAGES[STAGES.index(stage) :]) & set(running := self._look()):
            assert time.monotonic() < until, f"{stage} did not begin: {self.clone.said}"
            if head.poll() is not None:
                return ""
            time.sleep(LOOK_S)
        time.sleep(after_s)
        running = self._look()
        left = self.clone.end(head, getattr(signal, f"SIG{name}"), whole_group)
        self.faults += [f"{name} in {running} left {words}" for words in left]
        self._compare()
        return stage if stage in running else ", ".join(running) or "between two"

    def finish(self, head: subprocess.Popen[str], rounds: int = 3) -> None:
        """Leave a study to its end, with so many rounds of jobs."""
        while head.poll() is None:
            self._look()
            time.sleep(LOOK_S)
        if head.returncode or "Traceback" in self.clone.said:
            self.faults.append(f"exit code {head.returncode}: {self.clone.said[-5000:]}")
        self._compare()
        if not len(self.finished) == len(set(self.finished.values())) == rounds:
            self.faults.append(f"{self.finished} in place of {rounds} rounds, each by a process of its own")
        left = [path for path in self.clone.results.rglob(".*") if not MEANT.fullmatch(path.name)]
        # Snakemake itself makes an empty folder, which nothing can remove once it has been killed.
        left += [path for path in self.temporary.iterdir() if path.is_file() or any(path.iterdir())]
        self.faults += [f"left: {path}" for path in left]

    def _compare(self) -> None:
        """Note the rounds that are finished now, and those that were before and are others now."""
        # A round is written whole: it is finished although Snakemake may not have taken note of it.
        now = self.clone.rounds
        self.faults += [f"{name} was measured twice" for name, run in self.finished.items() if now.get(name) != run]
        self.finished |= now

    def _look(self) -> list[str]:
        """The stages that are worked at; while one measures, there is no other."""
        running = self.clone.stages()
        # Seen twice: the one may have ended and the other begun while they were looked for.
        if _disturbed(running) and _disturbed(again := self.clone.stages()):
            self.faults.append(f"beside each other: {again}")
        return running


def _disturbed(running: list[str]) -> bool:
    return len(running) > 1 and any(stage.startswith("run ") for stage in running)


def new_clone(folder: Path, number: int) -> Clone:
    (folder / str(number)).mkdir()
    return clone_into(folder / str(number) / "a clone")


def campaign(folder: Path, chains: int, chance: random.Random) -> list[str]:
    """So many chains, by every signal in turn; every fault that came of them."""
    undisturbed = Chain(new_clone(folder, 0))
    undisturbed.finish(undisturbed.clone.start(*list(commands(CONFIG))[1]))
    faults, names = [f"undisturbed: {fault}" for fault in undisturbed.faults], itertools.cycle(SIGNALS)
    for number, (command, stages) in zip(range(1, chains + 1), itertools.cycle(commands(CONFIG).items()), strict=False):
        chain = Chain(new_clone(folder, number))
        for stage in stages:
            name = next(names)
            # A terminal tells the whole group; told alone, make waits for what it has started.
            whole_group = chance.random() < 0.5 or (command[0] == "make" and name in ("INT", "HUP"))
            met = chain.kill(chain.clone.start(*command), stage, name, whole_group, chance.uniform(0, WITHIN_S))
            print(f"{number}: {name}{' to the group' * whole_group} in {met or 'nothing'}", file=sys.stderr, flush=True)
        # By the next chain, every stage meets another signal.
        next(names)
        chain.finish(chain.clone.start(*command))
        more = chain.clone.files() - undisturbed.clone.files()
        found = [*chain.faults, *(f"not in an undisturbed study: {name}" for name in sorted(more))]
        faults += [f"chain {number}, {' '.join(command)}: {fault}" for fault in found]
        print(f"{number}: {found or 'as undisturbed'}", file=sys.stderr, flush=True)
    return faults


def main() -> int:
    """Run what the command line asks for; returns 1 if anything was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.workflow.kills", description=__doc__)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    # `nohup` and a shell's background ignore them, and so would all that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        faults = campaign(Path(folder), arguments.chains, random.Random(arguments.seed))
    print("\n".join(["what is not as after an undisturbed run:", *faults]) if faults else "all as undisturbed")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
