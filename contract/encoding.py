"""Text encoding in locales other than UTF-8."""

from __future__ import annotations

import io
import locale
import os
import sys


def use_utf8() -> None:
    """Restart this program in Python's UTF-8 mode if the locale has another encoding.

    Otherwise libraries, which encode paths as UTF-8 in every locale, would write to files with wrong names. Printed
    text keeps the locale's encoding.
    """
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get("PYTHONUTF8") == "1" or not sys.executable:
        return
    os.environ["PYTHONUTF8"] = "1"
    os.environ.setdefault("PYTHONIOENCODING", locale.getencoding())
    os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def escape_unprintable(*streams: object) -> None:
    """Make stdout, stderr and `streams` escape characters that their encoding lacks, instead of raising."""
    for stream in (sys.stdout, sys.stderr, *streams):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
