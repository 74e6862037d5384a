"""Text from data becomes markdown in one place, so that it can never become markup.

Templates are Jinja2 with other delimiters than Quarto's. Whatever a template prints
is escaped unless it is a `Markdown`: forgetting a filter cannot let data through.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import jinja2

from contract.errors import StudyError
from report.pages.control_characters import harmless, visible

_ALWAYS = re.compile(r"""[\\`*_{}\[\]<>#|~^$@&'"]""")
# Dashes, dots, colons and equals signs mean something to markdown only in runs (smart
# typography, rules, fences, underlined headings); a colon after a letter also makes a bare
# address a link, or a paragraph a caption ("Table: …").
_RUNS = re.compile(r"-{2,}|\.{2,}|:{2,}|={2,}|(?<=[A-Za-z]):")
# What makes a list, a definition, a title block or a setext heading at the start of a line.
_LEADING = re.compile(r"^(?:[-+=:%(!]|\w+(?=[.)]))")
_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class Markdown(str):
    """Text that is markdown already: printed as it is."""

    __slots__ = ()


def clean(text: str) -> str:
    """One line of text: white space collapsed, nothing hidden in it, nothing that steers its neighbours."""
    return harmless(" ".join(visible(" ".join(text.split())).split()))


def escape(text: str) -> Markdown:
    """Markdown whose plain text is `text`, on one line, in pandoc and in Quarto, anywhere in a line or table cell."""
    line = clean(text)
    line = _ALWAYS.sub(r"\\\g<0>", line)
    line = _RUNS.sub(lambda run: "".join("\\" + sign for sign in run.group()), line)
    start = _LEADING.match(line)
    if start:
        # After a word it is the full stop or bracket that would make a list item of it.
        place = start.end() if start.group()[-1].isalnum() or start.group()[-1] == "_" else 0
        line = line[:place] + "\\" + line[place:]
    return Markdown(line)


def attribute(text: str) -> Markdown:
    """`text` for use between the double quotes of a markdown attribute (`fig-alt="…"`)."""
    return Markdown(re.sub(r'[\\"&<>`{}@$\[\]]', r"\\\g<0>", clean(text)))


def identifier(text: str) -> Markdown:
    """`text` as an anchor or file name. Raises StudyError unless it is letters, digits, - and _."""
    if not _ID.fullmatch(text):
        raise StudyError(f"verdicts: {text!r} is not an id (letters, digits, - and _, a letter first)")
    return Markdown(text)


def link(text: str, address: str) -> Markdown:
    """A link if `address` is one of the web's, else the text alone."""
    try:
        known = urlsplit(address).scheme in ("http", "https")
    except ValueError:
        known = False
    if not known:
        return escape(text)
    place = quote(visible(" ".join(address.split())), safe=_SAFE)
    return Markdown(f"[{escape(text)}](<{place}>)")


_SAFE = ":/?#@!&()+,;=%-._"


def code(text: str) -> Markdown:
    """`text` in a monospaced font. Not a code span: Quarto evaluates some of those."""
    return Markdown(f"[{escape(text)}]{{.code}}")


def finalize(value: Any) -> str:
    """What a template prints for `value`. Raises TypeError for what nobody has put into words."""
    if isinstance(value, Markdown):
        return value
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, jinja2.Undefined):
        return str(value)  # raises, naming what is missing
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    # A bare float has no unit and no digits chosen for it; None means that a template forgot a case.
    raise TypeError(f"a template prints {value!r}: put it into words first")


def environment(folder: Path) -> jinja2.Environment:
    """The templates in `folder`: `<< value >>`, `<% statement %>`, `<# comment #>`."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters = {name: made.filters[name] for name in ("length", "list")} | {
        "attribute": attribute,
        "code": code,
        "identifier": identifier,
        "link": link,
    }
    return made
