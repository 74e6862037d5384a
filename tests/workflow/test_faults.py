"""Test one-line errors: typos, full and read-only disks, missing files."""

from __future__ import annotations

import pytest

from tests.workflow import kill_and_resume
from tests.workflow.conftest import mount_tmpfs
from tests.workflow.project_clones import Clone, clone_into


@pytest.fixture(scope="module")
def unmeasured_clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Make a clone for tests that measure nothing."""
    clone = clone_into(tmp_path_factory.mktemp("untouched") / "a clone")
    (clone.path / "small.yaml").write_text(kill_and_resume.PRESET.replace("- grid", "- value: 1\n        grid"))
    (clone.path / "typo.yaml").write_text(kill_and_resume.PRESET.replace("llvm", "lvm"))
    (clone.path / "option.yaml").write_text("machines: {a: {ssh: -oProxyCommand=touch}}")
    (clone.path / "machine.yaml").write_text("machines: {a: {preset: ~nobody-here/x.yaml}}")
    clone.extra["HOME"] = str(clone.path / "home")
    (clone.path / "occupied").write_text("a file")
    return clone


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("prset=quick", "configuration: prset: unknown key. Allowed: preset,"),
        ("budget_min=nan", "configuration: budget_min: not a finite number"),
        (
            "preset=small.yaml budget_min=0.01",
            "a budget of 0.01 min is too small: the points that comparisons require",
        ),
        ("preset=fulll", "no preset 'fulll'. Presets: full, hour, quick"),
        ("preset=typo.yaml", "typo.yaml, line 10: experiments.clock.sweep.0.grid.backend.0: 'lvm'"),
        ("previous=typo.yaml", "typo.yaml, line 2: not JSON"),
        ("results=a{b}", "configuration: results: "),
        ("published=occupied", "occupied: holds no node"),
        ("--configfile option.yaml", "configuration: machines.a.ssh: "),
        ("results=occupied/results", "occupied/results: cannot be written"),
        ("published=~/none", "HOME/none: holds no node"),
        ("--configfile machine.yaml", "~nobody-here/x.yaml: no home folder"),
        ("--cores 0", "--cores 0: measuring needs at least 1"),
    ],
)
def test_mistakes_are_reported_before_measuring(unmeasured_clone: Clone, words: str, error: str) -> None:
    refused = unmeasured_clone.snakemake(*([] if words.startswith("--") else ["--config"]), *words.split())
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith(f"error: {error}".replace("HOME", unmeasured_clone.extra["HOME"]))
    assert "Traceback" not in refused.stderr
    assert not (unmeasured_clone.path / "results").exists()


def test_gpu_profile_stops_without_gpu(unmeasured_clone: Clone) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    refused = unmeasured_clone.snakemake("--profile", "gpu", "--config", "results=of-gpu")
    assert refused.returncode != 0
    (line,) = [line for line in refused.stderr.splitlines() if line.startswith("error:")]
    for words in ("no GPU found", "NVML: ", "Found: cpu", "snakemake --cores all --config preset="):
        assert words in line
    assert "Traceback" not in refused.stderr
    assert not [*unmeasured_clone.path.glob("of-gpu/nodes/*/*.parquet")]


@pytest.mark.parametrize(("options", "error"), [("ro", "cannot be written"), ("size=1m", "a run needs 300 MB")])
def test_unusable_results_folder_is_one_error(unmeasured_clone: Clone, options: str, error: str) -> None:
    folder = f"mounted-{options.partition('=')[0]}"
    with mount_tmpfs(unmeasured_clone.path / folder, options) as done:
        if not done:
            pytest.skip("mounting a small file system needs root")
        refused = unmeasured_clone.snakemake("--config", f"results={folder}/results")
    assert refused.returncode != 0
    assert f"error: {folder}/results: " in refused.stderr and error in refused.stderr
    assert "Traceback" not in refused.stderr
