"""Optional renderer: build the same sources as a Quarto website."""

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

# First Quarto version that writes typst as the templates expect it.
NEEDED = (1, 9)


def find_quarto() -> tuple[str | None, str]:
    """Return the path to the quarto program, None if it is not found, and a text that lists the places searched."""
    named = os.environ.get("QUARTO_PATH", "")
    # pip installs quarto-cli's program in this folder, which PATH may lack.
    scripts = sysconfig.get_path("scripts")
    places = f"QUARTO_PATH ({named or 'not set'}), then {scripts}, then PATH"
    if named:
        # QUARTO_PATH may name the program or its folder, as in Quarto's own tools.
        place = Path(named)
        program = shutil.which(str(place / "quarto" if place.is_dir() else place))
        if program:
            return program, places
    return shutil.which("quarto", path=scripts) or shutil.which("quarto"), places


def version(program: str) -> str:
    """Return the output from `quarto --version`; '' if it fails."""
    try:
        result = subprocess.run(
            [program, "--version"], capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()


def is_new_enough(version_text: str) -> bool:
    """True if the version is at least NEEDED."""
    numbers = re.match(r"(\d+)\.(\d+)", version_text)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= NEEDED


def render(folder: Path, program: str, names: Sequence[str]) -> None:
    """Render the website project in `folder`, each page beside its source.

    Raises StudyError with Quarto's error output.
    """
    ran = child_processes.run_program(
        [program, "render", ".", "--to", "html", "--no-execute"],
        cwd=folder,
        # Keep colour codes out: the output goes into an error message.
        env={**os.environ, "NO_COLOR": "1"},
    )
    site = folder / "_site"
    lacking = [name for name in names if not (site / f"{name}.html").is_file()]
    if ran.returncode or lacking:
        words = list(filter(None, map(str.strip, (ran.stderr or ran.stdout).splitlines())))
        # The message starts at the first line with an error, because a stack trace may follow. Without such a line, it
        # has the last lines.
        fault = next((at for at, line in enumerate(words) if re.search(r"\berror\b", line, re.IGNORECASE)), -5)
        message = " / ".join(words[fault:][:5]) or "no output"
        remove_leftovers(folder)
        raise StudyError(f"quarto render failed (exit {ran.returncode}): {message}")
    for path in sorted(site.rglob("*")):
        place = folder / path.relative_to(site)
        # Figures and other resources that Quarto copied into the site are in `folder` already, so only new files are
        # moved.
        if path.is_file() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
    remove_leftovers(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove Quarto's temporary files."""
    for debris in (folder / "_site", folder / ".quarto"):
        shutil.rmtree(debris, ignore_errors=True)
    (folder / ".gitignore").unlink(missing_ok=True)
