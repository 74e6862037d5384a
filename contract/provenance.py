"""Version and commit of this code, never of a repository that merely encloses it."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

from contract.errors import StudyError

NAME = "does-ai-need-a-gpu"
ROOT = Path(__file__).resolve().parents[1]
UNKNOWN = "unknown"
# A SHA-1, or the SHA-256 of a repository of the newer kind.
_HASH = re.compile("[0-9a-f]{40}([0-9a-f]{24})?")


def current_commit(root: Path = ROOT) -> str:
    """The commit of the files in `root`, with `+` if tracked files differ from it or could not be compared.

    `git archive` writes it into `.commit`; else git is asked, where `root` is the top of a checkout. UNKNOWN elsewhere.
    """
    try:
        written = (root / ".commit").read_bytes().decode("ascii").strip()
    except (OSError, ValueError):
        written = ""
    if _HASH.fullmatch(written):
        return written
    try:
        head = run_git(root, "rev-parse", "--verify", "HEAD").strip()
    except StudyError:
        return UNKNOWN
    try:
        changed = run_git(root, "status", "--porcelain", "--untracked-files=no")
    except StudyError:
        changed = "?"
    return head + ("+" if changed else "")


def short_commit(commit: str | None, digits: int = 12) -> str:
    """The first digits of a commit, its `+` kept; empty for None."""
    return re.sub(rf"^([0-9a-f]{{{digits}}})[0-9a-f]*", r"\1", commit or "")


def run_git(root: Path, *words: str, timeout_s: float = 60) -> str:
    """Git's answer about the checkout whose top folder is `root`, whatever repository the environment names.

    Raises StudyError if `root` is no such folder, or git is missing, refuses or takes longer than `timeout_s`.
    """
    # A hook exports GIT_DIR and others of the repository that runs it. What allows a folder (safe.directory) stays.
    ours = {name: value for name, value in os.environ.items() if not re.match("GIT_(?!CONFIG)", name)}

    def answer(*words: str) -> bytes:
        command = ["git", "--no-optional-locks", *words]
        return subprocess.run(command, cwd=root, env=ours, capture_output=True, check=True, timeout=timeout_s).stdout

    try:
        top = Path(os.fsdecode(answer("rev-parse", "--show-toplevel").removesuffix(b"\n")))
        if top.samefile(root):
            return answer(*words).decode("utf-8", "replace")
        refusal = f"belongs to the checkout {top}"
    except (OSError, subprocess.SubprocessError) as failure:
        said = (getattr(failure, "stderr", None) or b"").decode("utf-8", "replace").strip().splitlines()
        refusal = said[0] if said else str(failure)
    raise StudyError(f"{root}: is no git checkout of its own ({refusal})")


def study_version() -> str:
    """The version in this tree's pyproject.toml, else that of the installed package; UNKNOWN without either."""
    try:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        if project["name"] == NAME:
            return str(project["version"])
    except (OSError, ValueError, KeyError):
        pass
    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:
        return UNKNOWN
