"""Files that are either whole or absent, and YAML whose mistakes have a place."""

from __future__ import annotations

import difflib
import glob
import json
import os
import pickle
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from contract.errors import StudyError


def held_lock(path: Path | str) -> int | None:
    """An open file that holds a kernel lock until it is closed, or None if another process holds it.

    The file is neither followed, if it is a link, nor written. Raises OSError.
    """
    import fcntl  # not on every system

    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


@contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """Give a temporary path beside `path`; move it there when the block ends well.

    A reader, or a run that is killed, sees the old file or the whole new one; what killed runs left is removed.
    Raises OSError if the place cannot be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}.????????{glob.escape(path.suffix)}"):
        with suppress(OSError):
            # Whoever still writes holds it.
            if (unheld := held_lock(left)) is not None:
                left.unlink()
                os.close(unheld)
    made, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(made)
    handle = held_lock(name)
    # mkstemp makes private files; a result is as readable as the umask says.
    umask = os.umask(0)
    os.umask(umask)
    Path(name).chmod(0o666 & ~umask)
    try:
        yield Path(name)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8, whole or not at all. Raises OSError."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any, in_lines: str | None = None) -> None:
    """Write `value` as readable JSON, whole or not at all. Raises OSError, ValueError for NaN.

    in_lines: a key whose lists, wherever they are, have each of their items on one line: for very many of them.
    """
    with atomic(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        lists: list[list[Any]] = []
        mark = f"{uuid.uuid4().hex}:"
        held = value if in_lines is None else _without(value, in_lines, mark, lists)
        text = json.dumps(held, indent=1, ensure_ascii=False, allow_nan=False)
        line = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
        # Before and after the place of each list, which stands as its number.
        whole, *rest = text.split(f'"{mark}')
        file.write(whole)
        for part in rest:
            number, _, after = part.partition('"')
            file.write("[")
            file.writelines(f"{',' if at else ''}\n  {line(item)}" for at, item in enumerate(lists[int(number)]))
            file.write("\n ]" + after)
        file.write("\n")


def _without(value: Any, key: str, mark: str, lists: list[list[Any]]) -> Any:
    """The value with what is put into `lists`, that is the filled lists under a key, replaced by their numbers."""
    if isinstance(value, Mapping):
        held = {}
        for name, one in value.items():
            if name == key and isinstance(one, list) and one:
                lists.append(one)
                held[name] = f"{mark}{len(lists) - 1}"
            else:
                held[name] = _without(one, key, mark, lists)
        return held
    if isinstance(value, (list, tuple)):
        return [_without(one, key, mark, lists) for one in value]
    return value


def read_json(path: Path | str) -> Any:
    """Read a JSON file. Raises StudyError that names the file and the line."""
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StudyError(f"{path}: no such file") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as broken:
        line = getattr(broken, "lineno", 1)
        raise StudyError(f"{path}, line {line}: not JSON ({broken})") from None


def read_table(path: Path | str, schema: Path | str) -> dict[str, Any] | None:
    """A JSON document that may be missing, checked against the schema in a file; None without it.

    Raises StudyError if it is not JSON, or not of the schema.
    """
    if not Path(path).exists():
        return None
    table = read_json(path)
    check(table, read_json(schema), path)
    return dict(table)


def read_yaml(path: Path | str, schema: Mapping[str, Any] | None = None) -> Any:
    """Read a YAML file and check it against a JSON Schema.

    Raises StudyError naming file, line, key and, for a misspelt word, the one meant.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise StudyError(f"{path}: no such file") from None
    except UnicodeDecodeError as broken:
        raise StudyError(f"{path}: not UTF-8 text ({broken.reason} at byte {broken.start})") from None
    return pickle.loads(_parsed(str(path), text, json.dumps(schema) if schema is not None else ""))


