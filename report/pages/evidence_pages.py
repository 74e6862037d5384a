"""Pages that list all evidence by id: the results of each experiment, the records of each source, reference figures.

The tables are raw HTML, because pandoc would take minutes for as many rows of Markdown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jinja2
import pandas as pd

from report import formatting
from report.data.gathered_files import read_result_ids, read_summary
from report.data.published_records import Published
from report.data.summary_rows import point_text
from report.data.table_rows import row_dicts
from report.dataset.declaration import PLAIN_UNITS
from report.dataset.published import record_rows, reference_rows
from report.pages.case_evidence import citation
from report.pages.evidence_ids import (
    INDEX,
    REFERENCE_PAGE,
    EvidenceIds,
    Piece,
    experiment_page,
    listed_nodes,
    result_pages,
    source_page,
)
from report.pages.figure_data import Evidence
from report.pages.markdown import Markdown, environment, escape_html, raw_html, web_address
from report.pages.site_sources import TEMPLATES, Page

Row = Mapping[str, Any]
_COLUMNS = (
    "result_id", "experiment", "device", "backend", "dtype", "threads", "params", "unit", "status", "n_rounds",
    "estimate", "low", "high", "flags",
)  # fmt: skip


class _Html(str):
    """Text that is already HTML and needs no escaping."""

    __slots__ = ()


@dataclass(frozen=True)
class EvidenceTables:
    """All evidence that has a place on a page.

    results: summary rows with their result id, by experiment. records: rows by source. sources: titles of the sources.
    """

    ids: EvidenceIds
    results: Mapping[str, Sequence[Row]]
    records: Mapping[str, Sequence[Row]]
    sources: Mapping[str, str]
    reference: Sequence[Row]


NO_EVIDENCE = EvidenceTables(EvidenceIds(), {}, {}, {}, ())


def read_evidence(evidence: Evidence) -> EvidenceTables:
    """Read all evidence; without gathered data there is none. Raises StudyError for unusable data."""
    if evidence.folder is None or evidence.data is None:
        return NO_EVIDENCE
    names = read_result_ids(evidence.folder)
    nodes = listed_nodes(names, evidence.shown_nodes)
    results = {
        experiment: rows for experiment, rows in _results(evidence.folder, nodes).items() if experiment_page(experiment)
    }
    published, reference = evidence.data.published, reference_rows(evidence.data.reference)
    records = _records(published)
    pages: dict[Piece, str] = {
        **result_pages(names, nodes),
        **{("record", row["record_id"]): source_page(source) for source, rows in records.items() for row in rows},
        **{("reference", row["reference_id"]): REFERENCE_PAGE for row in reference},
    }
    titles = {name: str(source["title"]) for name, source in published.sources.items()}
    return EvidenceTables(EvidenceIds(names, pages), results, records, titles, reference)


def _results(folder: Path, nodes: Any) -> dict[str, list[Row]]:
    """Return the summary rows of these nodes by experiment, sorted by point."""
    table = read_summary(folder, _COLUMNS, sorted(nodes))
    rows = table.astype({name: str for name in _COLUMNS if isinstance(table[name].dtype, pd.CategoricalDtype)})
    results: dict[str, list[Row]] = {}
    for row in row_dicts(rows):
        results.setdefault(row["experiment"], []).append(row)
    return {name: sorted(own, key=_point_order) for name, own in sorted(results.items())}


def _point_order(row: Row) -> tuple[Any, ...]:
    """Return a sort key that keeps a point's results together, and puts similar points side by side."""
    point = [row[name] for name in ("device", "backend", "dtype", "threads", "params")]
    return (*point, row["result_id"].split("/")[1])


def _records(published: Published) -> dict[str, list[Row]]:
    records: dict[str, list[Row]] = {}
    for row in record_rows(published) if len(published.records) else ():
        records.setdefault(row["source_id"], []).append(row)
    return dict(sorted(records.items()))


def evidence_pages(tables: EvidenceTables, document: Row, choice: str) -> Iterator[tuple[str, str, Callable[[], Page]]]:
    """Yield path, title and a function that builds the page, for each page of evidence and for their index.

    choice: sentence on the machines whose results are listed; '' if all are.
    """
    if tables.ids.results is None:
        return
    entries: dict[str, list[dict[str, Any]]] = {"Results": [], "Records": [], "Figures": []}

    def entry(group: str, path: str, title: str, count: int) -> tuple[str, str]:
        entries[group].append({"path": Markdown(path), "title": title, "count": f"{count:,}"})
        return path, title

    for experiment, rows in tables.results.items():
        path, title = entry("Results", experiment_page(experiment), f"Results of {experiment}", len(rows))
        yield path, title, partial(_result_page, path, title, rows, document)
    for source, rows in tables.records.items():
        path, title = entry("Records", source_page(source), f"Records: {tables.sources.get(source, source)}", len(rows))
        yield path, title, partial(_record_page, path, title, rows, document)
    path, title = entry("Figures", REFERENCE_PAGE, "Reference figures", len(tables.reference))
    yield path, title, partial(_reference_page, path, title, tables.reference, document)
    yield INDEX, "All evidence by id", partial(_index_page, entries, document, choice)


