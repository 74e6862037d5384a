"""Quarto, where it is installed: the same sources as a website project, by `quarto render`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from contract import child_processes
from contract.errors import StudyError

NEEDED = (1, 9)


def find() -> tuple[str | None, str]:
    """The quarto program, or None; and where it was looked for, in words."""
    named = os.environ.get("QUARTO_PATH", "")
    # Where pip puts the program of the package quarto-cli: an environment need not be on PATH to be used.
    beside = sysconfig.get_path("scripts")
    looked = f"QUARTO_PATH ({named or 'not set'}), then {beside}, then PATH"
    if named:
        # As Quarto's own tools do: the variable names the program, or the folder that holds it.
        place = Path(named)
        program = shutil.which(str(place / "quarto" if place.is_dir() else place))
        if program:
            return program, looked
    return shutil.which("quarto", path=beside) or shutil.which("quarto"), looked


def version(program: str) -> str:
    """What `quarto --version` says; '' if it does not run."""
    try:
        asked = subprocess.run(
            [program, "--version"], capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout.strip()


def new_enough(told: str) -> bool:
    """Whether a version is at least the one whose typst output this project was written for."""
    numbers = re.match(r"(\d+)\.(\d+)", told)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= NEEDED


def render(folder: Path, program: str, names: Sequence[str]) -> None:
    """Turn the website project in `folder` into pages beside their sources.

    Raises StudyError with Quarto's own last words if it fails.
    """
    ran = child_processes.run(
        [program, "render", ".", "--to", "html", "--no-execute"],
        cwd=folder,
        # Its words are passed on where colours would be noise.
        env={**os.environ, "NO_COLOR": "1"},
    )
    site = folder / "_site"
    lacking = [name for name in names if not (site / f"{name}.html").is_file()]
    if ran.returncode or lacking:
        words = list(filter(None, map(str.strip, (ran.stderr or ran.stdout).splitlines())))
        # From what went wrong on, for a stack may follow; else the last that it said.
        fault = next((at for at, line in enumerate(words) if re.search(r"\berror\b", line, re.IGNORECASE)), -5)
        told = " / ".join(words[fault:][:5]) or "it said nothing"
        clear(folder)
        raise StudyError(f"quarto render failed (exit {ran.returncode}): {told}")
    for path in sorted(site.rglob("*")):
        place = folder / path.relative_to(site)
        # What it copied lies there already.
        if path.is_file() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
    clear(folder)


def clear(folder: Path) -> None:
    """Take away what Quarto leaves beside what it makes."""
    for debris in (folder / "_site", folder / ".quarto"):
        shutil.rmtree(debris, ignore_errors=True)
    (folder / ".gitignore").unlink(missing_ok=True)
