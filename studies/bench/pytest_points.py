"""The points by pytest-benchmark, at its defaults. Not found by pytest unless it is named."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from studies.bench.points import build

# Set by studies.bench.methods.
LABELS = "BENCH_LABELS"


@pytest.mark.parametrize("label", json.loads(os.environ.get(LABELS, "[]")))
def test_point(benchmark: Any, label: str) -> None:
    call, _ = build(label)
    benchmark(call)
