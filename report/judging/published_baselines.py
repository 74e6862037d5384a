"""Compare this study's CPU figures with published figures, to detect CPU baselines that are too slow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from contract.errors import StudyError
from contract.files import read_yaml, yaml_place
from contract.node import kind_of_node
from contract.schema import did_you_mean
from report import PACKAGE
from report.compared_estimates import pool_machines, row_nodes
from report.data.dataset import MissingSourceError
from report.judging.part_evaluation import QuantityCache, select
from report.judging.verdict_records import row_interval
from report.quantities import quantities
from report.quantities.published import machine_name

DECLARED = PACKAGE / "counterparts.yaml"
SCHEMA = json.loads((PACKAGE / "schemas" / "counterparts.schema.json").read_text(encoding="utf-8"))


def compare_counterparts(cache: QuantityCache, path: Path = DECLARED) -> list[dict[str, Any]]:
    """Compare each declared published value with this study's largest estimate on each node kind.

    Returns a record for each published value; its field `here` lists the estimates with their ratios to this value.
    Returns an empty list if the file is missing or there are no published records. Raises StudyError for an unknown
    quantity or record.
    """
    published = cache.data.published
    if not path.exists() or not published.records_by_key:
        return []
    records = []
    for number, pair in enumerate(read_yaml(path, SCHEMA)):
        for kind, key, known in (
            ("quantity", pair["quantity"], quantities()),
            *(("record", pair[side], published.records_by_key) for side in ("of", "over") if side in pair),
        ):
            if key not in known:
                near = did_you_mean(key, list(known))
                raise StudyError(f"{yaml_place(path, number)}: {pair['title']}: there is no {kind} {key!r}.{near}")
        above = published.records_by_key[pair["of"]]
        below = published.records_by_key[pair["over"]] if "over" in pair else None
        value = float(above["value"]) / (float(below["value"]) if below else 1.0)
        records.append(
            {
                "title": pair["title"],
                "quantity": pair["quantity"],
                "unit": quantities()[pair["quantity"]].unit,
                "published": value,
                "machine": machine_name(above),
                "source": above["source"],
                "records": [pair[side] for side in ("of", "over") if side in pair],
                "differs": pair["differs"],
                "here": _measured_rows(pair, value, cache),
            }
        )
    return records


def _measured_rows(pair: Mapping[str, Any], published: float, cache: QuantityCache) -> list[dict[str, Any]]:
    """Return each node kind's largest estimate in scope, with its interval and its ratio to the published value."""
    try:
        estimates = pool_machines(select(cache.estimates(quantities()[pair["quantity"]]), pair["scope"]))
    except MissingSourceError:
        return []
    rows = []
    nodes, values = row_nodes(estimates), estimates.numbers("estimate").to_numpy()
    kinds = estimates["node"].map(kind_of_node)
    for at in kinds.groupby(kinds, observed=True).indices.values():
        row = int(np.asarray(at)[values[at].argmax()])
        ends = row_interval(estimates, row)
        if ends["estimate"] is not None:
            rows.append({"node": nodes[row][0], "label": cache.data.group_label(nodes[row]), **ends,
                         "ratio": ends["estimate"] / published})  # fmt: skip
    return rows
