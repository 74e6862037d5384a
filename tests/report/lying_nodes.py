"""Helpers that copy rounds from a published node to a node with another name, and put false values in them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as arrow
import pyarrow.parquet as parquet

from contract.node import record_path
from report.data.reference_figures import REFERENCE
from report.judging.judge import CLAIMS

PUBLISHED = REFERENCE.parent / "nodes" / "amd-epyc-2c-789dcf"
WITH_GPU = REFERENCE.parent / "nodes" / "intel-xeon-16c-nvidia-h100-80gb-hbm3-04c18c.bd8cb5"
Rows = Callable[[pd.DataFrame], Any]


def renamed_record(name: str, node: Path = PUBLISHED, **changes: Any) -> dict[str, Any]:
    """Return a published node's record, with `name` as its id, and with the fields in `changes` replaced or added."""
    contents = json.loads(record_path(node).read_text())
    return {key: contents[key] for key in contents if key not in ("kind", "instance")} | {"id": name, **changes}


def copy_node(
    folder: Path,
    rounds: Iterable[str],
    change: Rows | None = None,
    scale: float = 1.0,
    node: Path = PUBLISHED,
    **about: Any,
) -> Path:
    """Copy `rounds` from a published node to a new node in `folder`. The folder's name becomes the node's id.

    change: function that edits each round's rows in place.
    scale: factor for the wall, timed and warm-up seconds in each round's metadata.
    about: other metadata fields to replace or add.
    """
    folder.mkdir(parents=True)
    (folder / "node.json").write_text(json.dumps(renamed_record(folder.name, node)))
    for name in rounds:
        contents = parquet.read_table(node / f"{name}.parquet")
        metadata = json.loads(contents.schema.metadata[b"study"])
        metadata |= {key: metadata[key] * scale for key in ("wall_s", "timed_s", "warmup_s")} | about
        rows = contents.to_pandas().assign(node=folder.name)
        if change is not None:
            change(rows)
        table = arrow.Table.from_pandas(rows, preserve_index=False)
        parquet.write_table(table.replace_schema_metadata({"study": json.dumps(metadata)}), folder / f"{name}.parquet")
    return folder


# EXPERIMENTS: experiments that are quick to judge.
# FEW_CLAIMS: claims that rest on these experiments. Some are supported and others challenged.
EXPERIMENTS, FEW_CLAIMS = ("clock", "peak", "gemm", "numerics"), ("N03", "G02", "W13")


def write_few_claims(folder: Path) -> Path:
    """Copy the claim files for FEW_CLAIMS to `folder`, without the lines that link to other claims (`see_also`)."""
    folder.mkdir(parents=True)
    for name in FEW_CLAIMS:
        text = (CLAIMS / f"{name}.yaml").read_text(encoding="utf-8")
        (folder / f"{name}.yaml").write_text(re.sub(r"(?m)^see_also:.*\n", "", text), encoding="utf-8")
    return folder


def speed_up(times: float, all_clocks: bool = False) -> Rows:
    """Return a function that divides all measured times in a round by `times`.

    If `all_clocks` is true, the function also divides the times at which the samples ended (`elapsed_s`).
    """

    def change(rows: pd.DataFrame) -> None:
        rows.loc[rows["unit"].eq("s"), "value"] /= times
        if all_clocks:
            rows["elapsed_s"] /= times

    return change
