"""Command `add`: check a contributed node pack, report the changes it makes, and add it to the published nodes."""

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
from report.publish import is_listed, write_published

# At most this many shifted estimates are listed.
_MOST_SHIFTS = 6
Record = Mapping[str, Any]
# Gathered data, and the document with the verdicts that `judge` made from these data.
Judged = tuple[Dataset, Record]


def add(path: Path, nodes: Path, dry_run: bool = False, claims: Path = CLAIMS) -> Iterator[str]:
    """Check a node pack, yield lines about the changes that its node makes, and add the node unless `dry_run`.

    nodes: the folder with the published nodes; datapackage.json beside it is rewritten. For any mistake in the pack,
    raises StudyError with a one-line message before anything is written. Raises OSError if the node cannot be written.
    """
    if nodes.name != "nodes":
        raise StudyError(f"--nodes {nodes}: name a folder called nodes: datapackage.json beside it tells what it holds")
    pack, where = read_pack(path), escape_line(str(path))
    if pack.record["origin"] == "synthetic":
        raise StudyError(f"{where}: its data are synthetic, which are for tests only: measure the node")
    with TemporaryDirectory(prefix="add-") as scratch:
        staged = write_node_folder(pack, Path(scratch) / "pack" / str(pack.record["id"]))
        folders, _ = find_nodes([nodes, staged])
        folder = next((item for item in folders if any(file.parent == staged for file in item.files)), None)
        if folder is None:
            yield f"{pack.record['id']}: all its rounds are in {nodes} already: there is nothing to add."
            if not dry_run and not is_listed(nodes.parent):
                # An earlier `add` was killed before it wrote the lists.
                yield f"{write_published(nodes.parent)} lists it."
            return
        node = _check_node(folder, staged, where)
        after = _gather_dataset([nodes, staged], Path(scratch) / "after")
        _refuse_renamed(node.id, after, where)
        print(f"judging with {node.id} and without: a minute", file=sys.stderr)
        later = judge(after, Path(scratch) / "after" / "verdicts.json", claims)
        earlier = None
        if any(item.place != staged for item in folders):
            before = _gather_dataset([nodes], Path(scratch) / "before")
            earlier = before, judge(before, Path(scratch) / "before" / "verdicts.json", claims)
        yield from map(escape_line, _describe_changes(node, pack, earlier, (after, later)))
    if dry_run:
        yield f"Nothing was added. Without --dry-run it goes into {nodes}."
        return
    target = add_node_folder(pack, nodes, _same_id_folders(folder, folders, staged))
    try:
        listed = write_published(nodes.parent)
    except StudyError as fault:
        raise StudyError(
            f"{target} was added, but is not listed: {fault}. Repair this with: python -m report datapackage"
        ) from None
    yield f"Added: {target}. {listed} lists it."
    yield "Next: `snakemake --cores all` makes the report with it. Commit the folder and what lists it."


def _check_node(folder: Folder, staged: Path, where: str) -> Node:
    """Read the pack's node. Raises StudyError for the first unusable round in the pack."""
    ((node, refused),) = read_folders([folder])
    for fault in refused:
        if fault["file"].startswith(escape_line(str(staged))):
            name = fault["file"].removeprefix(escape_line(str(staged))).lstrip("/\\")
            raise StudyError(f"{where}: {f'{name}: ' if name else ''}{fault['reason']}")
    if node is None:
        raise StudyError(f"{where}: contains no usable round")
    for file in folder.files:
        if file.parent == staged:
            try:
                check_round(file)
            except StudyError as error:
                reason = escape_line(str(error).removeprefix(str(file)))
                raise StudyError(f"{where}: {file.name}{reason}") from None
    return node


def _same_id_folders(folder: Folder, folders: Sequence[Folder], staged: Path) -> set[str]:
    """Return the names of the other folders that hold rounds with the pack's node id."""
    places = {place for item in folders if item.file_id == folder.file_id for place in _node_folders(item)}
    return {place.name for place in places - {staged}}


def _node_folders(folder: Folder) -> set[Path]:
    return {folder.place, *(file.parent for file in folder.files)}


def _gather_dataset(directories: Sequence[Path], folder: Path) -> Dataset:
    """Gather the nodes in `directories` into `folder`, and return the dataset. Raises StudyError, OSError."""
    # Suppress warnings about nodes that are published already: `gather` prints them when a report is made.
    with redirect_stderr(io.StringIO()):
        gather(directories, folder)
    return read_dataset(folder, read_reference(REFERENCE), read_published(PUBLISHED))


