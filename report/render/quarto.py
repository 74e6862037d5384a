"""Quarto, where it is installed: the same index.qmd, by `quarto render`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from contract.errors import StudyError

NEEDED = (1, 9)


def find() -> tuple[str | None, str]:
    """The quarto program, or None; and where it was looked for, in words."""
    named = os.environ.get("QUARTO_PATH", "")
    looked = f"QUARTO_PATH ({named or 'not set'}), then PATH"
    if named:
        # As Quarto's own tools do: the variable names the program, or the folder that holds it.
        place = Path(named)
        program = shutil.which(str(place / "quarto" if place.is_dir() else place))
        if program:
            return program, looked
    return shutil.which("quarto"), looked


def version(program: str) -> str:
    """What `quarto --version` says; '' if it does not run."""
    try:
        asked = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout.strip()


def new_enough(told: str) -> bool:
    """Whether a version is at least the one whose typst output this project was written for."""
    numbers = re.match(r"(\d+)\.(\d+)", told)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= NEEDED


def render(folder: Path, program: str) -> None:
    """Turn `folder`/index.qmd into index.html and report.pdf beside it.

    Raises StudyError with Quarto's own last words if it fails.
    """
    for target, made, wanted in (("html", "index.html", "index.html"), ("typst", "index.pdf", "report.pdf")):
        ran = subprocess.run(
            [program, "render", "index.qmd", "--to", target, "--no-execute"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode or not (folder / made).is_file():
            words = (ran.stderr or ran.stdout).strip().splitlines()[-5:]
            told = " / ".join(words) or "it said nothing"
            raise StudyError(
                f"quarto render --to {target} failed (exit {ran.returncode}): {told}. "
                "Use --renderer pandoc, or mend the Quarto installation"
            )
        if made != wanted:
            (folder / made).replace(folder / wanted)
