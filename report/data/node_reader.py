"""Read nodes from their folders, and refuse single files that are faulty."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow

from contract.attempts import count_repeats, samples_that_count
from contract.errors import StudyError
from contract.node import missing_rounds
from contract.node_pack import round_file_name
from contract.sample_table import SAMPLES, load_encoded, rename_node, to_data_frame, validate
from contract.schema import escape_line
from report import ROOT
from report.data.node_folders import ROUND, Folder, find_nodes, most_rows, raise_no_nodes, refusal
from report.data.plausibility import faults
from report.formatting import first_items, node_label

# Path to a round file, its table (not validated yet), and the round's metadata.
_File = tuple[Path, arrow.Table, dict[str, Any]]

# Folder of the published nodes, and their source as records name it.
NODES = ROOT / "data" / "nodes"
PUBLISHED_NODES = "data/nodes"


@dataclass
class Node:
    """Node with its record and samples.

    source: shortened path to the folder that contains the node's folder. rounds: each round's metadata. repeats: from
    `contract.attempts.count_repeats`.
    """

    record: dict[str, Any]
    source: str
    samples: pd.DataFrame
    rounds: list[dict[str, Any]] = field(default_factory=list)
    contributed: str = ""  # digest of the node's pack; '' if the project itself measured the node
    repeats: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def label(self) -> str:
        """Display name: processor, cores and accelerators."""
        return node_label(self.record)

    def kinds(self) -> set[str]:
        """Return the node's device kinds: cpu, gpu."""
        return {device["kind"] for device in self.record["devices"]}

    def missing_rounds(self) -> list[str]:
        """List the planned rounds that have no usable file, in the form gemm.cuda-0.2."""
        return missing_rounds(self.record, [str(about.get("file")) for about in self.rounds])

    def busy_share(self) -> float | None:
        """Fraction of the rounds' running time that warm-up, timing and observation take; None if unknown."""
        wall = sum(float(about.get("wall_s") or 0) - float(about.get("stood_s") or 0) for about in self.rounds)
        busy = sum(float(about.get("warmup_s") or 0) + float(about.get("timed_s") or 0) for about in self.rounds)
        return busy / wall if wall > 0 else None


@dataclass
class Nodes:
    """Usable nodes, and the refused files and folders with the reasons."""

    nodes: list[Node]
    refused: list[dict[str, str]]

    def require_nodes(self, directories: Sequence[Path]) -> None:
        """Raise StudyError if no node can be used."""
        if not self.nodes:
            raise_no_nodes(directories, self.refused)

    def samples(self, *experiments: str, columns: Sequence[str] = ()) -> pd.DataFrame:
        """Return the samples that count from all nodes (`contract.attempts.samples_that_count`).

        experiments, columns: experiments and columns to return (default: all).
        """
        whole = self.all_samples()
        counts = samples_that_count(whole)
        whole = whole if counts.all() else whole[counts]
        whole = whole[whole["experiment"].isin(experiments)] if experiments else whole
        return whole[list(columns)] if columns else whole

    def all_samples(self) -> pd.DataFrame:
        """Return the samples from all nodes and of all attempts."""
        tables = [node.samples for node in self.nodes if len(node.samples)]
        return pd.concat(tables, ignore_index=True) if tables else empty_samples()


@cache
def empty_samples() -> pd.DataFrame:
    """Return a sample table without rows. All callers get the same object."""
    return pd.DataFrame({name: pd.Series(dtype=str(column.dtype)) for name, column in SAMPLES.columns.items()})


def read_nodes(directories: Sequence[Path], allow_synthetic: bool = False) -> Nodes:
    """Read every node folder among or directly under `directories`.

    Unusable files are skipped, and the reasons are added to `Nodes.refused` and printed to stderr. The nodes have the
    ids and the order from `find_nodes`. Raises StudyError if no node can be used, or if a node is synthetic, unless
    `allow_synthetic` is true (for tests only).
    """
    folders, refused = find_nodes(directories, allow_synthetic)
    nodes = Nodes([], refused)
    for folder in folders:
        for node, left_out in read_folders([folder]):
            nodes.nodes += [node] if node else []
            refused += left_out
    nodes.require_nodes(directories)
    print_warnings(nodes)
    return nodes


def print_warnings(nodes: Nodes) -> None:
    """Print refused files, and incomplete nodes that are not published ones, to stderr."""
    others = f"the other {len(nodes.nodes)} nodes are" if len(nodes.nodes) > 1 else "the rest of the data is"
    # Print each reason only once, because many files may have the same reason, for example an old schema version.
    for reason in dict.fromkeys(refused["reason"] for refused in nodes.refused):
        files = [refused["file"] for refused in nodes.refused if refused["reason"] == reason]
        more = f" and {len(files) - 1} other{'s' if len(files) > 2 else ''}" if len(files) > 1 else ""
        print(f"warning: left out: {files[0]}{more}: {reason} ({others} used)", file=sys.stderr)
    for node in nodes.nodes:
        if node.source == PUBLISHED_NODES:
            continue
        if missing := node.missing_rounds():
            gap = f"{len(missing)} of its rounds are missing ({first_items(missing, 3)})"
            print(f"note: {node.id} was cut off: {gap}; its finished rounds count", file=sys.stderr)
        if (hosts := len(node.record.get("hosts", ()))) > 1:
            print(f"note: {node.id} was measured on {hosts} machines of its kind one after another", file=sys.stderr)


