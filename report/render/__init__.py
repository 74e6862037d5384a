"""The report: from verdicts to a page, a PDF, their source and their figures."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from contract.errors import StudyError
from contract.files import read_json, write_json
from report.publish.claimreview import as_script, claim_reviews
from report.render import head, pandoc, quarto, rejudged, words
from report.render.drawn import draw
from report.render.editions import since_last
from report.render.figures import Drawing
from report.render.inline import inline, scripts_of
from report.render.markdown import environment
from report.render.page import context, read_verdicts
from report.site.sitemap import address

RENDERERS = ("auto", "quarto", "pandoc")
TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
# What index.qmd needs beside it, whichever program renders it; pdf.typ is pandoc's.
_BESIDE = ("_quarto.yml", "page.html", "report.lua", "report.typ", "typst-show.typ", "typst-template.typ")
_PANDOCS = "pdf.typ"


def render(
    verdicts: Path,
    out: Path,
    renderer: str = "auto",
    data: Path | None = None,
    url: str = "",
    previous: Path | None = None,
) -> None:
    """Write the report of `verdicts` (a verdicts.json) into the folder `out`.

    `renderer`: auto (Quarto where it is found, new enough and does not fail, else pandoc), quarto
    or pandoc. `data`: the folder that `report gather` wrote, for the measurements.
    `url`: where the page will be published, for the links of its claim reviews and its preview.
    `previous`: an earlier edition (see `report.site.editions`), for what changed since.

    Everything is made in a scratch folder and moved into place file by file, each
    whole: a render that is killed leaves the old report. Raises StudyError for a
    missing renderer or unusable input, OSError if the place cannot be written.
    """
    began = time.monotonic()
    chosen = _choose(renderer)
    url = address(url)
    document = read_verdicts(verdicts)
    told, drawings = context(document, data, since_last(document, verdicts, previous))
    # The renderers work in the folder of their source: a relative path would mean another place there.
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    # In `out` itself: moving a file within one file system is atomic.
    for stale in out.glob(".render-*"):
        shutil.rmtree(stale, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(dir=out, prefix=".render-"))
    try:
        drawn = _write_source(scratch, told, drawings, out / "figures")
        _write_reviews(scratch, document, url)
        standard, chosen = _rendered(scratch, chosen, renderer)
        inline(scratch / "index.html", [joined("scripts/*.js"), *scripts_of(joined("page.html"))])
        head.put(scratch / "index.html", head.head(document, url))
        made = _move(scratch, out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    write_json(
        out / "render.json",
        {
            "renderer": chosen["name"],
            "version": chosen["version"],
            "note": chosen["note"],
            "pdf_standard": standard,
            "seconds": round(time.monotonic() - began, 2),
            "rendered_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "generated_utc": document["generated_utc"],
            "commit": document["commit"],
            "figures_drawn": drawn,
            "files": made,
        },
    )


def _choose(renderer: str) -> dict[str, str]:
    """Which program renders, and why not the other. Raises StudyError."""
    if renderer not in RENDERERS:
        raise StudyError(f"renderer {renderer!r} is not known. Renderers: {', '.join(RENDERERS)}")
    if renderer == "pandoc":
        return _pandoc("")
    program, looked = quarto.find()
    if program is None:
        if renderer == "quarto":
            raise StudyError(
                f"Quarto was asked for and not found. Looked in: {looked}. "
                "Install it from quarto.org, or use --renderer auto"
            )
        return _pandoc("Quarto was not found")
    found = quarto.version(program)
    if not quarto.new_enough(found):
        need = ".".join(map(str, quarto.NEEDED))
        fault = f"Quarto {found or 'of unknown version'} was found, {need} or newer is needed"
        if renderer == "quarto":
            raise StudyError(f"{fault}: update {program}, or use --renderer pandoc")
        print(f"note: {fault}: rendering with pandoc", file=sys.stderr)
        return _pandoc(fault)
    return {"name": "quarto", "version": found, "program": program, "note": ""}


def _pandoc(note: str) -> dict[str, str]:
    return {"name": "pandoc", "version": pandoc.version(), "program": "", "note": note}


def _rendered(folder: Path, chosen: dict[str, str], renderer: str) -> tuple[str, dict[str, str]]:
    """Render; returns the standard that the PDF conforms to, and which program did it in the end.

    Raises StudyError if Quarto was asked for by name and fails; else pandoc takes its place.
    """
    if chosen["program"]:
        try:
            return quarto.render(folder, chosen["program"]), chosen
        except StudyError as failed:
            if renderer == "quarto":
                raise StudyError(f"{failed}. Mend the Quarto installation, or use --renderer pandoc") from None
            print(f"note: {failed}: rendering with pandoc", file=sys.stderr)
            chosen = _pandoc(str(failed))
        finally:
            quarto.clear(folder)
    return pandoc.render(folder), chosen


def _write_source(folder: Path, told: dict, drawings: list[Drawing], earlier: Path) -> int:
    """index.qmd and everything that it names; returns how many figures had to be drawn."""
    (folder / "figures").mkdir()
    drawn = draw(drawings, folder / "figures", earlier)
    source = environment(TEMPLATES).get_template("index.qmd").render(told)
    (folder / "index.qmd").write_text(source, encoding="utf-8")
    for name in (*_BESIDE, _PANDOCS):
        shutil.copyfile(TEMPLATES / name, folder / name)
    (folder / "report.css").write_text(joined("styles/*.css"), encoding="utf-8")
    return drawn


def joined(pattern: str) -> str:
    """The templates of this kind in one text, in the order of their names."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.glob(pattern)))


def _write_reviews(folder: Path, document: dict, url: str) -> None:
    """The verdicts for programs: claims.jsonld, and the same within the page, with the scripts that use them there."""
    write_json(folder / "claims.jsonld", claim_reviews(document, url or "index.html", words.MEANING))
    reviews = as_script(claim_reviews(document, url, words.MEANING))
    tried = rejudged.as_script(document["verdicts"])
    # Both renderers put this file at the end of the page.
    script = f"<script>\n{joined('scripts/*.js')}</script>\n"
    (folder / "report-script.html").write_text(reviews + tried + script, encoding="utf-8")


def _move(scratch: Path, out: Path) -> list[str]:
    """Move what was made over what is there; remove what an earlier render made and this one did not."""
    (scratch / _PANDOCS).unlink()
    names = sorted(str(path.relative_to(scratch)) for path in scratch.rglob("*") if path.is_file())
    earlier = _earlier(out)
    (out / "figures").mkdir(exist_ok=True)
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).replace(out / name)
    for name in earlier - set(names):
        (out / name).unlink(missing_ok=True)
    return names


def _earlier(out: Path) -> set[str]:
    """Figures that the last render listed; nothing else in `out` is ours to remove."""
    try:
        listed = read_json(out / "render.json")["files"]
    except (StudyError, KeyError, TypeError):
        return set()
    return {name for name in map(str, listed) if name.startswith("figures/") and ".." not in name}


__all__ = ["RENDERERS", "render"]
