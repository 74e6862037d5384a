"""Each spelling leads to one reviewed id, and each product has one id."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import StudyError
from contract.node import read_node, record_path
from report.data.names import KINDS, NAMES, read_names, read_subjects
from report.data.published_records import PUBLISHED, read_published
from report.data.reference_figures import REFERENCE, read_entries, read_reference

NODES = Path(__file__).parents[3] / "data" / "nodes"
PRINTED = {"accelerator": "gpu", "cpu": "cpu", "model": "model"}


def node_names(kind: str) -> set[str]:
    """Return the names that the published nodes report for their processors or GPUs."""
    records = [read_node(record_path(folder)) for folder in NODES.iterdir() if folder.is_dir()]
    if kind == "cpu":
        return {record["hardware"]["cpu"]["model"] for record in records}
    return {device["name"] for record in records for device in record["devices"] if device["kind"] == "gpu"}


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_lacks_an_id_and_no_spelling_is_unused(kind: str) -> None:
    names, records = read_names(kind), read_published(PUBLISHED).records
    named = records[records[PRINTED[kind]] != ""]
    lacking = named[named[KINDS[kind]] == ""]
    assert not len(lacking), f"add to data/names/{kind}_names.csv: {sorted(set(lacking[PRINTED[kind]]))}"
    known = {row["name_as_printed"] for row in names.spellings}
    if kind != "model":
        assert node_names(kind) <= known
    subjects = {entry["subject"] for entry in read_reference(REFERENCE).values()}
    assert known <= {*named[PRINTED[kind]], *subjects, *(node_names(kind) if kind != "model" else ())}
    used = set(zip(named[PRINTED[kind]], named["source"], strict=True))
    used |= {(entry["subject"], path.stem) for path in REFERENCE.glob("*.yaml") for entry in read_entries(path)}
    assert {(row["name_as_printed"], row["source"]) for row in names.spellings if row["source"]} <= used


@pytest.mark.parametrize("kind", KINDS)
def test_no_product_has_two_ids(kind: str) -> None:
    facts = ("maker", "name", "form", "memory_bytes")
    products = Counter(tuple(row.get(fact, "") for fact in facts) for row in read_names(kind).things)
    assert [product for product, count in products.items() if count > 1] == []
    # Names that differ only in case or punctuation name one product.
    plain = Counter(
        "".join(filter(str.isalnum, row["name"].replace("+", "plus").lower())) for row in read_names(kind).things
    )
    assert [name for name, count in plain.items() if count > 1] == []


@pytest.mark.parametrize("kind", KINDS)
def test_each_id_has_a_spelling_or_a_reference(kind: str) -> None:
    used = {row[KINDS[kind]] for row in read_names(kind).spellings} | {row["id"] for row in read_subjects().values()}
    assert {row[KINDS[kind]] for row in read_names(kind).things} <= used


def test_each_reference_subject_has_a_kind_and_a_known_id() -> None:
    subjects = read_subjects()
    assert subjects.keys() == {name.rpartition(".")[0] for name in read_reference(REFERENCE)}
    known = {kind: {row[column] for row in read_names(kind).things} for kind, column in KINDS.items()}
    for name, row in subjects.items():
        if row["kind"] in KINDS:
            assert row["id"] in known[row["kind"]], name
        elif row["kind"] == "system":
            assert row["id"] in known["accelerator"] | known["cpu"] | {""}, name
        else:
            assert row["kind"] == "other" and not row["id"], name


def test_one_card_joins_records_ratings_prices_and_measurements() -> None:
    records = read_published(PUBLISHED).records
    h100 = records[records["accelerator_id"] == "h100-sxm"]
    assert h100["gpu"].nunique() > 10 and {"price", "flops", "time"} <= set(h100["measure"])
    assert "h100-sxm" in {row["id"] for row in read_subjects().values() if row["kind"] == "accelerator"}
    assert {read_names("accelerator").find(name) for name in node_names("accelerator")} == {"h100-sxm"}


def test_rating_is_the_makers_and_no_measured_maximum(dataset: Path) -> None:
    cards = {row["accelerator_id"]: row for row in pl.read_parquet(dataset / "accelerators.parquet").to_dicts()}
    entry = read_reference(REFERENCE)["h100-sxm.bf16_flops"]
    assert entry["status"] == "verified" and cards["h100-sxm"]["rated_bf16_flops"] == entry["value"]
    records = pl.read_parquet(dataset / "records.parquet").filter(
        pl.col("task") == "product", pl.col("dtype") == "bfloat16"
    )
    assert len(records)
    for record in records.to_dicts():
        rating = cards.get(record["accelerator_id"], {}).get("rated_bf16_flops")
        assert rating is None or (record["value_per_device"] or 0) <= rating, record["record_id"]


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)


@given(things=st.lists(st.tuples(TEXT, TEXT), min_size=1, unique_by=lambda row: row[0]), name=TEXT, source=TEXT)
def test_spelling_of_a_source_comes_before_the_spelling_of_all(
    tmp_path_factory: pytest.TempPathFactory, things: list[tuple[str, str]], name: str, source: str
) -> None:
    folder = tmp_path_factory.mktemp("names")
    first, last = things[0][0], things[-1][0]
    write(folder / "cpus.csv", ["cpu_id", "name"], things)
    write(folder / "cpu_names.csv", ["name_as_printed", "source", "cpu_id"], [(name, "", first), (name, source, last)])
    names = read_names("cpu", folder)
    assert names.find(name) == first and names.find(name, source) == last
    assert names.find(name, f"{source}2") == first and names.find(f"{name}2") == ""


def write(path: Path, columns: list[str], rows: list[tuple[str, ...]]) -> None:
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])


@pytest.mark.parametrize(
    ("table", "line", "fault"),
    [
        ("cpus.csv", "a64fx,Fujitsu,A64FX again,,,", r"cpus\.csv, line \d+: the id 'a64fx' is used twice"),
        ("cpus.csv", "new,Maker", r"cpus\.csv, line \d+: must have 6 fields"),
        ("cpu_names.csv", "Some CPU,,no-such-id,,", r"'Some CPU': the id 'no-such-id' is not in cpus\.csv"),
        ("cpu_names.csv", "12-core ARM Cortex-A78AE CPU,,a64fx,,", r"'12-core ARM Cortex-A78AE CPU' is listed twice"),
    ],
)
def test_faulty_tables_are_refused(tmp_path: Path, table: str, line: str, fault: str) -> None:
    for name in ("cpus.csv", "cpu_names.csv"):
        (tmp_path / name).write_text((NAMES / name).read_text(encoding="utf-8"), encoding="utf-8")
    with (tmp_path / table).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(StudyError, match=fault):
        read_names("cpu", tmp_path)
