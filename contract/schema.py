"""Documents against their JSON Schemas, and the mistake in words: where it stands, what is wrong, what was meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from contract.errors import StudyError


def check_document(document: Any, schema: Mapping[str, Any], path: Path | str) -> None:
    """Check a document against a JSON Schema (2020-12).

    `document` may come from `read_yaml`'s parser, whose nodes know their lines.
    Raises StudyError for the most telling violation.
    """
    from jsonschema.exceptions import best_match

    faults = list(_validator()(schema).iter_errors(document))
    if not faults:
        return
    # A misspelt key is also a missing one: the misspelling is what can be mended.
    fault = next((fault for fault in faults if fault.validator == "additionalProperties"), best_match(iter(faults)))
    steps = list(fault.absolute_path)
    message, word = _describe_fault(fault)
    if word is not None:
        steps.append(word)
    refuse_value(document, steps, path, message)


@cache
def _validator() -> Any:
    """JSON Schema's validator with patterns as JSON Schema means them: `$` is the end, not also before a last line
    break, as it is in Python."""
    from jsonschema import Draft202012Validator, validators

    def pattern(validator: Any, value: str, instance: Any, schema: Any) -> Any:
        ended = re.sub(r"(?<!\\)\$\Z", r"\\Z", value)
        return Draft202012Validator.VALIDATORS["pattern"](validator, ended, instance, schema)

    return validators.extend(Draft202012Validator, {"pattern": pattern})


# Number formats by the names that they have elsewhere: nearest in letters is another one.
_ALSO_CALLED = {
    **dict.fromkeys(("fp64", "f64", "double"), "float64"),
    **dict.fromkeys(("fp32", "f32", "float", "single"), "float32"),
    **dict.fromkeys(("fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("bf16", "bfloat"), "bfloat16"),
    **dict.fromkeys(("fp8", "float8"), "float8_e4m3fn"),
}


def truncate(value: Any, most: int = 200) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}…"


def escape_line(text: str) -> str:
    """A text as UTF-8 and one line can hold it: what somebody hands in may have any bytes in its names."""
    return text.encode(errors="backslashreplace").decode().translate(_ESCAPED)


# What moves a terminal's cursor, ends a line, or turns the direction in which it is read.
_ESCAPED = {
    **{code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))},
    **{code: f"\\u{code:04x}" for code in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}


_COUNTED = {
    f"{end}{kind}": unit
    for kind, unit in (("Items", "entries"), ("Length", "characters"), ("Properties", "keys"))
    for end in ("min", "max")
}


def _describe_fault(fault: Any) -> tuple[str, str | None]:
    """The violation in plain words, and the unknown key if it is about one."""
    allowed: list[str]
    if fault.validator == "additionalProperties" and isinstance(fault.instance, Mapping):
        allowed = [str(key) for key in fault.schema.get("properties", {})]
        unknown = sorted(str(key) for key in fault.instance if key not in allowed)[0]
        unknown = truncate(unknown)
        return f"unknown key. Allowed: {', '.join(allowed)}.{did_you_mean(unknown, allowed)}", unknown
    if fault.validator == "enum":
        allowed = [str(value) for value in fault.validator_value]
        return f"{truncate(repr(fault.instance))} is not allowed. Allowed: {', '.join(allowed)}." + did_you_mean(
            str(fault.instance), allowed
        ), None
    if fault.validator == "type":
        return f"{truncate(repr(to_builtins(fault.instance)))} is not of type {fault.validator_value}", None
    if fault.validator == "required":
        missing = [key for key in fault.validator_value if key not in fault.instance]
        return f"missing: {', '.join(missing)}", None
    if fault.validator == "pattern" and "description" in fault.schema:
        return f"{truncate(repr(fault.instance))} is not {fault.schema['description']}", None
    if fault.validator in _COUNTED:
        limit = f"at {'most' if fault.validator.startswith('max') else 'least'} {fault.validator_value}"
        return f"has {len(fault.instance)} {_COUNTED[fault.validator]}; {limit} are allowed", None
    value = repr(fault.instance)
    message = str(fault.message)
    # A long value must not push its own fault out of the message.
    return truncate(message.replace(value, truncate(value), 1), 400), None


def did_you_mean(word: str, allowed: list[str]) -> str:
    """' Did you mean …?' for the nearest allowed word, or nothing."""
    also = _ALSO_CALLED.get(word.lower())
    near = [also] if also in allowed else difflib.get_close_matches(word, allowed, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def line_number(document: Any, steps: list[Any]) -> int | None:
    """Line (from 1) at which the value under `steps` stands, if the parser knows it."""
    line, node = None, document
    if isinstance(document, Mapping) and (whole := getattr(document, "lc", None)) is not None and whole.data:
        line = whole.line + 1
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


def to_builtins(node: Any) -> Any:
    """The document as dicts, lists and scalars of Python's own."""
    if isinstance(node, Mapping):
        return {str(key): to_builtins(value) for key, value in node.items()}
    if isinstance(node, list):
        return [to_builtins(value) for value in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def refuse_value(document: Any, steps: Sequence[Any], path: Path | str, message: str) -> NoReturn:
    """Raise StudyError with the line, if the parser knows it, and the key."""
    line = line_number(document, list(steps))
    where = ".".join(str(step) for step in steps) or "(top level)"
    raise StudyError(f"{path}{f', line {line}' if line else ''}: {where}: {message}")
