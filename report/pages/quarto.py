"""Quarto, where it is installed: the same index.qmd as a project, by `quarto render`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from contract import ending
from contract.errors import StudyError
from report.pages.packed import pack
from report.pages.pandoc import FONTS, STANDARD

NEEDED = (1, 9)
# The project's settings, those of this machine beside them, and the line that asks for a standard of the PDF.
_SETTINGS, _LOCAL = "_quarto.yml", "_quarto.yml.local"
_ASKED = re.compile(rf"^ *pdf-standard: *{STANDARD}\n", flags=re.MULTILINE)


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
    _render(folder, program, "html", "index.html")
    try:
        _render(folder, program, "typst", "report.pdf")
    except StudyError as refused:
        # Perhaps the standard refuses what data brought along: once more without it.
        settings = folder / _SETTINGS
        asked = settings.read_text(encoding="utf-8")
        settings.write_text(_ASKED.sub("", asked), encoding="utf-8")
        try:
            _render(folder, program, "typst", "report.pdf")
        finally:
            settings.write_text(asked, encoding="utf-8")
        print(f"note: report.pdf does not conform to PDF/{STANDARD.upper()}: {refused}", file=sys.stderr)
        standard = ""
    made = folder / "report.pdf"
    made.write_bytes(pack(made.read_bytes()))
    return standard


def clear(folder: Path) -> None:
    """Take away what was needed to run Quarto and what it leaves beside what it makes."""
    for debris in (folder / "index_files", folder / ".quarto"):
        shutil.rmtree(debris, ignore_errors=True)
    for name in ("index.typ", ".gitignore", _LOCAL):
        (folder / name).unlink(missing_ok=True)


def _render(folder: Path, program: str, target: str, made: str) -> None:
    """Render the project to one format, as `folder`/`made`. Raises StudyError."""
    # Quarto's typst has fonts of its own and those of the system; the signs of the verdicts need ours. Quarto takes
    # an absolute path for one within the project, and no notice of -M; TYPST_FONT_PATHS would replace its own.
    (folder / _LOCAL).write_text(json.dumps({"font-paths": [os.path.relpath(FONTS, folder)]}), encoding="utf-8")
    ran = ending.run(
        [program, "render", ".", "--to", target, "--no-execute"],
        cwd=folder,
        # Its words are passed on where colours would be noise.
        env={**os.environ, "NO_COLOR": "1"},
    )
    if ran.returncode or not (folder / made).is_file():
        words = list(filter(None, map(str.strip, (ran.stderr or ran.stdout).splitlines())))
        # From what went wrong on, for a stack may follow; else the last that it said.
        fault = next((at for at, line in enumerate(words) if re.search(r"\berror\b", line, re.IGNORECASE)), -5)
        told = " / ".join(words[fault:][:5]) or "it said nothing"
        raise StudyError(f"quarto render --to {target} failed (exit {ran.returncode}): {told}")
