"""The dataset holds, and damage to any file is found and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from contract.errors import StudyError
from contract.files import read_json, write_text
from report.cli import main
from report.data.published_records import Published
from report.dataset.check import dataset_faults
from report.dataset.declaration import tables
from report.dataset.digests import SUMS, format_digests
from report.dataset.package import dataset_files, write_dataset
from report.publish.datapackage import FOLDERS, published_files

ROOT = Path(__file__).parents[3]
# Rows of each table that frictionless checks.
ROWS = 200
# Damages: what remains of a file's bytes.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "text": lambda _: b"this is not the file",
    "cut": lambda data: data[: len(data) // 2],
    "one bit": lambda data: bytes([*data[:-1], data[-1] ^ 1]),
    "empty": lambda _: b"",
}


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dataset, tmp_path / "copy"))


def faults_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run `dataset --check`; return its lines if it finds faults, else an empty list."""
    capsys.readouterr()
    code = main(["dataset", "--check", str(folder)])
    lines = capsys.readouterr().out.splitlines()
    assert code == (0 if "all files as their digests say" in lines[0] else 1)
    return lines if code else []


def test_dataset_has_no_faults(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert faults_of(dataset, capsys) == []
    assert {f"{name}.parquet" for name in tables()} <= {path.name for path in dataset.iterdir()}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damaged_file_is_named(copy: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = dataset_files(copy)
    for path in files:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    lines = faults_of(copy, capsys)
    for path in files:
        assert f"{path.relative_to(copy)}: differs from its digest in {SUMS}" in lines


def test_missing_and_extra_files_are_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "results.parquet").unlink()
    (copy / "results (1).parquet").write_bytes(b"copy")
    lines = faults_of(copy, capsys)
    assert f"results.parquet: is listed in {SUMS}, but missing" in lines
    assert f"results (1).parquet: is not listed in {SUMS}" in lines
    (copy / SUMS).write_text("0123  results.parquet\n")
    assert f"{SUMS}, line 1: is not a digest and a file name" in faults_of(copy, capsys)
    (copy / SUMS).unlink()
    with pytest.raises(StudyError, match="no such file"):
        main(["dataset", "--check", str(copy)])


@pytest.mark.parametrize(
    ("table", "change", "fault"),
    [
        ("results", lambda rows: pl.concat([rows, rows.head(1)]), "results.parquet: two rows have the key result_id"),
        ("results", lambda rows: rows.drop("estimate"), "results.parquet: column 'estimate' is missing"),
        ("runs", lambda rows: rows.with_columns(wall_s=pl.lit("long")), "column 'wall_s' holds text, not number"),
        ("claims", lambda rows: rows.with_columns(mood=pl.lit(1)), "claims.parquet: column 'mood' is not declared"),
        (
            "accelerators",
            lambda rows: rows.filter(pl.col("accelerator_id") != "h100-sxm"),
            "records.parquet: accelerator_id 'h100-sxm' is not in accelerators.parquet",
        ),
        ("samples", lambda rows: rows.with_columns(run_id=None), "column 'run_id' of its key has missing values"),
        ("records", lambda rows: rows.head(10), "cell_evidence.parquet: evidence_id"),
        ("cell_evidence", lambda rows: rows.tail(10), "has no evidence"),
    ],
)
def test_inconsistent_tables_are_found(
    copy: Path, table: str, change: Callable[[pl.DataFrame], pl.DataFrame], fault: str
) -> None:
    path = copy / f"{table}.parquet"
    change(pl.read_parquet(path)).with_columns().write_parquet(path)
    write_text(copy / SUMS, format_digests(copy, dataset_files(copy)))
    assert any(fault in line for line in dataset_faults(copy))


def test_published_files_are_as_their_digests_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datapackage", "--check", "--data", str(ROOT / "data")]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damaged_published_file_is_named(tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in FOLDERS:
        shutil.copytree(ROOT / "data" / name, tmp_path / name)
    shutil.copy(ROOT / "data" / SUMS, tmp_path)
    files = published_files(tmp_path)
    assert len(files) > 200
    for path in files:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    capsys.readouterr()
    assert main(["datapackage", "--check", "--data", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()[:-1]
    assert lines == [f"{path.relative_to(tmp_path)}: differs from its digest in {SUMS}" for path in files]


def test_frictionless_accepts_the_dataset_and_refuses_damaged_files(copy: Path) -> None:
    from frictionless import Package

    # Frictionless reads about a hundred rows of a wide table per second. It checks the first ROWS rows of each table,
    # but would read each table to which a foreign key points as a whole, so keep only the rows that those rows name.
    package = read_json(copy / "datapackage.json")
    for described in package["resources"]:
        for key in described.get("schema", {}).get("foreignKeys", ()):
            (column,), reference = key["fields"], key["reference"]
            named = pl.read_parquet(copy / described["path"], columns=[column], n_rows=ROWS)
            other = copy / f"{reference['resource']}.parquet"
            rows = pl.read_parquet(other)
            if len(rows) > ROWS:
                rows.join(named, left_on=reference["fields"], right_on=column, how="semi").write_parquet(other)
    for resource in Package(str(copy / "datapackage.json")).resources:
        assert resource.validate(limit_rows=ROWS).valid, resource.name
    for name in ("metrics.parquet", "metrics.csv"):
        (copy / name).write_bytes(b"this is not the file")
    resources = [item for item in Package(str(copy / "datapackage.json")).resources if item.path[:8] == "metrics."]
    damaged = {resource.path for resource in resources if not resource.validate().valid}
    assert damaged == {"metrics.parquet", "metrics.csv"}


def test_frictionless_reads_every_round_of_the_published_files(tmp_path: Path) -> None:
    from frictionless import Package

    package = read_json(ROOT / "data" / "datapackage.json")
    rounds = [resource for resource in package["resources"] if resource["format"] == "parquet"]
    assert len({resource["name"] for resource in package["resources"]}) == len(package["resources"])
    assert all(isinstance(resource["path"], str) and "bytes" not in resource for resource in rounds)
    small = min(rounds, key=lambda resource: (ROOT / "data" / resource["path"]).stat().st_size)
    place = tmp_path / small["path"]
    place.parent.mkdir(parents=True)
    shutil.copy(ROOT / "data" / small["path"], place)
    shutil.copy(ROOT / "data" / "samples.schema.json", tmp_path)
    (tmp_path / "datapackage.json").write_text(json.dumps({**package, "resources": [small]}))
    assert Package(str(tmp_path / "datapackage.json")).resources[0].validate().valid
    place.write_bytes(b"this is not parquet")
    assert not Package(str(tmp_path / "datapackage.json")).resources[0].validate().valid


def test_croissant_has_no_issues_and_yields_records(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlcroissant

    monkeypatch.chdir(dataset)
    described = mlcroissant.Dataset(jsonld=str(dataset / "croissant.json"))
    assert not described.metadata.ctx.issues.errors and not described.metadata.ctx.issues.warnings
    rows = pl.read_parquet(dataset / "accelerators.parquet")
    names = [record["accelerators/accelerator_id"].decode() for record in described.records("accelerators")]
    assert names == rows["accelerator_id"].to_list()


def test_folder_that_is_no_dataset_is_never_replaced(published_study: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("my only copy")
    (tmp_path / "file").write_text("a file")
    for name, other in (("mine", "mine/thesis.txt"), ("file", "file")):
        options = ["--data", str(published_study / "data"), "--verdicts", str(published_study / "verdicts.json")]
        with pytest.raises(StudyError, match=f"{other}: is in no dataset: move it away, or name a new folder"):
            main(["dataset", *options, "--out", str(tmp_path / name)])
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "my only copy"
    assert (tmp_path / "file").read_text() == "a file"


def test_verdicts_of_other_data_are_refused(published_study: Path, dataset: Path, tmp_path: Path) -> None:
    document = read_json(published_study / "verdicts.json")
    document["nodes"] = document["nodes"][:1]
    verdicts, kept = tmp_path / "verdicts.json", tmp_path / "kept"
    verdicts.write_text(json.dumps(document))
    shutil.copytree(dataset, kept)
    with pytest.raises(StudyError, match=r"not of these data: they lack .*judge again"):
        write_dataset(published_study / "data", verdicts, kept, {}, Published())
    assert list(dataset_faults(kept)) == []
    assert {path.name for path in tmp_path.iterdir()} == {"verdicts.json", "kept"}
