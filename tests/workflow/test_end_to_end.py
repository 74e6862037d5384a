"""Test whole studies, from a clone to the report. The studies measure this machine, so the tests run one at a time."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as parquet
import pypdf
import pytest
from bs4 import BeautifulSoup
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from contract.files import read_json
from contract.node import kind_of_node
from contract.node_pack import is_repeat
from experiments.registry import get_experiment
from report.dataset.check import dataset_faults
from tests.missing_tools import skip_without
from tests.workflow import kill_and_resume, slurm_cluster, sshd
from tests.workflow.conftest import RESULTS, Study, keep_few_published_records, publish_small_node
from tests.workflow.project_clones import ROOT, Clone

# The timeout is long because the first test waits until the study has finished.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
CLAIMS = {path.stem for path in (ROOT / "report/claims").glob("*.yaml")}


def read_json_file(study: Study, name: str) -> Any:
    return json.loads((study.clone.results / name).read_text(encoding="utf-8"))


def test_killed_study_resumes_without_measuring_twice(study: Study) -> None:
    """The faults include processes that outlive a killed study, and stages that run in parallel to measuring."""
    assert study.faults == []


def test_changed_sweep_is_measured_again(study: Study) -> None:
    after = study.clone.rounds
    same = {name for name, run in study.before.items() if after[name] == run}
    assert same >= {"clock.cpu.1.parquet", "peak.cpu.1.parquet"}
    assert "gemm.cpu.1.parquet" in set(study.before) - same


def test_second_run_is_refused_and_results_name_is_quoted(study: Study) -> None:
    assert study.refused.returncode != 0
    assert "error: another run is at work in " in study.refused.stderr
    assert not [name for name in ("one", "two") if (study.clone.path / name).exists()]


def test_console_shows_one_line_per_stage_and_result(study: Study) -> None:
    output = study.clone.output
    # Jobs that end during an interrupt are kept but not printed, so round 2 prints only the experiment that was
    # changed.
    order = [
        "describing this machine",
        "points: in all about",
        "measuring, round 1 of 2",
        *(f"{name} on cpu, round 1: 2 points in" for name in ("clock", "peak", "gemm")),
        f"preliminary page: {RESULTS}/preliminary/index.html",
        "measuring, round 2 of 2",
        "gemm on cpu, round 2: 1 point in",
        "gathering the samples",
        "judging the claims",
        f"{len(CLAIMS)} claims: ",
        "rendering the report",
        f"report: {RESULTS}/report/index.html",
    ]
    places = [output.find(words) for words in order]
    assert -1 not in places and places == sorted(places), output
    for noise in ("rule measure:", "jobid", "steps (", "\r"):
        assert noise not in output


def test_preliminary_page_is_marked_and_removed(study: Study) -> None:
    page = BeautifulSoup(study.preliminary, "html.parser")
    assert "after the first of 2 rounds" in page.select_one(".notice").get_text(" ", strip=True)
    assert len(page.select("tbody tr")) == len(CLAIMS)
    assert not (study.clone.results / "preliminary").exists()


def test_outputs_in_readme_exist(study: Study) -> None:
    for words in re.findall(r"^\| (`results/.+?) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE):
        first, *endings = re.findall("`(.+?)`", words.replace("results/", "").replace("<node>", "*"))
        for name in [first, *(first.replace(".json", ending) for ending in endings)]:
            assert list(study.clone.results.glob(name)), name


def test_report_has_claim_pages_pdf_and_site(study: Study) -> None:
    report = study.clone.results / "report"
    page = BeautifulSoup((report / "index.html").read_text(encoding="utf-8"), "html.parser")
    assert {path.stem for path in (report / "claims").glob("*.html")} == CLAIMS
    assert "after the first of 2 rounds" not in page.get_text()
    assert 10 <= len(pypdf.PdfReader(report / "report.pdf").pages) <= 30
    assert len(pypdf.PdfReader(report / "appendix.pdf").pages) > 30
    assert (report / "verdicts.json").read_bytes() == (study.clone.results / "verdicts.json").read_bytes()
    page = BeautifulSoup((report / "measurements" / "index.html").read_text(encoding="utf-8"), "html.parser")
    linked = {link["href"] for link in page.find_all("a", href=True) if link["href"].startswith("../data/")}
    assert linked and all((report / "measurements" / name).is_file() for name in linked)
    assert list(dataset_faults(report / "data")) == [], "the dataset"


def test_lint_finds_only_missing_intervals(study: Study) -> None:
    lint = (study.clone.results / "lint.txt").read_text().splitlines()
    # On a busy machine, a point may have a single round and thus no interval. All other faults are bugs.
    assert lint and [line for line in lint if "no fault" not in line and not line.startswith("ratio-interval: ")] == []


def test_machine_is_judged_with_published_ones(study: Study) -> None:
    verdicts = read_json_file(study, "verdicts.json")
    (other,) = (path.name for path in (study.clone.path / "others").iterdir())
    own = read_json_file(study, "node.json")["id"]
    assert {node["id"] for node in verdicts["nodes"]} == {own, other}
    assert {verdict["id"] for verdict in verdicts["verdicts"]} == CLAIMS
    cases = [case for verdict in verdicts["verdicts"] for case in verdict["cases"]]
    assert own in {case["node"] for case in cases}


def test_settings_take_effect(study: Study) -> None:
    assert read_json_file(study, "plan.json")["budget_min"] == 30
    assert read_json_file(study, "node.json")["options"] == {"preset": "mine.yaml", "seed": "7"}
    for path in study.clone.results.glob("nodes/*/*.parquet"):
        about = json.loads(parquet.read_schema(path).metadata[b"study"])
        assert about["options"] == {"preset": "mine.yaml", "seed": 7}
        assert (about["schema"], about["protocol"]) == (2, get_experiment(path.name.split(".")[0]).protocol)
        assert 0 < about["warmup_s"] + about["timed_s"] < about["wall_s"]
    runs = pd.read_parquet(study.clone.results / "dataset/runs.parquet")
    assert set(runs["origin"]) == {"measured"}


def test_second_run_has_nothing_to_do_and_touched_claim_is_judged_again(study: Study) -> None:
    again = study.clone.run(*study.words)
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout + again.stderr
    (study.clone.path / "report/claims/W15.yaml").touch()
    plan = study.clone.run(*study.words, "-n")
    jobs = set(re.findall(r"^(?:local)?rule (\w+):", plan.stdout + plan.stderr, re.MULTILINE))
    assert jobs == {"judge", "dataset", "figures", "report", "lint", "site", "complete", "study"}


def test_finished_study_stops_without_required_gpu(study: Study) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    refused = study.clone.run(*study.words, "require=gpu")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("error: gpu profile: no GPU found")
    assert "Traceback" not in refused.stderr


def test_lost_files_are_remade_without_measuring(study: Study, tmp_path: Path) -> None:
    """Losing all three files at once made Snakemake measure everything again in the past (snakemake#3879)."""
    shutil.copytree(study.clone.path, tmp_path / "copy", symlinks=True)
    copy = Clone(tmp_path / "copy", {**study.clone.extra}, study.clone.wrote)

    def list_files() -> set[str]:
        """List the node's files without repeats: a disturbed round may be repeated once more."""
        return {path.name for path in copy.results.glob("nodes/*/[!.]*") if not is_repeat(path.name)}

    before, files = copy.rounds, list_files()
    for lost in ("plan.json", "nodes/*/gemm.cpu.2.parquet", "nodes/*/node.json"):
        (path,) = copy.results.glob(lost)
        path.unlink()
    again = copy.run(*study.words, "--", "measured")
    assert again.returncode == 0, again.stdout + again.stderr
    assert list_files() == files
    now = copy.rounds
    assert {name for name in before if now[name] != before[name]} == {"gemm.cpu.2.parquet"}
    assert (copy.results / "plan.json").is_file()


def minimal_python(folder: Path) -> Path:
    """Make a Python environment with only the packages that a machine without a network is expected to have."""
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    names, seen = ["pip", "torch", "numpy", "pandas", "pyarrow", "numba", "scikit-learn"], set[str]()
    while names:
        name = canonicalize_name(names.pop())
        if name in seen:
            continue
        seen.add(name)
        package = distribution(name)
        for top in {file.parts[0] for file in package.files or [] if file.parts[0] != ".."} - {"__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(package.locate_file(top))))
        needs = [Requirement(text) for text in package.requires or []]
        names += [need.name for need in needs if not need.marker or need.marker.evaluate({"extra": ""})]
    return folder / "bin"


@pytest.mark.skipif(sys.platform != "linux", reason="the bundle's wheels are for Linux")
def test_measuring_needs_only_bundle_and_installed_packages(clone: Clone, tmp_path: Path) -> None:
    version = platform.python_version().rpartition(".")[0]
    small = ("--without", "serving", "--without", "wgpu")
    bundle_process = clone.run("bash", "workflow/bundle.sh", version, platform.machine(), *small)
    if "No matching distribution found for" in bundle_process.stderr:
        skip_without("no package index can be reached")
    assert bundle_process.returncode == 0, bundle_process.stderr
    (clone.path / "mine.yaml").write_text(
        kill_and_resume.PRESET.replace("rounds: 3", "rounds: 1").replace("point_s: 0.5", "point_s: 0.05")
    )
    clone.extra["PATH"] = f"{minimal_python(tmp_path / 'there')}:/usr/bin:/bin"
    measured = clone.run("bash", "workflow/measure-offline.sh", "--config", "preset=mine.yaml")
    assert measured.returncode == 0, measured.stdout + measured.stderr
    assert list(clone.rounds) == ["clock.cpu.1.parquet"]


def configure_machines(clone: Clone, machines: str, point_s: str = "0.5") -> tuple[str, ...]:
    """Configure several machines in a clone; return the command's arguments."""
    (clone.path / "mine.yaml").write_text(
        kill_and_resume.PRESET.replace("rounds: 3", "rounds: 2").replace("0.5", point_s)
    )
    publish_small_node(clone)
    (clone.path / "several.yaml").write_text(f"preset: mine.yaml\npublished: others\nmachines:\n{machines}")
    return ("--configfile", "several.yaml")


def wait_for_round(clone: Clone, *machines: str, within_s: float = 200.0) -> str:
    """Wait until a machine has finished a round; return its name."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        for machine in machines:
            if clone.machine(machine).rounds:
                return machine
        time.sleep(0.2)
    raise AssertionError(clone.output)


TWO = {"clock.cpu.1.parquet", "clock.cpu.2.parquet"}


# Five rounds leave one look, and points that are measured in one round have no interval.
ONE_ROUND = """
rounds: 5
target: 0.5
point_s: 0.05
round_s: 30
max_samples: 6
experiments:
  clock:
    sweep:
      - rounds: 1
        grid: {backend: [llvm], threads: [1], chain: [1000000]}
  gemm:
    sweep:
      - rounds: 1
        cases: [{m: 64, n: 64, k: 64}, {m: 96, n: 96, k: 96}]
        grid: {dtype: [float32], backend: [numpy], threads: [1]}
"""


def measured_points(clone: Clone, number: int) -> list[tuple[str, str]]:
    """Return the experiments and parameters that were measured in a round, sorted."""
    tables = [parquet.read_table(path) for path in clone.results.glob(f"nodes/*/*.cpu.{number}.parquet")]
    return sorted({(row["experiment"], row["params"]) for table in tables for row in table.to_pylist()})


def test_undecided_points_and_anchors_are_measured_further(clone: Clone) -> None:
    """Every case is undecided at the first look."""
    publish_small_node(clone)
    keep_few_published_records(clone)
    (clone.path / "mine.yaml").write_text(ONE_ROUND)
    words = ("--config", "preset=mine.yaml", "published=others")
    words_of_looks = (*words, "until_decided=5", "--", "measured")
    head = clone.start("snakemake", "--cores", "all", *words_of_looks)
    while "clock.cpu.6.parquet" not in clone.rounds:
        assert head.poll() is None, clone.output
        time.sleep(0.05)
    clone.end(head, 9, whole_group=True)
    before = clone.rounds
    second = clone.snakemake(*words_of_looks)
    assert second.returncode == 0, second.stdout + second.stderr
    assert before.items() < clone.rounds.items(), "finished rounds are not measured again"
    assert (clone.results / "further/before-look-8/verdicts.json").exists()
    (record_path,) = clone.results.glob("nodes/*/node.json")
    record, look = read_json(record_path), read_json(clone.results / "further/look-8.json")
    assert [entry["rounds"] for entry in record["looks"]] == [5, 8]
    chosen = sorted((point["experiment"], point["params"]) for point in look["points"])
    assert all(measured_points(clone, number) == chosen for number in (6, 7, 8))
    assert len(measured_points(clone, 1)) == 3 > len(chosen) > 0

    rounds = clone.rounds
    record_path.write_text(json.dumps({**record, "ended_utc": "2026-01-01T00:00:00Z"}))
    new = {f"{name}.cpu.{number}.parquet" for name in ("clock", "gemm") for number in (21, 22)}
    later = clone.snakemake(*words, "sessions=2", "--", "measured")
    assert later.returncode == 0, later.stdout + later.stderr
    assert set(clone.rounds) == set(rounds) | new
    assert rounds.items() < clone.rounds.items()
    assert read_json(record_path)["jobs"]["gemm.cpu"]["rounds"][-2:] == [21, 22]


def test_several_machines_are_measured_despite_one_failure(clone: Clone) -> None:
    words = configure_machines(clone, "  amber: {}\n  basil: {}\n  cedar: {require: gpu}\n", point_s="0.05")
    once = clone.snakemake(*words, "--", "results/data/nodes.json")
    assert once.returncode == 2
    (message,) = [line for line in once.stderr.splitlines() if line.startswith("error:")]
    assert (
        "not measured: cedar: error: gpu profile: no GPU found" in message
        and "(the others are in the report" in message
    )
    before = {machine: clone.machine(machine).rounds for machine in ("amber", "basil")}
    assert all(set(rounds) == TWO for rounds in before.values())
    # The two nodes come from independent runs on one host.
    runs = [run for rounds in before.values() for run, _ in rounds.values()]
    assert len(set(runs)) == 4 and len({host for rounds in before.values() for _, host in rounds.values()}) == 1
    nodes_json = (clone.results / "data/nodes.json").read_text(encoding="utf-8")
    own = [node["id"] for node in json.loads(nodes_json) if node["source"] == "results/nodes"]
    assert len(set(own)) == 2 and len({kind_of_node(name) for name in own}) == 1
    assert not re.search("amber|basil|cedar", nodes_json), "names of machines"
    files = [path.read_bytes() for name in before for path in clone.machine(name).results.glob("nodes/*/*")]
    assert len(files) == 2 * 3
    assert not any(str(clone.path).encode() in content for content in files), "whole paths"

    again = clone.snakemake(*words, "--", "results/data/nodes.json")
    assert again.returncode == 2
    assert "measuring cedar" in again.stderr and "measuring amber" not in again.stderr
    assert {machine: clone.machine(machine).rounds for machine in before} == before


def test_ssh_machine_measures_on_after_disconnect(clone: Clone, tmp_path: Path) -> None:
    if lacks := sshd.missing_programs():
        skip_without(f"ssh cannot be tried here: {lacks}")
    there = tmp_path / "there"
    words = configure_machines(clone, f"  far: {{ssh: 127.0.0.1, folder: {there}, python: {sys.executable}}}\n")
    with sshd.ssh_server(tmp_path / "ssh") as command:
        clone.extra["SSH"] = command
        head = clone.start("snakemake", "--cores", "all", *words, "--", "measured")
        remote = Clone(there)
        while not remote.rounds:
            assert head.poll() is None, clone.output
            time.sleep(0.2)
        before = remote.rounds
        assert clone.end(head, 9, whole_group=True) == []
        again = clone.snakemake(*words, "--", "measured")
    assert again.returncode == 0, again.stdout + again.stderr
    rounds = clone.machine("far").rounds
    assert set(rounds) == TWO and before.items() <= rounds.items()
    (record,) = clone.machine("far").results.glob("nodes/*/node.json")
    head_of = clone.run("git", "rev-parse", "--short=12", "HEAD").stdout.strip()
    assert json.loads(record.read_text())["study"]["commit"] == head_of


def test_slurm_jobs_continue_after_head_is_killed(clone: Clone, tmp_path: Path) -> None:
    if lacks := slurm_cluster.missing_programs():
        skip_without(f"Slurm cannot be tried here: {lacks}")
    cores = len(os.sched_getaffinity(0))
    words = configure_machines(
        clone, f"  one: {{cores: {cores}}}\n  two: {{cores: {cores}, resources: {{slurm_partition: all}}}}\n"
    )
    with slurm_cluster.cluster(tmp_path / "slurm") as slurm:
        clone.extra["PATH"] = os.pathsep.join([slurm.env["PATH"].partition(os.pathsep)[0], clone.env["PATH"]])
        # Stop before the report, which is made in the same way as for one machine.
        words = ("--profile", "slurm", *words, "--", "results/data/nodes.json")
        head = clone.start("snakemake", *words)
        wait_for_round(clone, "one", "two")
        before = {name: clone.machine(name).rounds for name in ("one", "two")}
        jobs = slurm.run_command("squeue", "--noheader", "--format=%k").splitlines()
        assert sorted(job.rpartition("_")[2] for job in jobs) == ["one", "two"]
        head.kill()
        head.wait()
        again = clone.run("snakemake", *words)
        left = clone.run("snakemake", *words[:-2], "-n")
    assert again.returncode == 0, again.stdout + again.stderr
    for name, finished in before.items():
        rounds = clone.machine(name).rounds
        assert set(rounds) == TWO and finished.items() <= rounds.items(), again.stdout + again.stderr
    nodes = json.loads((clone.results / "data/nodes.json").read_text(encoding="utf-8"))
    own = [node["id"] for node in nodes if node["source"] == "results/nodes"]
    assert len(set(own)) == 2
    jobs = set(re.findall(r"^(?:local)?rule (\w+):", left.stdout + left.stderr, re.MULTILINE))
    assert {"judge", "report"} <= jobs and not {"machine", "gather"} & jobs


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="snakedeploy does not install on this Python")
def test_snakedeployed_study_measures(clone: Clone, tmp_path: Path) -> None:
    address, mine = "https://github.com/example/does-ai-need-a-gpu", Clone(tmp_path / "mine")
    # Make git fetch from the clone in place of GitHub.
    (tmp_path / "git").write_text(f'[url "{clone.path}"]\n\tinsteadOf = {address}\n[safe]\n\tdirectory = *\n')
    mine.extra |= {"GIT_CONFIG_GLOBAL": str(tmp_path / "git"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    clone.extra |= mine.extra
    deployed = clone.run("snakedeploy", "deploy-workflow", address, str(mine.path), "--branch", "HEAD")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    (mine.path / "mine.yaml").write_text(
        kill_and_resume.PRESET.replace("rounds: 3", "rounds: 1").replace("0.5", "0.05")
    )
    measured = mine.snakemake("--config", "preset=mine.yaml", "--", "measured")
    assert measured.returncode == 0, measured.stdout + measured.stderr
    assert set(mine.rounds) == {"clock.cpu.1.parquet"}
    planned = mine.snakemake("-n")
    assert planned.returncode == 0 and "report" in planned.stdout + planned.stderr


def build_container(tool: str, copy: Path) -> list[str]:
    """Build the container from a copy of the study; return the command to run it."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=copy, capture_output=True, text=True, check=False, timeout=1500)

    if tool == "apptainer":
        built = run(tool, "build", "study.sif", "workflow/container/apptainer.def")
        if "docker://" in built.stderr and "dial" in built.stderr:
            pytest.skip("apptainer reaches no image to begin with")
        assert built.returncode == 0, built.stderr[-2000:]
        return [tool, "run", str(copy / "study.sif")]
    base = re.search("^ARG BASE=(.+)$", (copy / "workflow/container/Dockerfile").read_text(), re.MULTILINE)
    assert base
    if run(tool, "image", "inspect", base[1]).returncode and run(tool, "pull", base[1]).returncode:
        pytest.skip(f"{tool} reaches no image to begin with")
    order = [tool, "build", "--build-arg", "EXTRAS=", "--tag", "study", "--file", "workflow/container/Dockerfile", "."]
    built = run(*order)
    assert built.returncode == 0, built.stderr[-2000:]
    return [tool, "run", "--rm", "--volume", f"{copy.parent}:{copy.parent}", "--workdir", str(copy.parent), "study"]


@pytest.mark.parametrize("tool", ["docker", "podman", "apptainer"])
def test_container_measures(clone: Clone, tmp_path: Path, tool: str) -> None:
    if not shutil.which(tool):
        pytest.skip(f"there is no {tool}")
    copy = tmp_path / "copy"
    copy.mkdir()
    assert clone.run("bash", "-c", f"git archive HEAD | tar -xC {shlex.quote(str(copy))}").returncode == 0
    (tmp_path / "mine.yaml").write_text(kill_and_resume.PRESET.replace("rounds: 3", "rounds: 1"))
    words = [*build_container(tool, copy), "--config", "preset=mine.yaml", "--", "measured"]
    measured = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
    assert measured.returncode == 0, measured.stdout + measured.stderr
    assert set(Clone(tmp_path).rounds) == {"clock.cpu.1.parquet"}
    (record,) = (tmp_path / "results").glob("nodes/*/node.json")
    assert clone.run("git", "rev-parse", "HEAD").stdout.startswith(json.loads(record.read_text())["study"]["commit"])
