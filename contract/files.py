"""Atomic file writes, locks, and JSON and YAML readers that report a mistake with its line."""

from __future__ import annotations

import glob
import json
import math
import os
import pickle
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from contract.errors import WRITING, StudyError
from contract.plain_yaml import NotPlainError, parse_plain_yaml
from contract.schema import check_document, line_number, refuse_value, to_builtins, truncate

# Limits for a YAML file: bytes, values and nesting levels. The largest YAML file in the study has 60 kB, 6,000 values
# and 9 levels.
YAML_BYTES, YAML_VALUES, YAML_LEVELS = 1_000_000, 100_000, 30
# File that a running workflow locks in its results folder.
RUN_LOCK = ".run.lock"


def acquire_lock(path: Path | str) -> int | None:
    """Open and lock a file. Return the file handle, or None if another process holds the lock.

    Closing the handle releases the lock. A missing file is created, an existing file keeps its content, and links are
    not followed. Raises OSError.
    """
    import fcntl  # Windows lacks this module

    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def remove_leftovers(files: Iterable[Path], remove: Callable[[Path], object] = Path.unlink) -> None:
    """Remove each file that no process has locked: the process that made it was killed.

    remove: function to remove such a file.
    """
    for left in files:
        with suppress(OSError):
            if (unheld := acquire_lock(left)) is not None:
                remove(left)
                os.close(unheld)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`, and move it to `path` when the block succeeds.

    Readers see the old file or the complete new one, even if the run is killed. Removes leftovers from killed runs.
    Raises OSError if the folder cannot be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent.glob(f".{glob.escape(path.name)}.????????{glob.escape(path.suffix)}"))
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(descriptor)
    handle = acquire_lock(name)
    # mkstemp lets only the owner read the file. Give the file the permissions from the umask instead.
    umask = os.umask(0)
    os.umask(umask)
    Path(name).chmod(0o666 & ~umask)
    try:
        yield Path(name)
        Path(name).replace(path)
    except OSError as refusal:
        # A write error, such as a full disk, names either no file or the temporary file. Name the final file instead.
        if refusal.filename == name or (refusal.filename is None and refusal.errno in WRITING):
            refusal.filename, refusal.filename2 = str(path), None
        raise
    finally:
        Path(name).unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8, atomically. Raises OSError."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any, in_lines: bool = False) -> None:
    """Write `value` as indented JSON, atomically. Raises OSError, and ValueError for a number that is not finite.

    in_lines: write a mapping with each entry on one line. If an entry is a list, write each list item on one line.
    """
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        if not in_lines:
            file.write(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
            return
        for at, (name, member) in enumerate(value.items()):
            file.write(f"{',' if at else '{'}\n {_encode(name)}: ")
            if isinstance(member, list) and member:
                file.writelines(f"{',' if n else '['}\n  {_encode(item)}" for n, item in enumerate(member))
                file.write("\n ]")
            else:
                file.write(_encode(member))
        file.write("\n}\n")


def replace_folder(new: Path, out: Path) -> None:
    """Move the folder `new` to `out`, which it replaces. After a kill, `out` is missing, or as it was before or after.

    Removes leftovers from killed runs. Raises OSError.
    """
    old = out.with_name(f".{out.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if out.exists():
        out.rename(old)
    new.rename(out)
    shutil.rmtree(old, ignore_errors=True)


# Maximum nesting depth of JSON. The project's files are less deep, and recursive parsers fail at a few hundred levels.
MOST_DEPTH = 50


def read_json(path: Path | str) -> Any:
    """Read a JSON file. Raises StudyError with the file and the line."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise StudyError(f"{path}: no such file") from None
    return parse_json(data, path)


def parse_json(data: bytes, where: Path | str) -> Any:
    """Parse JSON; require finite numbers, valid UTF-8 and at most MOST_DEPTH levels.

    Raises StudyError with `where` and, for a syntax error, the line.
    """
    try:
        text = data.decode("utf-8")
        outside = re.sub(r'"[^"\\]*(?:\\.[^"\\]*)*"', "", text)
        steps = (1 if bracket in "[{" else -1 for bracket in re.findall(r"[\[\]{}]", outside))
        if max(accumulate(steps), default=0) > MOST_DEPTH:
            raise StudyError(f"{where}: lists and objects are nested more than {MOST_DEPTH} levels deep")
        value = json.loads(text, parse_constant=_parse_finite, parse_float=_parse_finite, parse_int=_parse_integer)
        if re.search(r"\\u[dD][89a-fA-F]", text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise StudyError(f"{where}: contains a lone surrogate, which is not valid text") from None
    except (ValueError, RecursionError) as broken:
        line = getattr(broken, "lineno", 1)
        raise StudyError(f"{where}, line {line}: not JSON ({broken})") from None
    return value


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{truncate(text)} is not a finite number")
    return number


def _parse_integer(text: str) -> int:
    if len(text) > 300:  # such a number is near or beyond the largest float
        raise ValueError(f"{truncate(text)} is too large a whole number")
    return int(text)


def read_plain_file(path: Path | str, most: int) -> bytes:
    """Read a regular file with at most `most` bytes, without following links.

    Raises StudyError for a link, folder, pipe or device, and for a file that is unreadable or larger.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer. Windows lacks O_NONBLOCK and O_NOFOLLOW.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        raise StudyError(f"{path}: no such file") from None
    except OSError as refusal:
        why = "a link" if Path(path).is_symlink() else (refusal.strerror or str(refusal))
        raise StudyError(f"{path}: is not a readable regular file ({why})") from None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise StudyError(f"{path}: is not a readable regular file (a folder, a pipe or a device)")
    except BaseException:
        os.close(handle)
        raise
    with os.fdopen(handle, "rb") as file:
        # Read one byte more than the limit, to detect that the file has grown since its size was checked.
        data = file.read(most + 1) if about.st_size <= most else b""
    if about.st_size > most or len(data) > most:
        raise StudyError(f"{path}: has {max(about.st_size, len(data)):,} bytes (limit: {most:,})")
    return data


def read_checked_json(path: Path | str, schema: Path | str) -> dict[str, Any] | None:
    """Read a JSON document and check it against the schema file. Return None if the document is missing.

    Raises StudyError if the document is not JSON or violates the schema.
    """
    if not Path(path).exists():
        return None
    table = read_json(path)
    check_document(table, read_json(schema), path)
    return dict(table)


def read_yaml(path: Path | str, schema: Mapping[str, Any] | None = None) -> Any:
    """Read a YAML file and check it against a JSON Schema.

    Raises StudyError with file, line and key, and with a suggestion for a misspelt word. Also raises it for a number
    that is not finite, and for a file that exceeds YAML_BYTES, YAML_VALUES (with aliases expanded) or YAML_LEVELS.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise StudyError(f"{path}: not a file")
    try:
        if path.stat().st_size > YAML_BYTES:
            raise StudyError(f"{path}: larger than {YAML_BYTES / 1e6:g} MB: split it, or remove unneeded parts")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise StudyError(f"{path}: no such file") from None
    except UnicodeDecodeError as broken:
        raise StudyError(f"{path}: not UTF-8 text ({broken.reason} at byte {broken.start})") from None
    return pickle.loads(_parse_yaml(str(path), text, json.dumps(schema) if schema is not None else ""))


@lru_cache(maxsize=1024)
def _parse_yaml(path: str, text: str, schema: str) -> bytes:
    """Parse, check and pickle a document. Loading the cached pickle is a hundred times faster than parsing again."""
    try:
        return _pickle_checked(parse_plain_yaml(text, YAML_LEVELS), path, schema)
    except (NotPlainError, StudyError):
        pass  # parse again, with lines for the error message
    # Import inside the function, because the import would slow down commands that read no YAML, such as `--help`.
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        document = _yaml_parser().load(text)
    except MarkedYAMLError as broken:
        mark = broken.problem_mark or broken.context_mark
        line = mark.line + 1 if mark else 1
        raise StudyError(f"{path}, line {line}: not YAML ({broken.problem})") from None
    except YAMLError as broken:
        reason = " ".join(str(broken).split())
        raise StudyError(f"{path}: not YAML ({reason})") from None
    except (ValueError, TypeError, LookupError, AttributeError, AssertionError, NotImplementedError) as broken:
        # A value cannot be converted to its type, such as a date with day 45 or a number with 5,000 digits.
        raise StudyError(f"{path}: not YAML ({' '.join(str(broken).split())[:200]})") from None
    return _pickle_checked(document, path, schema)


def _pickle_checked(document: Any, path: str, schema: str) -> bytes:
    """Check a document's bounds and schema, and pickle it as builtins. Raises StudyError."""
    check_bounds(document, path)
    if schema:
        check_document(document, _load_schema(schema), path)
    return pickle.dumps(to_builtins(document))


def _yaml_parser() -> Any:
    """Make a parser that records line numbers. It refuses more than YAML_LEVELS levels, which are slow to parse."""
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import Composer
    from ruamel.yaml.error import MarkedYAMLError

    class Shallow(Composer):
        level = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.level == YAML_LEVELS:
                mark = self.parser.peek_event().start_mark
                raise MarkedYAMLError(problem=f"more than {YAML_LEVELS} levels", problem_mark=mark)
            self.level += 1
            node = super().compose_node(parent, index)
            self.level -= 1
            return node

    parser = YAML(typ="rt")
    parser.Composer = Shallow
    return parser


def check_bounds(document: Any, path: Path | str) -> None:
    """Refuse numbers that are not finite, and aliases that recurse or expand past YAML_VALUES.

    Raises StudyError with the position of the first fault.
    """
    sizes: dict[int, int | None] = {}

    def size(node: Any, steps: tuple[Any, ...]) -> int:
        if isinstance(node, Mapping):
            within = list(node.items())
        elif isinstance(node, list):
            within = list(enumerate(node))
        else:
            if isinstance(node, (int, float)) and not abs(node) <= 1e300:
                refuse_value(document, steps, path, "not a finite number")
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = None
            sizes[id(node)] = 1 + sum(size(value, (*steps, key)) for key, value in within)
        known = sizes[id(node)]
        if known is None or known > YAML_VALUES:
            refuse_value(
                document, steps, path, f"more than {YAML_VALUES:,} values: write out what its aliases stand for"
            )
        return known or 0

    size(document, ())


@lru_cache(maxsize=16)
def _load_schema(text: str) -> Any:
    """Parse a schema once, because all claim files share one large schema, which lists every quantity."""
    return json.loads(text)


def yaml_place(path: Path | str, *steps: str | int) -> str:
    """Return a value's position, as in 'claims/W15.yaml, line 9', or only the path if the line is unknown.

    steps: the mapping keys and list indices that lead to the value.
    """
    from ruamel.yaml.error import YAMLError

    try:
        line = line_number(_yaml_parser().load(Path(path).read_text(encoding="utf-8")), list(steps))
    except (OSError, ValueError, YAMLError):
        line = None
    return f"{path}, line {line}" if line else str(path)
