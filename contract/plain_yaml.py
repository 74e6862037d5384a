"""Fast parser for plain YAML, built on libyaml."""

from __future__ import annotations

import re
from datetime import date
from typing import Any


class NotPlainError(Exception):
    """The text is not YAML, or libyaml and ruamel.yaml might read it differently."""


# Tabs, control characters, line breaks in YAML 1.1, document marks and directives; and mistakes that libyaml accepts:
# a comment right after a block scalar's indicator, a value right after a quoted key's colon, and lines of only spaces.
_REFUSED = re.compile(
    r"[^\n -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
    r"|^(---|\.\.\.|%| +$)|[|>][-+0-9]*#|[\"'\]}] *:[^ \n]",
    re.MULTILINE,
)
_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,300})")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]+([eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# Other numbers, times, merge keys and special values in YAML 1.2, and some texts.
_UNSURE = re.compile(
    r"[-+]?[0-9._]+([eE][-+]?[0-9]+)?|[-+]?0[box][0-9a-fA-F_]+|[0-9]{4}-[0-9]{1,2}-[0-9].*|[-+]?\.([iI]nf|INF|[nN]a[nN]|NAN)|[<=]+"
)


def parse_plain_yaml(text: str, levels: int) -> Any:
    """Parse YAML as builtins, about 15 times as fast as ruamel.yaml does.

    levels: maximum nesting. Raises NotPlainError for tags, merge keys, keys that are not texts, equal keys, and for
    other YAML that only ruamel.yaml may read; it also reports mistakes with their lines.
    """
    try:
        from yaml import YAMLError, events
        from yaml.cyaml import CParser
    except ImportError:  # PyYAML is built without libyaml
        raise NotPlainError from None

    anchors: dict[str, Any] = {}

    def build(event: Any, room: int) -> Any:
        if not room or getattr(event, "tag", None) is not None:
            raise NotPlainError
        if isinstance(event, events.AliasEvent):
            if event.anchor not in anchors:
                raise NotPlainError
            return anchors[event.anchor]
        if isinstance(event, events.ScalarEvent):
            if event.anchor is not None:
                raise NotPlainError
            return _convert_scalar(event.value) if event.implicit[0] else event.value
        node: Any = {} if isinstance(event, events.MappingStartEvent) else []
        if event.anchor is not None:
            if event.anchor in anchors:
                raise NotPlainError
            anchors[event.anchor] = node
        while not isinstance(event := parser.get_event(), (events.MappingEndEvent, events.SequenceEndEvent)):
            value = build(event, room - 1)
            if isinstance(node, list):
                node.append(value)
            elif isinstance(value, str) and value not in node:
                node[value] = build(parser.get_event(), room - 1)
            else:
                raise NotPlainError
        return node

    if _REFUSED.search(text):
        raise NotPlainError
    try:
        parser = CParser(text)
        parser.get_event()
        if not isinstance(parser.get_event(), events.DocumentStartEvent):
            raise NotPlainError
        event = parser.get_event()
        if isinstance(event, events.ScalarEvent):
            raise NotPlainError
        document = build(event, levels)
        parser.get_event()
        if not isinstance(parser.get_event(), events.StreamEndEvent):
            raise NotPlainError
    except YAMLError:
        raise NotPlainError from None
    return document


def _convert_scalar(text: str) -> Any:
    """Convert an unquoted scalar by YAML 1.2. Raises NotPlainError for rare spellings of numbers, and for dates."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise NotPlainError from None
    if _UNSURE.fullmatch(text):
        raise NotPlainError
    return text
