"""Copies of this repository, studies that run in them, and what still runs of those."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from contract.sample_table import read_samples

ROOT = Path(__file__).parents[2]
# What a study is told, and hands on to all that it starts.
MARK = "STUDY_TEST_OF_WORKFLOW"
# Seconds after which nothing of an ended study may run any more, and after which a study hangs.
GONE_S, HANGS_S = 8.0, 900.0
# In the order of an undisturbed study, each by the command of a process that works at it.
STAGES = (
    "probe", "plan", "run 1", "preliminary", "run 2", "run 3", "seal", "gather", "judge", "render", "site", "lint",
)  # fmt: skip


@dataclass
class Clone:
    """A copy in a folder of its own, whose commands run with this interpreter's environment. wrote: its results."""

    path: Path
    extra: dict[str, str] = field(default_factory=dict)
    wrote: str = "results"

    @property
    def results(self) -> Path:
        return self.path / self.wrote

    @property
    def env(self) -> dict[str, str]:
        # Nothing of the `make` or the pytest that runs this.
        ours = ("STUDY_", "PYTEST_", "PYTHONPATH", "MAKE", "MFLAGS")
        own = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        own["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
        return own | {MARK: str(self.path)} | self.extra

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own; its output is added to `said`."""
        with (self.path / "said").open("a") as out:
            return subprocess.Popen(
                words, cwd=self.path, env=self.env, stdout=out, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
                # `nohup` and a shell's background ignore signals, and so would what they start.
                preexec_fn=lambda: [signal.signal(one, signal.SIG_DFL) for one in (signal.SIGINT, signal.SIGHUP)],
            )  # fmt: skip

    @property
    def said(self) -> str:
        """What was printed by all that was started."""
        return (self.path / "said").read_text()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            words, cwd=self.path, env=self.env, capture_output=True, text=True, check=False, timeout=500
        )

    def machine(self, name: str) -> Clone:
        """The same, whose results are those of one of several machines."""
        return replace(self, wrote=f"{self.wrote}/machines/{name}/results")

    def snakemake(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`snakemake --cores all` with these words after it."""
        return self.run("snakemake", "--cores", "all", *words)

    @property
    def rounds(self) -> dict[str, tuple[str, str]]:
        """The finished rounds, with the process and the host that measured each."""
        # Files that are being written begin with a dot.
        found = sorted(self.results.glob("nodes/*/[!.]*.parquet"))
        told = [(path.name, *read_samples(path)) for path in found]
        return {name: (str(table["run"].iloc[0]), str(about["host"])) for name, table, about in told}

    def files(self) -> set[str]:
        """All that lies in the results."""
        return {str(path.relative_to(self.results)) for path in self.results.rglob("*")}

    def processes(self) -> Iterator[psutil.Process]:
        """What still runs of all that was ever started here."""
        own = self.env[MARK]
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == own and process.status() != psutil.STATUS_ZOMBIE:
                    yield process
            except psutil.Error:
                continue

    def stages(self) -> list[str]:
        """Which STAGES are worked at now; one that several processes work at, so many times."""
        found = []
        processes = list(self.processes())
        numbers = {process.pid: _words(process) for process in processes}
        for process in processes:
            _, *words = numbers[process.pid] or [""]
            with suppress(psutil.Error):
                # What has just been started bears its parent's words until it runs its own program.
                if numbers.get(process.ppid()) == numbers[process.pid]:
                    continue
            if words[:2] in (["-m", "experiments"], ["-m", "report"]) and "--id" not in words:
                if any("/preliminary/" in word for word in words):
                    found.append("preliminary")
                elif "--round" in words:
                    found.append(f"run {words[words.index('--round') + 1]}")
                else:
                    found.append(words[2])
        return sorted((stage for stage in found if stage in STAGES), key=STAGES.index)

    def end(self, head: subprocess.Popen[str], number: int, whole_group: bool) -> list[str]:
        """Send a signal to a command that was started here, or to its group; the processes that outlive it."""
        with suppress(ProcessLookupError):
            (os.killpg if whole_group else os.kill)(head.pid, number)
        until = time.monotonic() + GONE_S
        while (head.poll() is None or any(self.processes())) and time.monotonic() < until:
            time.sleep(0.05)
        left = [(" ".join(_words(process)), process) for process in self.processes()]
        for _, process in left:
            process.kill()
        head.wait()
        return [words for words, _ in left]


def _words(process: psutil.Process) -> list[str]:
    """A process's command line; nothing if it has ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def clone_into(path: Path) -> Clone:
    """What is committed here, in a new folder."""
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(path)], check=True)
    return Clone(path)
