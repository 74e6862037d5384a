"""Select the machines that pages show one by one: all if they are few, else the slowest, the median and the fastest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import polars as pl

from contract.node import count_machines
from report.data.summary import POINT
from report.estimates import device_kind

# Maximum number of machines to show: each adds about fifty figures, and readers cannot compare more machines.
MOST = 6
COLUMNS = (*POINT, "metric", "status", "estimate")
_POINT = ["kind", *(name for name in POINT if name not in ("node", "device"))]


def select_nodes(nodes: Sequence[Mapping[str, Any]], table: pd.DataFrame | None) -> list[str]:
    """Return the node ids to show, in order: all if they are runs on at most MOST machines, else a selection.

    For each kind of device, the slowest, the median and the fastest node are selected. A node's time at each point is
    divided by the median time of all nodes, and the median of these ratios determines the order. Then nodes are added
    to cover experiments that the selected nodes lack. If all nodes come from at most MOST source folders, nodes from
    missing folders are added too.

    nodes: nodes of a verdicts document.
    table: summary of all nodes with the columns COLUMNS; None selects the first MOST nodes.
    """
    every = [str(node["id"]) for node in nodes]
    if count_machines(every) <= MOST:
        return every
    if table is None:
        return every[:MOST]
    ok = table[table["status"] == "ok"]
    kinds = {str(name): device_kind(str(name)) for name in ok["device"].unique()}
    rows = pl.from_pandas(ok[list(COLUMNS)]).with_columns(
        pl.col("node", "experiment", "metric").cast(pl.String), kind=pl.col("device").cast(pl.String).replace(kinds)
    )
    chosen = _extreme_nodes(rows)
    has: dict[str, set[tuple[str, ...]]] = {node: set() for node in every}
    for node, *content in rows.select("node", "experiment", "kind").unique().iter_rows():
        has.setdefault(node, set()).add(tuple(content))
    folders = {str(node["id"]): str(node.get("source")) for node in nodes}
    if len(set(folders.values())) <= MOST:
        for node, folder in folders.items():
            has[node].add((folder,))
    lacking = set().union(*has.values()).difference(*(has[node] for node in chosen))
    while lacking:
        addition = max(every, key=lambda node: len(has[node] & lacking))
        if not has[addition] & lacking:
            break
        chosen.add(addition)
        lacking -= has[addition]
    return [node for node in every if node in chosen]


def _extreme_nodes(rows: pl.DataFrame) -> set[str]:
    """Return the slowest, median and fastest node per device kind."""
    times = rows.filter(pl.col("metric") == "time", pl.col("estimate") > 0)
    over = times.with_columns(over=pl.col("estimate") / pl.col("estimate").median().over(_POINT))
    ranks = over.group_by("kind", "node").agg(pl.col("over").median()).sort("kind", "over", "node")
    return {
        order["node"][place]
        for order in ranks.partition_by("kind")
        for place in (0, len(order) // 2, len(order) - 1)
    }  # fmt: skip


def filter_cases(
    cases: Iterable[Mapping[str, Any]],
    nodes: Collection[str] | None,
    node: Callable[[Mapping[str, Any]], Any] = lambda case: case.get("node"),
) -> list[Mapping[str, Any]]:
    """Keep the cases on shown nodes and the cases without a node.

    A case that stands for several nodes is kept if any is shown. nodes: ids of the shown nodes; None keeps all cases.
    node: function that returns a case's node.
    """

    def is_selected(case: Mapping[str, Any]) -> bool:
        node_ids = case.get("instances") or [node(case)]
        return nodes is None or not node_ids[0] or any(node_id in nodes for node_id in node_ids)

    return [case for case in cases if is_selected(case)]


def selection_text(here: int, nodes: Sequence[str], known: bool) -> str:
    """Explain which machines were selected; '' if all machines are shown.

    here: number of shown machines.
    known: False if the first machines were taken, because no summary was available.
    """
    if here == len(nodes):
        return ""
    which = (
        "of each kind of device the slowest, the middling and the fastest at what they all measured, and those that "
        "alone measured something"
    )
    unit = "machines" if count_machines(nodes) == len(nodes) else "runs"
    return (
        f"{here} of {len(nodes):,} {unit} are shown one by one: {which if known else 'the first'}. Verdicts rest on "
        f"all {unit}."
    )
