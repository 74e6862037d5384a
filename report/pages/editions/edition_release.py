"""Archive built sites as editions, and write the README section about an edition.

An edition is a folder `data/editions/NUMBER/` with the pages, the dataset and a record, `edition.json`, that holds the
digest of every file. The README section is written from the newest edition's record, so that it always
matches an archived report.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json, write_json, write_text
from contract.provenance import current_commit as commit_of
from contract.provenance import run_git, short_commit
from contract.schema import check_document
from report.commands.lint import Study, find_faults
from report.data.reference_figures import REFERENCE
from report.dataset.digests import digest
from report.outcomes import verdict_name
from report.pages import site_paths
from report.pages.downloads import RECORD as SITE
from report.pages.downloads import check_rendered
from report.pages.front_page import summarize_verdicts
from report.verdicts import EDITIONS, newest_edition, read_verdicts, upgrade_cells

ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"
RECORD = "edition.json"
SCHEMA = Path(__file__).parents[2] / "schemas" / "edition.schema.json"
BEGIN, END = "<!-- made by `make edition` -->", "<!-- end of what `make edition` made -->"
# Files that are not archived: inputs of the renderer, and files for the web host.
_NOT_KEPT = {
    *("_quarto.yml", "page.html", "pdf.typ", "references.bib", "site/script.html", ".nojekyll", SITE),
    *(site_paths.EDITIONS, site_paths.MISSING, site_paths.ROBOTS, site_paths.SITEMAP),
}
# Files that a release itself writes. They may have uncommitted changes when the next edition is released.
_WRITTEN = ("data/editions", "README.md", "docs/report.png")


def release_edition(verdicts: Path, data: Path, report: Path, number: int | None = None, into: Path = EDITIONS) -> Path:
    """Copy a built site into a new folder, add a record, and return the folder.

    verdicts: the rendered verdicts.json.
    data: folder written by `report gather`.
    report: folder written by `report render` and `report site`.
    number: edition number; None takes the newest number plus one, or the newest number if that edition is from HEAD,
    because an earlier run was killed before it wrote the README.
    into: parent folder of all editions.

    Raises StudyError if the edition exists, if the data are not measured, if files have uncommitted changes, if the
    verdicts are from another commit than HEAD, if the report is from other verdicts, or if the linter finds a fault.
    """
    document = read_verdicts(verdicts)
    newest = newest_edition(into) or 0
    folder = into / str(newest + 1 if number is None else number)
    if newest and number in (None, newest) and _is_from(into / str(newest), document):
        return into / str(newest)
    number = int(folder.name)
    if number < 1 or folder.exists():
        raise StudyError(f"{folder}: editions are numbered from 1 and never overwritten: choose another number")
    if document["origin"] != "measured":
        raise StudyError(f"{verdicts}: contains {document['origin']} data: only measured data can be released")
    _check_commit(str(document["commit"]), verdicts)
    _check_site(report, document)
    faults = find_faults(Study(verdicts, data, REFERENCE))
    if faults:
        raise StudyError(f"{report}: the linter finds {len(faults)} fault(s), first: {faults[0]}")
    into.mkdir(parents=True, exist_ok=True)
    for stale in into.glob(".release-*"):
        shutil.rmtree(stale, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(dir=into, prefix=".release-"))
    try:
        shutil.copytree(report, scratch, ignore=_ignore_unarchived(report), dirs_exist_ok=True)
        digests = {
            str(path.relative_to(scratch)): digest(path) for path in sorted(scratch.rglob("*")) if path.is_file()
        }
        write_json(scratch / RECORD, _edition_record(number, document, digests))
        scratch.chmod(0o755)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _is_from(edition: Path, document: Mapping[str, Any]) -> bool:
    """Tell if an edition was released from the verdicts' commit, whose data are the same."""
    return bool(read_json(edition / RECORD)["commit"] == str(document["commit"]).removesuffix("+"))


def _check_site(report: Path, document: Mapping[str, Any]) -> None:
    """Raise StudyError unless the folder holds the site for these verdicts."""
    check_rendered(report, document)
    if not (report / SITE).is_file():
        raise StudyError(f"{report}: has no {SITE}: build the site first, with `python -m report site`")
    site_utc = read_json(report / site_paths.VERDICTS)["generated_utc"]
    if site_utc != document["generated_utc"]:
        raise StudyError(
            f"{report}: its site was built from the verdicts of {site_utc}: build it again with `python -m report site`"
        )


