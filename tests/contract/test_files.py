"""Test atomic writes, JSON and YAML readers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import StudyError
from contract.files import YAML_LEVELS, _yaml_parser, atomic_path, read_json, read_yaml, write_json
from contract.plain_yaml import NotPlainError, parse_plain_yaml
from contract.schema import check_document, to_builtins

ROOT = Path(__file__).parents[2]
SCHEMA = {
    "type": "object",
    "properties": {
        "rounds": {"type": "integer"},
        "kind": {"enum": ["fast", "slow"]},
        "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
    "additionalProperties": False,
    "required": ["rounds"],
}


def assert_refused(path: Path, text: str, *parts: str, schema: dict[str, Any] | None = None) -> None:
    """Assert that the YAML text is refused with a one-line error that has the file name and `parts`."""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        read_yaml(path, schema)
    message = str(caught.value)
    assert all(part in message for part in (str(path), *parts)), message
    assert "\n" not in message
    assert len(message) < 500


def test_valid_yaml_becomes_plain_python(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("rounds: 3\nkind: fast\nlist: [{n: 1}]\n")
    content = read_yaml(path, SCHEMA)
    assert content == {"rounds": 3, "kind": "fast", "list": [{"n": 1}]}
    assert (type(content), type(content["list"])) == (dict, list)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("rounds: 3\nkimd: fast\n", ["line 2", "kimd", "unknown key", "Did you mean 'kind'?"]),
        ("rounds: 3\nkind: fst\n", ["line 2", "kind", "'fst'", "fast, slow", "Did you mean 'fast'?"]),
        ("rounds: three\n", ["line 1", "rounds", "'three' is not of type integer"]),
        ("kind: fast\n", ["missing: rounds"]),
        ("rounds: 3\nlist:\n  - n: 1\n  - n: x\n", ["line 4", "list.1.n", "'x'"]),
        ("rounds: 3\n  kind: fast\n", ["line 2", "not YAML"]),
    ],
)
def test_yaml_mistake_is_reported_with_line_and_key(tmp_path: Path, text: str, parts: list[str]) -> None:
    assert_refused(tmp_path / "f.yaml", text, *parts, schema=SCHEMA)


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param(LAUGHS, ["line 6", "a5", "more than 100,000 values"], id="aliases of aliases"),
        pytest.param("&a [*a]\n", ["line 1", "0", "more than 100,000 values"], id="an alias of itself"),
        pytest.param("b: 1\na: " + "[" * 3000, ["line 2", "more than 30 levels"], id="brackets"),
        pytest.param("- " * 3000 + "x", ["line 1", "more than 30 levels"], id="dashes"),
        pytest.param("b: 1\na: [0, .nan]", ["line 2", "a.1", "not a finite number"], id="nan"),
        pytest.param("a: -.inf", ["line 1", "not a finite number"], id="inf"),
        pytest.param("a: 1e999", ["line 1", "not a finite number"], id="1e999"),
        pytest.param("a: 1" + "0" * 400, ["line 1", "not a finite number"], id="400 digits"),
        pytest.param("a: 1" + "0" * 5000, ["not YAML"], id="5000 digits"),
        pytest.param("a: 2024-13-45", ["not YAML"], id="no date"),
        pytest.param("a: !!float x", ["not YAML"], id="no float"),
        pytest.param("a: " + "x" * 1_000_001, ["larger than 1 MB"], id="large"),
    ],
)
def test_yaml_out_of_bounds_is_refused(tmp_path: Path, text: str, parts: list[str]) -> None:
    assert_refused(tmp_path / "f.yaml", text, *parts)


def test_read_yaml_refuses_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for place in (tmp_path, tmp_path / "pipe.yaml", Path("/dev/zero")):
        with pytest.raises(StudyError, match="not a file"):
            read_yaml(place)


@given(st.text("[]{}&*!|>-?:, \n#'\"%@`ab1.<~", max_size=60) | st.text(max_size=60))
def test_any_text_is_read_or_raises_study_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("yaml") / "f.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        read_yaml(path)
    except StudyError as mistake:
        assert str(path) in str(mistake)


# Scalars and marks that YAML 1.1 and 1.2, or libyaml and ruamel.yaml, read differently, and common ones.
SCALARS = (
    *(
        "1",
        "-1",
        "+1",
        "-0",
        "010",
        "0o7",
        "0x1f",
        "0b1",
        "1_0",
        "_1",
        "1e3",
        "1e+3",
        "1.5e-3",
        "1.5",
        "1.",
        ".5",
        "._",
    ),
    *("1.e3", ".5e3", "1e", "1.2.3", "0-3", "4x", "12:30:45", "1:30.5", "9" * 400, ".inf", "-.INF", ".NaN", "+.nan"),
    *("~", "null", "NULL", "nULL", "true", "True", "tRUE", "FALSE", "no", "on", "y", "Off", "<<", "=", "<", "x y", "é"),
    *("2024-01-02", "2024-1-2", "2024-13-45", "2024-01-02T03:04:05Z", "2024-1-2 3:04:05", "2024-01", "a:b", "", "'1'"),
)
MARKS = (
    *("a: ", "b:", "- ", "\n", "  ", "? ", ":", "#", " # c", "'", '"', "[", "]", "{", "}", ", ", "| ", "|-", "|2", ">"),
    *("&x ", "*x", "!!str ", "\\n", "%", "---", "...", "\t", "\x85", "\u2028", "\ufeff", "[a: b]", "{a: 1}", "{a:1}"),
    *("a: |\n  t\n", "'a':1"),
)


def assert_parsers_agree(text: str) -> None:
    try:
        plain = parse_plain_yaml(text, YAML_LEVELS)
    except NotPlainError:
        return
    assert repr(plain) == repr(to_builtins(_yaml_parser().load(text))), text


@pytest.mark.parametrize(
    "text",
    [
        *("- {}\n", "a: {}\n", "[{}, b]\n", "{{a: {}}}\n", "{}: 1\n", "a: &x {}\nb: *x\n"),
        *("[b, 'a':{}]\n", "a: |#{}\n", "a: >-2#{}\n", "a: |\n  \n    {}\n", "a: {}\n--- b\n"),
    ],
)
def test_parsers_agree_on_each_scalar(text: str) -> None:
    for scalar in SCALARS:
        assert_parsers_agree(text.format(scalar))


@settings(max_examples=500)
@given(st.lists(st.sampled_from(SCALARS + MARKS), max_size=14).map("".join))
def test_parsers_agree_on_any_text(text: str) -> None:
    assert_parsers_agree(text)


def test_study_files_are_plain_yaml() -> None:
    """ruamel.yaml takes 20 times as long; only the full preset needs it, for its merge keys."""
    for path in (*(ROOT / "report").rglob("*.yaml"), *(ROOT / "data/reference").glob("*.yaml")):
        parse_plain_yaml(path.read_text(encoding="utf-8"), YAML_LEVELS)


def test_failed_write_keeps_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert read_json(path) == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    plain = tmp_path / "plain"
    plain.write_text("")
    assert path.stat().st_mode == plain.stat().st_mode, "as readable as the umask allows"
    path.write_text('{"a": 1,\n "b": ')
    with pytest.raises(StudyError, match=r"a\.json, line 2: not JSON"):
        read_json(path)


PLAIN = st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.text()
PLAIN |= st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.sampled_from(["a", "b", '"'])


@given(
    st.dictionaries(
        KEYS, st.recursive(PLAIN, lambda children: st.lists(children) | st.dictionaries(KEYS, children)), min_size=1
    )
)
def test_json_in_lines_round_trips(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    write_json(path, value, in_lines=True)
    assert read_json(path) == value


def test_json_in_lines_has_one_line_per_item(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": [1, 2], "cases": [{"x": 1, "cases": [3]}, {"x": "é"}], "b": {"cases": []}}, in_lines=True)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line.strip("[, ") for line in lines if '"x"' in line] == ['{"x":1,"cases":[3]}', '{"x":"é"}']
    with pytest.raises(ValueError):
        write_json(path, {"cases": [float("nan")]}, in_lines=True)
    assert read_json(path)["a"] == [1, 2]


def test_dollar_in_pattern_matches_only_at_end() -> None:
    check_document({"a": "a"}, {"properties": {"a": {"pattern": "^a$"}}}, "a.yaml")
    check_document({"a": "a$\n"}, {"properties": {"a": {"pattern": r"^a\$"}}}, "a.yaml")
    # In a Python pattern, `$` would match these texts, because it also matches before a final newline.
    for document, schema in (
        ({"a": "b\n"}, {"properties": {"a": {"pattern": "^b$"}}}),
        ({"a\n": ""}, {"propertyNames": {"pattern": "^a$"}}),
    ):
        with pytest.raises(StudyError, match=r"^a\.yaml: .*does not match"):
            check_document(document, schema, "a.yaml")