def read_folders(folders: Sequence[Folder]) -> list[tuple[Node | None, list[dict[str, str]]]]:
    """Return for each folder its node, and its unusable files with reasons. The node is None if no file is plausible.

    All folders are validated together, which is faster. If any folder is faulty, each folder is validated separately.
    """
    files = [_load_files(folder) for folder in folders]
    whole = _validate_together([loaded for loaded, _ in files], [folder.record for folder in folders])
    if whole is None and len(folders) > 1:
        return [read_folder for folder in folders for read_folder in read_folders([folder])]
    results = []
    for at, (folder, (loaded, refused)) in enumerate(zip(folders, files, strict=True)):
        samples, used = _validate_each(loaded, folder.record, refused) if whole is None else (whole[at], loaded)
        results.append((_build_node(folder, samples, used, refused), refused))
    return results


def _build_node(folder: Folder, samples: pd.DataFrame, used: list[_File], refused: list[dict[str, str]]) -> Node | None:
    """Build a node from its plausible files, and add the other files to `refused`. If no file is left, return None.

    Implausible values in a single experiment may be due to a failure in this experiment. If two experiments in a folder
    have implausible values, the machine's clock or the folder's numbers are wrong, so all files in the folder are
    refused. Synthetic data is not checked, because it does not come from a real machine.
    """
    file_index = np.repeat(np.arange(len(used)), [len(table) for _, table, _ in used])
    rounds_by_file = samples[ROUND].assign(file=file_index).drop_duplicates().groupby("file", observed=True)[ROUND]
    names = {at: _round_names(table) for at, table in rounds_by_file}
    # Record each file's round name, to recognize the round in a renamed file.
    rounds = [
        {"file": min(names.get(at, ())) if len(names.get(at, ())) == 1 else path.name, **about}
        for at, (path, _, about) in enumerate(used)
    ]
    untrue = faults(folder.record, samples, file_index, rounds) if folder.record["origin"] == "measured" else {}
    if untrue:
        experiment = dict(zip(file_index.tolist(), samples["experiment"].tolist(), strict=True))
        out = set(untrue)
        # Decide for each folder separately if all its files are refused, because a node's rounds may be in several
        # folders, and a single folder may be wrong.
        for place in dict.fromkeys(path.parent for path, _, _ in used):
            here = [at for at, (path, _, _) in enumerate(used) if path.parent == place]
            bad = [at for at in here if at in untrue]
            if len({experiment.get(at) for at in bad}) > 1:
                head = f"{len(bad)} files of several experiments hold what cannot be true, the first"
                refused.append(refusal(place, f"{head} {used[bad[0]][0].name}: {untrue[bad[0]]}"))
                out |= set(here)
            else:
                refused += [refusal(used[at][0], f"cannot be true: {untrue[at]}") for at in bad]
        if len(out) == len(used):
            return None
        samples = samples[~np.isin(file_index, list(out))].reset_index(drop=True)
        rounds = [about for at, about in enumerate(rounds) if at not in out]
    # An interrupted run's record has no end time, so use the end of the last round.
    ends = [about["ended_utc"] for about in rounds if "ended_utc" in about]
    record = {**({"ended_utc": max(ends)} if ends else {}), **folder.record}
    source = _source_label(folder.place.parent)
    return Node(record, source, samples, rounds, folder.contributed, count_repeats(samples))


def _source_label(folder: Path) -> str:
    """Return the last two components of a folder's path, relative to the working directory or to ROOT.

    A folder elsewhere is represented by its name only. Full paths might reveal personal names and host names.
    """
    whole = folder.resolve()
    for place in (Path.cwd().resolve(), ROOT):
        if whole.is_relative_to(place):
            return escape_line("/".join(whole.relative_to(place).parts[-2:]))
    return escape_line(whole.name)


def _load_files(folder: Folder) -> tuple[list[_File], list[dict[str, str]]]:
    """Load a folder's round files; also return the unreadable files with reasons."""
    loaded: list[_File] = []
    refused: list[dict[str, str]] = []
    for path in folder.files:
        try:
            table, about = load_encoded(path)
            loaded.append((path, _rename_node(table, folder), about))
        except StudyError as fault:
            refused.append(refusal(path, str(fault)))
        except Exception as fault:
            # On an unexpected error, refuse only this file, and use the others.
            refused.append(refusal(path, f"cannot be read ({type(fault).__name__}: {fault})"))
    return _newest_protocol(loaded, refused), refused


