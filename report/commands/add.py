"""Adds a node that was handed in as a pack to the published ones, once it is checked and what it changes is told."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from contract.errors import StudyError
from contract.node_pack import ROUND, Pack, check_round, read_pack
from contract.schema import escape_line
from report.data.contributed_nodes import add_node_folder, write_node_folder
from report.data.dataset import Dataset
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.node_folders import RUN, Folder, find_nodes
from report.data.node_reader import Node, read_folders
from report.data.published_records import PUBLISHED, read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.formatting import first_items, format_count, with_unit
from report.judging.judge import CLAIMS, judge
from report.outcomes import HERE, OTHERS
from report.publish import write_published

# Of estimates that shift, so many are told.
_MOST = 6
Record = Mapping[str, Any]
# Gathered data and the verdicts on them.
Judged = tuple[Dataset, Record]


def add(path: Path, nodes: Path, dry_run: bool = False, claims: Path = CLAIMS) -> Iterator[str]:
    """Check a pack, tell in lines what its node changes, and add it, unless `dry_run`.

    nodes: the folder of published nodes, whose datapackage.json beside it is written anew. Raises StudyError, in one
    line, for whatever is wrong with any part of the pack, and nothing is written then; OSError.
    """
    if nodes.name != "nodes":
        raise StudyError(f"--nodes {nodes}: name a folder called nodes: datapackage.json beside it tells what it holds")
    pack, where = read_pack(path), escape_line(str(path))
    if pack.record["origin"] == "synthetic":
        raise StudyError(f"{where}: its data are synthetic, which are for tests only: measure the node")
    with TemporaryDirectory(prefix="add-") as scratch:
        staged = write_node_folder(pack, Path(scratch) / "pack" / str(pack.record["id"]))
        folders, _ = find_nodes([nodes, staged])
        found = next((folder for folder in folders if any(file.parent == staged for file in folder.files)), None)
        if found is None:
            yield f"{pack.record['id']}: all its rounds are in {nodes} already: there is nothing to add."
            return
        node = _checked(found, staged, where)
        after = _gathered([nodes, staged], Path(scratch) / "after")
        _refuse_renamed(node.id, after, where)
        print(f"judging with {node.id} and without: a minute", file=sys.stderr)
        later = judge(after, Path(scratch) / "after" / "verdicts.json", claims)
        earlier = None
        if any(folder.place != staged for folder in folders):
            before = _gathered([nodes], Path(scratch) / "before")
            earlier = before, judge(before, Path(scratch) / "before" / "verdicts.json", claims)
        yield from map(escape_line, _told(node, pack, earlier, (after, later)))
    if dry_run:
        yield f"Nothing was added. Without --dry-run it goes into {nodes}."
        return
    target = add_node_folder(pack, nodes, _like(found, folders, staged))
    try:
        listed = write_published(nodes.parent)
    except StudyError as fault:
        raise StudyError(
            f"{target} was added, and is not listed: {fault}. Mend that: python -m report datapackage"
        ) from None
    yield f"Added: {target}. {listed} lists it."
    yield "Next: `snakemake --cores all` makes the report with it. Commit the folder and what lists it."


def _checked(found: Folder, staged: Path, where: str) -> Node:
    """The node, all of whose rounds in the pack can be used. Raises StudyError for the first that cannot."""
    ((node, refused),) = read_folders([found])
    for one in refused:
        if one["file"].startswith(escape_line(str(staged))):
            name = one["file"].removeprefix(escape_line(str(staged))).lstrip("/\\")
            raise StudyError(f"{where}: {f'{name}: ' if name else ''}{one['reason']}")
    if node is None:
        raise StudyError(f"{where}: no round of it can be used")
    for file in found.files:
        if file.parent == staged:
            try:
                check_round(file)
            except StudyError as fault:
                reason = escape_line(str(fault).removeprefix(str(file)))
                raise StudyError(f"{where}: {file.name}{reason}") from None
    return node


def _like(found: Folder, folders: Sequence[Folder], staged: Path) -> set[str]:
    """Names of the folders that are there and hold rounds under the id that the pack bears."""
    places = {place for folder in folders if folder.file_id == found.file_id for place in _places(folder)}
    return {place.name for place in places - {staged}}


def _places(folder: Folder) -> set[Path]:
    return {folder.place, *(file.parent for file in folder.files)}


def _gathered(directories: Sequence[Path], folder: Path) -> Dataset:
    """The evidence of all nodes in these folders. Raises StudyError, OSError."""
    # What is left out of those that are there is told when they are gathered for a report.
    with redirect_stderr(io.StringIO()):
        gather(directories, folder)
    return read_dataset(folder, read_reference(REFERENCE), read_published(PUBLISHED))


def _refuse_renamed(node: str, data: Dataset, where: str) -> None:
    """Raise StudyError if a round of the node is another node's too: one run would count as two machines."""
    runs = data.nodes.samples(columns=["node", *RUN]).drop_duplicates()
    mine = runs["node"] == node
    both = runs[mine].merge(runs[~mine], on=RUN, suffixes=("", "_of_other"))
    if len(both):
        row = both.iloc[0]
        raise StudyError(
            f"{where}: round {row['round']} of {row['experiment']} on {row['device']} is that of "
            f"{row['node_of_other']}, which is there already: a run counts once, under one name"
        )


