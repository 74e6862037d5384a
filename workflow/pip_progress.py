"""Announce the size of an install, and show pip's progress in one line. Needs only Python's own library.

python3 -I workflow/pip_progress.py announce preset=quick
python3 -I workflow/pip_progress.py run .venv/bin/pip install --editable .
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from contract.child_processes import end_with_parent, session  # noqa: E402

VENV = Path(".venv")
MB = 1e6
_SIZES = {"bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_FILE = re.compile(r"\s*(?:Downloading|Using cached) (?:\S*/)?(\S+) \(([\d.]+) (bytes|kB|MB|GB)\)")
# Lines of a failed pip to repeat.
_LAST = 5


def announce(settings: Sequence[str]) -> str:
    """Format what is installed, how large it was where it was measured, and what `make study` does then.

    settings: the words of CONFIG. The measured sizes are a comment in constraints.txt.
    """
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    measured = re.search(r"^# Measured (on .*): (.*)\.$", pins, re.MULTILINE)
    size = f": {measured[2]}, measured {measured[1]}" if measured else ""
    free = shutil.disk_usage(".").free / MB
    chosen = dict(word.partition("=")[::2] for word in settings)
    preset = chosen.get("preset", "quick")
    path = Path(preset) if preset.endswith((".yaml", ".yml")) else ROOT / "workflow" / "presets" / f"{preset}.yaml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    budget = re.search(r"^budget_min: \{cpu: (\d+), gpu: (\d+)\}", text, re.MULTILINE)
    minutes = f" in about {budget[1]} minutes ({budget[2]} with a GPU)" if budget else ""
    if "budget_min" in chosen:
        minutes = f" in about {chosen['budget_min']} minutes"
    texts = (
        f"installing the study's packages into .venv{size}; {free:,.0f} MB are free",
        f"then `make study` measures this machine by the preset {preset}{minutes}, and renders a report",
    )
    return "\n".join(textwrap.fill(text, 100, subsequent_indent="  ", break_on_hyphens=False) for text in texts)


class Progress:
    """State of an install, from pip's lines. stream: where to show it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.began = stream, time.monotonic()
        self.packages, self.bytes, self.doing = 0, 0.0, "asking for versions"
        self.is_done = threading.Event()

    def read_line(self, line: str) -> None:
        """Update the state from a line of pip's output."""
        if match := _FILE.match(line):
            name, amount, unit = match.groups()
            self.doing = f"{name} ({amount} {unit})"
            self.bytes += 0 if name.endswith(".metadata") else float(amount) * _SIZES[unit]
        elif line.startswith("Processing ") and (file := Path(line.split()[1])).is_file():
            self.bytes += file.stat().st_size
        elif line.startswith("Collecting "):
            self.doing = line.split()[1]
        elif line.startswith("Installing collected packages: "):
            self.packages = len(line.split(", "))
            self.doing = f"unpacking {self.packages} packages"
            if not self.stream.isatty():
                print(self.text, file=self.stream, flush=True)
        else:
            return
        self.draw()

    @property
    def text(self) -> str:
        spent_s = time.monotonic() - self.began
        return f"installing, {spent_s:.0f} s: {self.bytes / MB:,.0f} MB of packages; {self.doing}"

    def draw(self) -> None:
        """Show the state in a terminal's last line."""
        if self.stream.isatty():
            width = shutil.get_terminal_size().columns - 1
            self.stream.write(f"\r{self.text[:width]:{width}}\r")
            self.stream.flush()

    def redraw(self) -> None:
        """Draw every second, since pip prints nothing while it unpacks."""
        while not self.is_done.wait(1.0):
            self.draw()

    def end(self) -> None:
        """Clear the line."""
        self.is_done.set()
        if self.stream.isatty():
            self.stream.write(f"\r{'':{shutil.get_terminal_size().columns - 1}}\r")

    def sizes(self) -> str:
        """Format the number of packages, and the sizes of their files and of .venv."""
        if not self.packages:
            return "no new package"
        on_disk = sum(path.lstat().st_size for path in VENV.rglob("*")) / MB
        return (
            f"{self.packages} packages, {self.bytes / MB:,.0f} MB to download, {on_disk:,.0f} MB on disk, "
            f"{time.monotonic() - self.began:.0f} s"
        )


def follow_pip(words: Sequence[str], progress: Progress) -> tuple[int, list[str]]:
    """Run pip with progress; return its exit code and its lines. It ends when this process ends."""
    threading.Thread(target=progress.redraw, daemon=True).start()
    lines = []
    options: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "errors": "replace",
    }
    with session([*words, "--progress-bar", "off"], **options) as pip:
        for line in pip.stdout or ():
            lines.append(line.rstrip())
            progress.read_line(line)
        progress.end()
        return pip.wait(), lines


def install(words: Sequence[str]) -> int:
    """Run pip with progress, and return its exit code. If it fails, print its errors; a log has all its lines."""
    end_with_parent()
    progress = Progress(sys.stdout)
    code, lines = follow_pip(words, progress)
    log = VENV / "install.log"
    log.write_text("\n".join(lines), encoding="utf-8")
    if code:
        errors = [line for line in lines if line.lower().startswith("error")]
        print("\n".join([*(errors or lines[-_LAST:]), f"pip failed; all its lines: {log}"]), file=sys.stderr)
    else:
        print(f"installed: {progress.sizes()}")
    return code


def main(words: Sequence[str]) -> int:
    if words[0] == "announce":
        print(announce(words[1:]))
        return 0
    try:
        return install(words[1:])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
