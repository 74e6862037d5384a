"""An edition is kept for good, of measurements and of a commit alone; the README says what the newest one says."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup
from PIL import Image

from contract.errors import StudyError
from report.site import release
from report.site.release import (
    BEGIN,
    EDITIONS,
    END,
    README,
    ROOT,
    digest,
    in_words,
    newest,
    read_record,
    said_now,
    write_readme,
)

from .conftest import Judged


@pytest.fixture
def keep(site: Path, second: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Keeps the second edition's site in a folder of the test's, as if its commit were checked out."""
    answers = {"rev-parse": str(second.document["commit"]) + "\n", "status": ""}
    monkeypatch.setattr(release, "_git", lambda *words: answers[words[0]])
    shutil.copytree(second.folder / "nodes", tmp_path / "nodes")

    def kept(number: int | None = None, report: Path = site, verdicts: Path = second.verdicts) -> Path:
        return release.release(verdicts, second.data, report, number, tmp_path / "editions")

    return kept


def test_an_edition_is_the_site_as_it_was_built_and_says_what_it_is_of(
    keep: Callable[..., Path], site: Path, second: Judged
) -> None:
    folder = keep()
    record = read_record(folder)
    assert (folder.name, record["number"]) == ("1", 1)
    for name in ("report.pdf", "verdicts.json", "verdicts.csv", "data/summary.csv"):
        assert (folder / name).read_bytes() == (site / name).read_bytes()
        assert record["sha256"][name] == digest(site / name)
    assert [node["id"] for node in record["nodes"]] == ["node-a", "node-b"]
    assert record["commit"] == second.document["commit"]
    assert record["tally"] == {name: n for name, n in second.document["tally"].items() if n}
    # What is for a host alone is not kept.
    assert not {"feed.xml", "robots.txt", "index.qmd"} & {path.name for path in folder.iterdir()}
    assert keep().name == "2"


def local_links(page: Path) -> set[str]:
    """What a page asks for beside itself, relative to its folder."""
    parsed = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    found = [urlsplit(str(tag.get("href") or tag.get("src"))) for tag in parsed.select("[href], [src]")]
    return {unquote(link.path) for link in found if link.path and not link.scheme and not link.netloc}


def test_the_samples_are_not_kept_twice_and_the_page_leads_to_the_nodes_own(
    keep: Callable[..., Path], site: Path, tmp_path: Path
) -> None:
    # A folder may have any name: what its node.json says is what the node is called.
    (tmp_path / "nodes" / "node-b").rename(tmp_path / "nodes" / "by hand")
    folder = keep()
    assert "data/node-a/gemm.cpu.csv" in local_links(site / "index.html")
    links = local_links(folder / "index.html")
    assert {"../../nodes/node-a/", "../../nodes/by hand/", "data/summary.csv"} <= links
    assert [link for link in links if not (folder / link).exists()] == []
    assert sorted(path.name for path in (folder / "data").iterdir()) == ["dictionary.csv", "nodes.json", "summary.csv"]
    assert read_record(folder)["sha256"].keys() == {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != "edition.json"
    }


def test_an_edition_of_a_node_that_is_not_published_is_refused(keep: Callable[..., Path], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "nodes" / "node-b")
    with pytest.raises(StudyError, match=r"has no node node-b, .* publish it first"):
        keep()
    assert list((tmp_path / "editions").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"origin": "synthetic"}, "is of synthetic data"),
        ({"commit": "f" * 40}, "was judged by commit ffffffffffff"),
        ({"generated_utc": "2026-03-01T00:00:00Z"}, "was rendered from the verdicts of 2026-02-01"),
    ],
)
def test_only_measurements_judged_by_the_commit_that_is_there(
    keep: Callable[..., Path], second: Judged, tmp_path: Path, change: dict[str, str], says: str
) -> None:
    verdicts = tmp_path / "verdicts.json"
    verdicts.write_text(json.dumps({**second.document, **change}), encoding="utf-8")
    with pytest.raises(StudyError, match=says):
        keep(verdicts=verdicts)
    assert not (tmp_path / "editions").exists()


def test_a_report_that_is_no_site_is_refused(keep: Callable[..., Path], site: Path, tmp_path: Path) -> None:
    report = Path(shutil.copytree(site, tmp_path / "report"))
    (report / "site.json").unlink()
    with pytest.raises(StudyError, match="build the site first"):
        keep(report=report)
    (report / "report.pdf").unlink()
    with pytest.raises(StudyError, match="render first"):
        keep(report=report)


def test_changes_that_are_not_committed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        names = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        return subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    for name in ("README.md", "code.py"):
        (tmp_path / name).write_text("first", encoding="utf-8")
    git("add", ".")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD").strip()
    monkeypatch.setattr(release, "ROOT", tmp_path)
    # What the command itself writes may differ.
    (tmp_path / "README.md").write_text("second", encoding="utf-8")
    release._of_the_commit(head, Path("verdicts.json"))
    (tmp_path / "code.py").write_text("second", encoding="utf-8")
    with pytest.raises(StudyError, match=r"^code\.py: has changes that are not committed"):
        release._of_the_commit(head, Path("verdicts.json"))
    monkeypatch.setattr(release, "ROOT", tmp_path.parent)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent.parent))
    with pytest.raises(StudyError, match="no git checkout"):
        release._of_the_commit(head, Path("verdicts.json"))


def test_what_was_changed_afterwards_is_noticed(keep: Callable[..., Path]) -> None:
    folder = keep()
    (folder / "verdicts.csv").write_text("edited", encoding="utf-8")
    with pytest.raises(StudyError, match=r"verdicts\.csv: is not the file that was kept"):
        read_record(folder)


def test_the_readme_gets_the_words_between_its_marks_and_no_others(keep: Callable[..., Path], tmp_path: Path) -> None:
    record, readme = read_record(keep()), tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_readme(record, readme)
    text = readme.read_text(encoding="utf-8")
    assert text == f"before\n{in_words(record)}\nafter\n"
    assert record["answer"] in text
    assert f"| {' | '.join(map(str, record['tally'].values()))} |" in text
    write_readme(record, readme)
    assert readme.read_text(encoding="utf-8") == text
    readme.write_text("no marks", encoding="utf-8")
    with pytest.raises(StudyError, match="has to hold"):
        write_readme(record, readme)


@pytest.fixture(scope="module")
def last() -> dict[str, Any]:
    """The newest edition of the project."""
    number = newest()
    assert number is not None
    return said_now(EDITIONS / str(number))


def test_every_edition_of_the_project_is_as_it_was_kept() -> None:
    numbers = sorted(int(path.name) for path in EDITIONS.iterdir())
    assert numbers == list(range(1, len(numbers) + 1))
    assert [read_record(EDITIONS / str(number))["number"] for number in numbers] == numbers


def test_the_readme_says_what_the_newest_edition_says(last: dict[str, Any]) -> None:
    assert in_words(last) in README.read_text(encoding="utf-8"), "run `python -m report edition --readme`"


def test_the_readmes_picture_is_of_the_newest_edition(last: dict[str, Any]) -> None:
    with Image.open(ROOT / "docs" / "report.png") as picture:
        assert picture.info["sha256 of the page"] == last["sha256"]["index.html"]
