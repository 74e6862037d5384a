"""A first page while the rest is measured: the answer, the tally and every verdict so far, marked as preliminary.

No figures, no measurements and no PDF: they take longer than what is known after one round is worth.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from contract.files import write_text
from report.data.gather import gather
from report.data.gathered import read_dataset
from report.data.published import PUBLISHED, read_published
from report.data.reference import REFERENCE, read_reference
from report.judging.judge import CLAIMS, judge
from report.render import TEMPLATES, joined, pandoc
from report.render.markdown import environment
from report.render.page import context


def preliminary(nodes: Sequence[Path], out: Path, rounds: int) -> Path:
    """Gather and judge the nodes as they are, after one round of `rounds`; returns the page, `out`/index.html.

    Raises StudyError if no node can be used, OSError if `out` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=out, prefix=".made-"))
    try:
        gather(nodes, scratch / "data")
        data = read_dataset(scratch / "data", read_reference(REFERENCE), read_published(PUBLISHED))
        document = judge(data, scratch / "verdicts.json", CLAIMS)
        told, _ = context(document, None)
        source = environment(TEMPLATES).get_template("preliminary.qmd").render({**told, "rounds": rounds})
        write_text(scratch / "index.qmd", source)
        for name in ("_quarto.yml", "report.lua", "page.html"):
            shutil.copyfile(TEMPLATES / name, scratch / name)
        write_text(scratch / "report.css", joined("styles/*.css"))
        write_text(scratch / "report-script.html", "")
        pandoc.write_page(scratch)
        return (scratch / "index.html").replace(out / "index.html")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
