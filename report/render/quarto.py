"""Quarto, where it is installed: the same index.qmd as a project, by `quarto render`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from contract import ending
from contract.errors import StudyError
from report.render.packed import pack
from report.render.pandoc import FONTS, STANDARD

NEEDED = (1, 9)
# The project's settings: where it puts what it makes, and the line that asks for a standard of the PDF.
_SETTINGS, _MADE = "_quarto.yml", "_output"
_ASKED = re.compile(rf"^ *pdf-standard: *{STANDARD}\n", flags=re.MULTILINE)


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


def render(folder: Path, program: str) -> str:
    """Turn the project in `folder` into index.html and report.pdf beside its index.qmd.

    Returns the standard that the PDF conforms to, '' if it could not be met. Raises StudyError
    with Quarto's own last words if it fails.
    """
    standard = STANDARD
    _render(folder, program, "html", "index.html", "index.html")
    try:
        _render(folder, program, "typst", "index.pdf", "report.pdf")
    except StudyError as refused:
        # Perhaps the standard refuses what data brought along: once more without it.
        settings = folder / _SETTINGS
        asked = settings.read_text(encoding="utf-8")
        settings.write_text(_ASKED.sub("", asked), encoding="utf-8")
        try:
            _render(folder, program, "typst", "index.pdf", "report.pdf")
        finally:
            settings.write_text(asked, encoding="utf-8")
        print(f"note: report.pdf does not conform to PDF/{STANDARD.upper()}: {refused}", file=sys.stderr)
        standard = ""
    made = folder / "report.pdf"
    made.write_bytes(pack(made.read_bytes()))
    shutil.rmtree(folder / _MADE, ignore_errors=True)
    # Quarto writes one into every project that it renders.
    (folder / ".gitignore").unlink(missing_ok=True)
    return standard


def _render(folder: Path, program: str, target: str, made: str, wanted: str) -> None:
    """Render the project to one format and move what came of it into `folder`. Raises StudyError."""
    ran = ending.run(
        [program, "render", ".", "--to", target, "--no-execute"],
        cwd=folder,
        # Quarto's typst has fonts of its own and those of the system; the signs of the verdicts need ours.
        env={**os.environ, "TYPST_FONT_PATHS": str(FONTS)},
    )
    if ran.returncode or not (folder / _MADE / made).is_file():
        words = (ran.stderr or ran.stdout).strip().splitlines()[-5:]
        told = " / ".join(words) or "it said nothing"
        raise StudyError(
            f"quarto render --to {target} failed (exit {ran.returncode}): {told}. "
            "Use --renderer pandoc, or mend the Quarto installation"
        )
    (folder / _MADE / made).replace(folder / wanted)
