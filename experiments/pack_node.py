"""A node put into one file that can be sent (`contract.node_pack`)."""

from __future__ import annotations

from pathlib import Path

from contract.errors import StudyError
from contract.files import atomic, read_regular
from contract.node import RECORD, missing_rounds, read_node, record_path
from contract.node_pack import MOST_BYTES, ROUND, archive_of, check_round, manifest_of
from contract.sample_table import read_samples

NODES = Path("results/nodes")
# What to do with a pack; the project's issue form is .github/ISSUE_TEMPLATE/hand-in-a-node.yml.
MADE = """See what it changes:  python -m report add {pack} --dry-run
Hand it in: attach it to the project's issue form "Hand in a node", or add it to data/incoming/ in a pull request."""


def find_node(folder: Path) -> Path:
    """The folder of a node: the one given, or the only one in it. Raises StudyError if there is none, or several."""
    if record_path(folder).is_file():
        return folder
    found = sorted(place for place in folder.glob("[!.]*") if record_path(place).is_file())
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(place.name for place in found)
        raise StudyError(f"{folder} holds several nodes: name the folder of one of {names}")
    raise StudyError(f"{folder}: holds no node. Measure this machine first (`make study`), or name a node's folder")


def pack_node(folder: Path, out: Path | None = None) -> str:
    """Pack the node in a folder; give what there is to tell of the file that was made.

    out: the file to write, results/<node>.zip if none is named. What an earlier preset left (superseded), and what else
    lies there that is neither record nor round, stays behind. Raises StudyError for a round that nobody could use, so
    that it is mended here and not refused elsewhere; OSError.
    """
    place = find_node(folder)
    record = record_path(place)
    rounds = sorted(place.glob("[!.]*.parquet"))
    if not rounds:
        raise StudyError(f"{place}: holds no round yet: there is nothing to pack")
    files = {record.name: read_regular(record, MOST_BYTES)}
    manifest = manifest_of(files)
    for path in rounds:
        if not ROUND.fullmatch(path.name):
            raise StudyError(
                f"{path}: is not called <experiment>.<device>.<round>.parquet: move it away, or name it so"
            )
        table, _ = read_samples(path)
        check_round(path)
        if strangers := set(table["node"]) - {manifest["node"]}:
            raise StudyError(f"{path}: is a round of {min(strangers)}, not of {manifest['node']}: move it away")
        files[path.name] = read_regular(path, MOST_BYTES)
    try:
        made = archive_of(files)
    except StudyError as fault:
        raise StudyError(f"{place}: {fault}") from None
    target = out or NODES.parent / f"{manifest['node']}.zip"
    with atomic(target) as temporary:
        temporary.write_bytes(made)
    return _describe_pack(target, len(made), record, [path.name for path in rounds])


def _describe_pack(target: Path, size: int, record: Path, rounds: list[str]) -> str:
    """What was made, and what to do with it."""
    known = read_node(record)
    missing = missing_rounds(known, rounds)
    if missing:
        state = f"cut off, {len(missing)} round(s) missing: the study's command goes on with them"
    else:
        state = "complete" if record.name == RECORD else "not finished"
    preset = known.get("options", {}).get("preset")
    return (
        f"{target}: {size / 1e6:.1f} MB, {known['id']} with {len(rounds)} round(s)"
        f"{f', preset {preset}' if preset else ''}; {state}.\n{MADE.format(pack=target)}"
    )
