"""Node folders as they lie on disk: found, read, and refused one file at a time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow

from contract.errors import StudyError
from contract.node import missing_rounds
from contract.node_pack import round_name
from contract.sample_table import SAMPLES, frame, load_encoded, under_name, validate
from contract.schema import one_line
from report import ROOT
from report.data.node_folders import ROUND, Folder, find_nodes, refusal, refuse_none
from report.data.plausibility import faults
from report.formatting import first_items, node_label

# A file, what it holds (not validated), and what is known about its round.
_File = tuple[Path, arrow.Table, dict[str, Any]]


@dataclass
class Node:
    """One node: its record, the samples of all its rounds, and what is known about each round."""

    record: dict[str, Any]
    source: str
    samples: pd.DataFrame
    rounds: list[dict[str, Any]] = field(default_factory=list)
    contributed: str = ""  # digest of the pack that it was handed in as; empty of what the project measured

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def label(self) -> str:
        """A short name for people: processor and cores, and the accelerators."""
        return node_label(self.record)

    def kinds(self) -> set[str]:
        """Kinds of devices that the node has: cpu, gpu."""
        return {device["kind"] for device in self.record["devices"]}

    def missing(self) -> list[str]:
        """Rounds that it was to measure and has not, or that cannot be used: gemm.cuda-0.2."""
        return missing_rounds(self.record, [str(about.get("file")) for about in self.rounds])

    def duty(self) -> float | None:
        """Share of the rounds' running time that was spent warming up, timing and observing; None if no round says."""
        wall = sum(float(about.get("wall_s") or 0) - float(about.get("stood_s") or 0) for about in self.rounds)
        busy = sum(float(about.get("warmup_s") or 0) + float(about.get("timed_s") or 0) for about in self.rounds)
        return busy / wall if wall > 0 else None


@dataclass
class Nodes:
    """All nodes that could be used, in the order given, and what could not be used and why."""

    nodes: list[Node]
    refused: list[dict[str, str]]

    def check(self, directories: Sequence[Path]) -> None:
        """Raise StudyError if no node can be used."""
        if not self.nodes:
            refuse_none(directories, self.refused)

    def samples(self, *experiments: str, columns: Sequence[str] = ()) -> pd.DataFrame:
        """Samples of all nodes, in the columns of `contract.sample_table.SAMPLES` or in those given.

        experiments: all, if none are named.
        """
        tables = [node.samples for node in self.nodes if len(node.samples)]
        whole = pd.concat(tables, ignore_index=True) if tables else empty_samples()
        whole = whole[whole["experiment"].isin(experiments)] if experiments else whole
        return whole[list(columns)] if columns else whole


@cache
def empty_samples() -> pd.DataFrame:
    """A table of samples without rows, the same for all."""
    return pd.DataFrame({name: pd.Series(dtype=str(column.dtype)) for name, column in SAMPLES.columns.items()})


def read_nodes(directories: Sequence[Path], allow_synthetic: bool = False) -> Nodes:
    """Read every node folder among or directly under `directories`.

    A file that cannot be used is left out, with its reason in `refused` and on
    stderr. `find_nodes` says what each is called and in which order they come.
    Raises StudyError if no node can be used, or for synthetic data unless
    `allow_synthetic`, which tests alone may set.
    """
    folders, refused = find_nodes(directories, allow_synthetic)
    found = Nodes([], refused)
    for folder in folders:
        for node, left_out in read_folders([folder]):
            found.nodes += [node] if node else []
            refused += left_out
    found.check(directories)
    warn(found)
    return found


def warn(found: Nodes) -> None:
    """Say on stderr what was left out, and what to know of a node."""
    rest = f"the other {len(found.nodes)} nodes are" if len(found.nodes) > 1 else "the rest of the data is"
    # Files that are of another version, say, are many, and have one reason.
    for reason in dict.fromkeys(one["reason"] for one in found.refused):
        files = [one["file"] for one in found.refused if one["reason"] == reason]
        more = f" and {len(files) - 1} other{'s' if len(files) > 2 else ''}" if len(files) > 1 else ""
        print(f"warning: left out: {files[0]}{more}: {reason} ({rest} used)", file=sys.stderr)
    for node in found.nodes:
        if missing := node.missing():
            told = f"{len(missing)} of its rounds are missing ({first_items(missing, 3)})"
            print(f"note: {node.id} was cut off: {told}; what there is counts", file=sys.stderr)
        if (hosts := len(node.record.get("hosts", ()))) > 1:
            print(f"note: {node.id} was measured on {hosts} machines of its kind one after another", file=sys.stderr)


