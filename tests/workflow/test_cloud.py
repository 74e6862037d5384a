"""Test that SkyPilot reads the cloud's files, and that their setup and run measure from a clean folder."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from contract.node_pack import read_pack
from tests.workflow.project_clones import ROOT, Clone, overlaid_python

CLOUD = ROOT / "workflow/cloud"
# Reads a file as `sky` does; prints its GPUs, and whether it is for spot machines.
PARSE = """
import sys, yaml, sky
task = sky.Task.from_yaml_config(yaml.safe_load(open(sys.argv[1])), env_overrides=[("BUCKET", "a-bucket")])
for one in task.resources:
    print(*one.accelerators, one.use_spot, one.autostop_config is not None and one.autostop_config.enabled)
print(*task.storage_mounts)
"""


def read_task(name: str) -> dict[str, Any]:
    return dict(YAML(typ="safe").load((CLOUD / name).read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def skypilot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python with SkyPilot, whose requirements exclude some of the study's pins."""
    python = overlaid_python(tmp_path_factory.mktemp("sky") / "python", {})
    words = [python, "-m", "pip", "install", "--quiet", "skypilot==0.14.1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return python


@pytest.mark.slow
def test_skypilot_reads_both_files(skypilot: Path, tmp_path: Path) -> None:
    def parse(name: str) -> list[str]:
        done = subprocess.run(
            [skypilot, "-c", PARSE, str(CLOUD / name)], capture_output=True, text=True, check=False, cwd=ROOT,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    *cards, mounts = parse("sky.yaml")
    assert {"T4 False True", "H100 False True"} <= {*cards} and mounts == ""
    assert parse("spot.yaml") == ["L4 True False", "/saved"]


def test_both_files_measure_alike() -> None:
    sky, spot = read_task("sky.yaml"), read_task("spot.yaml")
    assert (sky["setup"], sky["run"]) == (spot["setup"], spot["run"])
    assert {name: sky["envs"][name] for name in ("PRESET", "REQUIRE", "MINUTES")} == {
        name: spot["envs"][name] for name in ("PRESET", "REQUIRE", "MINUTES")
    }
    assert spot["envs"]["SAVED"] in spot["file_mounts"]


@pytest.mark.slow
def test_setup_and_run_leave_a_pack_where_it_stays(clone: Clone, tmp_path: Path) -> None:
    task = read_task("sky.yaml")
    python = overlaid_python(tmp_path / "python", {})
    preset = (ROOT / "tests/workflow/notebook.yaml").read_text(encoding="utf-8")
    (clone.path / "mine.yaml").write_text(preset.replace("rounds: 2", "rounds: 1"))
    clone.extra |= {name: str(value) for name, value in task["envs"].items()}
    clone.extra |= {
        "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin", "PRESET": "mine.yaml", "REQUIRE": "any",
        "SAVED": str(tmp_path / "saved"), "HOME": str(tmp_path),
    }  # fmt: skip
    for command in (task["setup"], task["run"]):
        done = clone.run("bash", "-c", command)
        assert done.returncode == 0, done.stdout + done.stderr
    (pack,) = (tmp_path / "saved").glob("*.zip")
    assert {name.partition(".")[0] for name in read_pack(pack).files} == {"clock", "gemm", "node"}
