"""Fixtures to test pages: the site on the published nodes, two editions, and a function that opens pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from report.pages.render import render
from tests.report.built_once import build_once
from tests.report.pages.edition_files import Study, read_study, write_study

Visit = Callable[..., Any]
# Address for which the site is rendered.
ADDRESS = "https://example.org/a/b/"


@pytest.fixture(scope="session")
def site(published_study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the site, which pandoc has rendered. Tests share the folder, so they must not write to it."""

    def make(folder: Path) -> None:
        failures = render(published_study / "verdicts.json", folder, "pandoc", published_study / "data", ADDRESS)
        assert failures.as_json == []

    return build_once(tmp_path_factory, "site", make)


@pytest.fixture
def visit(chromium: Any) -> Iterator[Visit]:
    """Return a function that opens a page in a new browser context and returns its tab.

    The tab's `console_lines` list console messages, errors and dialogs; its `requested_urls` list requested addresses.
    """
    contexts: list[Any] = []

    def open_page(page: Path, width: int = 1280, height: int = 800, **options: Any) -> Any:
        contexts.append(chromium.new_context(viewport={"width": width, "height": height}, **options))
        tab = contexts[-1].new_page()
        tab.console_lines, tab.requested_urls = [], []
        tab.on("console", lambda message: tab.console_lines.append(message.text))
        tab.on("pageerror", lambda error: tab.console_lines.append(str(error)))
        tab.on("dialog", lambda dialog: (tab.console_lines.append(dialog.message), dialog.dismiss()))
        tab.on("request", lambda request: tab.requested_urls.append(request.url))
        path, _, fragment = str(page).partition("#")
        tab.goto(Path(path).as_uri() + (f"#{fragment}" if fragment else ""))
        return tab

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def edition_1(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """First edition, with one synthetic node. The node is fast, so claim N03 is challenged."""
    rates = {"node-a": 27.9}
    return read_study(
        build_once(tmp_path_factory, "first-edition", lambda folder: write_study(folder, rates, "2026-01-01T00:00:00Z"))
    )


@pytest.fixture(scope="session")
def edition_2(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Second edition. node-a is slower than in the first edition, and node-b is slow too, so claim N03 is supported."""
    rates = {"node-a": 4.0, "node-b": 3.0}
    return read_study(
        build_once(
            tmp_path_factory, "second-edition", lambda folder: write_study(folder, rates, "2026-02-01T00:00:00Z")
        )
    )
