"""Pack a node into one file to send (`contract.node_pack`)."""

from __future__ import annotations

from pathlib import Path

from contract.errors import StudyError
from contract.files import atomic_path, read_plain_file
from contract.node import RECORD, missing_rounds, read_node, record_path
from contract.node_pack import (
    MOST_BYTES,
    ROUND,
    ROUND_COLUMNS,
    check_round,
    is_repeat,
    make_archive,
    make_manifest,
    round_file_name,
)
from contract.sample_table import load_samples, read_samples
from contract.study_dates import impossible_date

NODES = Path("results/nodes")
# Message with the user's next steps. The issue form that it names is .github/ISSUE_TEMPLATE/hand-in-a-node.yml.
MADE = """See what it changes:  python -m report add {pack} --dry-run
Hand it in: attach it to the project's issue form "Hand in a node", or add it to data/incoming/ in a pull request.
It has measurements, times, and names of hardware and software; no name of a person or host, address or serial number.
It is published under CC BY 4.0 (data/LICENSE)."""


def find_node(folder: Path) -> Path:
    """Return `folder` if it is a node's folder, else the only node's folder in it.

    Raises StudyError if `folder` contains no node, or several nodes.
    """
    if record_path(folder).is_file():
        return folder
    nodes = sorted(place for place in folder.glob("[!.]*") if record_path(place).is_file())
    if len(nodes) == 1:
        return nodes[0]
    if nodes:
        names = ", ".join(place.name for place in nodes)
        raise StudyError(f"{folder} contains several nodes: pass one node's folder ({names})")
    raise StudyError(f"{folder}: contains no node. Measure this machine first (`make study`), or pass a node's folder")


def pack_node(folder: Path, out: Path | None = None) -> str:
    """Pack a node's record and its rounds into a zip file; return a message about the file.

    folder: the node's folder, or its parent. Superseded rounds and other files in the folder are not packed.
    out: the file to write, by default results/<node>.zip.
    Raises StudyError if the node is not valid, so that the user can fix it before sending the file. Raises OSError if
    the file cannot be written.
    """
    place = find_node(folder)
    record = record_path(place)
    rounds = sorted(place.glob("[!.]*.parquet"))
    if not rounds:
        raise StudyError(f"{place}: contains no round yet: there is nothing to pack")
    files = {record.name: read_plain_file(record, MOST_BYTES)}
    manifest = make_manifest(files)
    if fault := impossible_date(read_node(record)):
        raise StudyError(f"{record}: {fault}")
    for path in rounds:
        if not ROUND.fullmatch(path.name):
            raise StudyError(f"{path}: {_describe_misnamed(path)}")
        table, about = read_samples(path)
        check_round(path)
        if fault := impossible_date(about):
            raise StudyError(f"{path}: {fault}")
        if strangers := set(table["node"]) - {manifest["node"]}:
            raise StudyError(f"{path}: the round belongs to {min(strangers)}, not to {manifest['node']}: move it away")
        files[path.name] = read_plain_file(path, MOST_BYTES)
    try:
        archive = make_archive(files)
    except StudyError as fault:
        raise StudyError(f"{place}: {fault}") from None
    target = out or NODES.parent / f"{manifest['node']}.zip"
    with atomic_path(target) as temporary:
        temporary.write_bytes(archive)
    return _describe_pack(target, len(archive), record, [path.name for path in rounds if not is_repeat(path.name)])


def _describe_misnamed(path: Path) -> str:
    """Tell what to do with a file whose name is not a round's, such as a copy that a sync tool made."""
    fault = "the name is not <experiment>.<device>.<round>[-<attempt>].parquet: rename the file, or move it away"
    try:
        contents = load_samples(path)[0]
        rounds = contents.select(ROUND_COLUMNS).to_pandas().drop_duplicates()
        (name,) = {round_file_name(*row) for row in rounds.itertuples(index=False, name=None)}
        other = load_samples(path.with_name(name))[0]
    except (StudyError, ValueError):
        return fault
    if len(contents) > len(other):
        return f"has {len(contents)} samples, and {name} only {len(other)} of that round: rename it to {name}"
    return f"is a copy of {name}: move it away"


def _describe_pack(target: Path, size: int, record: Path, rounds: list[str]) -> str:
    contents = read_node(record)
    missing = missing_rounds(contents, rounds)
    if missing:
        state = f"cut off, {len(missing)} round(s) missing: the study's command goes on with them"
    else:
        state = "complete" if record.name == RECORD else "not finished"
    preset = contents.get("options", {}).get("preset")
    return (
        f"{target}: {size / 1e6:.1f} MB, {contents['id']} with {len(rounds)} round(s)"
        f"{f', preset {preset}' if preset else ''}; {state}.\n{MADE.format(pack=target)}"
    )
