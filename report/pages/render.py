"""Render the report: website, two PDFs, sources and figures, from verdicts."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json, write_json
from contract.node import utc_time
from report.pages import pandoc, previews, quarto, site_paths, site_sources
from report.pages.bibliography import format_bibtex
from report.pages.charts import Chart
from report.pages.edition_changes import changes_since_last
from report.pages.failures import Failures, read_failed_figures
from report.pages.figure_data import Evidence
from report.pages.pdf import SOURCES, failed_source
from report.pages.search_index import SEARCH, search_script
from report.pages.site_address import normalize_address
from report.pages.site_content import CHECKS, Content, build_content, family_charts
from report.pages.site_sources import Page
from report.pages.svg import save_chart, text_drawing
from report.pages.threshold_slider import plots_json
from report.verdicts import read_verdicts

RENDERERS = ("auto", "quarto", "pandoc")
# Files that all pages share; if their content changes, every page is rendered again.
_SHARED = ("page.html", "pages.lua", "pdf.typ", "references.bib")
PDFS = ("report", "appendix")
_PDF = "pdf.typ"
_PASSING = {f"{name}.typ" for name in PDFS}


def draw_figures(verdicts: Path, data: Path | None, out: Path, families: Sequence[str]) -> tuple[list[str], Failures]:
    """Draw figures for pages and phones into `out`; return figure names and failures.

    families: keys of measurement families, `measurements` for all families, `claims`, or `front`. For `claims` and
    `front`, preview images are drawn too.
    Once a family's figures are drawn, `FAMILY.json` lists the names of the figures, and the failures. Raises StudyError
    for an unknown family or unusable data.
    """
    evidence = Evidence(read_verdicts(verdicts), data)
    _ = evidence.views
    out.mkdir(parents=True, exist_ok=True)
    names, failures = list[str](), Failures()
    for family in families:
        family_failures = Failures()
        charts = family_charts(evidence, family, family_failures)
        _draw_charts(charts, out, family_failures)
        _draw_previews(evidence.document, charts, out.parent / "previews", family, family_failures)
        write_json(
            out / f"{family}.json", {"figures": [chart.name for chart in charts], "failed": family_failures.as_json}
        )
        names += [chart.name for chart in charts]
        failures.items += family_failures.items
    return names, failures


def _draw_charts(charts: Sequence[Chart], folder: Path, failures: Failures) -> None:
    """Draw figures, with a placeholder for each that fails."""
    for chart in charts:
        with failures.catch("figure", chart.name):
            save_chart(chart, folder)
            continue
        save_chart(replace(chart, draw=text_drawing("This figure could not be drawn.")), folder)


def _draw_previews(
    document: Mapping[str, Any], charts: Sequence[Chart], folder: Path, family: str, failures: Failures
) -> None:
    """Draw preview images for claims or the front page; other families have none."""
    with failures.catch("preview", family):
        if family == "claims":
            previews.draw_claim_previews(document, charts, folder)
        elif family == "front":
            previews.draw_front_preview(document, folder)
    for chart in charts if family == "front" else ():
        if chart.name.startswith(previews.PICTURE):
            with failures.catch("preview", chart.name):
                previews.draw_picture_preview(chart, folder)


def render(
    verdicts: Path,
    out: Path,
    renderer: str = "auto",
    data: Path | None = None,
    url: str = "",
    previous: Path | None = None,
    drawn: bool = False,
    advice: Path | None = None,
) -> Failures:
    """Write the report for `verdicts` (a verdicts.json) into the folder `out`.

    renderer: "quarto", "pandoc", or "auto", which uses Quarto if it is installed, recent and working, else pandoc.
    data: folder written by `report gather`; without it, pages show no measurements.
    url: site address, for previews and claim reviews.
    previous: an earlier verdicts.json, or a site's editions.json, to list the changes since then.
    drawn: True uses the figures from `draw_figures` instead of drawing them.
    advice: output of `report calibrate`; without it, the adviser uses data/advice.json.

    Works in a scratch folder and moves files into place atomically, so that a killed render keeps the old report.
    Returns the failures: each failed page or figure gets a placeholder, and is listed on the checks page and in
    `failures.json`. Raises StudyError for a missing renderer or unusable input, OSError if `out` cannot be written.
    """
    began = time.monotonic()
    chosen = _choose_renderer(renderer)
    url = normalize_address(url)
    document = read_verdicts(verdicts)
    evidence = Evidence(document, data)
    out = out.resolve()
    failures = read_failed_figures(out / "figures") if drawn else Failures()
    content = build_content(evidence, url, changes_since_last(document, verdicts, previous), failures, advice)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for stale in out.glob(".render-*"):
        shutil.rmtree(stale, ignore_errors=True)
    if not drawn:
        _draw_charts(content.charts, out / "figures", failures)
        for part in ("claims", "front"):
            _draw_previews(document, content.charts, out / "previews", part, failures)
    _check_complete(content.charts, out / "figures")
    # The scratch folder is inside `out`, because moves are atomic only within a file system.
    scratch = Path(tempfile.mkdtemp(dir=out, prefix=".render-"))
    try:
        (scratch / "figures").symlink_to(out / "figures")
        (scratch / "previews").symlink_to(out / "previews")
        names = _write_sources(scratch, content, document, url)
        earlier = _last_record(out)
        _write_documents(scratch, content, document)
        shared = _files_digest(scratch, _SHARED)
        drawings = _files_digest(out / "figures", sorted(path.name for path in (out / "figures").glob("*.svg")))
        changed_pages, pdfs = list(names), list(PDFS)
        if earlier.get("version") == pandoc.version() and earlier.get("shared") == shared:
            if earlier.get("renderer") == "pandoc":
                changed_pages = [name for name in names if not _is_unchanged(scratch, out, name, "html")]
            if earlier.get("figures") == drawings:
                pdfs = [name for name in PDFS if not _is_unchanged(scratch, out, name, "pdf")]
        standards, chosen = _render_pages(scratch, content, document, changed_pages, pdfs, chosen, renderer)
        files = _move_outputs(scratch, out, names, earlier)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    write_json(out / site_paths.FAILURES, failures.as_json)
    write_json(
        out / "render.json",
        {
            "renderer": chosen["name"],
            "version": chosen["version"],
            "note": chosen["note"],
            "pdf_standard": {**(earlier.get("pdf_standard") or {}), **standards},
            "seconds": round(time.monotonic() - began, 2),
            "rendered_utc": utc_time(),
            "generated_utc": document["generated_utc"],
            "commit": document["commit"],
            "rendered_again": len(changed_pages),
            "shared": shared,
            "figures": drawings,
            "pages": names,
            "files": files,
        },
    )
    return failures


def _check_complete(charts: Sequence[Chart], folder: Path) -> None:
    """Raise StudyError if a figure is missing; remove unused figures."""
    wanted = {f"{chart.name}{ending}" for chart in charts for ending in (".svg", ".phone.svg")}
    existing = {path.name for path in folder.glob("*.svg")}
    if missing := sorted(wanted - existing):
        raise StudyError(f"{folder}: {missing[0]} is not drawn: run `python -m report figures`, or leave out --drawn")
    for name in existing - wanted:
        (folder / name).unlink(missing_ok=True)


def _write_sources(folder: Path, content: Content, document: Mapping[str, Any], url: str) -> list[str]:
    """Write page sources and shared files; return page names."""
    pages = content.pages
    # Write the checks page last, because it lists the failures of all pages.
    for page in sorted(pages, key=lambda page: page.path == CHECKS):
        _write_source(folder, page, content)
    imprint = site_sources.imprint(document)
    site_sources.copy_site(folder)
    (folder / SEARCH).write_text(search_script(pages, document), encoding="utf-8")
    shutil.copyfile(site_sources.TEMPLATES / _PDF, folder / _PDF)
    (folder / "references.bib").write_text(format_bibtex(document), encoding="utf-8")
    (folder / "page.html").write_text(site_sources.page_template(url, imprint), encoding="utf-8")
    (folder / site_paths.ROBOTS).write_text(site_sources.robots(url), encoding="utf-8")
    if url:
        paths = [page.path for page in pages if page.path != site_sources.MISSING]
        sitemap = site_sources.sitemap(url, paths, str(document["generated_utc"])[:10])
        (folder / site_paths.SITEMAP).write_text(sitemap, encoding="utf-8")
    (folder / "_quarto.yml").write_text(site_sources.quarto_project(pages, url, imprint), encoding="utf-8")
    return [page.path for page in pages]


def _write_source(folder: Path, page: Page, content: Content) -> None:
    """Write a page source, or a placeholder if it fails."""
    path, templates = folder / f"{page.path}.qmd", site_sources.template_environment()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = ""
    with content.failures.catch("page", page.path):
        added: dict[str, Any] = {"failed": content.failures.as_json} if page.path == CHECKS else {}
        if page.template == "claim":
            added["plots"] = plots_json(page.context["c"]["figure"], folder / "figures")
        shown = replace(page, context={**page.context, **added})
        text = site_sources.page_source(shown, templates, content.terms)
    text = text or site_sources.page_source(content.fail(page), templates, content.terms)
    path.write_text(_separate_tables(text), encoding="utf-8")
    for name, contents in page.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(contents, encoding="utf-8")


def _separate_tables(text: str) -> str:
    """Put two blank lines before each table.

    After a line and one blank line, pandoc reads a table twice, as the line might be the term in a list of definitions.
    """
    return text.replace("\n\n|", "\n\n\n|")


def _write_documents(folder: Path, content: Content, document: Mapping[str, Any]) -> None:
    """Write PDF sources, or a placeholder for each that fails."""
    for name, source in SOURCES.items():
        text = ""
        with content.failures.catch("PDF", name):
            text = source(content, document, site_sources.template_environment())
        failure = content.failures.find("PDF", name)
        (folder / f"{name}.qmd").write_text(_separate_tables(text or failed_source(str(failure))), encoding="utf-8")


def _is_unchanged(scratch: Path, out: Path, name: str, kind: str) -> bool:
    """True if the output exists and its source is the same as in the last render."""
    try:
        same = (out / f"{name}.qmd").read_bytes() == (scratch / f"{name}.qmd").read_bytes()
    except OSError:
        return False
    return same and (out / f"{name}.{kind}").is_file()


def _files_digest(folder: Path, names: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()


def _choose_renderer(renderer: str) -> dict[str, str]:
    """Choose the renderer, and note why Quarto is not used. Raises StudyError if the renderer is unknown or missing."""
    if renderer not in RENDERERS:
        raise StudyError(f"renderer {renderer!r} is not known. Renderers: {', '.join(RENDERERS)}")
    if renderer == "pandoc":
        return _pandoc_choice("")
    program, places = quarto.find_quarto()
    if program is None:
        if renderer == "quarto":
            raise StudyError(
                f"Quarto was requested but not found. Looked in: {places}. "
                "Install it from quarto.org, or use --renderer auto"
            )
        return _pandoc_choice("Quarto was not found")
    version = quarto.version(program)
    if not quarto.is_new_enough(version):
        need = ".".join(map(str, quarto.NEEDED))
        fault = f"Quarto {version or 'of unknown version'} was found, {need} or newer is needed"
        if renderer == "quarto":
            raise StudyError(f"{fault}: update {program}, or use --renderer pandoc")
        print(f"note: {fault}: rendering with pandoc", file=sys.stderr)
        return _pandoc_choice(fault)
    return {"name": "quarto", "version": version, "program": program, "note": ""}


def _pandoc_choice(note: str) -> dict[str, str]:
    return {"name": "pandoc", "version": pandoc.version(), "program": "", "note": note}


def _render_pages(
    folder: Path,
    content: Content,
    document: Mapping[str, Any],
    changed_pages: list[str],
    pdfs: list[str],
    chosen: dict[str, str],
    renderer: str,
) -> tuple[dict[str, str], dict[str, str]]:
    """Render changed pages and PDFs; return each PDF's standard and the renderer used.

    Falls back to pandoc if Quarto fails; raises StudyError if Quarto was requested by name.
    """
    names = [page.path for page in content.pages]
    if chosen["program"]:
        try:
            quarto.render(folder, chosen["program"], names)
        except StudyError as failed:
            if renderer == "quarto":
                raise StudyError(f"{failed}. Repair the Quarto installation, or use --renderer pandoc") from None
            print(f"note: {failed}: rendering with pandoc", file=sys.stderr)
            chosen = _pandoc_choice(str(failed))
            changed_pages[:] = names
    if not chosen["program"] and (refused := pandoc.render(folder, changed_pages)):
        for page in [page for page in content.pages if page.path in refused]:
            content.fail(page, refused[page.path])
        changed = [page for page in content.pages if page.path in (*refused, CHECKS)]
        for page in changed:
            _write_source(folder, page, content)
        pandoc.render(folder, [page.path for page in changed])
        _write_documents(folder, content, document)
        pdfs[:] = PDFS
    return {name: _typeset_pdf(folder, name, content) for name in pdfs}, chosen


def _typeset_pdf(folder: Path, name: str, content: Content) -> str:
    """Typeset a PDF, or a placeholder if it fails."""
    with content.failures.catch("PDF", name):
        return pandoc.typeset(folder, name, folder)
    (folder / f"{name}.qmd").write_text(failed_source(str(content.failures.find("PDF", name))), encoding="utf-8")
    return pandoc.typeset(folder, name, folder)


def _move_outputs(scratch: Path, out: Path, names: Sequence[str], earlier: Mapping[str, Any]) -> list[str]:
    """Move new files over old ones; remove files that only an earlier render made.

    Returns the relative paths of the moved files, all pages and both PDFs.
    """
    for name in ("figures", "previews"):
        (scratch / name).unlink()
    files = [path for path in sorted(scratch.rglob("*")) if path.is_file() and path.name not in _PASSING]
    paths = [str(path.relative_to(scratch)) for path in files]
    for name in paths:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).replace(out / name)
    written = {*paths, *(f"{name}.html" for name in names), *(f"{name}.pdf" for name in PDFS)}
    for name in {*map(str, earlier.get("files") or [])} - written:
        if ".." not in name and not name.startswith("/"):
            (out / name).unlink(missing_ok=True)
    return sorted(written)


def _last_record(out: Path) -> dict[str, Any]:
    """Read the record from the last render; empty if no record can be read."""
    try:
        record = read_json(out / "render.json")
    except StudyError:
        return {}
    return record if isinstance(record, dict) else {}


__all__ = ["RENDERERS", "draw_figures", "render"]
