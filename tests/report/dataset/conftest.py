"""The published nodes' dataset, made once per test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from report.data.published_records import PUBLISHED, read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.dataset.package import write_dataset
from tests.report.built_once import build_once


@pytest.fixture(scope="session")
def dataset(published_study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the dataset. Tests share the folder, so they must not write to it."""

    def make(folder: Path) -> None:
        data, verdicts = published_study / "data", published_study / "verdicts.json"
        write_dataset(data, verdicts, folder / "dataset", read_reference(REFERENCE), read_published(PUBLISHED))

    return build_once(tmp_path_factory, "dataset", make) / "dataset"
