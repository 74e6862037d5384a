"""Contributed nodes with arbitrary content: each is used, or refused with a reason; others are read unchanged.

To run a thousand cases per property: `HOSTILE=1000 pytest tests/report/test_hostile_nodes.py`.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from contract import sample_table
from contract.errors import StudyError
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.node_folders import find_nodes
from report.data.node_reader import read_folders, read_nodes
from report.formatting import node_label
from tests.report.lying_nodes import copy_node, renamed_record

# Hypothesis does not shrink failures here: they are small enough to read, and each attempt takes 0.1 s.
CASES = int(os.environ.get("HOSTILE", "15"))
ROUNDS = ("clock.cpu.5", "several-devices.cpu.1")
HOSTILE = settings(
    max_examples=CASES,
    deadline=None,
    derandomize="HOSTILE" not in os.environ,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with two equal nodes, `honest` and `victim`. Tests corrupt `victim`."""
    root = tmp_path_factory.mktemp("nodes")
    copy_node(root / "honest", ROUNDS)
    copy_node(root / "victim", ROUNDS)
    return root


@pytest.fixture(scope="module")
def honest_samples(two_nodes: Path) -> pd.DataFrame:
    return read_nodes([two_nodes / "honest"]).nodes[0].samples


def check_reading(two_nodes: Path, honest_samples: pd.DataFrame) -> None:
    """Check that the honest node reads unchanged, and that the victim is used, or refused with a reason."""
    records, refused = find_nodes([two_nodes])
    nodes: dict[str, Any] = {}
    for node, left_out in read_folders(records):
        nodes |= {node.id: node} if node else {}
        refused += left_out
    pd.testing.assert_frame_equal(nodes.pop("honest").samples, honest_samples)
    for refusal in refused:
        assert refusal["file"].startswith(str(two_nodes / "victim")) and refusal["reason"]
        assert len(refusal["reason"]) < 2000 and len(refusal["reason"].splitlines()) == 1
        assert "\x1b" not in refusal["reason"].encode().decode()
    for node in nodes.values():
        # The report must cope with any accepted record.
        assert node_label(node.record) and node.kinds()
        json.dumps(node.record, allow_nan=False).encode()
    assert nodes or refused


