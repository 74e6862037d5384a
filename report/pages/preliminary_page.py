"""A first page while measuring continues, with every verdict so far, marked as preliminary.

The page has no figures or measurements, and there is no PDF: they are not worth the time after a single round.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from contract.files import write_text
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.published_records import PUBLISHED, read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.judging.judge import CLAIMS, judge
from report.pages import pandoc, site_sources
from report.pages.site_content import table_rows
from report.pages.verdict_words import format_tally


def write_preliminary_page(nodes: Sequence[Path], out: Path, rounds: int) -> Path:
    """Write the page from nodes that are still being measured, after round 1; return the path `out`/index.html.

    rounds: planned number of rounds, which the page states.

    Raises StudyError if no node can be used, OSError if `out` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=out, prefix=".made-"))
    try:
        gather(nodes, scratch / "data")
        data = read_dataset(scratch / "data", read_reference(REFERENCE), read_published(PUBLISHED))
        document = judge(data, scratch / "verdicts.json", CLAIMS)
        context = {"rows": table_rows(document), "rounds": rounds, "fares": format_tally(document["verdicts"])}
        page = site_sources.Page(
            "index", "preliminary", site_sources.TITLE, "A preliminary look, after one round.", context
        )
        write_text(scratch / "index.qmd", site_sources.page_source(page, site_sources.template_environment(), {}))
        write_text(scratch / "page.html", site_sources.standalone_template(site_sources.imprint(document)))
        site_sources.copy_site(scratch)
        if failed := pandoc.render(scratch, ["index"]):
            raise RuntimeError(failed["index"])
        shutil.copytree(scratch / "site", out / "site", dirs_exist_ok=True)
        return (scratch / "index.html").replace(out / "index.html")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
