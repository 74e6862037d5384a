"""What the machine lacks: such a test is left out and says so, except under CI, where nothing may be left out."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip a test with its reason; fail it where the variable CI is set."""
    if os.environ.get("CI", "").lower() in ("", "0", "false"):
        pytest.skip(reason)
    pytest.fail(reason)