def _refuse_renamed(node: str, data: Dataset, where: str) -> None:
    """Raise StudyError if this node and another have a round in common.

    The same run under two node names would count as two machines.
    """
    runs = data.nodes.samples(columns=["node", *RUN]).drop_duplicates()
    mine = runs["node"] == node
    both = runs[mine].merge(runs[~mine], on=RUN, suffixes=("", "_of_other"))
    if len(both):
        row = both.iloc[0]
        raise StudyError(
            f"{where}: round {row['round']} of {row['experiment']} on {row['device']} is that of "
            f"{row['node_of_other']}, which is already here: a run counts once, under one name"
        )


def _describe_changes(node: Node, pack: Pack, before: Judged | None, after: Judged) -> Iterator[str]:
    """Yield lines about the node, how many series (summary rows) it adds, and the verdicts that it changes."""
    yield _describe_node(node, pack)
    rows, ok = (
        [0 if data is None else _count_rows(data[0], *status) for data in (before, after)] for status in ((), ("ok",))
    )
    yield f"It brings {rows[1] - rows[0]:,} series, {ok[1] - ok[0]:,} of them with a result; {rows[0]:,} are there."
    if before is None:
        yield "No other node is there: every verdict is by this one."
        return
    old, new = ({verdict["id"]: verdict for verdict in document["verdicts"]} for _, document in (before, after))
    if node.id in {node["id"] for node in before[1]["nodes"]}:
        yield f"{node.id} is there already, with some of these rounds: the others are read with them, as one node."
    pairs = [(old[name], verdict) for name, verdict in new.items()]
    turned = [f"{a['id']}: {a['verdict']} -> {b['verdict']}" for a, b in pairs if a["verdict"] != b["verdict"]]
    yield _format_list("Verdicts that move", turned)
    yield _format_list("Verdicts that stay, with another estimate", list(_estimate_shifts(pairs)), _MOST_SHIFTS)
    yield _format_list(
        "Verdicts that rest on it in place of what others published",
        [a["id"] for a, b in pairs if (a["decided_on"], b["decided_on"]) == (OTHERS, HERE)],
    )
    yield _format_list("Verdicts that would hang on it alone", [b["id"] for _, b in pairs if b["hangs_on"] == node.id])


def _describe_node(node: Node, pack: Pack) -> str:
    parts = [node.label, *(f"{name} {pack.manifest[name]}" for name in ("preset", "commit") if pack.manifest[name])]
    missing = node.missing_rounds()
    parts.append(format_count(sum(map(bool, map(ROUND.fullmatch, pack.files))), "round"))
    return (
        f"{node.id}: {', '.join(parts)}; {f'missing are {first_items(missing, 3)}' if missing else 'none is missing'}."
    )


def _count_rows(data: Dataset, status: str = "") -> int:
    return int((data.table["status"] == status).sum()) if status else len(data.table)


def _estimate_shifts(pairs: Sequence[tuple[Record, Record]]) -> Iterator[str]:
    """Yield 'old -> new' for each estimate that changed while its verdict did not, largest change first."""
    shifts = []
    for old, new in pairs:
        values = old["estimate"], new["estimate"]
        if old["verdict"] != new["verdict"] or None in values or values[0] == values[1]:
            continue
        times = values[1] / values[0] if values[0] else math.inf
        share = f" ({100 * (times - 1):+.2g}%)" if 0 < times < math.inf else ""
        texts = [with_unit(verdict["estimate"], verdict["unit"] or "1") for verdict in (old, new)]
        size = abs(math.log(times)) if 0 < times < math.inf else math.inf
        shifts.append((size, f"{old['id']}: {' -> '.join(texts)}{share}"))
    yield from (text for _, text in sorted(shifts, key=lambda shift: -shift[0]))


def _format_list(what: str, items: Sequence[str], most: int | None = None) -> str:
    """Format a line that counts the items and lists the first `most` (all if None)."""
    if not items:
        return f"{what}: none."
    shown = items[:most]
    more = f"; and {len(items) - len(shown)} more" if len(items) > len(shown) else ""
    return f"{what}: {len(items)} ({'; '.join(shown)}{more})."
