"""Test that a commit is reported only for this tree, not for a repository around it or in GIT_* variables."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from contract import provenance
from contract.errors import StudyError
from contract.provenance import UNKNOWN, current_commit, run_git, short_commit


def fixture_git(at: Path, *words: str) -> str:
    mine = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false",
            "-c", "protocol.file.allow=always"]  # fmt: skip
    return subprocess.run(["git", *mine, *words], cwd=at, check=True, capture_output=True).stdout.decode().strip()


def make_repository(at: Path, text: str = "1") -> str:
    """Make a repository with one commit; return the commit."""
    at.mkdir(parents=True)
    fixture_git(at, "init", "-q")
    (at / "code").write_text(text, encoding="utf-8")
    (at / ".commit").write_text("$Format:%H$\n", encoding="utf-8")
    (at / ".gitattributes").write_text(".commit export-subst\n", encoding="utf-8")
    fixture_git(at, "add", ".")
    fixture_git(at, "commit", "-qm", text)
    return fixture_git(at, "rev-parse", "HEAD")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a checkout, with all GIT_* variables unset."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    make_repository(tmp_path / "study")
    return tmp_path / "study"


def extract_archive(study: Path, into: Path) -> Path:
    into.mkdir(parents=True)
    subprocess.run(f"git archive HEAD | tar -x -C '{into}'", shell=True, cwd=study, check=True)
    return into


def test_plus_marks_changes_in_this_tree_only(study: Path) -> None:
    head = fixture_git(study, "rev-parse", "HEAD")
    assert current_commit(study) == head
    (study / "not known to git").touch()
    assert current_commit(study) == head
    (study / "code").write_text("2, and longer", encoding="utf-8")
    assert current_commit(study) == f"{head}+"
    (study / ".git" / "index").write_bytes(b"broken")
    assert current_commit(study) == f"{head}+"
    assert (short_commit(f"{head}+"), short_commit(head, 7), short_commit(None)) == (f"{head[:12]}+", head[:7], "")
    assert short_commit(UNKNOWN) == UNKNOWN


def test_archive_keeps_its_commit(study: Path, tmp_path: Path) -> None:
    head = fixture_git(study, "rev-parse", "HEAD")
    assert current_commit(extract_archive(study, tmp_path / "alone")) == head
    make_repository(tmp_path / "around", "theirs")
    within = extract_archive(study, tmp_path / "around" / "study")
    assert current_commit(within) == head
    fixture_git(within, "init", "-q")
    assert current_commit(within) == head
    make_repository(tmp_path / "theirs", "theirs")
    (tmp_path / "theirs" / ".commit").unlink()
    subprocess.run(f"git archive HEAD | tar -x -C '{tmp_path / 'theirs'}'", shell=True, cwd=study, check=True)
    assert current_commit(tmp_path / "theirs") == head


@pytest.mark.parametrize("beside", [None, b"$Format:%H$\n", b"", b"\xff\xfe", b"abc\n"])
def test_folder_in_other_repository_has_no_commit(tmp_path: Path, study: Path, beside: bytes | None) -> None:
    """An installed package is in another repository if its virtual environment is inside that repository."""
    within = study / ".venv" / "site-packages"
    within.mkdir(parents=True)
    if beside is not None:
        (within / ".commit").write_bytes(beside)
    assert current_commit(within) == UNKNOWN
    (within / ".git").write_text("gitdir: nowhere\n", encoding="utf-8")
    assert current_commit(within) == UNKNOWN
    with pytest.raises(StudyError, match="not the top folder of a git checkout"):
        run_git(within, "status")


@pytest.mark.parametrize("names", [
    {"GIT_DIR": "theirs/.git"},
    {"GIT_DIR": "theirs/.git", "GIT_WORK_TREE": "theirs"},
    {"GIT_DIR": "theirs/.git", "GIT_WORK_TREE": "study"},
    {"GIT_COMMON_DIR": "theirs/.git"},
    {"GIT_INDEX_FILE": "theirs/.git/index"},
    {"GIT_OBJECT_DIRECTORY": "theirs/.git/objects"},
    {"GIT_CEILING_DIRECTORIES": "."},
])  # fmt: skip
def test_git_variables_are_ignored(
    study: Path, tmp_path: Path, names: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = fixture_git(study, "rev-parse", "HEAD")
    make_repository(tmp_path / "theirs", "theirs")
    copy = extract_archive(study, tmp_path / "theirs" / "copy")
    (copy / ".commit").unlink()
    for name, value in names.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    assert current_commit(study) == head
    assert current_commit(copy) == UNKNOWN


def test_all_kinds_of_checkout_have_a_commit(study: Path, tmp_path: Path) -> None:
    head = fixture_git(study, "rev-parse", "HEAD")
    fixture_git(study, "worktree", "add", "-q", str(tmp_path / "tree"))
    fixture_git(tmp_path, "clone", "-q", "--depth", "1", f"file://{study}", "shallow")
    around = make_repository(tmp_path / "around")
    fixture_git(tmp_path / "around", "submodule", "add", "-q", str(study), "sub")
    (tmp_path / "link").symlink_to(study)
    for place in ("tree", "shallow", "around/sub", "link"):
        assert current_commit(tmp_path / place) == head, place
    assert current_commit(tmp_path / "around").startswith(around)


def test_failing_git_means_no_commit(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_repository(tmp_path / "other")
    shutil.rmtree(tmp_path / "other" / ".git" / "refs")
    assert current_commit(tmp_path / "other") == UNKNOWN
    monkeypatch.setenv("PATH", str(tmp_path))
    assert current_commit(study) == UNKNOWN
    refusing = tmp_path / "git"
    refusing.write_text("#!/bin/sh\necho 'fatal: detected dubious ownership in repository' >&2\nexit 128\n")
    refusing.chmod(0o755)
    with pytest.raises(StudyError, match=r"not the top folder of a git checkout \(fatal: detected dubious ownership"):
        run_git(study, "status")
    assert current_commit(study) == UNKNOWN


def test_version_comes_from_this_tree() -> None:
    declared = (provenance.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{provenance.study_version()}"' in declared
