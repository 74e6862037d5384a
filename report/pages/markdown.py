"""Escape text from data, so that it never acts as markup.

Templates use Jinja2 with delimiters that Quarto does not use. Everything that a template prints is escaped unless it is
`Markdown`, so a template cannot forget to escape.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import jinja2

from contract.errors import StudyError
from report.pages.control_characters import remove_invisible, sanitize

_ALWAYS = re.compile(r"""[\\`*_{}\[\]<>#|~^$@&'"]""")
# These signs are markup only if they are repeated (smart typography, rules, fences, setext headings). A single colon
# after a letter is escaped too, because it can turn text into a URL, or a paragraph into a caption ("Table: …").
_RUNS = re.compile(r"-{2,}|\.{2,}|:{2,}|={2,}|(?<=[A-Za-z]):")
# Line beginnings that would start a list, definition, title block or setext heading.
_LEADING = re.compile(r"^(?:[-+=:%(!]|\w+(?=[.)]))")
_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class Markdown(str):
    """Text that is already markdown and needs no escaping."""

    __slots__ = ()


def clean(text: str) -> str:
    """Collapse whitespace to single spaces; remove invisible characters and isolate right-to-left text."""
    return sanitize(" ".join(remove_invisible(" ".join(text.split())).split()))


def escape(text: str) -> Markdown:
    """Escape text for pandoc and Quarto; the result is one line that is safe anywhere in a line or table cell."""
    line = clean(text)
    line = _ALWAYS.sub(r"\\\g<0>", line)
    line = _RUNS.sub(lambda run: "".join("\\" + sign for sign in run.group()), line)
    start = _LEADING.match(line)
    if start:
        # If the line begins with a word, escape the full stop or bracket after the word, which would make a list item.
        place = start.end() if start.group()[-1].isalnum() or start.group()[-1] == "_" else 0
        line = line[:place] + "\\" + line[place:]
    return Markdown(line)


def attribute(text: str) -> Markdown:
    """Escape text for a quoted markdown attribute (`fig-alt="…"`)."""
    return Markdown(re.sub(r'[\\"&<>`{}@$\[\]]', r"\\\g<0>", clean(text)))


def identifier(text: str) -> Markdown:
    """Check an anchor or file name. Raises StudyError unless it has only letters, digits, - and _."""
    if not _ID.fullmatch(text):
        raise StudyError(f"verdicts: {text!r} is not an id (letters, digits, - and _, a letter first)")
    return Markdown(text)


def link(text: str, address: str) -> Markdown:
    """Return a link for an http(s) address, else only the text."""
    place = web_address(address)
    return Markdown(f"[{escape(text)}](<{place}>)") if place else escape(text)


def web_address(address: str) -> str:
    """Return an http(s) address with all other signs quoted; '' for any other text."""
    try:
        is_web = urlsplit(address).scheme in ("http", "https")
    except ValueError:
        is_web = False
    return quote(remove_invisible(" ".join(address.split())), safe=_SAFE) if is_web else ""


_SAFE = ":/?#@!&()+,;=%-._"


def code(text: str) -> Markdown:
    """Set text in monospace, but not as a code span, because Quarto evaluates some code spans."""
    return Markdown(f"[{escape(text)}]{{.code}}")


def finalize(value: Any) -> str:
    """Convert a template value to text. Raises TypeError for types without a defined format."""
    if isinstance(value, Markdown):
        return value
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, jinja2.Undefined):
        return str(value)  # raises UndefinedError
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    # A float needs a unit and a number of digits; None shows that the template missed a case.
    raise TypeError(f"a template prints {value!r}: format it as text first")


def escape_html(text: str) -> str:
    """Escape text for HTML inside a block of raw HTML, which a line of backticks would end."""
    return html.escape(clean(text)).replace("`", "&#96;")


def raw_html(text: str) -> Markdown:
    """Enclose HTML in a block that both renderers pass through. No line of the HTML may begin with a backtick."""
    return Markdown(f"```{{=html}}\n{text.strip()}\n```\n")


def environment(folder: Path, finalize: Callable[[Any], str] = finalize) -> jinja2.Environment:
    """Create a template environment: `<< value >>`, `<% statement %>`, `<# comment #>`.

    finalize: function that turns a printed value into escaped text.
    """
    templates = jinja2.Environment(
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
    templates.filters = {name: templates.filters[name] for name in ("length", "list")} | {
        "attribute": attribute,
        "code": code,
        "identifier": identifier,
        "link": link,
    }
    return templates
