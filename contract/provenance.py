"""Version and commit of this code, ignoring any repository that encloses it."""

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
# A commit's hash is a SHA-1, or a SHA-256 in newer repositories.
_HASH = re.compile("[0-9a-f]{40}([0-9a-f]{24})?")


def current_commit(root: Path = ROOT) -> str:
    """Return the commit of the files in `root`, with `+` if tracked files differ from it or cannot be compared.

    The commit comes from `.commit`, which `git archive` fills in, or from git if `root` is a checkout. Otherwise it is
    UNKNOWN.
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
    """Shorten a commit to `digits`, and keep its `+`; return '' for None."""
    return re.sub(rf"^([0-9a-f]{{{digits}}})[0-9a-f]*", r"\1", commit or "")


def run_git(root: Path, *words: str, timeout_s: float = 60) -> str:
    """Return git's output in the checkout with top folder `root`, ignoring GIT_DIR and similar variables.

    Raises StudyError if `root` is no such folder, or git is missing, fails or takes longer than `timeout_s`.
    """
    # Drop GIT_DIR and similar variables, which git exports to hooks. Keep GIT_CONFIG*, which may set safe.directory.
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
        lines = (getattr(failure, "stderr", None) or b"").decode("utf-8", "replace").strip().splitlines()
        refusal = lines[0] if lines else str(failure)
    raise StudyError(f"{root}: is not the top folder of a git checkout ({refusal})")


def study_version() -> str:
    """Return the version from this tree's pyproject.toml, else from the installed package, else UNKNOWN."""
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