def _newest_protocol(loaded: list[_File], refused: list[dict[str, str]]) -> list[_File]:
    """Return each experiment's files with its newest protocol, and add the other files to `refused`.

    A file from before protocols were counted has protocol 0.
    """
    jobs = [_first_job(table) for _, table, _ in loaded]
    protocols = [int(about.get("protocol", 0)) if about.get("schema") == 2 else 0 for _, _, about in loaded]
    newest: dict[tuple[str, str], int] = {}
    for job, protocol in zip(jobs, protocols, strict=True):
        newest[job] = max(protocol, newest.get(job, 0))
    kept = []
    for file, job, protocol in zip(loaded, jobs, protocols, strict=True):
        if protocol == newest[job]:
            kept.append(file)
        else:
            reason = (
                f"holds protocol {protocol} of {job[0]}, other rounds of this node hold {newest[job]}: they never mix"
            )
            refused.append(refusal(file[0], reason))
    return kept


def _first_job(table: arrow.Table) -> tuple[str, str]:
    """Return the experiment and device of a file's first sample; empty texts if it has none."""
    if not len(table) or not {"experiment", "device"} <= set(table.column_names):
        return "", ""
    first = table.slice(0, 1).select(["experiment", "device"]).to_pylist()[0]
    return str(first["experiment"]), str(first["device"])


def _rename_node(table: arrow.Table, folder: Folder) -> arrow.Table:
    """In a table, change the node ids from the folder's files to the id in the folder's record."""
    node_id = folder.record["id"]
    if "node" in table.column_names:
        for name in {folder.file_id, *folder.other_ids} - {node_id}:
            table = rename_node(table, name, node_id)
    return table


def _validate_together(
    folders: Sequence[Sequence[_File]], records: Sequence[dict[str, Any]]
) -> list[pd.DataFrame] | None:
    """Validate all tables at once and return each folder's samples; return None if any table is faulty."""
    tables = [table for loaded in folders for _, table, _ in loaded]
    if not tables:
        return [empty_samples() for _ in folders]
    ends = np.cumsum([sum(len(table) for _, table, _ in loaded) for loaded in folders])
    try:
        contents = arrow.concat_tables(tables, promote_options="default")
        whole = validate(to_data_frame(contents), ", ".join(record["id"] for record in records))
        parts = [whole.iloc[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        for part, record in zip(parts, records, strict=True):
            _check_origin(part, record, {})
    except Exception:
        return None
    file = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    places = whole[["node", *ROUND]].assign(file=file).drop_duplicates()
    if places.duplicated(["node", *ROUND]).any():
        return None
    return [part.reset_index(drop=True) for part in parts]


def _validate_each(
    loaded: Sequence[_File], record: dict[str, Any], refused: list[dict[str, str]]
) -> tuple[pd.DataFrame, list[_File]]:
    """Validate files one by one; return the usable samples and files, and add the other files to `refused`.

    If two files contain the same round, the file whose name is the round's name is used, unless the other file has more
    rows from the same process: a copy may be whole, and the round cut off.
    """
    readable: list[tuple[pd.DataFrame, _File]] = []
    for path, table, about in loaded:
        try:
            readable.append((validate(to_data_frame(table), str(path)), (path, table, about)))
        except StudyError as fault:
            refused.append(refusal(path, str(fault)))
        except Exception as fault:
            refused.append(refusal(path, f"cannot be read ({type(fault).__name__}: {fault})"))
    good: list[tuple[pd.DataFrame, _File]] = []
    file_of_round: dict[tuple[Any, ...], str] = {}
    rows = [Counter(checked[["run", *ROUND]].itertuples(index=False, name=None)) for checked, _ in readable]
    most = most_rows(rows)
    order = sorted(
        range(len(readable)),
        key=lambda at: (
            any(rows[at][run] < most[run] for run in rows[at]),
            _round_names(readable[at][0]) != {readable[at][1][0].name},
        ),
    )
    for checked, file in map(readable.__getitem__, order):
        try:
            _check_origin(checked, record, file_of_round)
        except StudyError as fault:
            refused.append(refusal(file[0], str(fault)))
        else:
            file_of_round.update(dict.fromkeys(_round_keys(checked), file[0].name))
            good.append((checked, file))
    tables = [checked for checked, _ in good]
    return pd.concat(tables, ignore_index=True) if tables else empty_samples(), [file for _, file in good]


def _round_names(table: pd.DataFrame) -> set[str]:
    """Return the standard file names for the rounds in a table."""
    return {round_file_name(*key) for key in _round_keys(table)}


def _round_keys(table: pd.DataFrame) -> set[tuple[Any, ...]]:
    return set(table[ROUND].drop_duplicates().itertuples(index=False, name=None))


def _check_origin(table: pd.DataFrame, record: dict[str, Any], file_of_round: dict[tuple[Any, ...], str]) -> None:
    """Raise StudyError if a table's node or origin is not the record's, or if a round is already in `file_of_round`."""
    for column, expected in (("node", record["id"]), ("origin", record["origin"])):
        mismatches = table.index[table[column] != expected]
        if len(mismatches):
            value = table.loc[mismatches[0], column]
            raise StudyError(
                f"column {column!r}, row {mismatches[0]}: {value!r}, but this folder's node.json says {expected!r}"
            )
    for key in sorted(_round_keys(table)) if file_of_round else []:
        if key in file_of_round:
            raise StudyError(f"round {key[2]} of {key[0]} on {key[1]} was already read from {file_of_round[key]}")
