"""Python's own readers of CSV and JSON, for scale: lists of Python objects."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from experiments.tabular.base import ON_TABLES, Columns, Library


class PythonLibrary(Library):
    """The modules csv and json."""

    name = "python"
    without = dict.fromkeys(ON_TABLES, "has readers of text, and no tables")

    def columns(self, table: Any) -> Columns:
        import numpy as np

        return {name: np.array(column) for name, column in table.items()}

    def parse_csv(self, text: bytes) -> Any:
        _, *rows = csv.reader(io.StringIO(text.decode(), newline=""))
        return {
            "id": [int(row[0]) for row in rows],
            "value": [float(row[1]) for row in rows],
            "name": [row[2] for row in rows],
        }

    def parse_json(self, text: bytes) -> Any:
        rows = [json.loads(line) for line in text.splitlines()]
        return {name: [row[name] for row in rows] for name in ("id", "value", "name")}
