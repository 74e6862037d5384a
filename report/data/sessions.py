"""Sessions: parts of a node's measuring time, at least an hour apart.

Rounds of one session share the day's clock, heat and neighbours, so that their spread lacks the spread between days.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from contract.looks import SESSIONS_APART
from contract.node_pack import parse_round_file
from report.data.node_reader import Node

# Columns that identify a round.
KEYS = ["node", "experiment", "device", "round", "attempt"]


def number_sessions(rounds: pd.DataFrame) -> pd.Series:
    """Number each round's session, from 1, separately for each node.

    rounds: the columns node, started_utc and ended_utc (times as text). A node without the times of all its rounds
    counts as measured in one session. The result has the index of `rounds`.
    """
    times = {
        name: pd.to_datetime(rounds[name].astype(object), errors="coerce", utc=True)
        for name in ("started_utc", "ended_utc")
    }
    numbers = pd.Series(1, index=rounds.index, dtype=int)
    for _, at in rounds.groupby("node", observed=True).groups.items():
        started, ended = (times[name].loc[at] for name in ("started_utc", "ended_utc"))
        if started.notna().all() and ended.notna().all():
            order = started.sort_values(kind="stable").index
            before = ended.loc[order].cummax().shift()
            numbers.loc[order] = 1 + (started.loc[order] - before >= SESSIONS_APART).cumsum()
    return numbers


def later_sessions(nodes: Iterable[Node]) -> pd.DataFrame:
    """Return the rounds outside their node's first session: the columns KEYS and `session`, the session's number."""
    rows: list[dict[str, Any]] = []
    for node in nodes:
        for about in node.rounds:
            times = {name: about.get(name) for name in ("started_utc", "ended_utc")}
            if place := parse_round_file(str(about["file"])):
                rows.append({**dict(zip(KEYS, (node.id, *place), strict=True)), **times})
    rounds = pd.DataFrame(rows, columns=[*KEYS, "started_utc", "ended_utc"])
    rounds = rounds.assign(session=number_sessions(rounds))
    return rounds.loc[rounds["session"] > 1, [*KEYS, "session"]].reset_index(drop=True)
