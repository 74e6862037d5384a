"""The renderer that every installation has: pandoc makes the pages, typst the PDFs; both are Python wheels."""

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

# matplotlib brings the font that the figures and signs are set in, so that no system font is needed.
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
# What the PDFs are to conform to: PDF/UA-1 (ISO 14289-1), which a reader who listens to them needs.
STANDARD: Final = "ua-1"
# What Quarto's reader has switched off is off here too: one source, read in one way.
_READS = "markdown-table_attributes"
_SHARED = ("--standalone", f"--from={_READS}", "--wrap=none", "--columns=100000")


def version() -> str:
    """Versions of both programs."""
    return f"pandoc {pypandoc.get_pandoc_version()}, typst {installed('typst')}"


def render(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Turn each page `NAME.qmd` of the folder into `NAME.html` beside it, as many at once as there are CPUs to use.

    Returns the reason for each page that pandoc refuses.
    """
    bibliography = folder / "references.bib"
    text = bibliography.read_text(encoding="utf-8") if bibliography.exists() else ""
    entries = {entry[6:].partition(",")[0]: entry for entry in re.split(r"(?m)^(?=@misc\{)", text) if entry}
    with ThreadPoolExecutor(child_processes.available_cpus()) as pool:
        reasons = list(pool.map(lambda name: _page(folder, name, entries), names))
    return {name: reason for name, reason in zip(names, reasons, strict=True) if reason}


def _page(folder: Path, name: str, entries: Mapping[str, str]) -> str:
    """Convert one page; returns the reason why it cannot be, '' if it was."""
    source = folder / f"{name}.qmd"
    text = source.read_text(encoding="utf-8")
    front = text.partition("\n---\n")[0]
    cites, contents = "\nnocite: " in front, "\ntoc: true" in front
    # Of the bibliography what it cites: to read all takes pandoc as long as the page.
    own = source.with_suffix(".bib")
    if cites:
        own.write_text("".join(entry for key, entry in entries.items() if f"@{key}" in text), encoding="utf-8")
    try:
        _convert(
            folder,
            [f"{name}.qmd", "--to=html5", f"--output={name}.html", "--template=page.html", "--lua-filter=pages.lua",
             "--mathml", *(["--toc", "--toc-depth=2"] if contents else []),
             *(["--citeproc", f"--bibliography={name}.bib"] if cites else [])],
        )  # fmt: skip
    except RuntimeError as refusal:
        return str(refusal)
    finally:
        own.unlink(missing_ok=True)
    return ""


def typeset(folder: Path, name: str, root: Path) -> str:
    """Write `NAME.pdf` of the folder's `NAME.qmd`; returns the standard that it conforms to, '' for none.

    root: the folder that holds all that the document names. A standard may refuse what data brought along (a sign
    that no font holds): better a PDF that lacks the seal than none.
    """
    _convert(
        folder,
        [f"{name}.qmd", "--to=typst", f"--output={name}.typ", "--template=pdf.typ", "--lua-filter=pages.lua"],
    )
    compiler = typst.Compiler(folder / f"{name}.typ", root=root, font_paths=[FONTS])
    now = int(time.time())
    try:
        made, standard = compiler.compile(format="pdf", timestamp=now, pdf_standards=[STANDARD]), str(STANDARD)
    except typst.TypstError as refused:
        made, standard = compiler.compile(format="pdf", timestamp=now), ""
        print(f"note: {name}.pdf does not conform to PDF/{STANDARD.upper()}: {refused.args[0]}", file=sys.stderr)
    # Of one document, written to no file, typst gives the bytes.
    (folder / f"{name}.pdf").write_bytes(pack(cast("bytes", made)))
    return standard


def pack(pdf: bytes) -> bytes:
    """The same PDF in object streams: its tags, an object each, weigh more than all else as typst writes them."""
    out = BytesIO()
    with pikepdf.open(BytesIO(pdf)) as opened:
        streams = pikepdf.ObjectStreamMode.generate
        opened.save(out, object_stream_mode=streams, fix_metadata_version=False, deterministic_id=True)
    return out.getvalue()


def _convert(folder: Path, words: Sequence[str]) -> None:
    """Run pandoc in a folder, where it reads what the source names. Raises RuntimeError."""
    ran = child_processes.run([pypandoc.get_pandoc_path(), *words, *_SHARED], cwd=folder)
    if ran.returncode:
        raise RuntimeError(f"pandoc {words[0]} failed (exit {ran.returncode}): {ran.stderr.strip()}")
