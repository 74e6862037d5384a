"""Copies of parts of the published node, under another name, that say something else than it does."""

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


def record(name: str, node: Path = PUBLISHED, **changes: Any) -> dict[str, Any]:
    """A published node's record under another name."""
    kept = json.loads(record_path(node).read_text())
    return {key: kept[key] for key in kept if key not in ("kind", "instance")} | {"id": name, **changes}


def copied(
    folder: Path,
    rounds: Iterable[str],
    change: Rows | None = None,
    scale: float = 1.0,
    node: Path = PUBLISHED,
    **about: Any,
) -> Path:
    """A node folder with some rounds of a published node.

    change: alters the rows of each in place. scale: of the seconds in their metadata. about: replaces more of these.
    """
    folder.mkdir(parents=True)
    (folder / "node.json").write_text(json.dumps(record(folder.name, node)))
    for name in rounds:
        contents = parquet.read_table(node / f"{name}.parquet")
        told = json.loads(contents.schema.metadata[b"study"])
        told |= {key: told[key] * scale for key in ("wall_s", "timed_s", "warmup_s")} | about
        rows = contents.to_pandas().assign(node=folder.name)
        if change is not None:
            change(rows)
        made = arrow.Table.from_pandas(rows, preserve_index=False)
        parquet.write_table(made.replace_schema_metadata({"study": json.dumps(told)}), folder / f"{name}.parquet")
    return folder


# Enough for claims of both outcomes, and soon judged.
EXPERIMENTS, FEW = ("clock", "peak", "gemm", "numerics"), ("N03", "G02", "W13")


def few_claims(folder: Path) -> Path:
    """A folder of some claims, which point to no others."""
    folder.mkdir(parents=True)
    for name in FEW:
        text = (CLAIMS / f"{name}.yaml").read_text(encoding="utf-8")
        (folder / f"{name}.yaml").write_text(re.sub(r"(?m)^see_also:.*\n", "", text), encoding="utf-8")
    return folder


def quicker(times: float, all_clocks: bool = False) -> Rows:
    """All times are divided by so much; with `all_clocks`, those at which samples ended as well."""

    def change(rows: pd.DataFrame) -> None:
        rows.loc[rows["unit"].eq("s"), "value"] /= times
        if all_clocks:
            rows["elapsed_s"] /= times

    return change
