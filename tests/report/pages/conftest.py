"""The site of the published nodes, rendered once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from report.pages.render import render
from tests.report.built_once import build_once
from tests.report.pages.edition_files import Judged, judged, kept

Visit = Callable[..., Any]


@pytest.fixture(scope="session")
def site(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, as `report render` makes it with pandoc; to be read only."""

    def make(folder: Path) -> None:
        render(published / "verdicts.json", folder, "pandoc", published / "data")

    return build_once(tmp_path_factory, "site", make)


@pytest.fixture
def visit(chromium: Any) -> Iterator[Visit]:
    """Opens a page of a folder in a context of its own; what it says and asks for is in `said` and `asked`."""
    contexts: list[Any] = []

    def opened(page: Path, width: int = 1280, height: int = 800, **options: Any) -> Any:
        contexts.append(chromium.new_context(viewport={"width": width, "height": height}, **options))
        shown = contexts[-1].new_page()
        shown.said, shown.asked = [], []
        shown.on("console", lambda message: shown.said.append(message.text))
        shown.on("pageerror", lambda error: shown.said.append(str(error)))
        shown.on("dialog", lambda dialog: (shown.said.append(dialog.message), dialog.dismiss()))
        shown.on("request", lambda request: shown.asked.append(request.url))
        path, _, fragment = str(page).partition("#")
        shown.goto(Path(path).as_uri() + (f"#{fragment}" if fragment else ""))
        return shown

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The first edition: one synthetic node, on which N03 is challenged."""
    rates = {"node-a": 27.9}
    return kept(
        build_once(tmp_path_factory, "first-edition", lambda folder: judged(folder, rates, "2026-01-01T00:00:00Z"))
    )


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The second: the node is slower, so that N03 is supported, and another node has come."""
    rates = {"node-a": 4.0, "node-b": 3.0}
    return kept(
        build_once(tmp_path_factory, "second-edition", lambda folder: judged(folder, rates, "2026-02-01T00:00:00Z"))
    )
