"""The renderer that every installation has: pandoc makes the page, typst the PDF; both are Python wheels."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version as installed
from pathlib import Path
from typing import Final, cast

import matplotlib
import pypandoc
import typst

from contract import ending
from report.render.packed import pack

# matplotlib brings the font that the figures and signs are set in, so that no system font is needed.
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
# What the PDF is to conform to: PDF/UA-1 (ISO 14289-1), which a reader who listens to it needs.
STANDARD: Final = "ua-1"
# What Quarto's reader has switched off is off here too: one source, read in one way.
READS = "markdown-table_attributes"
_SHARED = ("--standalone", "--lua-filter=report.lua", "--wrap=none", "--metadata-file=_quarto.yml")


def version() -> str:
    """Versions of both programs."""
    return f"pandoc {pypandoc.get_pandoc_version()}, typst {installed('typst')}"


def render(folder: Path) -> str:
    """Turn `folder`/index.qmd into index.html and report.pdf beside it, both at once.

    Returns the standard that the PDF conforms to, '' if it could not be met. Raises RuntimeError
    or typst.TypstError if the source is broken: a defect of ours.
    """
    with ThreadPoolExecutor(1) as beside:
        page = beside.submit(write_page, folder)
        standard = typeset(folder)
        page.result()
    return standard


def write_page(folder: Path) -> None:
    _convert(
        folder,
        "html5",
        "index.html",
        "--template=page.html",
        "--section-divs",
        "--toc",
        "--toc-depth=2",
        "--mathml",
        "--embed-resources",
        "--include-after-body=report-script.html",
        "--css=report.css",
    )


def typeset(folder: Path) -> str:
    """Write report.pdf; returns the standard that it conforms to.

    A standard may refuse what data brought along (a sign that no font holds): better a PDF
    that lacks the seal than none.
    """
    _convert(
        folder,
        "typst",
        "report-pdf.typ",
        "--template=pdf.typ",
        "--shift-heading-level-by=-1",
        "--include-in-header=report.typ",
    )
    source = folder / "report-pdf.typ"
    compiler = typst.Compiler(source, root=folder, font_paths=[FONTS])
    now = int(time.time())
    try:
        made = compiler.compile(format="pdf", timestamp=now, pdf_standards=[STANDARD])
        standard = STANDARD
    except typst.TypstError as refused:
        made = compiler.compile(format="pdf", timestamp=now)
        print(f"note: report.pdf does not conform to PDF/{STANDARD.upper()}: {refused.args[0]}", file=sys.stderr)
        standard = ""
    # Of one document, written to no file, typst gives the bytes.
    (folder / "report.pdf").write_bytes(pack(cast("bytes", made)))
    source.unlink()
    return standard


def _convert(folder: Path, to: str, name: str, *options: str) -> None:
    """Run pandoc in `folder`, where it reads what the source names: figures, filter, styles. Raises RuntimeError.

    Its own process has that working folder: pypandoc would change it for all threads of this one.
    """
    words = [pypandoc.get_pandoc_path(), "index.qmd", f"--from={READS}", f"--to={to}", f"--output={name}"]
    ran = ending.run([*words, *_SHARED, *options], cwd=folder)
    if ran.returncode:
        raise RuntimeError(f"pandoc --to {to} failed (exit {ran.returncode}): {ran.stderr.strip()}")
