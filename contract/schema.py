"""JSON Schema checks that report position, fault and a suggestion."""

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

    `document` may come from `read_yaml`'s parser, whose nodes record their lines.
    Raises StudyError for the most relevant violation.
    """
    from jsonschema.exceptions import best_match

    faults = list(_validator()(schema).iter_errors(document))
    if not faults:
        return
    # Report a misspelt key before the missing key that it causes.
    fault = next((fault for fault in faults if fault.validator == "additionalProperties"), best_match(iter(faults)))
    steps = list(fault.absolute_path)
    message, word = _describe_fault(fault)
    if word is not None:
        steps.append(word)
    refuse_value(document, steps, path, message)


@cache
def _validator() -> Any:
    """Return a JSON Schema validator in which `$` matches only the text's end.

    In Python, `$` also matches before a final newline.
    """
    from jsonschema import Draft202012Validator, validators

    def pattern(validator: Any, value: str, instance: Any, schema: Any) -> Any:
        ended = re.sub(r"(?<!\\)\$\Z", r"\\Z", value)
        return Draft202012Validator.VALIDATORS["pattern"](validator, ended, instance, schema)

    return validators.extend(Draft202012Validator, {"pattern": pattern})


# Other common names for number formats, and the allowed names. Without this table, the name with the closest spelling
# would be suggested, which is another format.
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
    """Escape control characters and invalid UTF-8 in text from outside, such as file names."""
    return text.encode(errors="backslashreplace").decode().translate(_ESCAPED)


# Escape sequences for terminal control characters, line separators and bidirectional controls.
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
    """Describe a violation; return the message and, for an unknown key, the key."""
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
    # Truncate a long value to keep the fault itself in the message.
    return truncate(message.replace(value, truncate(value), 1), 400), None


def did_you_mean(word: str, allowed: list[str]) -> str:
    """Return ' Did you mean …?' for the closest allowed word, or ''."""
    also = _ALSO_CALLED.get(word.lower())
    near = [also] if also in allowed else difflib.get_close_matches(word, allowed, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def line_number(document: Any, steps: list[Any]) -> int | None:
    """Return a value's line number (from 1), or None if the parser recorded no lines.

    steps: the mapping keys and list indices that lead to the value. If the value is missing, return the line of the
    innermost mapping or list that would contain it.
    """
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
    """Convert a document to plain dicts, lists and scalars."""
    if isinstance(node, Mapping):
        return {str(key): to_builtins(value) for key, value in node.items()}
    if isinstance(node, list):
        return [to_builtins(value) for value in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def refuse_value(document: Any, steps: Sequence[Any], path: Path | str, message: str) -> NoReturn:
    """Raise StudyError with the key and, if the parser recorded it, the line."""
    line = line_number(document, list(steps))
    where = ".".join(str(step) for step in steps) or "(top level)"
    raise StudyError(f"{path}{f', line {line}' if line else ''}: {where}: {message}")
