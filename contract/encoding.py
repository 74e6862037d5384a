"""Text in locales that are not UTF-8."""

from __future__ import annotations

import io
import locale
import os
import sys


def use_utf8() -> None:
    """Start this program anew in Python's UTF-8 mode where the locale is of another encoding.

    Libraries encode paths as UTF-8 whatever the locale, and would write to other files than named. Printed text stays
    in the locale's encoding.
    """
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get("PYTHONUTF8") == "1" or not sys.executable:
        return
    os.environ["PYTHONUTF8"] = "1"
    os.environ.setdefault("PYTHONIOENCODING", locale.getencoding())
    os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def escape_unprintable(*streams: object) -> None:
    """Have standard output and error, and other streams, escape what their encoding lacks in place of raising."""
    for stream in (sys.stdout, sys.stderr, *streams):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
