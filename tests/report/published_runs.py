"""Invented published measurements for tests. Their records are marked as synthetic."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from report.data.published_records import COLUMNS, MEANING, Published, read_published

URL = "https://github.com/nobody/nothing/blob/0123456789abcdef0123456789abcdef01234567/made-up.txt"
GPU: dict[str, Any] = {
    "measured_by": "synthetic", "where": "row 1", "url": URL, "date": "2024-05", "device": "gpu", "cpu": "",
    "gpu": "NVIDIA H100 SXM", "gpus": 1, "nodes": 1, "task": "train", "model": "bert", "setting": "wikipedia",
    "batch": 8, "dtype": "bfloat16", "measure": "rate", "unit": "samples/s", "value": 100.0,
}  # fmt: skip
CPU: dict[str, Any] = {
    **GPU, "device": "cpu", "cpu": "Xeon 8480+", "cpus": 2, "cores": 112, "gpu": "", "gpus": "", "value": 10.0,
}  # fmt: skip


def write_source(
    folder: Path,
    name: str,
    records: Sequence[Mapping[str, Any]],
    family: str = "",
    about_source: Mapping[str, str] | None = None,
) -> Path:
    """Add a source to a folder with published measurements and return its CSV file. Records without an id get one.

    about_source: fields of its entry in sources.yaml; an empty field is left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listing = folder / "sources.yaml"
    about = {
        "id": name, "title": f"Made up: {name}", "publisher": "nobody", "kind": "user", "url": URL, "date": "2024",
        "terms": "synthetic", "licence": "none stated", "may_redistribute": "facts-only", "accessed": "2026-01-01",
        "how": "read", "family": family or name, "per": "system", "spread_kind": "extremes", "date_means": "published",
        "note": "Synthetic, for tests.",
    }  # fmt: skip
    about |= about_source or {}
    lines = [
        f"{'- ' if not index else '  '}{key}: '{value}'"
        for index, (key, value) in enumerate((key, value) for key, value in about.items() if value)
    ]
    with listing.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    path = folder / f"{name}.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        columns = set(COLUMNS).union(*records)
        table = csv.DictWriter(file, [name for name in MEANING if name in columns], restval="", lineterminator="\n")
        table.writeheader()
        table.writerows({"id": f"r{index}", **record} for index, record in enumerate(records, 1))
    return path


def published_sources(folder: Path, **sources: Sequence[Mapping[str, Any]]) -> Published:
    """Write all sources with their records to `folder`, and read them.

    Underscores in the sources' names become hyphens. Each source is its own family, so sources count as independent.
    """
    for name, records in sources.items():
        write_source(folder, name.replace("_", "-"), records)
    return read_published(folder)
