"""Datasets as of each look, for nodes whose undecided results were measured in further rounds.

A look counts the rounds up to its number. Rounds after the last look, such as those of a later session's anchors, are
in no look, but the spread between sessions that they show widens the intervals of all looks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from contract.looks import node_looks
from contract.node_pack import parse_round_file
from report.data.dataset import Dataset
from report.data.node_reader import Node, Nodes
from report.data.summary import COLUMNS, GROUP, SERIES, Spreads, summarise
from report.statistics import SessionSpread


def look_nodes(data: Dataset) -> dict[str, list[int]]:
    """Return the numbers of rounds at the looks of each node that has looks, by node id."""
    looks = {node.id: node_looks(node.record) for node in data.nodes.nodes}
    return {node: rounds for node, rounds in looks.items() if rounds}


def datasets_at_looks(data: Dataset) -> list[tuple[Dataset, frozenset[str]]]:
    """Return the dataset as of each look, with the experiments that were measured after the look before it.

    The looks are in order; there are none if no node has looks. Rows keep their numbers.

    A node without a look of that number of rounds is as of its next look, and after its last look as of that one. Nodes
    without looks are complete in all datasets.
    """
    nodes = look_nodes(data)
    looks = sorted({rounds for own in nodes.values() for rounds in own})
    limits = [
        {node: next((rounds for rounds in own if rounds >= look), own[-1]) for node, own in nodes.items()}
        for look in looks
    ]
    before: list[dict[str, int]] = [dict.fromkeys(nodes, 0), *limits][: len(limits)]
    return [
        (_dataset_up_to(data, last), _experiments_between(data, first, last))
        for first, last in zip(before, limits, strict=True)
    ]


def _experiments_between(data: Dataset, first: Mapping[str, int], last: Mapping[str, int]) -> frozenset[str]:
    """Return the experiments with rounds after the rounds `first` and up to the rounds `last`, both by node id."""
    places = [
        (node.id, place)
        for node in data.nodes.nodes
        if node.id in last
        for about in node.rounds
        if (place := parse_round_file(str(about["file"])))
    ]
    return frozenset(place[0] for node, place in places if first[node] < place[2] <= last[node])


@dataclass
class _NodesUpTo(Nodes):
    """Nodes without the rounds after a limit. limits: the last round that counts, by node id."""

    whole: Nodes = field(default_factory=lambda: Nodes([], []))
    limits: Mapping[str, int] = field(default_factory=dict)

    def samples(self, *experiments: str, columns: Sequence[str] = ()) -> pd.DataFrame:
        needed = list(dict.fromkeys([*columns, "node", "round"])) if columns else []
        table = self.whole.samples(*experiments, columns=needed)
        last = table["node"].astype(object).map(self.limits).fillna(np.inf).astype(float)
        kept = table[(table["round"] <= last).to_numpy()]
        return kept[list(columns)] if columns else kept


def _dataset_up_to(data: Dataset, limits: Mapping[str, int]) -> Dataset:
    cut = [_node_up_to(node, limits[node.id]) if node.id in limits else node for node in data.nodes.nodes]
    nodes = _NodesUpTo(cut, data.nodes.refused, data.nodes, limits)
    samples = nodes.samples()
    own = samples[samples["node"].isin(limits).to_numpy()]
    summary = summarise(own, data.later_sessions, _spreads(data.table, limits))
    later = data.table["node"].isin(limits).to_numpy()
    kept = [name for name in data.table if name in SERIES or name not in COLUMNS]
    rows = _plain_texts(data.table.loc[later, kept]).reset_index(names="number")
    rows = rows.merge(_plain_texts(summary), on=SERIES, how="left").set_index("number")
    # A series without samples up to this round has no result.
    texts = {name: "" for name in rows if isinstance(rows[name].dtype, pd.StringDtype)}
    counts = {name: 0 for name in summary if pd.api.types.is_integer_dtype(summary[name])}
    rows = rows.fillna({**texts, **counts, "status": "skipped"}).astype(dict.fromkeys(counts, "int64"))
    whole = pd.concat([_plain_texts(data.table[~later]), rows[data.table.columns]]).sort_index()
    return Dataset(nodes, data.reference, whole.rename_axis(None), data.published)


def _node_up_to(node: Node, last: int) -> Node:
    """Return the node without the metadata of rounds after `last`."""
    places = [parse_round_file(str(about["file"])) for about in node.rounds]
    kept = [about for about, place in zip(node.rounds, places, strict=True) if place is None or place[2] <= last]
    return replace(node, rounds=kept)


def _spreads(table: pd.DataFrame, nodes: Collection[str]) -> Spreads:
    """Return the spread between sessions of each group in these nodes' summary rows that has one."""
    known = table[table["node"].isin(nodes).to_numpy() & table["session_variance"].notna().to_numpy()]
    rows = known.drop_duplicates(GROUP)[[*GROUP, "session_variance", "session_df"]]
    return {tuple(map(str, row[:-2])): SessionSpread(*row[-2:]) for row in rows.itertuples(index=False, name=None)}


def _plain_texts(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with strings in place of categories."""
    texts = [name for name, kind in table.dtypes.items() if kind.name in ("category", "object")]
    return table.astype(dict.fromkeys(texts, "string"))
