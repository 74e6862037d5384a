"""Test the settings for several machines, without measuring."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.files import write_json
from contract.node import write_node
from tests.experiments.test_node import RECORD as NODE
from tests.workflow.project_clones import ROOT
from workflow.run_machines import TRIES, Machines

RUN = {
    "preset": "quick",
    "budget_min": 0,
    "require": "any",
    "repeat_share": 0.25,
    "until_decided": 0,
    "sessions": 1,
    "seed": 3,
    "models": "",
}


def make_machines(results: Path, **settings: Any) -> Machines:
    return Machines({**RUN, "machines": settings}, str(results), lambda preset: {"quick": 20.0, "full": 75.0}[preset])


def test_machine_inherits_settings_from_run(tmp_path: Path) -> None:
    machines = make_machines(tmp_path, one=None, two={"preset": "full", "require": "gpu", "cores": 8})
    assert {"preset=quick", "budget_min=0", "require=any", "seed=3", "repeat_share=0.25"} < set(
        machines.config_words("one")
    )
    assert {"preset=full", "budget_min=0", "require=gpu", "seed=3"} < set(machines.config_words("two"))
    cores = [machines.cores(*of, here=2) for of in (("one", 1), ("two", TRIES), ("two", TRIES + 1))]
    assert cores == [2, 8, 1]


def test_remote_workflow_measures_only_itself(tmp_path: Path) -> None:
    # `machines=` with an empty value stands for no machines. An empty mapping would not do, because Snakemake would
    # merge it with the remote settings.
    wanted = {"machines=", "published=", "previous=", "results=results", "models="}
    assert wanted < set(make_machines(tmp_path, one={}).config_words("one"))


def test_user_files_get_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with_networks = Machines({**RUN, "models": "mine.yaml", "machines": {"one": {}}}, str(tmp_path), lambda _: 20.0)
    assert f"models={tmp_path.resolve() / 'mine.yaml'}" in with_networks.config_words("one")
    machines = make_machines(tmp_path, one={"preset": "mine.yaml"}, two={})
    assert f"preset={tmp_path.resolve() / 'mine.yaml'}" in machines.config_words("one")
    assert "preset=there.yaml" in machines.config_words("one", preset="there.yaml")
    assert (machines.preset_files("one"), machines.preset_files("two")) == (["mine.yaml"], [])


def test_job_runtime_is_set_or_follows_budget(tmp_path: Path) -> None:
    machines = make_machines(
        tmp_path, own={"resources": {"runtime": 5}}, quick={}, full={"preset": "full"}, ten={"budget_min": 10}
    )
    assert [machines.runtime_min(name) for name in machines.settings] == [5, 45, 128, 30]


def test_machines_request_their_own_resources(tmp_path: Path) -> None:
    class Wildcards:
        machine = "two"

    machines = make_machines(
        tmp_path, one={"resources": {"gres": "gpu:1"}}, two={"resources": {"slurm_partition": "a", "runtime": 9}}
    )
    assert {name: ask(Wildcards) for name, ask in machines.resources().items()} == {
        "gres": None,
        "slurm_partition": "a",
    }


def test_each_machine_matches_one_rule(tmp_path: Path) -> None:
    machines = make_machines(tmp_path, far={"ssh": "me@far"}, near={}, next={"ssh": "host"})
    assert (machines.name_pattern(ssh=True), machines.name_pattern(ssh=False)) == ("far|next", "near")
    assert not re.match(make_machines(tmp_path, near={}).name_pattern(ssh=True), "")


def test_only_failed_machines_are_requested_again(tmp_path: Path) -> None:
    machines = make_machines(tmp_path, good={}, bad={}, new={})
    machines.request_measurements()
    before = {name: Path(machines.file(name, "asked")).read_text(encoding="utf-8") for name in machines.settings}
    Path(machines.file("good", "ended")).write_text("measured\n", encoding="utf-8")
    Path(machines.file("bad", "ended")).write_text("failed: error: no GPU found\n", encoding="utf-8")
    assert machines.failures() == {"bad": "error: no GPU found"}
    machines.request_measurements()
    after = {name: Path(machines.file(name, "asked")).read_text(encoding="utf-8") for name in machines.settings}
    assert {name for name in before if after[name] != before[name]} == {"bad"}


@pytest.mark.parametrize(
    ("settings", "ended", "due"),
    [
        ({}, "2026-01-02T08:00:00Z", False),
        ({"sessions": 2}, "2026-01-02T08:00:00Z", True),
        ({"sessions": 2}, "2999-01-02T08:00:00Z", False),
        ({"until_decided": 5}, "2999-01-02T08:00:00Z", True),
    ],
)
def test_measured_machine_is_requested_again_for_further_rounds(
    tmp_path: Path, settings: dict[str, Any], ended: str, due: bool
) -> None:
    machines = replace(make_machines(tmp_path, one={}), config={**RUN, **settings, "machines": {"one": {}}})
    assert not machines.further_rounds_due("one"), "it is not measured yet"
    results = Path(machines.file("one", "results"))
    write_node(results / "nodes" / NODE["id"] / "node.json", {**NODE, "ended_utc": ended})
    assert machines.further_rounds_due("one") == due
    for name in ("look-5", "session-2"):
        write_json(results / "further" / f"{name}.json", {})
    assert not machines.further_rounds_due("one")


def test_snakemake_lint_reports_only_missing_conda() -> None:
    order = [sys.executable, "-m", "snakemake", "--lint"]
    process = subprocess.run(order, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    titles = set(re.findall(r"^    \* (.+):$", process.stdout + process.stderr, re.MULTILINE))
    # This one complaint is expected. No rule needs a conda environment or container, because the study is installed by
    # pip, or runs in a container as a whole.
    assert titles == {"Specify a conda environment or container for each rule."}
