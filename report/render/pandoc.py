"""The renderer that every installation has: pandoc makes the page, typst the PDF; both are Python wheels."""

from __future__ import annotations

import time
from importlib.metadata import version as installed
from pathlib import Path

import matplotlib
import pypandoc
import typst

_READS = "markdown"
_SHARED = ("--standalone", "--lua-filter=report.lua", "--wrap=none")


def version() -> str:
    """Versions of both programs."""
    return f"pandoc {pypandoc.get_pandoc_version()}, typst {installed('typst')}"


def render(folder: Path) -> None:
    """Turn `folder`/index.qmd into index.html and report.pdf beside it.

    Raises RuntimeError or typst.TypstError if the source is broken: a defect of ours.
    """
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
    _convert(
        folder,
        "typst",
        "report-pdf.typ",
        "--template=pdf.typ",
        "--shift-heading-level-by=-1",
        "--include-in-header=report.typ",
    )
    # matplotlib brings the font that the figures and signs are set in, so that no system font is needed.
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    compiler = typst.Compiler(folder / "report-pdf.typ", root=folder, font_paths=[fonts])
    compiler.compile(output=folder / "report.pdf", format="pdf", timestamp=int(time.time()))
    (folder / "report-pdf.typ").unlink()


def _convert(folder: Path, to: str, name: str, *options: str) -> None:
    # pandoc reads what the source names (figures, filter, styles) from its working folder.
    pypandoc.convert_file(
        str(folder / "index.qmd"),
        to,
        format=_READS,
        outputfile=str(folder / name),
        extra_args=[*_SHARED, *options],
        cworkdir=str(folder),
    )