@lru_cache(maxsize=1024)
def _parsed(path: str, text: str, schema: str) -> bytes:
    """The document, pickled: to parse one with its lines takes a hundred times as long as to copy it."""
    # Imported here: `list` and `--help` should not wait for a YAML parser.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        document = YAML(typ="rt").load(text)
    except MarkedYAMLError as broken:
        mark = broken.problem_mark or broken.context_mark
        line = mark.line + 1 if mark else 1
        raise StudyError(f"{path}, line {line}: not YAML ({broken.problem})") from None
    except YAMLError as broken:
        reason = " ".join(str(broken).split())
        raise StudyError(f"{path}: not YAML ({reason})") from None
    if schema:
        check(document, _schema(schema), path)
    return pickle.dumps(_plain(document))


@lru_cache(maxsize=16)
def _schema(text: str) -> Any:
    """A schema: that of the claims names every quantity, and is the same for each of their files."""
    return json.loads(text)


def _plain(node: Any) -> Any:
    """The document as dicts, lists and scalars of Python's own."""
    if isinstance(node, Mapping):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def check(document: Any, schema: Mapping[str, Any], path: Path | str) -> None:
    """Check a document against a JSON Schema (2020-12).

    `document` may come from `read_yaml`'s parser, whose nodes know their lines.
    Raises StudyError for the most telling violation.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    faults = list(Draft202012Validator(schema).iter_errors(document))
    if not faults:
        return
    # A misspelt key is also a missing one: the misspelling is what can be mended.
    fault = next((fault for fault in faults if fault.validator == "additionalProperties"), best_match(iter(faults)))
    steps = list(fault.absolute_path)
    message, word = _say(fault)
    if word is not None:
        steps.append(word)
    line = _line(document, steps)
    place = f"{path}, line {line}" if line else f"{path}"
    where = ".".join(str(step) for step in steps) or "(top level)"
    raise StudyError(f"{place}: {where}: {message}")


def _say(fault: Any) -> tuple[str, str | None]:
    """The violation in plain words, and the unknown key if it is about one."""
    allowed: list[str]
    if fault.validator == "additionalProperties" and isinstance(fault.instance, Mapping):
        allowed = [str(key) for key in fault.schema.get("properties", {})]
        unknown = sorted(str(key) for key in fault.instance if key not in allowed)[0]
        return f"unknown key. Allowed: {', '.join(allowed)}.{did_you_mean(unknown, allowed)}", unknown
    if fault.validator == "enum":
        allowed = [str(value) for value in fault.validator_value]
        return f"{fault.instance!r} is not allowed. Allowed: {', '.join(allowed)}." + did_you_mean(
            str(fault.instance), allowed
        ), None
    if fault.validator == "type":
        return f"{_plain(fault.instance)!r} is not of type {fault.validator_value}", None
    if fault.validator == "required":
        missing = [key for key in fault.validator_value if key not in fault.instance]
        return f"missing: {', '.join(missing)}", None
    if fault.validator == "pattern" and "description" in fault.schema:
        return f"{fault.instance!r} is not {fault.schema['description']}", None
    return str(fault.message), None


def place(path: Path | str, *steps: str | int) -> str:
    """'claims/W15.yaml, line 9': where the value under `steps` stands in a YAML file; the file alone if nowhere."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        line = _line(YAML(typ="rt").load(Path(path).read_text(encoding="utf-8")), list(steps))
    except (OSError, ValueError, YAMLError):
        line = None
    return f"{path}, line {line}" if line else str(path)


def did_you_mean(word: str, allowed: list[str]) -> str:
    """' Did you mean …?' for the nearest allowed word, or nothing."""
    near = difflib.get_close_matches(word, allowed, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _line(document: Any, steps: list[Any]) -> int | None:
    """Line (from 1) at which the value under `steps` stands, if the parser knows it."""
    line, node = None, document
    for step in steps:
        marks = getattr(node, "lc", None)
        if marks is None or marks.data is None:
            return line
        try:
            position = marks.key(step) if isinstance(node, Mapping) else marks.item(step)
            line, node = position[0] + 1, node[step]
        except (KeyError, IndexError, TypeError):
            return line
    return line
