"""What several parts of the suite need."""

from __future__ import annotations

import shutil
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.missing_tools import missing

# How long an example takes says nothing of what is tested.
settings.register_profile("study", deadline=None)
settings.load_profile("study")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole studies first: they take longest, and nobody waits for them in the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser, driven by Playwright, with a profile of its own."""
    from playwright.sync_api import Error, sync_playwright

    from tests import browser

    with sync_playwright() as playwright:
        try:
            opened = browser.launch(playwright)
        except Error:
            missing(f"the report in a browser: none starts; {browser.REMEDY}")
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data/, the published nodes as they are gathered, and verdicts.json on them; to be read only."""
    from tests.golden.__main__ import judge_set
    from tests.report.built_once import build_once

    return build_once(tmp_path_factory, "published", lambda folder: judge_set("published", folder))


@pytest.fixture(scope="session")
def published_with_fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of the published nodes and a synthetic fleet: a server with a GPU, a desktop and a laptop; with claims/,
    by which they are judged."""
    from tests.golden.__main__ import judge_set
    from tests.report.built_once import build_once

    return build_once(tmp_path_factory, "fleet", lambda folder: judge_set("fleet", folder))


@pytest.fixture(scope="session")
def compiler() -> str:
    """The path of a C++ compiler."""
    found = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
    if found is None:
        missing("compiled code: no C++ compiler; `apt-get install g++` (Debian)")
    return found


@pytest.fixture(scope="session")
def torch_compile(compiler: str) -> None:
    """What `torch.compile` needs of the system on a CPU."""
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing("compiled models: no headers of Python; `apt-get install python3-dev` (Debian)")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was not tested, each reason once, at the end of the run."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped"))
    for reason, number in reasons.items():
        terminalreporter.write_line(f"not tested here ({number}): {reason}", yellow=True)
