"""The command line: list, probe, doctor, run, seal, check, schema."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.arguments import Parser, count, minutes, seed
from contract.errors import StudyError
from contract.files import atomic, write_json

# How long a round waits for another that measures on this node: one whose workflow was killed
# ends within seconds.
PATIENCE_S = 20.0


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and run the command. Returns the exit code."""
    parser = Parser(prog="python -m experiments", description="Measure what this machine can do.")
    commands = parser.add_subparsers(dest="command", required=True)

    listing = commands.add_parser("list", help="the experiments, and what each asks of which device")
    listing.add_argument("--json", action="store_true", help="for programs")
    listing.set_defaults(run=_list)

    probe = commands.add_parser("probe", help="what this machine is: its fingerprint as JSON")
    probe.add_argument("--out", type=Path, help="file to write (default: standard output); a node keeps its name there")
    probe.add_argument("--require", choices=["cpu", "gpu"], help="fail unless there is such a device")
    probe.add_argument("--id", action="store_true", help="only the node's name, quickly")
    probe.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="noted in the record")
    probe.set_defaults(run=_probe)

    doctor = commands.add_parser("doctor", help="what on this machine will spoil results, and how to mend it")
    doctor.add_argument("--device", help="cpu, cuda:0, … (default: all)")
    doctor.add_argument("--json", action="store_true", help="for programs")
    doctor.set_defaults(run=_doctor)

    run = commands.add_parser("run", help="measure one round of one experiment on one device")
    run.add_argument("name", help="experiment (see: list)")
    run.add_argument("--device", default="cpu", help="cpu, cuda:0, …")
    run.add_argument("--preset", default="quick", help="quick, full, or a .yaml file of your own")
    run.add_argument("--round", type=count, default=1, help="number of the round, from 1")
    run.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    run.add_argument(
        "--node", type=Path, help="what `probe` wrote: the samples bear its name (default: this machine's)"
    )
    run.add_argument("--plan", type=Path, help="what `plan` wrote: points that it leaves out are recorded as skipped")
    run.add_argument("--seed", type=seed, default=0, help="seed of the points' order")
    run.add_argument(
        "--log", type=Path, help="file for what libraries print and for tracebacks (default: standard error)"
    )
    run.set_defaults(run=_run)

    plan = commands.add_parser(
        "plan", help="what a preset measures here, how long it takes, and what a budget leaves out"
    )
    plan.add_argument("--preset", default="quick", help="quick, full, or a .yaml file of your own")
    plan.add_argument("--budget", type=minutes, metavar="MINUTES", help="in place of the preset's own")
    plan.add_argument("--node", type=Path, help="what `probe` wrote (default: this machine)")
    plan.add_argument("--gpu", metavar="NAME", help="as if there were this GPU as well: H100, H200, …")
    plan.add_argument("--cores", type=count, help="as if there were so many cores")
    plan.add_argument("--out", type=Path, help="file to write, for `run --plan`")
    plan.set_defaults(run=_plan)

    seal = commands.add_parser("seal", help="write a node's record once its rounds are measured")
    seal.add_argument("--probe", type=Path, required=True, help="what `probe` wrote")
    seal.add_argument("--rounds", type=Path, nargs="+", required=True, help="the Parquet files of its rounds")
    seal.add_argument("--out", type=Path, required=True, help="node.json to write")
    seal.set_defaults(run=_seal)

    check = commands.add_parser("check", help="check a preset and list its jobs")
    check.add_argument("--preset", default="quick")
    check.add_argument("--node", type=Path, help="a node record that must be this machine's, if it exists")
    check.add_argument(
        "--json", action="store_true", help="for programs: rounds, and those of each experiment by kind of device"
    )
    check.set_defaults(run=_check)

    schema = commands.add_parser("schema", help="write the schema of presets from the experiments' parameters")
    schema.add_argument("--out", type=Path, required=True)
    schema.set_defaults(run=_schema)

    arguments = parser.parse_args(argv)
    return int(arguments.run(arguments))


