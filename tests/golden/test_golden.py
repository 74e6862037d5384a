"""What the study says of known nodes stays what it was.

A change that is meant is kept by `python -m tests.golden --write`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.__main__ import SETS, differences, read, said


@pytest.mark.parametrize("name", SETS)
def test_the_study_says_what_it_said(name: str, tmp_path: Path) -> None:
    now = said(name, tmp_path, page=name == "published")
    found = [line for part, contents in now.items() for line in differences(read(name, part), contents, part)]
    assert found[:20] == []


def test_what_differs_is_found_wherever_it_lies() -> None:
    kept = {"a": [{"b": 1.0, "c": "x"}, {"d": None}], "gone": 1}
    now = {"a": [{"b": 1.0 + 1e-12, "c": "y"}, {"d": 0.5}, 3], "new": 2}
    places = [line.partition(":")[0] for line in differences(kept, now)]
    assert places == [".a[0].c", ".a[1].d", ".a[2]", ".gone", ".new"]
