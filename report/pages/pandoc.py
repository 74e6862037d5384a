"""Default renderer: pandoc for pages, typst for PDFs; both come as Python wheels."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version as installed
from io import BytesIO
from pathlib import Path
from typing import Final, cast

import matplotlib
import pikepdf
import pypandoc
import typst

from contract import child_processes

# Fonts bundled with matplotlib, so that PDFs need no system fonts.
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
# PDF standard for screen readers: PDF/UA-1 (ISO 14289-1).
STANDARD: Final = "ua-1"
# Input format without table_attributes, an extension that Quarto disables too, so that both renderers read alike.
_READS = "markdown-table_attributes"
_SHARED = ("--standalone", f"--from={_READS}", "--wrap=none", "--columns=100000")


def version() -> str:
    """Return the versions of pandoc and typst."""
    return f"pandoc {pypandoc.get_pandoc_version()}, typst {installed('typst')}"


def render(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Convert each `NAME.qmd` in the folder to `NAME.html`, in parallel on all available CPUs.

    Returns the error text for each page that failed.
    """
    bibliography = folder / "references.bib"
    text = bibliography.read_text(encoding="utf-8") if bibliography.exists() else ""
    entries = {entry[6:].partition(",")[0]: entry for entry in re.split(r"(?m)^(?=@misc\{)", text) if entry}
    with ThreadPoolExecutor(child_processes.available_cpus()) as pool:
        reasons = list(pool.map(lambda name: _convert_page(folder, name, entries), names))
    return {name: reason for name, reason in zip(names, reasons, strict=True) if reason}


def _convert_page(folder: Path, name: str, entries: Mapping[str, str]) -> str:
    """Convert a page; return the error text, '' on success."""
    source = folder / f"{name}.qmd"
    text = source.read_text(encoding="utf-8")
    front = text.partition("\n---\n")[0]
    cites, contents = "\nnocite: " in front, "\ntoc: true" in front
    # Pass only the cited entries to pandoc: reading all entries takes as long as converting the page.
    bibliography = source.with_suffix(".bib")
    if cites:
        bibliography.write_text("".join(entry for key, entry in entries.items() if f"@{key}" in text), encoding="utf-8")
    try:
        _run_pandoc(
            folder,
            [f"{name}.qmd", "--to=html5", f"--output={name}.html", "--template=page.html", "--lua-filter=pages.lua",
             "--mathml", *(["--toc", "--toc-depth=2"] if contents else []),
             *(["--citeproc", f"--bibliography={name}.bib"] if cites else [])],
        )  # fmt: skip
    except RuntimeError as refusal:
        return str(refusal)
    finally:
        bibliography.unlink(missing_ok=True)
    return ""


def typeset(folder: Path, name: str, root: Path) -> str:
    """Write `NAME.pdf` from `NAME.qmd`; return the PDF standard to which the file conforms, '' if none.

    The standard may reject content from data, such as a character that no font has; the PDF is then written without the
    standard. root: folder with all referenced files.
    """
    _run_pandoc(
        folder,
        [f"{name}.qmd", "--to=typst", f"--output={name}.typ", "--template=pdf.typ", "--lua-filter=pages.lua"],
    )
    compiler = typst.Compiler(folder / f"{name}.typ", root=root, font_paths=[FONTS])
    now = int(time.time())
    try:
        content, standard = compiler.compile(format="pdf", timestamp=now, pdf_standards=[STANDARD]), str(STANDARD)
    except typst.TypstError as refused:
        content, standard = compiler.compile(format="pdf", timestamp=now), ""
        print(f"note: {name}.pdf does not conform to PDF/{STANDARD.upper()}: {refused.args[0]}", file=sys.stderr)
    # For a single document without output path, typst returns bytes.
    (folder / f"{name}.pdf").write_bytes(compress_pdf(cast("bytes", content)))
    return standard


def compress_pdf(pdf: bytes) -> bytes:
    """Compress a PDF into object streams.

    typst writes each tag as a separate object, and these objects add up to more than half the file.
    """
    out = BytesIO()
    with pikepdf.open(BytesIO(pdf)) as opened:
        streams = pikepdf.ObjectStreamMode.generate
        opened.save(out, object_stream_mode=streams, fix_metadata_version=False, deterministic_id=True)
    return out.getvalue()


def _run_pandoc(folder: Path, words: Sequence[str]) -> None:
    """Run pandoc in the folder, so that it finds relative paths. Raises RuntimeError if it fails."""
    ran = child_processes.run_program([pypandoc.get_pandoc_path(), *words, *_SHARED], cwd=folder)
    if ran.returncode:
        raise RuntimeError(f"pandoc {words[0]} failed (exit {ran.returncode}): {ran.stderr.strip()}")
