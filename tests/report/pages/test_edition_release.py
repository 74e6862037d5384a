"""Released editions: immutable, measured, and from one commit; the README quotes the newest edition."""

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
from report.dataset.check import dataset_faults
from report.dataset.digests import digest
from report.pages import site_paths
from report.pages.downloads import write_downloads
from report.pages.editions import edition_release
from report.pages.editions.edition_release import (
    BEGIN,
    EDITIONS,
    END,
    README,
    ROOT,
    newest_edition,
    read_record,
    readme_section,
    record_in_current_words,
    write_readme,
)
from tests.kills import killed_states, restore
from tests.report.pages.edition_files import Study, stand_in_report


@pytest.fixture
def report(edition_2: Study, tmp_path: Path) -> Path:
    """The second edition's report, with its downloads."""
    folder = stand_in_report(tmp_path / "report", edition_2)
    write_downloads(folder, edition_2.verdicts, edition_2.dataset)
    return folder


@pytest.fixture
def release(report: Path, edition_2: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that releases the second edition, as if its commit were checked out."""
    fake_checkout(monkeypatch, str(edition_2.document["commit"]))

    def release_second(number: int | None = None, verdicts: Path = edition_2.verdicts) -> Path:
        return edition_release.release_edition(verdicts, edition_2.data, report, number, tmp_path / "editions")

    return release_second


def fake_checkout(monkeypatch: pytest.MonkeyPatch, commit: str) -> None:
    """Let the release code see a checkout of `commit` without uncommitted changes."""
    answers = {"rev-parse": commit.removesuffix("+"), "status": ""}
    monkeypatch.setattr(edition_release, "run_git", lambda root, *words: answers[words[0]])
    monkeypatch.setattr(edition_release, "commit_of", lambda root: commit)


def test_release_records_files_machines_and_commit(
    release: Callable[..., Path], report: Path, edition_2: Study
) -> None:
    folder = release()
    record = read_record(folder)
    assert (folder.name, record["number"]) == ("1", 1)
    for name in (site_paths.PDF, site_paths.VERDICTS, site_paths.VERDICTS_TABLE, "data/samples.parquet"):
        assert (folder / name).read_bytes() == (report / name).read_bytes()
        assert record["sha256"][name] == digest(report / name)
    assert [node["id"] for node in record["nodes"]] == ["node-a", "node-b"]
    assert f"{record['commit']}+".startswith(str(edition_2.document["commit"]))
    assert record["tally"] == {name: n for name, n in edition_2.document["tally"].items() if n}
    # A release omits page sources and files for web hosts, because they can be built again from its commit.
    assert not list(folder.rglob("*.qmd")) and not (folder / site_paths.EDITIONS).exists()
    assert list(dataset_faults(folder / site_paths.DATASET)) == []
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert record["sha256"].keys() == files - {edition_release.RECORD}


def test_editions_are_never_overwritten(release: Callable[..., Path]) -> None:
    before = {path: path.read_bytes() for path in release().rglob("*") if path.is_file()}
    assert release().name == "1" and release(7).name == "7" and release().name == release(7).name == "7"
    for number in (1, 0, -1):
        with pytest.raises(StudyError, match="never overwritten"):
            release(number)
    assert all(path.read_bytes() == content for path, content in before.items())


def test_killed_release_is_completed_by_the_same_command(release: Callable[..., Path], tmp_path: Path) -> None:
    readme = tmp_path / "editions" / "README.md"
    readme.parent.mkdir()
    readme.write_text(f"{BEGIN}\nold\n{END}\n", encoding="utf-8")

    def publish() -> None:
        write_readme(read_record(release()), readme)

    states = killed_states(tmp_path / "editions", tmp_path / "states", publish, ["os.rename", "os.mkdir"])
    files = readme, readme.with_name("1") / edition_release.RECORD
    whole = [path.read_bytes() for path in files]
    assert len(states) > 5
    for state in (states[3], *states[-2:]):
        restore(state, tmp_path / "editions")
        publish()
        assert {path.name for path in (tmp_path / "editions").iterdir()} == {"README.md", "1"}
        assert [path.read_bytes() for path in files] == whole


def test_links_in_a_released_edition_resolve(
    site: Path, published_study: Path, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Path(shutil.copytree(site, tmp_path / "report"))
    verdicts, data = published_study / "verdicts.json", published_study / "data"
    write_downloads(report, verdicts, dataset)
    fake_checkout(monkeypatch, str(read_json(verdicts)["commit"]))
    folder = edition_release.release_edition(verdicts, data, report, None, tmp_path / "editions")
    links = [(page, link) for page in folder.rglob("*.html") for link in local_links(page)]
    assert len(links) > 1000
    assert [f"{page}: {link}" for page, link in links if not (page.parent / link).exists()] == []
    # The README's section on the edition may link only to files that the edition has.
    linked = re.findall(r"\]\(data/editions/1/(.*?)\)", readme_section(read_record(folder)))
    assert linked and all((folder / name).exists() for name in linked)


def local_links(page: Path) -> set[str]:
    """Return the relative paths that a page links to or loads."""
    parsed = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    addresses = [urlsplit(str(tag.get("href") or tag.get("src"))) for tag in parsed.select("[href], [src]")]
    return {unquote(link.path) for link in addresses if link.path and not link.scheme and not link.netloc}


def disturb(document: dict[str, Any]) -> None:
    """Move an interval above its estimate. The linter reports this as a fault."""
    (case, *_) = next(verdict for verdict in document["verdicts"] if verdict["id"] == "N03")["cases"]
    case["low"] = 2 * case["estimate"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda document: document.update(origin="synthetic"), "contains synthetic data"),
        (lambda document: document.update(commit="f" * 40), "was judged by commit ffffffffffff"),
        (lambda document: document.update(generated_utc="2026-03-01T00:00:00Z"),
         "was rendered from the verdicts of 2026-02-01"),
        (disturb, r"the linter finds .* fault.*N03"),
    ],
)  # fmt: skip
def test_release_needs_faultless_measured_verdicts_from_the_checked_out_commit(
    release: Callable[..., Path],
    edition_2: Study,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
    reason: str,
) -> None:
    document = copy.deepcopy(edition_2.document)
    change(document)
    write_json(tmp_path / "verdicts.json", document)
    with pytest.raises(StudyError, match=reason):
        release(verdicts=tmp_path / "verdicts.json")
    assert not (tmp_path / "editions").exists()


def test_uncommitted_changes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    # A changed README is allowed, because the release command itself writes it.
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
    with pytest.raises(StudyError, match="not the top folder of a git checkout"):
        edition_release._check_commit(head, Path("verdicts.json"))


def test_file_changed_after_release_is_refused(release: Callable[..., Path]) -> None:
    folder = release()
    (folder / "verdicts.csv").write_text("edited", encoding="utf-8")
    with pytest.raises(StudyError, match=r"verdicts\.csv: was changed after the release"):
        read_record(folder)


def test_readme_is_rewritten_only_between_its_marks(release: Callable[..., Path], tmp_path: Path) -> None:
    record, readme = read_record(release()), tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_readme(record, readme)
    text = readme.read_text(encoding="utf-8")
    assert text == f"before\n{readme_section(record)}\nafter\n"
    assert record["answer"] in text
    table = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert sum(map(int, table[1])) == sum(record["tally"].values()) and "Awaiting hardware" not in table[0]
    write_readme(record, readme)
    assert readme.read_text(encoding="utf-8") == text
    readme.write_text("no marks", encoding="utf-8")
    with pytest.raises(StudyError, match="must contain"):
        write_readme(record, readme)


@pytest.fixture(scope="module")
def newest() -> dict[str, Any]:
    """Record from the newest edition that the project has released."""
    number = newest_edition()
    assert number is not None
    return record_in_current_words(EDITIONS / str(number))


def test_project_editions_are_unchanged() -> None:
    numbers = sorted(int(path.name) for path in EDITIONS.iterdir())
    assert numbers == list(range(1, len(numbers) + 1))
    assert [read_record(EDITIONS / str(number))["number"] for number in numbers] == numbers


def test_readme_quotes_the_newest_edition(newest: dict[str, Any]) -> None:
    assert readme_section(newest) in README.read_text(encoding="utf-8"), "run `python -m report edition --readme`"


def test_readme_picture_shows_the_newest_edition(newest: dict[str, Any]) -> None:
    with Image.open(ROOT / "docs" / "report.png") as picture:
        assert picture.info["sha256 of the page"] == newest["sha256"]["index.html"]


def test_incomplete_report_is_refused(release: Callable[..., Path], report: Path) -> None:
    (report / edition_release.SITE).unlink()
    with pytest.raises(StudyError, match="build the site first"):
        release()
    (report / site_paths.PDF).unlink()
    with pytest.raises(StudyError, match="render first"):
        release()
