"""Summarize the outcomes of points: a round's outcomes in one line, a node's outcomes by status and reason."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.node import missing_rounds, read_node, record_path
from contract.sample_flags import DISTURBED_SHARE, DISTURBING, parse_sample_flags

# Longer reasons are cut to this many characters, so that each reason fits on one line.
SHOWN = 110


def format_outcomes(folders: Iterable[Path]) -> str:
    """Format for each node how many points are not ok for each reason, and which rounds are missing.

    The most frequent reason is first. A point that was measured in several rounds counts once per round; further
    attempts in a round do not count.
    folders: node folders, or their parents. Raises StudyError if there is no node.
    """
    places = list(folders)
    nodes = [
        place for folder in places for place in (folder, *sorted(folder.glob("*"))) if record_path(place).is_file()
    ]
    if not nodes:
        raise StudyError(
            f"no node in {', '.join(map(str, places))}: pass a node's folder or its parent (results/nodes)"
        )
    return "\n".join(line for node in nodes for line in _node_lines(node))


def _node_lines(node: Path) -> Iterable[str]:
    from contract.node_pack import is_repeat, parse_round_file
    from contract.sample_table import read_samples

    record, files = read_node(record_path(node)), sorted(node.glob("[!.]*.parquet"))
    copies = [path for path in files if parse_round_file(path.name) is None]
    files = [path for path in files if not is_repeat(path.name) and path not in copies]
    counts: Counter[tuple[str, str, bool, str, str]] = Counter()
    unreadable = [
        f"{path}: not counted, because its name is not <experiment>.<device>.<round>.parquet" for path in copies
    ]
    for path in files:
        try:
            table, _ = read_samples(path)
        except StudyError as fault:
            unreadable.append(str(fault))
            continue
        point = ["round", "experiment", "device", "backend", "dtype", "threads", "params"]
        table = table.assign(lost=table["status"].ne("ok"))
        # A point is partly ok if some of its metrics (for example those of its profile) are lost, but not all.
        table["partly"] = table["lost"] & ~table.groupby(point, observed=True)["lost"].transform("all")
        worst = table.sort_values("lost").drop_duplicates(point, keep="last")
        counts.update(worst[["experiment", "device", "partly", "status", "reason"]].itertuples(index=False, name=None))
    # Merge reasons that differ only in numbers, and show the first of them.
    lost: dict[tuple[Any, ...], list[Any]] = {}
    for (*key, reason), count in counts.items():
        if key[-1] != "ok":
            alike = lost.setdefault((*key, re.sub(r"[0-9][0-9.,]*", "#", reason)), [0, reason])
            alike[0] += count
    bad = sum(count for (_, _, partly, *_), (count, _) in lost.items() if not partly)
    yield f"{record['id']}: {len(files)} rounds of jobs, {counts.total() - bad} points ok, {bad} not"
    for (experiment, device, partly, status, _), (count, reason) in sorted(lost.items(), key=lambda item: -item[1][0]):
        short = reason if len(reason) <= SHOWN else f"{reason[:SHOWN]}…"
        yield f"  {count:4}  {experiment} on {device}: {'in part ' if partly else ''}{status}: {short}"
    yield from (f"  unreadable: {fault}" for fault in unreadable)
    if missing := missing_rounds(record, [path.name for path in files]):
        yield f"  missing: {', '.join(missing)}"


def count_statuses(statuses: list[str]) -> str:
    """Format status counts: '12 ok, 2 skipped'."""
    return ", ".join(f"{count} {status}" for status, count in Counter(statuses).items())


def highest_rate(rows: Iterable[Mapping[str, Any]]) -> str:
    """Format the fastest point's median rate: ', at most 41 GFLOP/s', or in GB/s if no point counts operations."""
    points = defaultdict(list)
    for row in rows:
        if row["status"] == "ok" and row["metric"] == "time" and row["value"]:
            kind = (row["flop"] or 0, row["bytes"] or 0, row["backend"], row["dtype"], row["threads"], row["params"])
            points[kind].append(row["value"])
    for index, unit in enumerate(("GFLOP/s", "GB/s")):
        if fastest := max((kind[index] / statistics.median(values) for kind, values in points.items()), default=0):
            return f", at most {fastest / 1e9:.3g} {unit}"
    return ""


def disturbed_text(points: Iterable[Sequence[Mapping[str, Any]]]) -> str:
    """Format how many points other processes disturbed: ', 3 disturbed by other processes'; '' for none.

    points: the rows of each point.
    """
    number = 0
    for rows in points:
        flags = [parse_sample_flags(row["flags"]) for row in rows if "elapsed_s" in row]
        bad = sum(any(flag.name in DISTURBING for flag in of_sample) for of_sample in flags)
        number += bool(bad) and bad >= DISTURBED_SHARE * len(flags)
    return f", {number} disturbed by other processes" if number else ""
