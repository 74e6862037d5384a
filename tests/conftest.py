"""Fixtures and pytest hooks for all tests."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from contract.garbage import collect_seldom
from tests.missing_tools import skip_without

# Examples have no deadline, because their running time is not under test. Each run draws new ones.
settings.register_profile("study", deadline=None, max_examples=50)
settings.load_profile("study")


# Make PyTorch's threads sleep while they wait for each other. By default they spin, and take the cores from the other
# pytest processes. PyTorch reads the variable when it is imported. Remove it after test modules are imported, because
# tests and their subprocesses must not have it.
WAITING = ("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault(*WAITING)


def pytest_collection_finish() -> None:
    if (WAITING[0], os.environ.get(WAITING[0])) == WAITING:
        del os.environ[WAITING[0]]
    collect_seldom()


# Files that build the site and the judged sets, for which other files would wait.
BUILDERS = ("test_bibliography.py", "test_golden.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests marked `slow` first, as they run whole studies; then the files in BUILDERS."""
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, item.path.name not in BUILDERS))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Start a browser with a new profile."""
    from playwright.sync_api import Error, sync_playwright

    from tests import browser

    with sync_playwright() as playwright:
        try:
            opened = browser.launch(playwright)
        except Error:
            skip_without(f"the report in a browser: none starts; {browser.REMEDY}")
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def published_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gather and judge the published nodes; return a folder with data/ and verdicts.json, to be read only."""
    from tests.golden.__main__ import judge_set
    from tests.report.built_once import build_once

    return build_once(tmp_path_factory, "published", lambda folder: judge_set("published", folder))


@pytest.fixture(scope="session")
def published_with_fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gather and judge the published nodes and a synthetic fleet (GPU server, desktop, laptop); return the folder."""
    from tests.golden.__main__ import judge_set
    from tests.report.built_once import build_once

    return build_once(tmp_path_factory, "fleet", lambda folder: judge_set("fleet", folder))


@pytest.fixture(scope="session")
def compiler() -> str:
    """Return the path to a C++ compiler."""
    path = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
    if path is None:
        skip_without("compiled code: no C++ compiler; `apt-get install g++` (Debian)")
    return path


@pytest.fixture(scope="session")
def torch_compile(compiler: str) -> None:
    """Skip the test unless the system has what `torch.compile` needs on a CPU."""
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        skip_without("compiled models: no headers of Python; `apt-get install python3-dev` (Debian)")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each reason for skipped tests once, at the end."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped"))
    for reason, number in reasons.items():
        terminalreporter.write_line(f"not tested here ({number}): {reason}", yellow=True)