def _list(arguments: argparse.Namespace) -> int:
    from experiments.listing import gathered, told

    listing = gathered()
    print(json.dumps(listing, indent=1, ensure_ascii=False) if arguments.json else told(listing))
    return 0


def _probe(arguments: argparse.Namespace) -> int:
    from contract.node import node_id, write_node
    from experiments import environment, hardware

    if arguments.id:
        print(node_id(*hardware.identity(arguments.out)))
        return 0

    # Before any library is loaded: the record shows what they choose by themselves, as when measuring.
    for name in environment.inherited():
        del os.environ[name]
    from experiments.probe import described, fingerprint, require

    options = dict(option.partition("=")[::2] for option in arguments.option)
    record = fingerprint(options, arguments.out)
    if arguments.require:
        require(record, arguments.require)
    if arguments.out:
        write_node(arguments.out, record)
        print(described(record), file=sys.stderr)
    else:
        print(json.dumps(record, indent=1, ensure_ascii=False))
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from experiments.doctor import Level, examine, for_programs, told

    findings = examine(arguments.device)
    if arguments.json:
        print(json.dumps(for_programs(findings), indent=1, ensure_ascii=False))
    else:
        print(told(findings, shutil.get_terminal_size((100, 24)).columns))
    return int(any(finding.level is Level.WARNING for finding in findings))


def _run(arguments: argparse.Namespace) -> int:
    from contract.node import node_id
    from contract.tables import write_samples
    from experiments import environment, hardware, rounds
    from experiments import plan as planned
    from experiments.devices import find
    from experiments.lock import node_lock
    from experiments.sweep import preset_path, read_preset, sweep

    if arguments.out.suffix != ".parquet":
        raise StudyError(f"--out {arguments.out}: samples are written as Parquet: name a .parquet file")
    part = sweep(read_preset(arguments.preset), arguments.name, str(preset_path(arguments.preset)))
    kind = find(arguments.device).kind
    node = _same_machine(arguments.node) if arguments.node else node_id(*hardware.identity())
    # A place that cannot be written is found out before anything is measured.
    with atomic(arguments.out.with_suffix(".writable")):
        pass
    arguments.out.with_suffix(".writable").unlink()
    seed = rounds.round_seed(arguments.seed, arguments.name, arguments.device, arguments.round)
    left_out, why = planned.left_out(arguments.plan, arguments.name, arguments.device)
    round_ = rounds.Round(part, arguments.device, kind, arguments.round, seed, arguments.log, left_out, why)
    # Numbers of threads are Snakemake's doing and set per point anyway: not worth a word.
    choosing = [name for name in environment.inherited() if not name.endswith("_THREADS")]
    if choosing:
        print(
            f"note: left out of the measuring process's environment: {', '.join(choosing)} "
            "(they would choose kernels in the libraries' place)",
            file=sys.stderr,
        )
    with node_lock(PATIENCE_S):
        begun = time.perf_counter()
        round_.run()
        wall = time.perf_counter() - begun
        about = {
            "seed": seed,
            # Both by the clock at the end: one that is set in mid-round would have the end before the start.
            "started_utc": rounds.utc(wall),
            "ended_utc": rounds.utc(),
            "wall_s": wall,
            "warmup_s": round_.warmup_s,
            "timed_s": round_.timed_s,
            "workers": round_.workers,
            "options": {"preset": arguments.preset, "seed": arguments.seed},
            "left_out_of_environment": environment.inherited(),
            "environments": round_.environments,
        }
        write_samples(arguments.out, rounds.table(round_, node, uuid.uuid4().hex[:12]), about)
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    from experiments import hardware, plan
    from experiments.sweep import preset_path, read_preset

    preset, source = read_preset(arguments.preset), str(preset_path(arguments.preset))
    devices = _described(arguments.node)
    if arguments.gpu:
        devices = [one for one in devices if one["kind"] == "cpu"]
        devices.append({"id": "cuda:0", "kind": "gpu", "name": arguments.gpu})
    cores = arguments.cores or hardware.usable_cores()
    minutes = arguments.budget or plan.budget_min(preset, devices)
    made = plan.full_plan(preset, source, devices, cores)
    if minutes:
        made = plan.within(made, minutes * 60)
    if arguments.out:
        write_json(arguments.out, plan.record(made, minutes))
    print(plan.told(made, minutes), file=sys.stderr if arguments.out else sys.stdout)
    return 0