def value_paths(value: Any, steps: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every value in a document."""
    yield steps
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in inside:
        yield from value_paths(inner, (*steps, step))


def replace_value(document: Any, steps: tuple[Any, ...], value: Any) -> Any:
    if not steps:
        return value
    changed = copy.deepcopy(document)
    inside = changed
    for step in steps[:-1]:
        inside = inside[step]
    inside[steps[-1]] = value
    return changed


GOOD = renamed_record("victim")
ODD = [[], {}, 5, -1, 0, 10**400, float("nan"), "\ud800", "cpu", "9999-12-31T23:59:59Z", "x" * 10_000]
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(ODD),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(), inside, max_size=4),
    max_leaves=8,
)


@HOSTILE
@given(st.sampled_from(list(value_paths(GOOD))), ANY)
@example(("hardware", "cpu"), 5)
@example(("software", "packages"), [])
@example(("hardware", "cpu", "usable_cores"), float("nan"))
@example(("hardware", "memory_bytes"), 10**400)
@example(("devices", 0, "name"), "\ud800")
@example(("id",), "victim\n")
@example(("started_utc",), "2970-01-01T00:00:00Z")
def test_record_with_any_json_value_is_used_or_refused(
    two_nodes: Path, honest_samples: pd.DataFrame, steps: tuple[Any, ...], value: Any
) -> None:
    text = json.dumps(replace_value(GOOD, steps, value))
    (two_nodes / "victim" / "node.json").write_text(text)
    try:
        check_reading(two_nodes, honest_samples)
    finally:
        (two_nodes / "victim" / "node.json").write_text(json.dumps(GOOD))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "deep"),
        ("x" * 2**21, "2,097,152 bytes"),
        ("{}", "missing"),
        ("null", "not of type object"),
        *((f'{{"schema": {value}}}', why) for value, why in (
            ("1e999", "not a finite number"), ("NaN", "not a finite number"), ('"\\udc00"', "lone surrogate"),
            ("9" * 5000, "too large a whole number"),
        )),
        (json.dumps(replace_value(GOOD, ("hardware", "cpu", "model"), "\x1b[2J")), "is not one line"),
        (json.dumps(replace_value(GOOD, ("hardware", "gpus"), [{}] * 101)), "has 101 entries; at most 100 are allowed"),
    ],
)  # fmt: skip
def test_faulty_record_is_refused_with_a_reason(tmp_path: Path, text: str, why: str) -> None:
    copy_node(tmp_path / "honest", ROUNDS[:1])
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "node.json").write_text(text)
    nodes = read_nodes([tmp_path])
    assert [node.id for node in nodes.nodes] == ["honest"]
    (refusal,) = nodes.refused
    assert refusal["file"] == str(tmp_path / "victim" / "node.json")
    assert why in refusal["reason"] and len(refusal["reason"]) < 1000


@HOSTILE
@given(
    st.sampled_from(ROUNDS),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=20),
    st.booleans(),
    st.none() | st.floats(0, 1),
)
def test_round_with_corrupt_bytes_is_used_or_refused(
    two_nodes: Path,
    honest_samples: pd.DataFrame,
    name: str,
    flips: list[tuple[float, int]],
    footer: bool,
    cut: float | None,
) -> None:
    path = two_nodes / "victim" / f"{name}.parquet"
    good = path.read_bytes()
    bad = bytearray(good)
    # If `footer` is true, change only the end of the file, where the Parquet footer describes the layout.
    first = len(bad) - 6000 if footer else 0
    for where, byte in flips:
        bad[first + int(where * (len(bad) - first))] = byte
    path.write_bytes(bad[: None if cut is None else int(cut * len(bad))])
    try:
        check_reading(two_nodes, honest_samples)
    finally:
        path.write_bytes(good)


FILE_KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "is not a readable regular file"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "is not a readable regular file (a link)"),
    "a loop of links": (lambda path: path.symlink_to(path), "is not a readable regular file (a link)"),
    "a folder": (lambda path: path.mkdir(), "is not a readable regular file"),
    "very many bytes": (lambda path: path.write_bytes(b"PAR1" + bytes(2**24)), "(limit: "),
    "nothing": (lambda path: path.write_bytes(b""), ""),
}


@pytest.mark.parametrize("name", ["node.json", f"{ROUNDS[0]}.parquet"])
@pytest.mark.parametrize("kind", FILE_KINDS)
def test_only_plain_files_within_size_limits_are_read(tmp_path: Path, name: str, kind: str) -> None:
    copy_node(tmp_path / "honest", ROUNDS[:1])
    copy_node(tmp_path / "victim", ROUNDS)
    make, why = FILE_KINDS[kind]
    (tmp_path / "victim" / name).unlink()
    make(tmp_path / "victim" / name)
    nodes = read_nodes([tmp_path])
    assert [node.id for node in nodes.nodes] == (["honest"] if name == "node.json" else ["honest", "victim"])
    (refusal,) = nodes.refused
    assert refusal["file"] == str(tmp_path / "victim" / name) and why in refusal["reason"]


@pytest.mark.parametrize(
    ("name", "most", "why"),
    [
        ("MOST_ROWS", 77, "has 78 rows (limit: 77)"),
        ("MOST_TEXT", 1000, "holds more than 1,000 bytes of text"),
        ("MOST_EXPANDED", 4000, "bytes, expanded (limit: 4,000)"),
    ],
)
def test_tables_above_memory_limits_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int, why: str
) -> None:
    copy_node(tmp_path / "victim", ROUNDS[:1])
    monkeypatch.setattr(sample_table, name, most)
    with pytest.raises(StudyError) as refusal:
        sample_table.load_samples(tmp_path / "victim" / f"{ROUNDS[0]}.parquet")
    assert why in str(refusal.value)


def test_linked_and_oddly_named_node_folders_are_read(two_nodes: Path, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    shutil.copytree(two_nodes / "victim", nodes / "victim")
    (nodes / "linked").symlink_to(two_nodes / "honest")
    odd = GOOD
    for steps in (("hardware", "cpu", "model"), ("devices", 0, "name"), ("software", "os"), ("options", "preset")):
        odd = replace_value(odd, steps, "<b>@x $\\ {{< >}} \u202e % */ 'x' \"y\"")
    (nodes / "victim" / "node.json").write_text(json.dumps(odd))
    (nodes / "a\nb \udcff").mkdir()
    (nodes / "a\nb \udcff" / "node.json").write_text("{}")
    gather([nodes], tmp_path / "out")
    (refusal,) = json.loads((tmp_path / "out" / "refused.json").read_text())
    assert refusal["file"] == f"{tmp_path}/nodes/a\\x0ab \\udcff/node.json"
    assert {node.id for node in read_dataset(tmp_path / "out").nodes.nodes} == {"honest", "victim"}
