"""Define and run the commands."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from contract.arguments import (
    Parser,
    expand_home,
    list_commands,
    parse_count,
    parse_minutes,
    parse_path,
    parse_seed,
    parse_share,
)
from contract.errors import StudyError
from contract.files import atomic_path, write_json
from contract.looks import look_rounds, read_further_rounds, read_open_cases
from contract.node import node_id, read_node
from experiments.jobs import NO_TORCH, Job, Plan, add_rounds, read_plan

# Seconds to wait for another round on this node to end, before refusing to measure. This is enough for a round whose
# workflow was killed, since that round ends within seconds.
PATIENCE_S = 20.0
# Commands by audience, as the help lists them.
GROUPS = {
    "For owners of a machine": ("list", "doctor", "preflight", "plan", "wanted", "outcomes", "pack"),
    "For contributors": ("new", "check"),
    "Steps of a study, which `make study` runs": ("probe", "run", "further", "repeat", "seal"),
}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser for all commands."""
    parser = Parser(
        prog="python -m experiments", usage="%(prog)s COMMAND …", description="Measure this machine, step by step."
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog="python -m experiments"
    )

    listing = commands.add_parser(
        "list", description="List the experiments, with their points, minutes, devices and libraries"
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)

    probe = commands.add_parser("probe", description="Describe this machine, as JSON")
    probe.add_argument(
        "--out", type=parse_path, help="file to write (default: stdout); an existing record's node name is kept"
    )
    probe.add_argument("--require", choices=["cpu", "gpu"], help="fail if the machine has no such device")
    probe.add_argument("--id", action="store_true", help="print only the node's name, which is fast")
    probe.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="add an option to the record"
    )
    probe.set_defaults(run=_probe)

    doctor = commands.add_parser(
        "doctor",
        description="Find problems that would spoil results, and their remedies (exit code 1 if there are any)",
        examples=["python -m experiments doctor", "python -m experiments doctor --device cuda:0 --json"],
    )
    doctor.add_argument("--device", help="cpu, cuda:0, … (default: all)")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.set_defaults(run=_doctor)

    preflight = commands.add_parser(
        "preflight",
        description="Try a point of every kind within minutes, and compare it with the device's rated peak",
        examples=["python -m experiments preflight --minutes 3"],
    )
    preflight.add_argument(
        "--preset", type=expand_home, default="rented", help="quick, full, rented, or your own .yaml file"
    )
    preflight.add_argument("--plan", type=parse_path, help="plan file from `plan`, instead of a preset")
    preflight.add_argument("--device", help="cpu, cuda:0, … (default: all, GPUs first)")
    preflight.add_argument("--minutes", type=parse_minutes, default=3.0, help="time limit (default: 3)")
    preflight.add_argument("--log", type=parse_path, default=Path("results/preflight.log"), help="file for tracebacks")
    preflight.set_defaults(run=_preflight)

    run = commands.add_parser(
        "run",
        description="Measure an experiment once on a device",
        examples=["python -m experiments run gemm --device cpu --round 1 --out results/gemm.cpu.1.parquet"],
    )
    run.add_argument("name", help="experiment (see: list)")
    run.add_argument("--device", default="cpu", help="cpu, cuda:0, …")
    source = run.add_mutually_exclusive_group()
    source.add_argument("--preset", type=expand_home, default="quick", help="quick, full, or your own .yaml file")
    source.add_argument("--plan", type=parse_path, help="plan file from `plan`: measure its points")
    run.add_argument(
        "--further", type=parse_path, nargs="*", action="extend", default=[], help="files from `further`: more rounds"
    )
    run.add_argument("--round", type=parse_count, default=1, help="round number, starting at 1")
    run.add_argument("--out", type=parse_path, required=True, help="Parquet file to write")
    run.add_argument(
        "--node", type=parse_path, help="record from `probe`; samples get its node name (default: this machine's)"
    )
    run.add_argument("--seed", type=parse_seed, default=0, help="seed to shuffle the points")
    run.add_argument("--log", type=parse_path, help="file for library output and tracebacks (default: stderr)")
    run.set_defaults(run=_run)

    plan = commands.add_parser(
        "plan",
        description="Show the points and minutes of a preset, and the points that a budget leaves out",
        examples=["python -m experiments plan --preset full", "python -m experiments plan --gpu H200 --cores 16"],
    )
    plan.add_argument("--preset", type=expand_home, default="quick", help="quick, full, or your own .yaml file")
    plan.add_argument("--models", type=parse_path, help="file with your own models, which presets call `own`")
    plan.add_argument("--budget", type=parse_minutes, metavar="MINUTES", help="budget, instead of the preset's")
    plan.add_argument("--node", type=parse_path, help="record from `probe` (default: this machine)")
    plan.add_argument("--gpu", metavar="NAME", help="plan for this GPU, with an H100's rates and cache")
    plan.add_argument("--cores", type=parse_count, help="plan for this core count")
    plan.add_argument("--time-start", action="store_true", help="measure process start times and a core's FLOP/s")
    plan.add_argument(
        "--repeat-share", type=parse_share, default=0.0, help="share of the time that `repeat` may add (default: 0)"
    )
    plan.add_argument("--out", type=parse_path, help="file to write, for `run --plan`")
    plan.set_defaults(run=_plan)

    further = commands.add_parser(
        "further", description="Choose points to measure again, for undecided claims or to compare days"
    )
    further.add_argument("--plan", type=parse_path, required=True, help="plan file from `plan`")
    further.add_argument("--folder", type=parse_path, required=True, help="folder with the node's rounds")
    target = further.add_mutually_exclusive_group(required=True)
    target.add_argument("--look", type=parse_count, metavar="ROUNDS", help="choose for the rounds up to this look")
    target.add_argument("--session", type=parse_count, metavar="N", help="choose anchors alone, for this session")
    further.add_argument("--cases", type=parse_path, help="undecided cases from `python -m report undecided`")
    further.add_argument("--minutes", type=parse_minutes, help="time limit for the rounds of all looks")
    further.add_argument("--out", type=parse_path, required=True, help="file to write, for `run --further`")
    further.set_defaults(run=_further)

    repeat = commands.add_parser("repeat", description="Measure the points again that other processes disturbed")
    repeat.add_argument("--node", type=parse_path, required=True, help="record from `probe`")
    repeat.add_argument("--plan", type=parse_path, required=True, help="plan file from `plan`")
    repeat.add_argument(
        "--further", type=parse_path, nargs="*", action="extend", default=[], help="files from `further`: more rounds"
    )
    repeat.add_argument("--folder", type=parse_path, required=True, help="folder with all rounds of the plan")
    repeat.add_argument(
        "--share", type=parse_share, default=0.25, help="time limit, as a share of the rounds' time (0: no repeats)"
    )
    repeat.add_argument("--seed", type=parse_seed, default=0, help="seed to shuffle the points")
    repeat.set_defaults(run=_repeat)

    seal = commands.add_parser("seal", description="Write the record of a measured machine")
    seal.add_argument("--probe", type=parse_path, required=True, help="record from `probe`")
    seal.add_argument(
        "--rounds", type=parse_path, nargs="+", action="extend", required=True, help="Parquet files with its rounds"
    )
    seal.add_argument(
        "--plan", type=parse_path, help="plan file from `plan`: record its predictions beside the actual times"
    )
    seal.add_argument(
        "--further", type=parse_path, nargs="*", action="extend", default=[], help="files from `further`: more rounds"
    )
    seal.add_argument("--looks", action="store_true", help="record the looks, although no look was reached yet")
    seal.add_argument("--out", type=parse_path, required=True, help="node.json to write")
    seal.set_defaults(run=_seal)

    wanted = commands.add_parser(
        "wanted",
        description="List the machines that would decide open claims, and the claims that this machine would decide",
    )
    wanted.add_argument("--json", action="store_true", help="print JSON")
    wanted.add_argument(
        "--file", type=parse_path, help="list from `python -m report wanted` (default: data/wanted.json)"
    )
    wanted.set_defaults(run=_list_machines)

    outcomes = commands.add_parser("outcomes", description="Count the failed and skipped points by reason")
    outcomes.add_argument(
        "folders", type=parse_path, nargs="*", default=[Path("results/nodes")], help="default: results/nodes"
    )
    outcomes.set_defaults(run=_outcomes)

    pack = commands.add_parser(
        "pack",
        description="Pack the measurements of this machine into one file, to hand it in",
        examples=["python -m experiments pack"],
    )
    pack.add_argument(
        "folder",
        type=parse_path,
        nargs="?",
        default=Path("results/nodes"),
        metavar="NODE_FOLDER",
        help="node folder (default: the only one in results/nodes)",
    )
    pack.add_argument("--out", type=parse_path, metavar="FILE", help="default: results/<node>.zip")
    pack.set_defaults(run=_pack)

    check = commands.add_parser("check", description="Check that a preset is valid, and that a node is this machine")
    check.add_argument("--preset", type=expand_home, default="quick")
    check.add_argument("--node", type=parse_path, help="a node record; if it exists, it must belong to this machine")
    check.add_argument("--models", type=parse_path, help="file with your own models, which presets call `own`")
    check.add_argument("--json", action="store_true", help="print the preset's digest and budget as JSON")
    check.set_defaults(run=_check)

    new = commands.add_parser(
        "new",
        description="Write a new experiment: module, sweep, quantity, section of the page, and test",
        examples=["python -m experiments new vector_sum"],
    )
    new.add_argument("name", help="lowercase letters and digits, words joined by _")
    new.set_defaults(run=_new)

    parser.epilog = list_commands(commands.choices, GROUPS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and run the command. Returns the exit code."""
    arguments = make_parser().parse_args(argv)
    return int(arguments.run(arguments))


def _list(arguments: argparse.Namespace) -> int:
    from experiments.experiment_list import format_listing, list_experiments

    listing = list_experiments()
    print(json.dumps(listing, indent=1) if arguments.json else format_listing(listing))
    return 0


def _probe(arguments: argparse.Namespace) -> int:
    from contract.node import write_node
    from experiments import hardware, worker_environment

    if arguments.id and not arguments.require:
        print(node_id(*hardware.identity(arguments.out)))
        return 0

    _print_clock_note()
    hardware.refuse_partial_allocation()
    # Clean the environment before any import, so that libraries choose the same settings as in a measuring process.
    with worker_environment.clean_environment_applied():
        from experiments.fingerprint import fingerprint, require_device, summarize_node, unknown_gpu_facts

        options = dict(option.partition("=")[::2] for option in arguments.option)
        record = fingerprint(options, arguments.out)
    if arguments.require:
        require_device(record, arguments.require)
    if arguments.id:
        print(record["id"])
        return 0
    if arguments.out:
        write_node(arguments.out, record)
        print(summarize_node(record), file=sys.stderr)
    else:
        print(json.dumps(record, indent=1))
    for line in unknown_gpu_facts(record):
        print(line, file=sys.stderr)
    return 0


def _print_clock_note() -> None:
    """Print a note to stderr if the clock shows an unlikely date. Raises StudyError for an impossible date."""
    from contract.study_dates import check_clock

    if text := check_clock():
        print(f"note: {text}", file=sys.stderr)


def _doctor(arguments: argparse.Namespace) -> int:
    from experiments.doctor import Level, examine, findings_json, format_findings

    findings = examine(arguments.device)
    if arguments.json:
        print(json.dumps(findings_json(findings), indent=1))
    else:
        print(format_findings(findings, shutil.get_terminal_size((100, 24)).columns))
    return int(any(finding.level is Level.WARNING for finding in findings))


def _preflight(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    from experiments.lock import node_lock
    from experiments.preflight import make_preflight

    _print_clock_note()
    trial = make_preflight(
        arguments.preset, arguments.plan, arguments.device, arguments.minutes, arguments.log, started
    )
    with node_lock(PATIENCE_S):
        try:
            return int(not trial.run())
        except KeyboardInterrupt:
            print("interrupted: the lines above are valid; run the same command to start again", file=sys.stderr)
            return 130


def _run(arguments: argparse.Namespace) -> int:
    from experiments import hardware, rounds
    from experiments.lock import node_lock
    from experiments.round_files import measure_into_file, print_removed_variables

    if arguments.out.suffix != ".parquet":
        raise StudyError(
            f"--out {arguments.out}: samples are written as Parquet: choose a file name that ends in .parquet"
        )
    _print_clock_note()
    job, preset, plan = _find_job(arguments)
    node = _same_machine(arguments.node) if arguments.node else node_id(*hardware.identity())
    # Fail before measuring if the file cannot be written.
    with atomic_path(arguments.out.with_suffix(".writable")):
        pass
    arguments.out.with_suffix(".writable").unlink()
    seed = rounds.round_seed(arguments.seed, arguments.name, arguments.device, arguments.round)
    round_ = rounds.Round(
        job, arguments.round, seed, arguments.log, meanwhile=lambda: import_module("contract.sample_table")
    )
    print_removed_variables()
    # Record only the preset's file name, since full paths name people and machines.
    options = {"preset": Path(preset).name, "seed": arguments.seed}
    with node_lock(PATIENCE_S):
        measure_into_file(arguments.out, round_, node, options, job.digest(arguments.round) if plan else "")
        if arguments.node and plan:
            from experiments.node_writer import begin_node

            begin_node(arguments.out.parent, arguments.node, plan)
    return 0


def _find_job(arguments: argparse.Namespace) -> tuple[Job, str, Plan | None]:
    """Return the job to measure, the preset's name, and the plan from --plan (None without --plan)."""
    if arguments.plan:
        planned = _read_whole_plan(arguments)
        return planned.job(arguments.name, arguments.device), planned.preset, planned
    from experiments import hardware, plan
    from experiments.devices import find_device_class
    from experiments.sweep import find_sweep, preset_path, read_preset

    part = find_sweep(read_preset(arguments.preset), arguments.name, str(preset_path(arguments.preset)))
    device = find_device_class(arguments.device)(arguments.device).describe()
    return plan.plan_job(part, device, hardware.usable_cores()), str(arguments.preset), None


def _plan(arguments: argparse.Namespace) -> int:
    from experiments import hardware, plan, worker_processes
    from experiments.sweep import preset_path, read_preset

    _print_clock_note()
    _load_user_models(arguments.models)
    preset, source = read_preset(arguments.preset), str(preset_path(arguments.preset))
    devices = _read_devices(arguments.node)
    if arguments.gpu:
        devices = [device for device in devices if device["kind"] == "cpu"]
        devices.append({"id": "cuda:0", "kind": "gpu", "name": arguments.gpu, **plan.H100})
    start_s: dict[str, float] = {}
    core_flops: dict[str, float] = {}
    if arguments.time_start:
        # The process whose start is timed on the CPU also measures the FLOP/s per core.
        timed = {
            "cpu": worker_processes.measure_start_s(
                "cpu", then=lambda worker: core_flops.update(worker_processes.measure_core_flops(worker))
            )
        }
        timed |= {
            str(device["id"]): worker_processes.measure_start_s(str(device["id"]))
            for device in devices
            if device["kind"] != "cpu"
        }
        timed[NO_TORCH] = worker_processes.measure_start_s("cpu", NO_TORCH)
        start_s = {device: round(seconds, 2) for device, seconds in timed.items() if seconds is not None}
    cores = arguments.cores or hardware.usable_cores()
    minutes = arguments.budget or plan.budget_min(preset, devices)
    request = {"sweeps": _digest(preset), "budget_min": arguments.budget or 0}
    planned = plan.full_plan(preset, source, devices, cores, start_s, core_flops)
    planned = replace(planned, preset=str(arguments.preset), request=request)
    if minutes:
        planned = plan.fit_budget(planned, minutes, at_least_essential=arguments.budget is None)
    if arguments.out:
        write_json(arguments.out, planned.as_json, in_lines=True)
    print(plan.format_plan(planned, arguments.repeat_share), file=sys.stderr if arguments.out else sys.stdout)
    return 0


def _load_user_models(models: Path | None) -> None:
    """Read the user's models and export them to child processes. Raises StudyError."""
    if models:
        from experiments import user_models
        from experiments.language import gguf_shape, shapes
        from experiments.models import catalogue

        user_models.export_models(
            models, {*catalogue.SMALL, *catalogue.NETWORKS, *shapes.SHAPES}, gguf_shape.describe_file
        )


def _read_devices(node: Path | None) -> list[dict[str, Any]]:
    """Read the devices from a node record, or detect the devices in this machine."""
    from experiments.devices import detect

    if node:
        devices: list[dict[str, Any]] = read_node(node)["devices"]
        return devices
    return [device.describe() for device in detect()[0]]


def _read_whole_plan(arguments: argparse.Namespace) -> Plan:
    """Read the plan with the further rounds in the files of `--further`."""
    further = [read_further_rounds(path) for path in arguments.further]
    return add_rounds(read_plan(arguments.plan), further) if further else read_plan(arguments.plan)


def _further(arguments: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from experiments import further_rounds

    plan = read_plan(arguments.plan)
    measured = further_rounds.read_measured_rounds(arguments.folder, plan)
    if arguments.session:
        document, text = further_rounds.choose_session_rounds(plan, measured, arguments.session)
    elif arguments.cases and arguments.minutes:
        cases, now = read_open_cases(arguments.cases), datetime.now(UTC)
        document, text = further_rounds.choose_look_rounds(
            plan, measured, cases, arguments.look, arguments.minutes, now
        )
    else:
        raise StudyError("--look: give the undecided cases and the time limit, too: --cases, --minutes")
    write_json(arguments.out, document)
    print(text, file=sys.stderr)
    return 0


def _repeat(arguments: argparse.Namespace) -> int:
    from experiments.lock import node_lock

    if not arguments.share:
        print("no point is measured again: the share of time for it is 0", file=sys.stderr)
        return 0
    node, plan = _same_machine(arguments.node), _read_whole_plan(arguments)
    from experiments.repeats import repeat_rounds
    from experiments.round_files import print_removed_variables

    print_removed_variables()
    with node_lock(PATIENCE_S):
        summary = repeat_rounds(arguments.folder, arguments.node, node, plan, arguments.share, arguments.seed)
    print(summary, file=sys.stderr)
    return 0


def _seal(arguments: argparse.Namespace) -> int:
    from experiments.node_writer import seal

    plan = _read_whole_plan(arguments) if arguments.plan else None
    if plan and arguments.looks and not plan.looks:
        plan = replace(plan, looks=tuple({"rounds": number} for number in look_rounds(plan.rounds)))
    seal(arguments.probe, arguments.rounds, arguments.out, plan)
    return 0


def _list_machines(arguments: argparse.Namespace) -> int:
    from experiments.wanted import describe_wanted, format_wanted

    described = describe_wanted(arguments.file)
    print(json.dumps(described.as_json, indent=1) if arguments.json else format_wanted(described))
    return 0


def _outcomes(arguments: argparse.Namespace) -> int:
    from experiments.outcome_summary import format_outcomes

    print(format_outcomes(arguments.folders))
    return 0


def _pack(arguments: argparse.Namespace) -> int:
    from experiments.pack_node import pack_node

    print(pack_node(arguments.folder, arguments.out))
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from experiments.sweep import preset_path, read_preset

    _load_user_models(arguments.models)
    preset, source = read_preset(arguments.preset), preset_path(arguments.preset)
    if arguments.node and arguments.node.exists():
        _same_machine(arguments.node)
    if arguments.json:
        granted = max(preset.get("budget_min", {}).values(), default=0)
        print(json.dumps({"digest": _digest(preset), "budget_min": granted}))
        return 0
    if arguments.models:
        try:
            from experiments.models import zoo  # noqa: F401 - importing it loads every network
        except StudyError as fault:
            raise StudyError(f"{arguments.models}: {fault}") from None
    print(f"{source}: {preset['rounds']} rounds of {', '.join(preset['experiments'])}; `plan` lists the points")
    return 0


def _digest(preset: dict[str, Any]) -> str:
    """Hash the preset, its experiments' protocols and the user's models to 12 hexadecimal digits."""
    from experiments.registry import get_experiment
    from experiments.user_models import VARIABLE

    measured = [get_experiment(name) for name in preset["experiments"]]
    protocols = [[experiment.protocol, experiment.metric_protocols] for experiment in measured]
    return hashlib.sha256(json.dumps([preset, protocols, os.environ.get(VARIABLE)]).encode()).hexdigest()[:12]


def _same_machine(path: Path) -> str:
    """Return the node name in a record. Raises StudyError if the record belongs to another machine."""
    from experiments import hardware

    return str(hardware.refuse_other_machine(path)["id"])


def _new(arguments: argparse.Namespace) -> int:
    from experiments.scaffold import format_next_steps, write_experiment

    print(format_next_steps(arguments.name, write_experiment(arguments.name)))
    return 0