def read_folders(folders: Sequence[Folder]) -> list[tuple[Node | None, list[dict[str, str]]]]:
    """Nodes with the samples of all their files, and of each the files that cannot be used with their reasons.

    Several are checked at once, which is sooner done than one by one. A node that cannot be believed is None.
    """
    files = [_loaded(folder) for folder in folders]
    whole = _together([loaded for loaded, _ in files], [folder.record for folder in folders])
    if whole is None and len(folders) > 1:
        return [read_folder for folder in folders for read_folder in read_folders([folder])]
    found = []
    for at, (folder, (loaded, refused)) in enumerate(zip(folders, files, strict=True)):
        samples, used = _one_by_one(loaded, folder.record, refused) if whole is None else (whole[at], loaded)
        found.append((_believed(folder, samples, used, refused), refused))
    return found


def _believed(folder: Folder, samples: pd.DataFrame, used: list[_File], refused: list[dict[str, str]]) -> Node | None:
    """The node without the files that hold what cannot be true, which join `refused`; None if none is left.

    One experiment may have gone wrong. Where two have, it is the clock, or somebody made the numbers: then nothing
    else in that place counts either. What tests make up is not held against machines that there are.
    """
    of = np.repeat(np.arange(len(used)), [len(table) for _, table, _ in used])
    held = samples[ROUND].assign(of=of).drop_duplicates().groupby("of")[ROUND]
    names = {at: _names(table) for at, table in held}
    # A copy of a round stands for it, whatever it is called.
    rounds = [
        {"file": min(names.get(at, ())) if len(names.get(at, ())) == 1 else path.name, **about}
        for at, (path, _, about) in enumerate(used)
    ]
    untrue = faults(folder.record, samples, of, rounds) if folder.record["origin"] == "measured" else {}
    if untrue:
        experiment = dict(zip(of.tolist(), samples["experiment"].tolist(), strict=True))
        out = set(untrue)
        # A node's rounds may lie in several folders: the word of one is not held against the others.
        for place in dict.fromkeys(path.parent for path, _, _ in used):
            here = [at for at, (path, _, _) in enumerate(used) if path.parent == place]
            bad = [at for at in here if at in untrue]
            if len({experiment.get(at) for at in bad}) > 1:
                told = f"{len(bad)} files of several experiments hold what cannot be true, the first"
                refused.append(refusal(place, f"{told} {used[bad[0]][0].name}: {untrue[bad[0]]}"))
                out |= set(here)
            else:
                refused += [refusal(used[at][0], f"cannot be true: {untrue[at]}") for at in bad]
        if len(out) == len(used):
            return None
        samples = samples[~np.isin(of, list(out))].reset_index(drop=True)
        rounds = [about for at, about in enumerate(rounds) if at not in out]
    # Where measuring was cut off, nobody has noted the end.
    ends = [about["ended_utc"] for about in rounds if "ended_utc" in about]
    record = {**({"ended_utc": max(ends)} if ends else {}), **folder.record}
    return Node(record, _source(folder.place.parent), samples, rounds, folder.contributed)


def _source(folder: Path) -> str:
    """Where nodes lie, as readers may know it: two folders at most, below the study's or the working directory.

    Whole paths name people and machines.
    """
    whole = folder.resolve()
    for place in (Path.cwd().resolve(), ROOT):
        if whole.is_relative_to(place):
            return one_line("/".join(whole.relative_to(place).parts[-2:]))
    return one_line(whole.name)


