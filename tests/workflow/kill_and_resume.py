"""Kill studies in chosen stages, by a signal to the process or to its group, and resume them."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from dataclasses import dataclass, field

from tests.workflow.project_clones import HANGS_S, STAGES, Clone

# This preset has short rounds of the experiment that starts fastest.
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
LOOK_S = 0.2
# Dot files that a study keeps. All other dot files are temporary.
MEANT = re.compile(r"\.(run\.lock|nojekyll|zenodo\.json|round\.\d+|preliminary|complete)")


@dataclass
class Chain:
    """Study that is killed and resumed; `faults` lists the differences from an undisturbed study."""

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
        """Kill a study `after_s` seconds into a stage.

        Return the stage that was running when the study was killed, or '' if the study had ended before.
        """
        until = time.monotonic() + HANGS_S
        while not set(STAGES[STAGES.index(stage) :]) & set(running := self._look()):
            assert time.monotonic() < until, f"{stage} did not begin: {self.clone.output}"
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
        """Wait for the study's end, and check that it has `rounds` rounds."""
        while head.poll() is None:
            self._look()
            time.sleep(LOOK_S)
        if head.returncode or "Traceback" in self.clone.output:
            self.faults.append(f"exit code {head.returncode}: {self.clone.output[-5000:]}")
        self._compare()
        if not len(self.finished) == len(set(self.finished.values())) == rounds:
            self.faults.append(f"{self.finished} in place of {rounds} rounds, each by a process of its own")
        left = [path for path in self.clone.results.rglob(".*") if not MEANT.fullmatch(path.name)]
        # Ignore the empty folder that a killed Snakemake leaves.
        left += [path for path in self.temporary.iterdir() if path.is_file() or any(path.iterdir())]
        self.faults += [f"left: {path}" for path in left]

    def _compare(self) -> None:
        """Record finished rounds, and add faults for rounds that changed."""
        # Rounds are written atomically: a file is finished even before Snakemake records it.
        now = self.clone.rounds
        self.faults += [f"{name} was measured twice" for name, run in self.finished.items() if now.get(name) != run]
        self.finished |= now

    def _look(self) -> list[str]:
        """Return the running stages; add a fault if another stage runs during measuring."""
        running = self.clone.stages()
        # Look twice: while the processes were listed, the measuring stage may have ended, and the other stage begun.
        if _is_disturbed(running) and _is_disturbed(again := self.clone.stages()):
            self.faults.append(f"beside each other: {again}")
        return running


def _is_disturbed(running: list[str]) -> bool:
    return len(running) > 1 and any(stage.startswith("run ") for stage in running)
