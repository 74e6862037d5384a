"""Clones of this repository, studies in them, their processes, and environments for them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from contract.node_pack import is_repeat
from contract.sample_table import read_samples

ROOT = Path(__file__).parents[2]
# Environment variable that marks all processes of a study.
MARK = "STUDY_TEST_OF_WORKFLOW"
# GONE_S: seconds until an ended study's processes must be gone. HANGS_S: seconds until a study counts as hanging.
GONE_S, HANGS_S = 8.0, 900.0
# A study's stages, in order.
STAGES = (
    "probe", "plan", "run 1", "preliminary", "run 2", "run 3", "repeat", "seal", "gather", "judge", "render",
    "site", "lint",
)  # fmt: skip


@dataclass
class Clone:
    """Clone of this repository, whose commands use this Python environment.

    extra: environment variables to add. wrote: path to the results folder inside the clone.
    """

    path: Path
    extra: dict[str, str] = field(default_factory=dict)
    wrote: str = "results"

    @property
    def results(self) -> Path:
        return self.path / self.wrote

    @property
    def env(self) -> dict[str, str]:
        # Drop variables that a make or pytest which runs these tests has set.
        ours = ("STUDY_", "PYTEST_", "PYTHONPATH", "MAKE", "MFLAGS")
        own = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        own["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
        return own | {MARK: str(self.path)} | self.extra

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in its own process group; append its output to the file `said`."""
        with (self.path / "said").open("a") as out:
            return subprocess.Popen(
                words, cwd=self.path, env=self.env, stdout=out, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
                # Restore the default actions, because a child inherits signals that `nohup` or a background shell
                # ignores.
                preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)],
            )  # fmt: skip

    @property
    def output(self) -> str:
        """Return the output from all commands."""
        return (self.path / "said").read_text()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=self.path, env=self.env, capture_output=True, text=True, check=False, timeout=500
        )

    def machine(self, name: str) -> Clone:
        """Return this clone with one machine's results as the results folder."""
        return replace(self, wrote=f"{self.wrote}/machines/{name}/results")

    def snakemake(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `snakemake --cores all` with further arguments."""
        return self.run("snakemake", "--cores", "all", *words)

    @property
    def rounds(self) -> dict[str, tuple[str, str]]:
        """Return the process and host of each finished round's first attempt, by file name."""
        # Skip temporary files, which begin with a dot.
        paths = sorted(self.results.glob("nodes/*/[!.]*.parquet"))
        rounds = [(path.name, *read_samples(path)) for path in paths]
        return {
            name: (str(table["run"].iloc[0]), str(about["host"]))
            for name, table, about in rounds
            if not is_repeat(name)
        }

    def files(self) -> set[str]:
        """Return all files in the results."""
        return {str(path.relative_to(self.results)) for path in self.results.rglob("*")}

    def processes(self) -> Iterator[psutil.Process]:
        """Return the running processes started in this clone."""
        own = self.env[MARK]
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == own and process.status() != psutil.STATUS_ZOMBIE:
                    yield process
            except psutil.Error:
                continue

    def stages(self) -> list[str]:
        """Return the stages that are running, in the order of STAGES: one entry for each process."""
        stages = []
        processes = list(self.processes())
        numbers = {process.pid: _command_line(process) for process in processes}
        for process in processes:
            _, *words = numbers[process.pid] or [""]
            with suppress(psutil.Error):
                # Between fork and exec, a new process shows its parent's command line, so do not count it.
                if numbers.get(process.ppid()) == numbers[process.pid]:
                    continue
            if words[:2] in (["-m", "experiments"], ["-m", "report"]) and "--id" not in words:
                if any("/preliminary/" in word for word in words):
                    stages.append("preliminary")
                elif "--round" in words:
                    stages.append(f"run {words[words.index('--round') + 1]}")
                else:
                    stages.append(words[2])
        return sorted((stage for stage in stages if stage in STAGES), key=STAGES.index)

    def end(self, head: subprocess.Popen[str], number: int, whole_group: bool) -> list[str]:
        """Send a signal to a command or its process group.

        Kill the processes that have not ended after GONE_S seconds, and return their command lines.
        """
        with suppress(ProcessLookupError):
            (os.killpg if whole_group else os.kill)(head.pid, number)
        until = time.monotonic() + GONE_S
        while (head.poll() is None or any(self.processes())) and time.monotonic() < until:
            time.sleep(0.05)
        left = [(" ".join(_command_line(process)), process) for process in self.processes()]
        for _, process in left:
            process.kill()
        head.wait()
        return [words for words, _ in left]


def _command_line(process: psutil.Process) -> list[str]:
    """Return a process's command line; empty if the process has ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def clone_into(path: Path, repeats: bool = False) -> Clone:
    """Clone this repository's current commit into a new folder.

    repeats: False to commit settings that measure no disturbed points again, which saves time.
    """
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(path)], check=True)
    if not repeats:
        settings = path / "config" / "config.yaml"
        text = re.sub(r"(?m)^repeat_share: \S+", "repeat_share: 0", settings.read_text(encoding="utf-8"))
        settings.write_text(text, encoding="utf-8")
        who = ("-c", "user.name=test", "-c", "user.email=test@localhost")
        commit = ("git", "-C", str(path), *who, "commit", "--quiet", "--all", "--message", "Measure nothing again")
        subprocess.run(commit, check=True)
    return Clone(path)


def overlaid_python(folder: Path, packages: dict[str, str]) -> Path:
    """Make an environment that has this one's packages, but `packages` in these versions; return its interpreter."""
    venv.create(folder, symlinks=True)
    here, there = (sysconfig.get_path("purelib", vars=bases) for bases in ({}, {"base": str(folder)}))
    (Path(there) / "overlay.pth").write_text(here)
    python = folder / "bin/python"
    if versions := [f"{name}=={version}" for name, version in packages.items()]:
        words = [python, "-m", "pip", "install", "--quiet", "--no-deps", *versions]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return python