def _loaded(folder: Folder) -> tuple[list[_File], list[dict[str, str]]]:
    """A folder's files, and those that cannot be read with their reasons."""
    loaded: list[_File] = []
    refused: list[dict[str, str]] = []
    for path in folder.files:
        try:
            table, about = load_encoded(path)
            loaded.append((path, _renamed(table, folder), about))
        except StudyError as fault:
            refused.append(refusal(path, str(fault)))
        except Exception as fault:
            # Whatever is wrong inside one file must not cost the others.
            refused.append(refusal(path, f"cannot be read ({type(fault).__name__}: {fault})"))
    return loaded, refused


def _renamed(table: arrow.Table, folder: Folder) -> arrow.Table:
    """A table under its node's id, where that is not the one that its file bears."""
    here = folder.record["id"]
    if "node" in table.column_names:
        for name in {folder.written, *folder.also} - {here}:
            table = under_name(table, name, here)
    return table


def _together(folders: Sequence[Sequence[_File]], records: Sequence[dict[str, Any]]) -> list[pd.DataFrame] | None:
    """The samples of each folder, all tables checked at once; None if there is a fault in one of them."""
    tables = [table for loaded in folders for _, table, _ in loaded]
    if not tables:
        return [empty_samples() for _ in folders]
    ends = np.cumsum([sum(len(table) for _, table, _ in loaded) for loaded in folders])
    try:
        contents = arrow.concat_tables(tables, promote_options="default")
        whole = validate(frame(contents), ", ".join(record["id"] for record in records))
        parts = [whole.iloc[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        for part, record in zip(parts, records, strict=True):
            _belongs(part, record, {})
    except Exception:
        return None
    file = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    places = whole[["node", *ROUND]].assign(file=file).drop_duplicates()
    if places.duplicated(["node", *ROUND]).any():
        return None
    return [part.reset_index(drop=True) for part in parts]


def _one_by_one(
    loaded: Sequence[_File], record: dict[str, Any], refused: list[dict[str, str]]
) -> tuple[pd.DataFrame, list[_File]]:
    """The tables that can be used, together and by file; the others join `refused`.

    Of two files that hold the same round, the one that is named for it counts.
    """
    readable: list[tuple[pd.DataFrame, _File]] = []
    for path, table, about in loaded:
        try:
            readable.append((validate(frame(table), str(path)), (path, table, about)))
        except StudyError as fault:
            refused.append(refusal(path, str(fault)))
        except Exception as fault:
            refused.append(refusal(path, f"cannot be read ({type(fault).__name__}: {fault})"))
    good: list[tuple[pd.DataFrame, _File]] = []
    seen: dict[tuple[Any, ...], str] = {}
    for checked, file in sorted(readable, key=lambda one: _names(one[0]) != {one[1][0].name}):
        try:
            _belongs(checked, record, seen)
        except StudyError as fault:
            refused.append(refusal(file[0], str(fault)))
        else:
            seen.update(dict.fromkeys(_keys(checked), file[0].name))
            good.append((checked, file))
    tables = [checked for checked, _ in good]
    return pd.concat(tables, ignore_index=True) if tables else empty_samples(), [file for _, file in good]


def _names(table: pd.DataFrame) -> set[str]:
    """The names that files of the rounds in a table bear."""
    return {round_name(*key) for key in _keys(table)}


def _keys(table: pd.DataFrame) -> set[tuple[Any, ...]]:
    return set(table[ROUND].drop_duplicates().itertuples(index=False, name=None))


def _belongs(table: pd.DataFrame, record: dict[str, Any], seen: dict[tuple[Any, ...], str]) -> None:
    """Raise StudyError if the table is another node's, of another origin, or a round that was already read."""
    for column, wanted in (("node", record["id"]), ("origin", record["origin"])):
        other = table.index[table[column] != wanted]
        if len(other):
            value = table.loc[other[0], column]
            raise StudyError(
                f"column {column!r}, row {other[0]}: {value!r}, but this folder's node.json says {wanted!r}"
            )
    for key in sorted(_keys(table)) if seen else []:
        if key in seen:
            raise StudyError(f"round {key[2]} of {key[0]} on {key[1]} was already read from {seen[key]}")
