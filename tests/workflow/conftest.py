"""Fixtures: clones of this repository, and one real study in a clone."""

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

from contract.files import read_yaml, write_json
from tests.workflow import kill_and_resume
from tests.workflow.project_clones import Clone, clone_into

# Preset with three experiments in two short rounds, which give data for some claims.
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
# Published node that is never the machine on which the tests run.
PUBLISHED = "amd-epyc-2c-789dcf"
# Name for the results folder. A shell would take it for several commands if it were not quoted.
RESULTS = "of $(touch one) 'me; touch two' \"&"
CONFIG = {"preset": "mine.yaml", "published": "others", "results": RESULTS, "seed": "7"}


@dataclass
class Study:
    """Finished study, and records of its course.

    refused: result from a second run that was started while the first was at work.
    preliminary: text of the preliminary page.
    before: rounds that were finished before one experiment's sweep was changed.
    faults: differences from an undisturbed study.
    """

    clone: Clone
    words: tuple[str, ...]
    refused: subprocess.CompletedProcess[str]
    preliminary: str
    before: dict[str, tuple[str, str]]
    faults: list[str]


def publish_small_node(clone: Clone) -> None:
    """Make a folder `others` with one small published node, for fast judging and drawing."""
    node = clone.path / "data" / "nodes" / PUBLISHED
    (clone.path / "others" / node.name).mkdir(parents=True)
    for name in ("node.json", "clock.cpu.1.parquet", "clock.cpu.2.parquet", "clock.cpu.3.parquet"):
        shutil.copyfile(node / name, clone.path / "others" / node.name / name)


def keep_few_published_records(clone: Clone) -> None:
    """Keep only prices and the published sources that `counterparts.yaml` names, for fast judging and drawing."""
    folder = clone.path / "data" / "published"
    pairs = read_yaml(clone.path / "report" / "counterparts.yaml")
    kept = {pair[side].partition("/")[0] for pair in pairs for side in ("of", "over") if side in pair}
    kept.add("cloud-gpus")
    for path in folder.glob("*.csv"):
        if path.stem not in kept:
            path.unlink()
    # A JSON file is also a YAML file.
    sources, comparisons = (folder / f"{name}.yaml" for name in ("sources", "comparisons"))
    write_json(sources, [source for source in read_yaml(sources) if source["id"] in kept])
    compared = [
        each for each in read_yaml(comparisons) if {each[side].partition("/")[0] for side in ("of", "over")} <= kept
    ]
    write_json(comparisons, compared)


@contextmanager
def mount_tmpfs(folder: Path, options: str) -> Iterator[bool]:
    """Mount a small file system; yield False if the system does not permit it."""
    folder.mkdir(parents=True)
    order = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    done = subprocess.run(order, check=False, capture_output=True).returncode == 0
    try:
        yield done
    finally:
        subprocess.run(["umount", str(folder)], check=done, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """Make a fresh clone without measurements."""
    return clone_into(tmp_path / "a clone")


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """Run a study that is killed four times, in different stages and ways, and resumed with the same command.

    After the third kill, one experiment's sweep is changed and a budget is set.
    """
    clone = clone_into(tmp_path_factory.mktemp("study") / "a clone", repeats=True)
    try:
        yield run_interrupted_study(clone)
    finally:
        for process in clone.processes():
            process.kill()


def run_interrupted_study(clone: Clone) -> Study:
    """Run the study, kill and resume it four times, and let it finish."""
    clone.wrote = RESULTS
    chain = kill_and_resume.Chain(clone, PRESET)
    words = [f"{key}={value}" for key, value in CONFIG.items()]
    # These are the README's commands. With -o, `make` installs nothing, and this interpreter's packages are used.
    make = ("make", "-o", ".venv/study.stamp", "study", f"CONFIG={shlex.join(words).replace('$', '$$')}")
    snakemake: tuple[str, ...] = ("snakemake", "--cores", "all", "--config", *words)
    publish_small_node(clone)
    keep_few_published_records(clone)
    head = clone.start(*make)
    while not (clone.results / ".run.lock").exists() and head.poll() is None:
        time.sleep(0.1)
    refused = clone.run(*snakemake)
    # Kill only `make`, which then cannot signal Snakemake.
    assert chain.kill(head, "run 1", "KILL", False, 1.0), clone.output
    assert chain.kill(clone.start(*snakemake), "preliminary", "TERM", False, 2.0), clone.output
    assert chain.kill(clone.start(*snakemake), "run 2", "INT", True, 1.0), clone.output
    preliminary = (clone.results / "preliminary/index.html").read_text(encoding="utf-8")
    before = dict(chain.finished)
    chain.finished = {name: run for name, run in before.items() if not name.startswith("gemm")}
    (clone.path / "mine.yaml").write_text(PRESET.replace("[torch, numpy]", "[numpy]"))
    snakemake = (*snakemake, "budget_min=30")
    # Kill Snakemake itself, which leaves an incomplete job behind.
    assert chain.kill(clone.start(*snakemake), "render", "KILL", False, 2.0), clone.output
    chain.finish(clone.start(*snakemake), rounds=5)
    return Study(clone, snakemake, refused, preliminary, before, chain.faults)