def _told(node: Node, pack: Pack, before: Judged | None, after: Judged) -> Iterator[str]:
    """What the node is, and what it changes, in lines."""
    yield _machine(node, pack)
    rows, ok = ([0 if one is None else _rows(one[0], *status) for one in (before, after)] for status in ((), ("ok",)))
    yield f"It brings {rows[1] - rows[0]:,} series, {ok[1] - ok[0]:,} of them with a result; {rows[0]:,} are there."
    if before is None:
        yield "No other node is there: every verdict is by this one."
        return
    was, now = ({verdict["id"]: verdict for verdict in document["verdicts"]} for _, document in (before, after))
    if node.id in {node["id"] for node in before[1]["nodes"]}:
        yield f"{node.id} is there already, with some of these rounds: the others are read with them, as one node."
    pairs = [(was[name], one) for name, one in now.items()]
    turned = [f"{a['id']}: {a['verdict']} -> {b['verdict']}" for a, b in pairs if a["verdict"] != b["verdict"]]
    yield _list("Verdicts that move", turned)
    yield _list("Verdicts that stay, with another estimate", list(_shifts(pairs)), _MOST)
    yield _list(
        "Verdicts that rest on it in place of what others published",
        [a["id"] for a, b in pairs if (a["decided_on"], b["decided_on"]) == (OTHERS, HERE)],
    )
    yield _list("Verdicts that would hang on it alone", [b["id"] for _, b in pairs if b["hangs_on"] == node.id])


def _machine(node: Node, pack: Pack) -> str:
    told = [node.label, *(f"{name} {pack.manifest[name]}" for name in ("preset", "commit") if pack.manifest[name])]
    missing = node.missing_rounds()
    told.append(format_count(sum(map(bool, map(ROUND.fullmatch, pack.files))), "round"))
    return (
        f"{node.id}: {', '.join(told)}; {f'missing are {first_items(missing, 3)}' if missing else 'none is missing'}."
    )


def _rows(data: Dataset, status: str = "") -> int:
    return int((data.table["status"] == status).sum()) if status else len(data.table)


def _shifts(pairs: Sequence[tuple[Record, Record]]) -> Iterator[str]:
    """Estimates of verdicts that stay, from what to what, the largest shift first."""
    found = []
    for was, now in pairs:
        values = was["estimate"], now["estimate"]
        if was["verdict"] != now["verdict"] or None in values or values[0] == values[1]:
            continue
        times = values[1] / values[0] if values[0] else math.inf
        share = f" ({100 * (times - 1):+.2g}%)" if 0 < times < math.inf else ""
        texts = [with_unit(one["estimate"], one["unit"] or "1") for one in (was, now)]
        found.append(
            (abs(math.log(times)) if 0 < times < math.inf else math.inf, f"{was['id']}: {' -> '.join(texts)}{share}")
        )
    yield from (text for _, text in sorted(found, key=lambda one: -one[0]))


def _list(what: str, items: Sequence[str], most: int | None = None) -> str:
    """A line: how many, and which. most: how many of them are told, all if None."""
    if not items:
        return f"{what}: none."
    shown = items[:most]
    more = f"; and {len(items) - len(shown)} more" if len(items) > len(shown) else ""
    return f"{what}: {len(items)} ({'; '.join(shown)}{more})."
