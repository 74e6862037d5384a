"""Test the workflow on a stand-in GPU machine: a run is interrupted, and resumed on another host."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from contract.node import PARTIAL, RECORD, read_node, record_path
from contract.sample_table import read_samples
from experiments.jobs import read_plan
from experiments.outcome_summary import format_outcomes
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.reference_figures import REFERENCE, read_reference
from report.judging.judge import judge
from tests.workflow.project_clones import ROOT, Clone, clone_into

STANDIN = Path(__file__).parent / "standin"
SPOILT = {"CRASH": "parallelism", "HANG": "numerics", "NONSENSE": "content"}
# Claims that can be judged from measurements with the preset small.yaml.
CLAIMS = {"N07", "G06", "W22"}
MEASURE = ["snakemake", "--cores", "all", "--profile", "gpu", "--config", "preset=small.yaml", "results=results"]
MEASURE += ["--", "measured"]


def make_host(folder: Path, digits: str) -> Clone:
    """Make a clone on its own stand-in host."""
    clone = clone_into(folder / digits)
    shutil.copyfile(STANDIN / "small.yaml", clone.path / "small.yaml")
    (folder / f"place {digits}").mkdir()
    clone.extra = {
        "PYTHONPATH": str(clone.path / (STANDIN / "path").relative_to(ROOT)),
        "STANDIN_PLACE": str(folder / f"place {digits}"),
        "STANDIN_HOST": digits,
        **{f"STANDIN_{how}": name for how, name in SPOILT.items()},
    }
    return clone


def copy_results(results: Path, to: Clone) -> None:
    """Copy results to another clone, with random file times."""
    shutil.copytree(results, to.results)
    for path in to.path.rglob("*"):
        at = time.time() - random.uniform(0, 1e6)
        os.utime(path, (at, at))


@pytest.mark.slow
def test_rented_gpu_is_measured_despite_interrupt_and_faults(tmp_path: Path) -> None:
    first, second = make_host(tmp_path, "00000a"), make_host(tmp_path, "00000b")
    head = first.start(*MEASURE)
    while len(first.rounds) < 3:
        assert head.poll() is None, first.output
        time.sleep(0.1)
    assert first.end(head, signal.SIGINT, whole_group=True) == [] and "Traceback" not in first.output
    before = first.rounds
    (node,) = (first.results / "nodes").iterdir()
    assert record_path(node).name == PARTIAL

    copy_results(first.results, second)
    again = second.run(*MEASURE)
    assert again.returncode == 0, again.stdout + again.stderr
    rounds, node = second.rounds, second.results / "nodes" / node.name
    assert before.items() <= rounds.items(), "a round was measured twice, or is lost"
    assert {by for name, (_, by) in rounds.items() if name not in before} == {"00000b"}
    record = read_node(node / RECORD)
    assert (record["hosts"], record["origin"]) == (["00000a", "00000b"], "synthetic")
    assert not (second.results / "data").exists()
    for number, job in read_plan(second.results / "plan.json").order:
        table, _ = read_samples(node / f"{job.name}.{number}.parquet")
        there = set(table[["backend", "dtype", "threads", "params"]].itertuples(index=False, name=None))
        assert there == {tuple(point.columns.values()) for point in job.round_points(number)}

    outcomes = format_outcomes([node])
    # Leave out timeouts, because on a busy machine points in any experiment may time out.
    lost = set(re.findall(r"^ +\d+  (\S+) on \S+: (?!timeout)", outcomes, re.MULTILINE))
    assert lost == {SPOILT["CRASH"], SPOILT["NONSENSE"]}, outcomes
    for experiment, words in (
        ("parallelism", "was ended by SIGKILL"),
        ("numerics", "timeout: no answer within"),
        ("content", "is more than the whole, for a share"),
        ("content", "is not a time"),
        ("content", "sent a line that is not a JSON object"),
    ):
        assert re.search(rf"{experiment} on cuda:0: .*{words}", outcomes), outcomes
    gather([node.parent], tmp_path / "data", allow_synthetic=True)
    dataset = read_dataset(tmp_path / "data", read_reference(REFERENCE))
    document = judge(dataset, tmp_path / "verdicts.json", allow_synthetic=True)
    assert document["refused"] == []
    judged = {verdict["id"] for verdict in document["verdicts"] if not verdict["verdict"].startswith("awaiting")}
    assert judged & CLAIMS
