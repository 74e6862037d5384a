"""Render pages and figure contents as text lines."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from report.commands.explain import Sources, explain
from report.data.reference_figures import REFERENCE, read_reference
from report.pages import charts, site_sources
from report.pages.figure_data import Evidence
from report.pages.site_content import build_content

# Lines to keep of a page that lists evidence or published runs: its tables repeat the summary and the published
# figures, and the lists of evidence on claims' pages repeat the verdicts.
EVIDENCE_LINES = 16
# Fields in verdicts.json that differ between runs, with fixed values to replace them.
PASSING = {"generated_utc": "2025-01-01T00:00:00Z", "commit": "0" * 40, "study_version": "0"}


def pages(folder: Path, known: Collection[str] = ()) -> Iterator[str]:
    """Yield the lines of every page and figure, with one claim page and explanation per verdict.

    folder: holds verdicts.json, and data/ from `gather`. known: headings of pages and figures to leave out.
    """
    document = json.loads((folder / "verdicts.json").read_text(encoding="utf-8")) | PASSING
    content = build_content(Evidence(document, folder / "data"))
    assert not content.failures.as_json, content.failures.as_json
    kept = {verdict["verdict"]: f"claims/{verdict['id']}" for verdict in document["verdicts"]}
    templates = site_sources.template_environment()
    for page in content.pages:
        heading = f"==== page {page.path}"
        if heading not in known and (not page.path.startswith("claims/") or page.path in kept.values()):
            yield heading
            lines = site_sources.page_source(page, templates, content.terms).splitlines()
            kept_lines = lines[: EVIDENCE_LINES if page.template in ("evidence", "runs") else None]
            yield from (line for line in kept_lines if not line.startswith("<li>"))
    sources = Sources(folder / "data", read_reference(REFERENCE))
    for claim in kept.values():
        if (heading := f"==== explained {claim}") not in known:
            yield heading
            yield from explain(document, Path(claim).name, sources).splitlines()
    for chart in sorted(content.charts, key=lambda chart: chart.name):
        if (heading := f"==== figure {chart.name}") not in known:
            yield heading
            yield from filter(None, (chart.title, chart.note, chart.alt))
            with charts.theme():
                for axes in chart.draw(charts.WIDE).axes:
                    yield from panel_lines(axes)


def panel_lines(axes: Axes) -> Iterator[str]:
    """Yield the texts and marks in one panel."""
    yield f"panel {axes.get_title()!r}"
    for axis in (axes.xaxis, axes.yaxis):
        ticks = [text.get_text() for text in axis.get_ticklabels()]
        yield f"axis {axis.get_label_text()!r}, {axis.get_scale()}: {ticks}"
    yield from (f"text {text.get_text()!r}" for text in axes.texts)
    for line in axes.lines:
        yield f"line {to_hex(line.get_color())} {line.get_marker()} {numbers(line.get_xydata())}"
    for marks in axes.collections:
        paths = " ".join(numbers(path.vertices) for path in marks.get_paths())
        yield f"marks {numbers(marks.get_offsets())}, {paths}"
    for marks in axes.collections + axes.images:
        if marks.get_array() is not None:
            yield f"colours {numbers(marks.get_array())}"
    for bar in axes.patches:
        yield f"bar {numbers(bar.get_patch_transform().transform(bar.get_path().vertices))}"


def numbers(values: Any) -> str:
    """Format values to four digits."""
    return " ".join(f"{value:.4g}" for value in np.ma.filled(np.ma.asarray(values, dtype=float), np.nan).ravel())
