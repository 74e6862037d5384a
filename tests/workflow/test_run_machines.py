"""What the settings of several machines come to: without measuring."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workflow.project_clones import ROOT
from workflow.run_machines import TRIES, Machines

RUN = {"preset": "quick", "budget_min": 0, "require": "any", "seed": 3, "models": ""}


def machines(results: Path, **settings: Any) -> Machines:
    return Machines({**RUN, "machines": settings}, str(results), lambda preset: {"quick": 20.0, "full": 75.0}[preset])


def test_what_a_machine_does_not_set_is_as_the_run_has_it(tmp_path: Path) -> None:
    made = machines(tmp_path, one=None, two={"preset": "full", "require": "gpu", "cores": 8})
    assert {"preset=quick", "budget_min=0", "require=any", "seed=3"} < set(made.config_words("one"))
    assert {"preset=full", "budget_min=0", "require=gpu", "seed=3"} < set(made.config_words("two"))
    asked = [made.cores(*of, here=2) for of in (("one", 1), ("two", TRIES), ("two", TRIES + 1))]
    assert asked == [2, 8, 1]


def test_the_workflow_on_a_machine_measures_itself_and_no_others(tmp_path: Path) -> None:
    # An empty value is none; a mapping would be put together with what is set there.
    wanted = {"machines=", "published=", "previous=", "results=results", "models="}
    assert wanted < set(machines(tmp_path, one={}).config_words("one"))


def test_files_of_ones_own_are_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with_networks = Machines({**RUN, "models": "mine.yaml", "machines": {"one": {}}}, str(tmp_path), lambda _: 20.0)
    assert f"models={tmp_path.resolve() / 'mine.yaml'}" in with_networks.config_words("one")
    made = machines(tmp_path, one={"preset": "mine.yaml"}, two={})
    assert f"preset={tmp_path.resolve() / 'mine.yaml'}" in made.config_words("one")
    assert "preset=there.yaml" in made.config_words("one", preset="there.yaml")
    assert (made.preset_files("one"), made.preset_files("two")) == (["mine.yaml"], [])


def test_a_job_gets_the_time_that_it_is_given_or_its_budget_and_half_of_it_again(tmp_path: Path) -> None:
    made = machines(
        tmp_path, own={"resources": {"runtime": 5}}, quick={}, full={"preset": "full"}, ten={"budget_min": 10}
    )
    assert [made.runtime_min(name) for name in made.settings] == [5, 45, 128, 30]


def test_machines_may_ask_a_scheduler_for_different_things(tmp_path: Path) -> None:
    class Wildcards:
        machine = "two"

    made = machines(
        tmp_path, one={"resources": {"gres": "gpu:1"}}, two={"resources": {"slurm_partition": "a", "runtime": 9}}
    )
    assert {name: ask(Wildcards) for name, ask in made.resources().items()} == {"gres": None, "slurm_partition": "a"}


def test_each_machine_is_of_one_rule(tmp_path: Path) -> None:
    made = machines(tmp_path, far={"ssh": "me@far"}, near={}, next={"ssh": "host"})
    assert (made.name_pattern(ssh=True), made.name_pattern(ssh=False)) == ("far|next", "near")
    assert not re.match(machines(tmp_path, near={}).name_pattern(ssh=True), "")


def test_what_failed_is_asked_for_again_and_nothing_else(tmp_path: Path) -> None:
    made = machines(tmp_path, good={}, bad={}, new={})
    made.request_measurements()
    before = {name: Path(made.file(name, "asked")).read_text(encoding="utf-8") for name in made.settings}
    Path(made.file("good", "ended")).write_text("measured\n", encoding="utf-8")
    Path(made.file("bad", "ended")).write_text("failed: error: no GPU found\n", encoding="utf-8")
    assert made.failures() == {"bad": "error: no GPU found"}
    made.request_measurements()
    after = {name: Path(made.file(name, "asked")).read_text(encoding="utf-8") for name in made.settings}
    assert {name for name in before if after[name] != before[name]} == {"bad"}


def test_snakemake_s_linter_misses_nothing_but_its_own_way_to_install() -> None:
    order = [sys.executable, "-m", "snakemake", "--lint"]
    said = subprocess.run(order, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    titles = set(re.findall(r"^    \* (.+):$", said.stdout + said.stderr, re.MULTILINE))
    # The study is installed by pip, or is in a container itself.
    assert titles == {"Specify a conda environment or container for each rule."}
