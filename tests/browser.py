"""Browser for tests: the system's Chromium or Chrome, or else Playwright's Chromium.

If no browser starts, `python -m tests.browser` downloads Playwright's Chromium, or prints a note if that fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress

from playwright.sync_api import Browser, Error, Playwright, sync_playwright

from contract import child_processes

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
REMEDY = "`apt-get install chromium` (Debian), or `.venv/bin/playwright install --only-shell chromium`"
# CONNECT_MS: timeout in ms for each of Playwright's five attempts to connect.
# WHOLE_S: timeout in seconds for the whole download.
CONNECT_MS, WHOLE_S = "5000", 300
ORDER = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]


def launch(playwright: Playwright) -> Browser:
    """Launch the first browser that starts. Raises Playwright's Error if none does."""
    # On some systems, `chromium-browser` only prints an install hint.
    for program in filter(None, map(shutil.which, NAMES)):
        with suppress(Error):
            return playwright.chromium.launch(executable_path=program, args=FLAGS)
    return playwright.chromium.launch(args=FLAGS)


def can_start() -> bool:
    """True if a browser starts."""
    with sync_playwright() as playwright, suppress(Error):
        launch(playwright).close()
        return True
    return False


def main() -> None:
    """Download a browser if none starts. If that fails, print that the tests of the report in a browser are skipped."""
    if can_start():
        return
    patience = {**os.environ, "PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": CONNECT_MS}
    # `child_processes.session` also ends the processes that the download has started.
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with child_processes.session(ORDER, env=patience, **silent) as process, suppress(subprocess.TimeoutExpired):
        process.wait(WHOLE_S)
    if not can_start():
        print(f"no browser starts here, nor could one be fetched: the report is not tested in one; {REMEDY}")


if __name__ == "__main__":
    main()