def _index_page(entries: Mapping[str, Sequence[Row]], document: Row, choice: str) -> Page:
    titles = {"Results": "Measured here", "Records": "Published by others", "Figures": "Reference figures"}
    groups = [
        {"key": Markdown(key.lower()), "title": titles[key], "rows": rows} for key, rows in entries.items() if rows
    ]
    about = "Every result, record and reference figure by its id."
    return Page(INDEX, "evidence-index", "All evidence by id", about,
                {"groups": groups, "cite": citation(document, "and the id"), "choice": choice})  # fmt: skip


def _result_page(path: str, title: str, rows: Sequence[Row], document: Row) -> Page:
    groups = [
        {"title": _point_title(own[0]), "rows": [_result_cells(row) for row in own]}
        for own in (list(group) for _, group in groupby(rows, lambda row: row["result_id"].split("/")[1]))
    ]
    about = f"{formatting.format_count(len(rows), 'result')}, by point: node, point and metric make the id."
    return _table_page(path, title, about, document, rows[0]["result_id"],
                       ("Result", "Estimate, 99% interval", "Rounds", "Status or flags"), groups)  # fmt: skip


def _point_title(row: Row) -> str:
    return ", ".join(filter(None, (row["device"], point_text(row))))


def _result_cells(row: Row) -> list[str]:
    """Return the cells of a result: id, estimate with interval, rounds, and status or flags."""
    ok = row["status"] == "ok"
    value = _interval_text(row) if ok and not pd.isna(row["estimate"]) else ""
    return [row["result_id"], value, str(row["n_rounds"]), row["flags"] if ok else row["status"]]


def _interval_text(row: Row) -> str:
    if pd.isna(row["low"]) or pd.isna(row["high"]):
        return formatting.with_unit(row["estimate"], row["unit"])
    return formatting.format_interval(row["estimate"], row["low"], row["high"], row["unit"])


def _record_page(path: str, title: str, rows: Sequence[Row], document: Row) -> Page:
    """Build the page of a source. Its addresses are headings, or links in the rows if most records have their own."""
    groups = [(url, list(own)) for url, own in groupby(rows, lambda row: row["url"])]
    if 2 * len(groups) < len(rows):
        shown = [
            {"title": _web_link(_short_address(url), url), "rows": [_record_cells(row) for row in own]}
            for url, own in groups
        ]
    else:
        linked = [[*_record_cells(row)[:-1], _web_link(row["locator"] or row["url"], row["url"])] for row in rows]
        shown = [{"title": "", "rows": linked}]
    about = f"{formatting.format_count(len(rows), 'record')}, each with the address at which it stands."
    return _table_page(path, title, about, document, rows[0]["record_id"],
                       ("Record", "Value", "Hardware", "Where"), shown)  # fmt: skip


def _record_cells(row: Row) -> list[str]:
    """Return the cells of a record: id, value, hardware, and place in the source."""
    gpu, cpu = (row[f"{kind}_as_printed"] for kind in ("gpu", "cpu"))
    name, count = (gpu, row["gpus"]) if gpu else (cpu, row["cpus"])
    hardware = f"{count:,} × {name}" if name and count and count > 1 else name
    return [row["record_id"], formatting.with_unit(row["value"], row["unit"]), hardware, row["locator"]]


def _reference_page(path: str, title: str, rows: Sequence[Row], document: Row) -> Page:
    cells = [
        [
            row["reference_id"], _reference_value(row), f"{row['subject_name']}: {row['means']}", row["status"],
            _Html(f"{_web_link(row['title'], row['url'])} {escape_html(row['locator'])}"),
        ]
        for row in rows
    ]  # fmt: skip
    about = f"{formatting.format_count(len(rows), 'figure')} from datasheets, papers and price lists."
    heads = ("Figure", "Value", "What it is", "Status", "Source")
    example = rows[0]["reference_id"] if rows else ""
    return _table_page(path, title, about, document, example, heads, [{"title": "", "rows": cells}])


def _reference_value(row: Row) -> str:
    if row["value"] is None:
        return "could not be verified"
    ends = [row["low"], row["high"]]
    around = f" ({' to '.join(map(formatting.format_exact, ends))})" if None not in ends else ""
    unit = "1" if row["unit"] in PLAIN_UNITS else row["unit"]
    return formatting.threshold_text(row["value"], unit) + around


def _short_address(url: str) -> str:
    """Return an address's host and file name: 'github.com/…/README.md'."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    name = parts.path.rstrip("/").rpartition("/")[2]
    return f"{parts.netloc}/…/{name}" if parts.netloc and name else url


def _web_link(text: str, address: str) -> _Html:
    """Return a link for an http(s) address, else only the text, as HTML."""
    target, words = web_address(address), escape_html(text)
    return _Html(f'<a href="{escape_html(target)}">{words}</a>' if target else words)


def _table_page(
    path: str, title: str, about: str, document: Row, example: str, heads: Sequence[str], groups: Sequence[Row]
) -> Page:
    """Build a page with a table of evidence. example: an id on the page, which shows how to cite it."""
    content = {"kind": f"{heads[0].lower()}s", "heads": heads, "groups": groups}
    table = raw_html(_templates().get_template("evidence-table.html").render(content))
    return Page(path, "evidence", title, about,
                {"about": about, "cite": citation(document, example), "table": table})  # fmt: skip


@cache
def _templates() -> jinja2.Environment:
    return environment(TEMPLATES, _finalize_html)


def _finalize_html(value: Any) -> str:
    if isinstance(value, jinja2.Undefined):
        return str(value)  # raises UndefinedError
    return value if isinstance(value, _Html) else escape_html(str(value))
