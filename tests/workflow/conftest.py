"""Clones of this repository, and one real study in such a clone."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.workflow import kill_and_resume
from tests.workflow.project_clones import Clone, clone_into

# Three experiments in two rounds, a second each, and something for claims to be judged by.
PRESET = """
rounds: 2
target: 0.5
point_s: 0.05
round_s: 30
max_samples: 6
experiments:
  clock:
    sweep:
      - grid: {backend: [llvm], threads: [1], chain: [1000000, 1100000]}
  peak:
    sweep:
      - rounds: 1
        grid: {kernel: [fma], dtype: [float32], backend: [llvm], threads: [1, all], loops: [100000]}
  gemm:
    sweep:
      - "on": cpu
        cases: [{m: 256, n: 256, k: 256}]
        grid: {dtype: [float32], backend: [torch, numpy], threads: [1]}
"""
# A folder whose name would be several commands.
RESULTS = "of $(touch one) 'me; touch two' \"&"
CONFIG = {"preset": "mine.yaml", "published": "others", "results": RESULTS, "seed": "7"}


@dataclass
class Study:
    """A study that came to its end. refused: a second run beside it. preliminary: the page that stood there meanwhile.
    before: the rounds that were finished when its sweep was changed. faults: what was not as in one that is left alone.
    """

    clone: Clone
    words: tuple[str, ...]
    refused: subprocess.CompletedProcess[str]
    preliminary: str
    before: dict[str, tuple[str, str]]
    faults: list[str]


def publish_few(clone: Clone) -> None:
    """A folder `others` of one published node with three rounds, beside which a study is soon judged and drawn."""
    node = sorted((clone.path / "data/nodes").glob("*/clock.cpu.1.parquet"))[0].parent
    (clone.path / "others" / node.name).mkdir(parents=True)
    for name in ("node.json", "clock.cpu.1.parquet", "clock.cpu.2.parquet", "clock.cpu.3.parquet"):
        shutil.copyfile(node / name, clone.path / "others" / node.name / name)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[bool]:
    """A small file system in a folder, if that may be done here."""
    folder.mkdir(parents=True)
    order = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    done = subprocess.run(order, check=False, capture_output=True).returncode == 0
    try:
        yield done
    finally:
        subprocess.run(["umount", str(folder)], check=done, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A fresh clone, nothing measured."""
    return clone_into(tmp_path / "a clone")


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """A study of three experiments that was ended four times, each time in another way and stage, and given the same
    command again; before the last time, its sweep of one experiment was changed, and it was given a budget."""
    clone = clone_into(tmp_path_factory.mktemp("study") / "a clone")
    try:
        yield ended(clone)
    finally:
        for process in clone.processes():
            process.kill()


def ended(clone: Clone) -> Study:
    """Measure, end, go on, and come to the end."""
    clone.wrote = RESULTS
    chain = kill_and_resume.Chain(clone, PRESET)
    words = [f"{key}={value}" for key, value in CONFIG.items()]
    # The README's commands. -o: the packages are those of this interpreter.
    make = ("make", "-o", ".venv/study.stamp", "study", f"CONFIG={shlex.join(words).replace('$', '$$')}")
    snakemake: tuple[str, ...] = ("snakemake", "--cores", "all", "--config", *words)
    publish_few(clone)
    head = clone.start(*make)
    while not (clone.results / ".run.lock").exists() and head.poll() is None:
        time.sleep(0.1)
    refused = clone.run(*snakemake)
    # `make` alone, which tells Snakemake nothing.
    assert chain.kill(head, "run 1", "KILL", False, 1.0), clone.said
    assert chain.kill(clone.start(*snakemake), "preliminary", "TERM", False, 2.0), clone.said
    assert chain.kill(clone.start(*snakemake), "run 2", "INT", True, 1.0), clone.said
    preliminary = (clone.results / "preliminary/index.html").read_text(encoding="utf-8")
    before = dict(chain.finished)
    chain.finished = {name: run for name, run in before.items() if not name.startswith("gemm")}
    (clone.path / "mine.yaml").write_text(PRESET.replace("[torch, numpy]", "[numpy]"))
    snakemake = (*snakemake, "budget_min=30")
    # Snakemake itself, which leaves a job behind that it takes for incomplete.
    assert chain.kill(clone.start(*snakemake), "render", "KILL", False, 2.0), clone.said
    chain.finish(clone.start(*snakemake), rounds=5)
    return Study(clone, snakemake, refused, preliminary, before, chain.faults)
