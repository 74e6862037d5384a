"""Quarto: used where it is found, new enough and able; the project that it is given names every page."""

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
# What went wrong stands before a stack of any depth.
FAILS = r"printf 'Starting\nERROR: no such engine\n\n at a\n at b\n at c\n at d\n at e\n' >&2; exit 3"


def fake_quarto(folder: Path, version: str = "1.9.1", last: str = "") -> Path:
    """A program that answers as quarto does, and makes pages as it does. last: what it does before it ends."""
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
    """Sources to be rendered."""
    made = tmp_path / "made"
    (made / "claims").mkdir(parents=True)
    for name in NAMES:
        (made / f"{name}.qmd").write_text("A page.\n")
    return made


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No quarto is found, but for one that is put into this folder of PATH."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.delenv("QUARTO_PATH", raising=False)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "scripts"))
    if quarto.find_quarto()[0]:
        monkeypatch.setenv("PATH", str(place))
    return place


@pytest.mark.parametrize("renderer", ["auto", "quarto"])
def test_quarto_is_used_where_it_is_found(nowhere: Path, renderer: str) -> None:
    program = fake_quarto(nowhere)
    chosen = render._choose_renderer(renderer)
    assert (chosen["name"], chosen["version"], chosen["program"]) == ("quarto", "1.9.1", str(program))


def test_quarto_that_is_asked_for_and_missing_is_an_error(
    nowhere: Path, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUARTO_PATH", str(tmp_path / "absent"))
    with pytest.raises(StudyError, match=r"QUARTO_PATH \(.*absent\), then .*scripts, then PATH"):
        render.render(published / "verdicts.json", tmp_path / "out", renderer="quarto")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("version", ["1.8.27", "0.10", "nightly", "''"])
def test_an_old_quarto_is_passed_over_with_a_note(nowhere: Path, capsys: Any, version: str) -> None:
    fake_quarto(nowhere, version)
    chosen = render._choose_renderer("auto")
    assert chosen["name"] == "pandoc"
    assert (version if version != "''" else "unknown") in chosen["note"]
    assert chosen["note"] in capsys.readouterr().err
    with pytest.raises(StudyError, match=r"1\.9 or newer"):
        render._choose_renderer("quarto")


def test_pages_lie_beside_their_sources_and_nothing_else_is_left(tmp_path: Path, folder: Path) -> None:
    quarto.render(folder, str(fake_quarto(tmp_path)), NAMES)
    assert (tmp_path / "calls").read_text().split() == ["render", ".", "--to", "html", "--no-execute"]
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {f"{name}.{ending}" for name in NAMES for ending in ("qmd", "html")} | {"site_libs/quarto.js"}
    assert (folder / "index.qmd").read_text() == "A page.\n", "sources stay as they are"


@pytest.mark.parametrize(
    ("last", "told"),
    [(FAILS, r"exit 3\): ERROR: no such engine / at a "), ("rm _site/claims/N01.html", r"exit 0\): no output")],
    ids=["it stops", "a page is missing"],
)
def test_what_quarto_says_of_a_failure_is_passed_on(tmp_path: Path, folder: Path, last: str, told: str) -> None:
    with pytest.raises(StudyError, match=told):
        quarto.render(folder, str(fake_quarto(tmp_path, last=last)), NAMES)
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".qmd"}


@pytest.fixture
def by_pandoc(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pages that pandoc is asked for; it makes none."""
    asked: list[str] = []
    monkeypatch.setattr(pandoc, "render", lambda _, names: asked.extend(names))
    return asked


def test_where_quarto_fails_pandoc_renders_every_page_with_a_note(
    nowhere: Path, folder: Path, by_pandoc: list[str], capsys: Any
) -> None:
    fake_quarto(nowhere, last=FAILS)
    made_pages = Content([site_sources.Page(name, "failed", name, "", {}) for name in NAMES])
    _, made = render._render_pages(folder, made_pages, {}, ["index"], [], render._choose_renderer("auto"), "auto")
    assert made["name"] == "pandoc" and "no such engine" in made["note"]
    assert "no such engine" in capsys.readouterr().err
    assert by_pandoc == NAMES, "those too that pandoc had made before"
    with pytest.raises(StudyError, match=r"no such engine.*use --renderer pandoc"):
        render._render_pages(folder, made_pages, {}, ["index"], [], render._choose_renderer("quarto"), "quarto")


@pytest.fixture(scope="module")
def content(published: Path) -> Content:
    return build_content(Evidence(read_json(published / "verdicts.json"), None))


def hrefs(settings: Any) -> Iterator[str]:
    """Every page that menus, sidebars and the footer name."""
    if isinstance(settings, dict):
        settings = [value for key, value in settings.items() if key not in ("title", "text", "section", "id")]
    if isinstance(settings, str) and settings.endswith(".qmd"):
        yield settings
    elif isinstance(settings, list):
        for setting in settings:
            yield from hrefs(setting)


def test_the_project_lists_every_page_and_names_no_other_and_no_file_that_is_not_there(
    content: Content, tmp_path: Path
) -> None:
    url = "https://example.org/study/"
    site_sources.copy_site(tmp_path)
    (tmp_path / "_quarto.yml").write_text(
        site_sources.quarto_project(content.pages, url, "Edition of: a day, 'quoted'")
    )
    settings = read_yaml(tmp_path / "_quarto.yml")
    pages = [f"{page.path}.qmd" for page in content.pages]
    assert settings["project"]["render"] == pages
    assert len(set(pages)) == len(pages) > 88
    named = set(hrefs(settings["website"]))
    assert {page for page in pages if page.startswith("claims/")} <= named <= set(pages)
    assert settings["website"].get("site-url", "") == url.rstrip("/")
    html = settings["format"]["html"]
    assert [name for name in (*settings["filters"], html["css"]) if not (tmp_path / name).is_file()] == []
    script = BeautifulSoup(html["include-after-body"]["text"], "html.parser").script
    assert script is not None and script.string.strip() == (tmp_path / "site" / "page.js").read_text().strip()


def test_each_kind_of_page_is_read_without_a_warning(content: Content) -> None:
    """As Quarto's reader has it: attributes of tables are off."""
    templates = site_sources.template_environment()
    for page in {page.template: page for page in content.pages}.values():
        source = site_sources.page_source(page, templates, content.terms)
        made = pypandoc.convert_text(
            source, "html5", format="markdown-table_attributes",
            extra_args=["--fail-if-warnings", f"--lua-filter={site_sources.TEMPLATES / 'pages.lua'}"],
        )  # fmt: skip
        # What was meant as markup is not left in the text.
        told = BeautifulSoup(made, "html.parser").get_text()
        assert not re.search(r"\{[.#][\w-]+|^:::|\]\(\S+\.qmd|<<|>>|<%", told, re.MULTILINE), page.path


@pytest.mark.parametrize(("told", "enough"), [("1.9.0", True), ("1.8.27", False), ("10.0.1", True), ("", False)])
def test_a_version_of_quarto_is_new_enough_or_not(told: str, enough: bool) -> None:
    assert quarto.is_new_enough(told) == enough
