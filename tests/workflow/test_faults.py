"""What must be survived: kills, interrupts, second runs, typos, full and read-only disks, broken files."""

from __future__ import annotations

import json
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.workflow import kills
from tests.workflow.conftest import Clone


@pytest.fixture
def lingering(clone: Clone) -> Clone:
    (clone.path / "mine.yaml").write_text(kills.PRESET)
    return clone


COMMAND = ("snakemake", "--cores", "all", "--config", "preset=mine.yaml", "--", "measured")


def wait_for(what: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def measuring(clone: Clone, number: int) -> list[psutil.Process]:
    """The processes that measure this round in this clone."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = process.info["cmdline"] or []
        if "experiments" in words and f"--round={number}" in "=".join(words) and process.info["cwd"] == str(clone.path):
            found.append(process)
    return found


@pytest.mark.slow
def test_a_study_that_was_ended_goes_on_with_the_same_command(tmp_path: Path) -> None:
    """A short form of `python -m tests.workflow.kills`."""
    chain = kills.Chain(kills.new_clone(tmp_path, 0), *list(kills.COMMANDS.items())[1])
    chance = random.Random(0)
    ends = [("run 1", "KILL", False), ("preliminary", "INT", True), ("run 2", "TERM", False), ("render", "HUP", False)]
    for stage, name, whole_group in ends:
        assert chain.kill(stage, name, whole_group, chance)
        assert "Traceback" not in (chain.clone.path / "said").read_text()
    assert [kill for kill in chain.kills if kill.unused] == []
    assert chain.finish() == []


@pytest.mark.parametrize("words", [("--cores", "0"), ("--cores", "all", "--config", "results=a{b}")])
def test_what_cannot_be_is_refused_in_a_line(clone: Clone, words: tuple[str, ...]) -> None:
    refused = clone.run("snakemake", *words)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("error: ")
    assert not (clone.path / "results").exists()


@pytest.mark.slow
def test_the_name_of_the_results_is_no_command(clone: Clone) -> None:
    (clone.path / "mine.yaml").write_text(kills.PRESET.replace("rounds: 3", "rounds: 1"))
    name = "of $(touch one) 'me; touch two' \"&"
    done = clone.snakemake(
        "--config", "preset=mine.yaml", "published=nobody", f"results={name}", "--", f"{name}/verdicts.json"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (clone.path / name / "verdicts.json").is_file()
    assert not [one for one in ("one", "two") if (clone.path / one).exists()]


def test_results_of_the_first_edition_are_gone_on_with_under_their_name(clone: Clone) -> None:
    """Its records name a kind alone; discovering the machine again, for another seed, keeps that name."""
    path = clone.path / "results" / "node.json"
    assert clone.run(sys.executable, "-m", "experiments", "probe", "--out", str(path)).returncode == 0
    record = json.loads(path.read_text())
    kind = record.pop("kind")
    path.write_text(json.dumps({**record, "id": kind, "instance": ""}))
    again = clone.snakemake("--config", "seed=7", "--force", "--", "results/node.json")
    assert again.returncode == 0, again.stdout + again.stderr
    record = json.loads(path.read_text())
    assert (record["id"], record["kind"], record["options"]["seed"]) == (kind, kind, "7")


@pytest.mark.slow
def test_a_second_run_beside_the_first_is_refused(lingering: Clone) -> None:
    first = lingering.start(*COMMAND)
    wait_for(lambda: measuring(lingering, 1))
    second = lingering.run(*COMMAND)
    assert second.returncode != 0
    assert "error: another run is at work in results" in second.stderr
    assert first.wait(timeout=120) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--config", "prset=quick"), "configuration: prset: unknown key. Allowed: preset,"),
        (
            ("--config", "renderer=word"),
            "configuration: renderer: 'word' is not allowed. Allowed: auto, quarto, pandoc",
        ),
        (("--config", "budget_min=0.01"), "a budget of 0.01 min: what the comparisons need takes about"),
        (("--config", "seed=many"), "configuration: seed: 'many' is not of type integer"),
        (("--config", "preset=fulll"), "no preset 'fulll'. Presets: full, quick"),
        (("--config", "previous=nowhere.json"), "nowhere.json: no such file"),
        (("--config", "previous=typo.yaml"), "typo.yaml, line 1: not JSON"),
        (("--config", "budget_min=nan"), "configuration: budget_min: not a finite number"),
        (("--config", "budget_min=inf"), "configuration: budget_min: not a finite number"),
        (("--config", "url=example.org"), "configuration: url: 'example.org' is not the address of a folder"),
        (("--config", "preset=typo.yaml"), "typo.yaml, line 9: experiments.gemm.sweep.0.grid.dtype.0: 'float23'"),
    ],
)
def test_a_typo_is_named_before_anything_is_measured(clone: Clone, words: tuple[str, ...], said: str) -> None:
    (clone.path / "typo.yaml").write_text(
        "rounds: 3\ntarget: 0.1\npoint_s: 1\nround_s: 9\nmax_samples: 9\nexperiments:\n  gemm:\n    sweep:\n"
        "      - grid: {dtype: [float23], m: [8], n: [8], k: [8], backend: [torch], threads: [1]}\n"
    )
    refused = clone.snakemake(*words)
    assert refused.returncode != 0
    assert f"error: {said}" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (clone.path / "results").exists()


def test_the_gpu_profile_stops_at_once_without_a_gpu(clone: Clone) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    refused = clone.snakemake("--profile", "gpu")
    assert refused.returncode != 0
    (line,) = [line for line in refused.stderr.splitlines() if line.startswith("error:")]
    for words in ("no GPU found", "Looked for", "Found: cpu", "snakemake --cores all"):
        assert words in line
    assert "Traceback" not in refused.stderr
    assert clone.rounds == {}


def test_a_results_folder_that_cannot_be_made_is_one_error(clone: Clone) -> None:
    (clone.path / "occupied").write_text("a file")
    refused = clone.snakemake("--config", "results=occupied/results")
    assert refused.returncode != 0
    assert "error: occupied/results: cannot be written" in refused.stderr
    assert "Traceback" not in refused.stderr


def run_clock(clone: Clone, out: str, limit: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    (clone.path / "mine.yaml").write_text(kills.PRESET)
    words = [sys.executable, "-m", "experiments", "run", "clock", "--preset", "mine.yaml", "--out", out]
    return subprocess.run(
        words, cwd=clone.path, env=clone.env, capture_output=True, text=True, check=False, preexec_fn=limit, timeout=120
    )


@pytest.mark.slow
def test_a_disk_without_room_is_one_error_and_leaves_nothing(clone: Clone) -> None:
    def no_room() -> None:
        # What a write meets on a full disk, for this process alone; the error is EFBIG for ENOSPC.
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    failed = run_clock(clone, "out/clock.parquet", no_room)
    assert failed.returncode == 74
    assert "would exceed the size limit" in failed.stderr.splitlines()[-1]
    assert "Traceback" not in failed.stderr
    assert list((clone.path / "out").iterdir()) == []


@pytest.mark.slow
def test_a_full_file_system_is_one_error_and_leaves_nothing(clone: Clone) -> None:
    out = clone.path / "small"
    out.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(out)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root; the limit on file sizes is tested above")
    try:
        (out / "ballast").write_bytes(b"x" * 12_000)
        failed = run_clock(clone, "small/clock.parquet")
        left = [path.name for path in out.iterdir()]
        subprocess.run(["mount", "-o", "remount,ro", str(out)], check=True)
        refused = run_clock(clone, "small/clock.parquet")
    finally:
        subprocess.run(["umount", str(out)], check=True)
    assert failed.returncode == 74
    assert "the disk is full" in failed.stderr.splitlines()[-1]
    assert left == ["ballast"]
    assert refused.returncode == 74
    assert "the file system is read-only" in refused.stderr.splitlines()[-1]
    assert "Traceback" not in failed.stderr + refused.stderr


@pytest.mark.slow
def test_a_disk_that_fills_up_costs_no_finished_round(clone: Clone) -> None:
    (clone.path / "mine.yaml").write_text(kills.PRESET)
    out = clone.path / "small"
    out.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=320m", "none", str(out)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    words = ("snakemake", "--cores", "all", "--config", "preset=mine.yaml", "results=small/results", "--", "measured")

    def written() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in out.glob("results/nodes/*/*.parquet")}

    try:
        first = clone.start(*words)
        wait_for(lambda: written() and measuring(clone, 2))
        with pytest.raises(OSError, match="No space left"), (out / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(2**20)):
                pass
        assert first.wait(timeout=120) != 0
        said, kept = (clone.path / "said").read_text(), written()
        (out / "ballast").unlink()
        again = clone.run(*words)
        after = written()
    finally:
        subprocess.run(["umount", str(out)], check=True)
    assert "the disk is full: free some space" in said
    assert "Traceback" not in said
    assert again.returncode == 0, again.stdout + again.stderr
    assert list(kept) == ["clock.cpu.1.parquet"]
    assert len(after) == 3 and after.items() >= kept.items()


@pytest.mark.slow
def test_broken_files_are_refused_with_the_reason_and_the_rest_is_reported(study: Clone, tmp_path: Path) -> None:
    (own,) = (study.path / "results/nodes").iterdir()
    nodes = tmp_path / "nodes"
    shutil.copytree(own, nodes / own.name)
    whole = (nodes / own.name / "gemm.cpu.2.parquet").read_bytes()
    (nodes / own.name / "gemm.cpu.2.parquet").write_bytes(whole[: len(whole) // 2])
    import pyarrow.parquet as parquet

    path = nodes / own.name / "bandwidth.cpu.1.parquet"
    parquet.write_table(parquet.read_table(path).drop_columns(["value"]), path)
    (nodes / "nonsense").mkdir()
    (nodes / "nonsense" / "node.json").write_text("{")
    data = str(tmp_path / "data")
    gathered = study.run(sys.executable, "-m", "report", "gather", "--nodes", str(nodes), "--out", data)
    assert gathered.returncode == 0, gathered.stderr
    judged = study.run(
        sys.executable, "-m", "report", "judge", "--data", data, "--out", str(tmp_path / "verdicts.json")
    )
    assert judged.returncode == 0, judged.stderr
    content = json.loads((tmp_path / "verdicts.json").read_text())
    reasons = {Path(refused["file"]).name: refused["reason"] for refused in content["refused"]}
    assert "cannot be read as Parquet" in reasons["gemm.cpu.2.parquet"]
    assert "column 'value' is missing" in reasons["bandwidth.cpu.1.parquet"]
    assert any("nonsense" in refused["file"] for refused in content["refused"])
    assert len(content["verdicts"]) == len(list((study.path / "report" / "claims").glob("*.yaml")))
    by_id = {verdict["id"]: verdict for verdict in content["verdicts"]}
    assert by_id["W15"]["verdict"] in ("supported", "challenged", "undecided")


def test_a_read_only_results_folder_is_one_error(clone: Clone) -> None:
    out = clone.path / "sealed"
    out.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", str(out)], check=False, capture_output=True)
    if mounted.returncode:
        out.chmod(0o500)
    try:
        refused = clone.snakemake("--config", "results=sealed/results")
    finally:
        subprocess.run(["umount", str(out)], check=not mounted.returncode, capture_output=True)
    assert refused.returncode != 0
    assert "error: sealed/results: cannot be written" in refused.stderr
    assert "Traceback" not in refused.stderr
