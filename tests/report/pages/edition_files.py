"""Helpers that write and read judged studies on synthetic nodes, which tests use as editions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.published_records import Published
from report.data.reference_figures import REFERENCE, read_reference
from report.dataset.package import write_dataset
from report.judging.judge import judge
from report.pages import site_paths
from tests.report.conftest import Factory


@dataclass(frozen=True)
class Study:
    """A folder with gathered data/, verdicts.json and the dataset, and the parsed verdicts."""

    folder: Path
    document: dict[str, Any]

    @property
    def verdicts(self) -> Path:
        return self.folder / "verdicts.json"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def dataset(self) -> Path:
        return self.folder / "dataset"


def write_study(folder: Path, rates: dict[str, float], judged_utc: str) -> None:
    """Gather and judge synthetic nodes. rates: multiply-adds per cycle, by node name.

    Mark the verdicts as measured, because editions refuse synthetic ones.
    """
    factory = Factory(folder / "nodes")
    for name, rate in rates.items():
        node = factory(name).gemm(rate).gemm(rate / 2, n=256).clock()
        node.point("gemm", 1.0, dtype="int8", status="unsupported", reason="=HYPERLINK(1) is no dtype")
        node.write()
    gather([factory.root], folder / "data", allow_synthetic=True)
    data = read_dataset(folder / "data", read_reference(REFERENCE))
    document = judge(data, folder / "verdicts.json", allow_synthetic=True)
    document = {**document, "generated_utc": judged_utc, "origin": "measured"}
    (folder / "verdicts.json").write_text(json.dumps(document), encoding="utf-8")
    reference = read_reference(REFERENCE)
    write_dataset(folder / "data", folder / "verdicts.json", folder / "dataset", reference, Published())


def read_study(folder: Path) -> Study:
    """Read the study that `write_study` wrote."""
    return Study(folder, json.loads((folder / "verdicts.json").read_text(encoding="utf-8")))


def stand_in_report(folder: Path, study: Study) -> Path:
    """Write the files that rendering makes, with placeholder content."""
    for name in (
        site_paths.PAGE,
        site_paths.PDF,
        site_paths.APPENDIX,
        "figures/none.svg",
        "previews/none.png",
        "site/script.html",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"synthetic: {name}", encoding="utf-8")
    (folder / "index.qmd").write_text("synthetic", encoding="utf-8")
    files = [site_paths.PAGE, site_paths.PDF, site_paths.APPENDIX, "index.qmd", "site/script.html"]
    rendered = {"generated_utc": study.document["generated_utc"], "pages": ["index"], "files": files}
    (folder / site_paths.RENDERED).write_text(json.dumps(rendered), encoding="utf-8")
    return folder
