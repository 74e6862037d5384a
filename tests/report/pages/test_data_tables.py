"""Data tables on the site: they list each sample once, with its row number in the summary."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import StudyError
from report.data.gather import gather
from report.pages import site_paths
from report.pages.data_tables import write_data, write_table
from tests.report.conftest import Factory


def read_table(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, keep_default_na=False, na_values={"value": [""], "estimate": [""]})


@pytest.fixture
def data_and_site(synthetic: Factory, tmp_path: Path) -> tuple[Path, Path]:
    """Return the folder with the gathered data and the folder with the site's tables, for two nodes, one with GPUs."""
    synthetic("node-a").gemm(27.9).gemm(14, n=256).clock().write()
    node = synthetic("node-b", gpus=2).gemm(9).gemm(500, device="cuda:1")
    node.point("odd", 1.0, params={"value": 3, "batch": 8, "how": "=1+1", "flag": True, "part": None})
    node.point("odd", 2.0, params={"batch": 16, "how": "-x"})
    node.point("odd", 1.0, dtype="int8", status="failed", reason='=HYPERLINK("http://x"), a comma')
    node.write()
    gather([synthetic.root], tmp_path / "data", allow_synthetic=True)
    write_data(tmp_path / "data", tmp_path / "site")
    return tmp_path / "data", tmp_path / "site"


def test_every_sample_is_in_its_machines_table(data_and_site: tuple[Path, Path]) -> None:
    data, out = data_and_site
    samples = pd.read_parquet(data / "samples.parquet")
    files = read_table(out / site_paths.FILES)
    groups = samples.groupby(["node", "experiment", "device"])
    assert {tuple(row) for row in files[["node", "experiment", "device"]].to_numpy()} == set(groups.groups)
    for (node, experiment, device), part in groups:
        path = out / site_paths.samples_path(node, experiment, device)
        table = read_table(path)
        assert sorted(table["value"].dropna()) == pytest.approx(sorted(part["value"].dropna()), rel=0, abs=0)
        (line,) = files[files["path"] == site_paths.samples_path(node, experiment, device)].to_dict("records")
        assert line["samples"] == len(table) == len(part) and line["bytes"] == path.stat().st_size
    assert (out / "data" / "node-b" / "gemm.cuda-1.csv").is_file()


def test_sample_row_leads_to_its_estimate(data_and_site: tuple[Path, Path]) -> None:
    _, out = data_and_site
    summary = read_table(out / site_paths.SUMMARY).set_index("row")
    assert list(summary.index) == list(range(len(summary)))
    sample_rows = set()
    for path in sorted((out / "data").glob("*/*.csv")):
        for row, part in read_table(path).groupby("row"):
            summary_row = summary.loc[row]
            sample_rows.add(row)
            assert path.parent.name == summary_row["node"] and path.name.split(".")[0] == summary_row["experiment"]
            for name in ("backend", "dtype", "threads", "metric", "unit"):
                assert set(part[name].astype(str)) == {str(summary_row[name])}
            if summary_row["status"] == "ok":
                medians = part.groupby("round")["value"].median()
                assert np.exp(np.log(medians).mean()) == pytest.approx(summary_row["estimate"], rel=1e-9)
                for name, value in json.loads(summary_row["params"]).items():
                    column = f"param_{name}" if name == "value" else name
                    if value is not None:
                        assert set(part[column].astype(str).str.removeprefix("'")) == {
                            str(value) if not isinstance(value, bool) else json.dumps(value)
                        }
    assert sample_rows == set(summary.index)


def test_no_text_can_be_read_as_a_formula(data_and_site: tuple[Path, Path]) -> None:
    _, out = data_and_site
    odd = read_table(out / "data" / "node-b" / "odd.cpu.csv")
    assert '\'=HYPERLINK("http://x"), a comma' in set(odd["reason"])
    assert set(odd["how"]) == {"'=1+1", "'-x", ""}
    for path in (out / "data").rglob("*.csv"):
        for text in pd.read_csv(path, dtype=str, keep_default_na=False).to_numpy().ravel():
            # Only numbers may begin with a minus, because spreadsheets treat other text after a minus as a formula.
            assert not text.startswith(("=", "+", "@", "\t")) and not re.match(r"-(?![\d.]+(e-?\d+)?$)", text)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.from_regex(r"[=+@\t\r-].*"), min_size=1))
def test_text_survives_with_an_apostrophe_before_formulas(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_table(pd.DataFrame({"text": texts}), Path(folder) / "table.csv")
        with (Path(folder) / "table.csv").open(encoding="utf-8", newline="") as file:
            written = [row["text"] for row in csv.DictReader(file)]
    for text, value in zip(texts, written, strict=True):
        assert value.removeprefix("" if text.startswith("'") else "'") == text.replace("\r", " ")
    assert not any(text.startswith(("=", "+", "-", "@", "\t", "\r")) for text in written)


def test_samples_from_another_gathering_are_refused(data_and_site: tuple[Path, Path], tmp_path: Path) -> None:
    data, _ = data_and_site
    samples: Any = pd.read_parquet(data / "samples.parquet")
    samples.loc[0, "metric"] = "another"
    samples.to_parquet(data / "samples.parquet", index=False)
    with pytest.raises(StudyError, match="gather again"):
        write_data(data, tmp_path / "other")


NAMES = st.one_of(
    st.text(max_size=120),
    st.sampled_from(
        ["..", ".", "", "a/b", "a\\b", "a b", "con?x#y", "é", "\ud800", "a" * 300, "-x", "..csv", "0.", "%2e"]
    ),
)


@given(names=st.tuples(NAMES, NAMES, NAMES), other=NAMES)
def test_sample_paths_are_safe_and_distinct(names: tuple[str, str, str], other: str) -> None:
    parts = site_paths.samples_path(*names).split("/")
    assert len(parts) == 3 and parts[0] == "data"
    for part in parts:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", part) and ".." not in part and len(part) < 255
    assert (site_paths.samples_path(other, *names[1:]) == site_paths.samples_path(*names)) == (names[0] == other)