def _described(node: Path | None) -> list[dict[str, Any]]:
    """The devices of a node's record, or of this machine."""
    from contract.node import read_node
    from experiments.devices import detect

    if node:
        devices: list[dict[str, Any]] = read_node(node)["devices"]
        return devices
    return [device.describe() for device in detect()[0]]


def _seal(arguments: argparse.Namespace) -> int:
    from contract.node import read_node, write_node
    from contract.tables import read_samples

    record = read_node(arguments.probe)
    seen = [read_samples(path) for path in arguments.rounds]
    record["started_utc"] = min(about["started_utc"] for _, about in seen)
    record["ended_utc"] = max(about["ended_utc"] for _, about in seen)
    strangers = {name for table, _ in seen for name in table["node"].unique()} - {record["id"]}
    if strangers:
        raise StudyError(
            f"{arguments.probe} describes {record['id']}, but rounds of {', '.join(sorted(strangers))} lie beside it: "
            "each machine's rounds belong in a folder of their own"
        )
    _set_aside(arguments.out.parent, keep={path.resolve() for path in arguments.rounds})
    write_node(arguments.out, record)
    return 0


def _set_aside(folder: Path, keep: set[Path]) -> None:
    """Move rounds of an earlier preset out of the way: mixed with this one's, they would be judged together."""
    for path in folder.glob("*.parquet"):
        if path.resolve() not in keep:
            (folder / "superseded").mkdir(exist_ok=True)
            path.replace(folder / "superseded" / path.name)


def _check(arguments: argparse.Namespace) -> int:
    from experiments.sweep import preset_path, read_preset, sweep

    preset = read_preset(arguments.preset)
    source = str(preset_path(arguments.preset))
    if arguments.node and arguments.node.exists():
        _same_machine(arguments.node)
    plan = {name: sweep(preset, name, source) for name in preset["experiments"]}
    jobs = {
        name: {kind: part.points(kind) if kind in part.experiment.fits else [] for kind in ("cpu", "gpu")}
        for name, part in plan.items()
    }
    if arguments.json:
        # Some points are measured in the first rounds only; a round without any needs no job.
        rounds = {
            name: {
                kind: min(preset["rounds"], max((point.rounds for point in points), default=0))
                for kind, points in kinds.items()
            }
            for name, kinds in jobs.items()
        }
        # A job is measured again when its own part of the preset changes, not when another's does.
        parts = {name: {**preset, "experiments": preset["experiments"][name]} for name in plan}
        digests = {name: hashlib.sha256(json.dumps(part).encode()).hexdigest()[:12] for name, part in parts.items()}
        print(json.dumps({"rounds": preset["rounds"], "experiments": rounds, "digests": digests}))
        return 0
    print(f"{source}: {preset['rounds']} rounds")
    for name, kinds in jobs.items():
        counts = {kind: len(points) for kind, points in kinds.items()}
        longest = max(counts.values()) * plan[name].point_s
        print(
            f"  {name:12} {counts['cpu']:4} points on a CPU, {counts['gpu']:4} on a GPU, "
            f"at most {min(longest, plan[name].round_s):.0f} s a round"
        )
    return 0


def _same_machine(path: Path) -> str:
    """The name of the node that a record describes. Raises StudyError unless it is of this machine's kind."""
    from contract.node import read_node
    from experiments import hardware

    described, here = read_node(path), hardware.kind()
    if described["kind"] != here:
        raise StudyError(
            f"{path} describes {described['kind']}, this machine is {here}. Measure into a folder of its own "
            "(--config results=FOLDER), or remove that file: the rounds already measured stay under their node's name."
        )
    return str(described["id"])


def _schema(arguments: argparse.Namespace) -> int:
    from experiments.sweep import preset_schema

    write_json(arguments.out, preset_schema())
    print(f"{arguments.out}: written", file=sys.stderr)
    return 0
