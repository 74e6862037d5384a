"""Quarto is used if it is found, recent and working; its project file lists every page."""

from __future__ import annotations

import os
import re
import stat
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pypandoc
import pytest
from bs4 import BeautifulSoup

from contract.errors import StudyError
from contract.files import read_json, read_yaml
from report.pages import pandoc, quarto, render, site_sources
from report.pages.figure_data import Evidence
from report.pages.site_content import Content, build_content

NAMES = ["index", "claims/N01"]
# This shell command fails as Quarto does: it prints an error, and then the calls that led to it.
FAILS = r"printf 'Starting\nERROR: no such engine\n\n at a\n at b\n at c\n at d\n at e\n' >&2; exit 3"


def fake_quarto(folder: Path, version: str = "1.9.1", last: str = "") -> Path:
    """Write a program that imitates quarto. last: shell command that the program runs at its end."""
    program = folder / "quarto"
    program.write_text(
        f"""#!/bin/sh
if [ "$1" = --version ]; then echo {version}; exit 0; fi
[ -n "$NO_COLOR" ] || exit 9
echo "$@" >> "{folder}/calls"
mkdir -p _site/claims _site/site_libs .quarto && touch .quarto/cache .gitignore _site/site_libs/quarto.js
for name in {" ".join(NAMES)}; do echo '<p>by quarto</p>' > _site/$name.html; done
cp index.qmd _site/index.qmd && echo changed >> _site/index.qmd
{last}
"""
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with page sources."""
    sources = tmp_path / "made"
    (sources / "claims").mkdir(parents=True)
    for name in NAMES:
        (sources / f"{name}.qmd").write_text("A page.\n")
    return sources


@pytest.fixture
def quarto_free_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty folder on PATH. An installed Quarto is hidden, so only a quarto that a test puts here is found."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.delenv("QUARTO_PATH", raising=False)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "scripts"))
    if quarto.find_quarto()[0]:
        monkeypatch.setenv("PATH", str(place))
    return place


@pytest.mark.parametrize("renderer", ["auto", "quarto"])
def test_quarto_is_used_if_found(quarto_free_path: Path, renderer: str) -> None:
    program = fake_quarto(quarto_free_path)
    chosen = render._choose_renderer(renderer)
    assert (chosen["name"], chosen["version"], chosen["program"]) == ("quarto", "1.9.1", str(program))


def test_missing_quarto_is_an_error_if_requested(
    quarto_free_path: Path, published_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUARTO_PATH", str(tmp_path / "absent"))
    with pytest.raises(StudyError, match=r"QUARTO_PATH \(.*absent\), then .*scripts, then PATH"):
        render.render(published_study / "verdicts.json", tmp_path / "out", renderer="quarto")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("version", ["1.8.27", "0.10", "nightly", "''"])
def test_old_quarto_is_skipped_with_a_note(quarto_free_path: Path, capsys: Any, version: str) -> None:
    fake_quarto(quarto_free_path, version)
    chosen = render._choose_renderer("auto")
    assert chosen["name"] == "pandoc"
    assert (version if version != "''" else "unknown") in chosen["note"]
    assert chosen["note"] in capsys.readouterr().err
    with pytest.raises(StudyError, match=r"1\.9 or newer"):
        render._choose_renderer("quarto")


def test_rendering_adds_only_pages_and_libraries(tmp_path: Path, folder: Path) -> None:
    quarto.render(folder, str(fake_quarto(tmp_path)), NAMES)
    assert (tmp_path / "calls").read_text().split() == ["render", ".", "--to", "html", "--no-execute"]
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {f"{name}.{ending}" for name in NAMES for ending in ("qmd", "html")} | {"site_libs/quarto.js"}
    assert (folder / "index.qmd").read_text() == "A page.\n", "sources stay unchanged"


@pytest.mark.parametrize(
    ("last", "message"),
    [(FAILS, r"exit 3\): ERROR: no such engine / at a "), ("rm _site/claims/N01.html", r"exit 0\): no output")],
    ids=["it stops", "a page is missing"],
)
def test_quarto_errors_are_passed_on(tmp_path: Path, folder: Path, last: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        quarto.render(folder, str(fake_quarto(tmp_path, last=last)), NAMES)
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".qmd"}


@pytest.fixture
def pandoc_pages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List of the pages that pandoc should render. A stand-in for pandoc adds them to the list, and renders nothing."""
    pages: list[str] = []
    monkeypatch.setattr(pandoc, "render", lambda _, names: pages.extend(names))
    return pages


def test_pandoc_renders_every_page_if_quarto_fails(
    quarto_free_path: Path, folder: Path, pandoc_pages: list[str], capsys: Any
) -> None:
    fake_quarto(quarto_free_path, last=FAILS)
    site_content = Content([site_sources.Page(name, "failed", name, "", {}) for name in NAMES])
    _, renderer = render._render_pages(folder, site_content, {}, ["index"], [], render._choose_renderer("auto"), "auto")
    assert renderer["name"] == "pandoc" and "no such engine" in renderer["note"]
    assert "no such engine" in capsys.readouterr().err
    assert pandoc_pages == NAMES, "including pages that quarto made before it failed"
    with pytest.raises(StudyError, match=r"no such engine.*use --renderer pandoc"):
        render._render_pages(folder, site_content, {}, ["index"], [], render._choose_renderer("quarto"), "quarto")


@pytest.fixture(scope="module")
def content(published_study: Path) -> Content:
    return build_content(Evidence(read_json(published_study / "verdicts.json"), None))


def hrefs(settings: Any) -> Iterator[str]:
    """Yield each page in menus, sidebars and footer."""
    if isinstance(settings, dict):
        settings = [value for key, value in settings.items() if key not in ("title", "text", "section", "id")]
    if isinstance(settings, str) and settings.endswith(".qmd"):
        yield settings
    elif isinstance(settings, list):
        for setting in settings:
            yield from hrefs(setting)


def test_project_lists_every_page_and_only_existing_files(content: Content, tmp_path: Path) -> None:
    url = "https://example.org/study/"
    site_sources.copy_site(tmp_path)
    (tmp_path / "_quarto.yml").write_text(
        site_sources.quarto_project(content.pages, url, "Edition of: a day, 'quoted'")
    )
    settings = read_yaml(tmp_path / "_quarto.yml")
    pages = [f"{page.path}.qmd" for page in content.pages]
    assert settings["project"]["render"] == pages
    assert len(set(pages)) == len(pages) > 88
    linked = set(hrefs(settings["website"]))
    assert {page for page in pages if page.startswith("claims/")} <= linked <= set(pages)
    assert settings["website"].get("site-url", "") == url.rstrip("/")
    html = settings["format"]["html"]
    assert [
        name
        for name in (*settings["filters"], html["css"], settings["website"]["favicon"])
        if not (tmp_path / name).is_file()
    ] == []
    script = BeautifulSoup(html["include-after-body"]["text"], "html.parser").script
    assert script is not None and script.string.strip() == (tmp_path / "site" / "page.js").read_text().strip()


def test_each_template_converts_without_warnings(content: Content) -> None:
    """Pandoc reads the pages without its extension `table_attributes`, as Quarto does."""
    templates = site_sources.template_environment()
    for page in {page.template: page for page in content.pages}.values():
        source = site_sources.page_source(page, templates, content.terms)
        html = pypandoc.convert_text(
            source, "html5", format="markdown-table_attributes",
            extra_args=["--fail-if-warnings", f"--lua-filter={site_sources.TEMPLATES / 'pages.lua'}"],
        )  # fmt: skip
        # No markup is left in the text.
        text = BeautifulSoup(html, "html.parser").get_text()
        assert not re.search(r"\{[.#][\w-]+|^:::|\]\(\S+\.qmd|<<|>>|<%", text, re.MULTILINE), page.path


@pytest.mark.parametrize(("version", "enough"), [("1.9.0", True), ("1.8.27", False), ("10.0.1", True), ("", False)])
def test_minimum_quarto_version(version: str, enough: bool) -> None:
    assert quarto.is_new_enough(version) == enough
