"""A real clone of this repository, and real runs of the workflow in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass
class Clone:
    """A checkout in a folder of its own, whose commands run with this interpreter's environment."""

    path: Path
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith(("STUDY_", "PYTEST_"))}
        own["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
        own.pop("PYTHONPATH", None)
        return own | self.extra

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own; its output goes to `said`."""
        out = (self.path / "said").open("w")
        return subprocess.Popen(
            words, cwd=self.path, env=self.env, stdout=out, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            # `nohup` and a shell's background ignore signals, and so would what they start.
            preexec_fn=lambda: [signal.signal(one, signal.SIG_DFL) for one in (signal.SIGINT, signal.SIGHUP)],
        )  # fmt: skip

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            words, cwd=self.path, env=self.env, capture_output=True, text=True, check=False, timeout=500
        )

    def snakemake(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`snakemake --cores all` with these words after it."""
        return self.run("snakemake", "--cores", "all", *words)

    @property
    def rounds(self) -> dict[str, int]:
        """The measured rounds, with the time at which each was written."""
        return {path.name: path.stat().st_mtime_ns for path in (self.path / "results").glob("nodes/*/*.parquet")}


def clone_into(path: Path) -> Clone:
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(path)], check=True)
    return Clone(path)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A fresh clone, nothing measured."""
    return clone_into(tmp_path / "a clone")


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    """A clone in which the tiny study has run from start to end; `said` is what it printed, and `preliminary.html`
    the page that stood there meanwhile."""
    made = clone_into(tmp_path_factory.mktemp("study") / "a clone")
    running = made.start("snakemake", "--cores", "all", "--config", "preset=tests/workflow/tiny.yaml")
    page, kept = made.path / "results/preliminary/index.html", made.path / "preliminary.html"
    while running.poll() is None:
        if page.exists() and not kept.exists():
            shutil.copyfile(page, kept)
        time.sleep(0.5)
    assert running.returncode == 0, (made.path / "said").read_text()
    yield made
