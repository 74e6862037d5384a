"""An edition is kept for good, of measurements and of a commit alone; the README says what the newest one says."""

from __future__ import annotations

import copy
import re
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
from contract.files import read_json, write_json
from report.pages import site_paths
from report.pages.downloads import write_downloads
from report.pages.editions import edition_release
from report.pages.editions.edition_release import (
    BEGIN,
    EDITIONS,
    END,
    README,
    ROOT,
    file_digest,
    newest_edition,
    read_record,
    readme_section,
    record_in_current_words,
    write_readme,
)
from tests.report.pages.edition_files import Judged, stand_in_report


@pytest.fixture
def report(second: Judged, tmp_path: Path) -> Path:
    """The second edition's report, with its downloads."""
    folder = stand_in_report(tmp_path / "report", second)
    write_downloads(folder, second.verdicts, second.data)
    return folder


@pytest.fixture
def keep(report: Path, second: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Keeps the second edition in a folder of the test's, as if its commit were checked out."""
    checked_out(monkeypatch, str(second.document["commit"]))

    def kept(number: int | None = None, verdicts: Path = second.verdicts) -> Path:
        return edition_release.release_edition(verdicts, second.data, report, number, tmp_path / "editions")

    return kept


def checked_out(monkeypatch: pytest.MonkeyPatch, commit: str) -> None:
    """As if this commit were, without any changes."""
    answers = {"rev-parse": commit.removesuffix("+"), "status": ""}
    monkeypatch.setattr(edition_release, "run_git", lambda root, *words: answers[words[0]])
    monkeypatch.setattr(edition_release, "commit_of", lambda root: commit)


def test_an_edition_says_what_it_is_of(keep: Callable[..., Path], report: Path, second: Judged) -> None:
    folder = keep()
    record = read_record(folder)
    assert (folder.name, record["number"]) == ("1", 1)
    for name in (site_paths.PDF, site_paths.VERDICTS, site_paths.VERDICTS_TABLE, site_paths.SUMMARY):
        assert (folder / name).read_bytes() == (report / name).read_bytes()
        assert record["sha256"][name] == file_digest(report / name)
    assert [node["id"] for node in record["nodes"]] == ["node-a", "node-b"]
    assert f"{record['commit']}+".startswith(str(second.document["commit"]))
    assert record["tally"] == {name: n for name, n in second.document["tally"].items() if n}
    # Sources and samples are made again from the commit, and so is what is for a host alone.
    assert not list(folder.rglob("*.qmd")) and not (folder / site_paths.EDITIONS).exists()
    assert (report / "data" / "node-a" / "gemm.cpu.csv").is_file() and not list(folder.glob("data/*/"))
    held = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert record["sha256"].keys() == held - {edition_release.RECORD}


def test_editions_are_never_written_over(keep: Callable[..., Path]) -> None:
    before = {path: path.read_bytes() for path in keep().rglob("*") if path.is_file()}
    assert keep().name == "2" and keep(7).name == "7" and keep().name == "8"
    for number in (1, 0, -1):
        with pytest.raises(StudyError, match="never overwritten"):
            keep(number)
    assert all(path.read_bytes() == content for path, content in before.items())


def test_every_link_of_a_kept_edition_leads_to_what_is_kept(
    site: Path, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Path(shutil.copytree(site, tmp_path / "report"))
    verdicts, data = published / "verdicts.json", published / "data"
    write_downloads(report, verdicts, data)
    checked_out(monkeypatch, str(read_json(verdicts)["commit"]))
    folder = edition_release.release_edition(verdicts, data, report, None, tmp_path / "editions")
    leads = [(page, link) for page in folder.rglob("*.html") for link in local_links(page)]
    assert len(leads) > 1000
    assert [f"{page}: {link}" for page, link in leads if not (page.parent / link).exists()] == []
    # The README's links lead into the edition, too.
    linked = re.findall(r"\]\(data/editions/1/(.*?)\)", readme_section(read_record(folder)))
    assert linked and all((folder / name).exists() for name in linked)


def local_links(page: Path) -> set[str]:
    """What a page asks for beside itself, relative to its folder."""
    parsed = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    found = [urlsplit(str(tag.get("href") or tag.get("src"))) for tag in parsed.select("[href], [src]")]
    return {unquote(link.path) for link in found if link.path and not link.scheme and not link.netloc}


def disturb(document: dict[str, Any]) -> None:
    """Put an estimate below its interval, as the linter finds."""
    (case, *_) = next(verdict for verdict in document["verdicts"] if verdict["id"] == "N03")["cases"]
    case["low"] = 2 * case["estimate"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda document: document.update(origin="synthetic"), "contains synthetic data"),
        (lambda document: document.update(commit="f" * 40), "was judged by commit ffffffffffff"),
        (lambda document: document.update(generated_utc="2026-03-01T00:00:00Z"),
         "was rendered from the verdicts of 2026-02-01"),
        (disturb, r"the linter finds .* fault.*N03"),
    ],
)  # fmt: skip
def test_only_faultless_measurements_judged_by_the_commit_that_is_there(
    keep: Callable[..., Path], second: Judged, tmp_path: Path, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    document = copy.deepcopy(second.document)
    change(document)
    write_json(tmp_path / "verdicts.json", document)
    with pytest.raises(StudyError, match=says):
        keep(verdicts=tmp_path / "verdicts.json")
    assert not (tmp_path / "editions").exists()


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
    monkeypatch.setattr(edition_release, "ROOT", tmp_path)
    # What the command itself writes may differ.
    (tmp_path / "README.md").write_text("second", encoding="utf-8")
    edition_release._check_commit(head, Path("verdicts.json"))
    edition_release._check_commit(f"{head}+", Path("verdicts.json"))
    (tmp_path / "code.py").write_text("second", encoding="utf-8")
    with pytest.raises(StudyError, match=r"^code\.py: has uncommitted changes"):
        edition_release._check_commit(head, Path("verdicts.json"))
    git("checkout", "-q", ".")
    with pytest.raises(StudyError, match=r"was judged by commit .{12}\+, but HEAD is"):
        edition_release._check_commit(f"{head}+", Path("verdicts.json"))
    monkeypatch.setattr(edition_release, "ROOT", tmp_path.parent)
    with pytest.raises(StudyError, match="no git checkout of its own"):
        edition_release._check_commit(head, Path("verdicts.json"))


def test_what_was_changed_afterwards_is_noticed(keep: Callable[..., Path]) -> None:
    folder = keep()
    (folder / "verdicts.csv").write_text("edited", encoding="utf-8")
    with pytest.raises(StudyError, match=r"verdicts\.csv: was changed after the release"):
        read_record(folder)


def test_the_readme_gets_the_words_between_its_marks_and_no_others(keep: Callable[..., Path], tmp_path: Path) -> None:
    record, readme = read_record(keep()), tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_readme(record, readme)
    text = readme.read_text(encoding="utf-8")
    assert text == f"before\n{readme_section(record)}\nafter\n"
    assert record["answer"] in text
    assert f"| {' | '.join(map(str, record['tally'].values()))} |" in text
    write_readme(record, readme)
    assert readme.read_text(encoding="utf-8") == text
    readme.write_text("no marks", encoding="utf-8")
    with pytest.raises(StudyError, match="must contain"):
        write_readme(record, readme)


@pytest.fixture(scope="module")
def last() -> dict[str, Any]:
    """The newest edition of the project."""
    number = newest_edition()
    assert number is not None
    return record_in_current_words(EDITIONS / str(number))


def test_every_edition_of_the_project_is_as_it_was_kept() -> None:
    numbers = sorted(int(path.name) for path in EDITIONS.iterdir())
    assert numbers == list(range(1, len(numbers) + 1))
    assert [read_record(EDITIONS / str(number))["number"] for number in numbers] == numbers


def test_the_readme_says_what_the_newest_edition_says(last: dict[str, Any]) -> None:
    assert readme_section(last) in README.read_text(encoding="utf-8"), "run `python -m report edition --readme`"


def test_the_readmes_picture_is_of_the_newest_edition(last: dict[str, Any]) -> None:
    with Image.open(ROOT / "docs" / "report.png") as picture:
        assert picture.info["sha256 of the page"] == last["sha256"]["index.html"]


def test_a_report_that_is_no_site_is_refused(keep: Callable[..., Path], report: Path) -> None:
    (report / edition_release.SITE).unlink()
    with pytest.raises(StudyError, match="build the site first"):
        keep()
    (report / site_paths.PDF).unlink()
    with pytest.raises(StudyError, match="render first"):
        keep()