def _ignore_unarchived(report: Path) -> Callable[[str, list[str]], set[str]]:
    """Return a function that tells `copytree` which files to leave out, such as page sources."""

    def names(folder: str, entries: list[str]) -> set[str]:
        place = Path(folder).relative_to(report)
        return {name for name in entries if str(place / name) in _NOT_KEPT or name.endswith((".qmd", ".lua"))}

    return names


def _check_commit(commit: str, verdicts: Path) -> None:
    """Raise StudyError unless the work tree is clean and the verdicts are from HEAD."""
    try:
        head = run_git(ROOT, "rev-parse", "--verify", "HEAD").strip()
        changed = run_git(ROOT, "status", "--porcelain", "--", ".", *(f":(exclude){path}" for path in _WRITTEN))
    except StudyError as refusal:
        raise StudyError(f"the edition's commit cannot be determined: {refusal}") from None
    if changed.strip():
        raise StudyError(f"{changed.split()[1]}: has uncommitted changes: commit them, then judge and render")
    # `commit_of` returns HEAD, followed by `+` if tracked files have changes. Only the files in _WRITTEN can have
    # changes here, because other changes were refused above. Verdicts with this `+` are therefore accepted.
    if commit not in (head, commit_of(ROOT)):
        raise StudyError(
            f"{verdicts}: was judged by commit {short_commit(commit)}, but HEAD is {short_commit(head)}: judge again"
        )


def _edition_record(number: int, document: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    shows = summarize_verdicts(document)
    return {
        "number": number,
        **{name: document[name] for name in ("study_version", "generated_utc", "origin")},
        "commit": document["commit"].removesuffix("+"),
        "nodes": [
            {name: node[name] for name in ("id", "label", "started_utc", "ended_utc")} for node in document["nodes"]
        ],
        "answer": shows["answer"],
        "tally": shows["tally"],
        "foot": shows["foot"],
        "sha256": dict(files),
    }


def read_record(folder: Path) -> dict[str, Any]:
    """Read and verify an archived edition. Raises StudyError if the record is invalid or a file was changed."""
    path = folder / RECORD
    record = read_json(path)
    check_document(record, read_json(SCHEMA), path)
    for name, expected in record["sha256"].items():
        if not (folder / name).is_file() or digest(folder / name) != expected:
            raise StudyError(f"{folder / name}: was changed after the release: restore it, editions are not edited")
    return dict(record)


def record_in_current_words(folder: Path) -> dict[str, Any]:
    """Return an edition's record, with the front page's answer (`answer`) written anew from the archived verdicts.

    Raises StudyError like `read_record`.
    """
    record = read_record(folder)
    return {**record, "answer": summarize_verdicts(upgrade_cells(read_json(folder / site_paths.VERDICTS)))["answer"]}


def readme_section(record: Mapping[str, Any]) -> str:
    """Format the README section about an edition, as markdown."""
    folder = f"data/editions/{record['number']}"
    tally: Counter[str] = Counter()
    for verdict, count in record["tally"].items():
        tally[verdict_name(verdict)] += count
    return "\n".join(
        (
            BEGIN,
            f"**The answer of edition {record['number']}.** {record['answer']}",
            "",
            "| " + " | ".join(tally) + " |",
            "|" + "---:|" * len(tally),
            "| " + " | ".join(map(str, tally.values())) + " |",
            "",
            f"{record['foot']}. [Pages]({folder}/{site_paths.PAGE}), [PDF]({folder}/{site_paths.PDF}), "
            f"[appendix]({folder}/{site_paths.APPENDIX}), [verdicts]({folder}/{site_paths.VERDICTS_TABLE}), "
            f"all in [`{folder}/`]({folder}/).",
            END,
        )
    )


def write_readme(record: Mapping[str, Any], readme: Path = README) -> None:
    """Replace the README section from BEGIN to END by a section about the edition in `record`.

    Raises StudyError unless the README has exactly one such section.
    """
    text = readme.read_text(encoding="utf-8")
    marked = re.findall(f"{re.escape(BEGIN)}.*?{re.escape(END)}", text, re.DOTALL)
    if len(marked) != 1:
        raise StudyError(f"{readme}: must contain {BEGIN!r} and {END!r} exactly once, around the generated section")
    write_text(readme, text.replace(marked[0], readme_section(record)))
