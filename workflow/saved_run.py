"""Run the workflow on a machine that may vanish, and save its results in a folder that stays.

    python -m workflow.saved_run FOLDER --profile gpu --config preset=rented

Before the run, results that FOLDER has from an earlier machine are copied to results/, so that the run continues from
them. During the run, each finished round is copied to FOLDER. The arguments after FOLDER go to `snakemake --cores all`.
FOLDER may be on Google Drive or in a mounted bucket: it needs no locks, and each file appears whole.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from contract.arguments import Parser, parse_path
from contract.errors import StudyError, run_command

RESULTS = Path("results")
# Variable with the process at whose end the workflow ends too.
CALLER = "STUDY_CALLER_PID"
# Seconds between two looks for finished rounds.
LOOK_S = 20.0
# REMADE: folders that the run makes again from the rounds. PART: name for an incomplete copy.
REMADE, PART = {"data", "dataset", "preliminary", "report"}, ".incomplete-copy"


def main(argv: Sequence[str] | None = None) -> int:
    """Copy the saved results here, run the workflow, and save its results. Returns Snakemake's exit code."""
    parser = Parser(
        prog="python -m workflow.saved_run",
        description="Run the workflow, and save its results in a folder that outlives this machine",
        examples=["python -m workflow.saved_run /mnt/drive/results --profile gpu --config preset=rented"],
    )
    parser.add_argument("folder", type=parse_path, help="folder that outlives this machine")
    args, words = parser.parse_known_args(argv)
    if any(word.startswith("results=") for word in words):
        raise StudyError("results=: a saved run writes to results/: leave this setting out")
    try:
        args.folder.mkdir(parents=True, exist_ok=True)
        continued = copy_missing(args.folder, RESULTS)
    except OSError as refusal:
        raise StudyError(f"{args.folder}: {refusal.strerror}: name a folder that exists and can be written") from None
    if continued:
        print(f"continues with {continued} files from {args.folder}", flush=True)
    environment = {CALLER: str(os.getpid())} | dict(os.environ)
    with subprocess.Popen([sys.executable, "-m", "snakemake", "--cores", "all", *words], env=environment) as run:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # A terminal sends Ctrl-C to Snakemake as well.
            signal.signal(number, lambda number, _: None if number == signal.SIGINT else run.send_signal(number))
        while run.returncode is None:
            with suppress(subprocess.TimeoutExpired):
                run.wait(LOOK_S)
            save(args.folder)
    return run.returncode if run.returncode >= 0 else 128 - run.returncode


def save(folder: Path) -> None:
    """Copy new results to `folder`; print a note if this fails, since measuring is worth more than the copy."""
    try:
        copy_missing(RESULTS, folder)
    except OSError as refusal:
        print(f"note: {folder}: {refusal.strerror}: not saved there yet, and tried again", file=sys.stderr, flush=True)


def copy_missing(source: Path, target: Path) -> int:
    """Copy the files that `target` lacks or has from an earlier time; return their number.

    Leaves out hidden files, such as locks, and folders that the run makes again. Raises OSError.
    """
    count = 0
    for path in sorted(source.rglob("*")):
        place = path.relative_to(source)
        if place.parts[0] in REMADE or any(part.startswith(".") for part in place.parts) or not path.is_file():
            continue
        if not is_newer(path, target / place):
            continue
        copy = target / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        part = copy.with_name(PART)
        shutil.copyfile(path, part)
        # Some network folders keep no times; Snakemake compares times within results/ alone.
        with suppress(OSError):
            shutil.copystat(path, part)
        part.replace(copy)
        count += 1
    return count


def is_newer(path: Path, copy: Path) -> bool:
    """Tell if `copy` is missing, or older than `path` and different in size."""
    try:
        known, new = copy.stat(), path.stat()
    except FileNotFoundError:
        return True
    return new.st_mtime > known.st_mtime + 1 or (new.st_size != known.st_size and new.st_mtime >= known.st_mtime)


if __name__ == "__main__":
    sys.exit(run_command(main))
