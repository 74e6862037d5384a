"""The browser that shows the report: the system's Chromium or Chrome, else Playwright's own.

`python -m tests.browser` fetches Playwright's where no other is found; without a network it says so and is done.
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
# Where nothing answers, not even with a refusal, each of Playwright's five attempts waits as long as this.
CONNECT_MS, WHOLE_S = "5000", 300
ORDER = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]


def launch(playwright: Playwright) -> Browser:
    """The first browser that starts. Raises Playwright's Error if none does."""
    # Some systems' `chromium-browser` only says where to get one.
    for program in filter(None, map(shutil.which, NAMES)):
        with suppress(Error):
            return playwright.chromium.launch(executable_path=program, args=FLAGS)
    return playwright.chromium.launch(args=FLAGS)


def starts() -> bool:
    """True if a browser does."""
    with sync_playwright() as playwright, suppress(Error):
        launch(playwright).close()
        return True
    return False


def main() -> None:
    """Leave a browser that starts, or one line that says what will not be tested."""
    if starts():
        return
    patience = {**os.environ, "PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": CONNECT_MS}
    # It has children, which end with it.
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with child_processes.session(ORDER, env=patience, **silent) as process, suppress(subprocess.TimeoutExpired):
        process.wait(WHOLE_S)
    if not starts():
        print(f"no browser starts here, nor could one be fetched: the report is not tested in one; {REMEDY}")


if __name__ == "__main__":
    main()
