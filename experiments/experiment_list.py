"""List the experiments, with points and minutes, and the libraries that each uses on each kind of device (`list`)."""

from __future__ import annotations

import importlib.util
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.devices import KINDS, detect
from experiments.devices.base import Device
from experiments.hardware import usable_cores
from experiments.kernels.cuda_compile import cupy_package, installed_cupy_fault
from experiments.plan import budget_min, fit_budget, full_plan
from experiments.registry import Experiment, experiments
from experiments.sweep import preset_path

# DEFAULT: preset of a study without settings, whose points and minutes are listed.
# PRESET: the largest preset, whose libraries are listed.
DEFAULT, PRESET = "quick", "full"


def list_experiments() -> dict[str, Any]:
    """Return the output for `list --json`, without opening a device.

    devices: entries as in a node record. left_out: one line per unusable device. experiments: for each experiment,
    its description, its parameters, its points and predicted minutes in the preset DEFAULT on this machine, and
    `devices` with an entry per type of device (CPU, NVIDIA GPU, …). An entry's key names this machine's devices of that
    type ('cuda:0 … cuda:7'), or, if there are none, the maker ('(NVIDIA)'). Each entry has three fields:
    asked: True if the preset measures the experiment on this type of device.
    libraries: among the libraries that the preset asks for on this type of device, those that the device supports.
    all: True if the device supports all the libraries that the preset asks for on it.
    """
    from ruamel.yaml import YAML

    devices, left_out = detect()
    # Do not validate the presets, since validation is slow and the tests already validate this project's presets.
    presets = {name: YAML(typ="safe").load(preset_path(name)) for name in (DEFAULT, PRESET)}
    parts = presets[PRESET]["experiments"]
    described_devices = [device.describe() for device in devices]
    sizes = _plan_sizes(presets[DEFAULT], described_devices)
    columns = {}
    for kind in KINDS:
        names = [device.name for device in devices if type(device) is kind]
        columns[_column_title(names) or f"({kind.maker})"] = kind
    described = {}
    for name, experiment in experiments().items():
        blocks = parts[name]["sweep"] if name in parts else []
        described[name] = {
            "says": experiment.description,
            "parameters": list(experiment.parameters),
            **dict(zip(("points", "minutes"), sizes.get(name, (0, 0.0)), strict=True)),
            "devices": {column: _describe_support(experiment, blocks, kind) for column, kind in columns.items()},
        }
    return {
        "default": DEFAULT,
        "preset": PRESET,
        "devices": described_devices,
        "left_out": left_out + installed_cupy_fault(),
        "cupy": importlib.util.find_spec("cupy") is not None,
        "experiments": described,
    }


def _plan_sizes(preset: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, float]]:
    """Return the number of points and the predicted minutes of each experiment that a preset plans on these devices."""
    plan = full_plan(preset, DEFAULT, devices, usable_cores())
    if minutes := budget_min(preset, devices):
        plan = fit_budget(plan, minutes, at_least_essential=True)
    sizes: dict[str, tuple[int, float]] = {}
    for job in plan.jobs:
        points, so_far = sizes.get(job.experiment, (0, 0.0))
        seconds = sum(each.seconds(number) for number, each in plan.order if each.name == job.name)
        sizes[job.experiment] = (points + sum(not point.left_out for point in job.points), so_far + seconds / 60)
    return sizes


def _column_title(names: Sequence[str]) -> str:
    """Format the device names: 'cuda:0', 'cuda:0 … cuda:7'."""
    return names[0] if len(names) == 1 else " … ".join([*names[:1], *names[-1:]])


def _describe_support(
    experiment: Experiment, blocks: Sequence[Mapping[str, Any]], kind: type[Device]
) -> dict[str, Any]:
    asks = [block for block in blocks if block.get("on", kind.kind) == kind.kind and kind.kind in experiment.fits]
    libraries: dict[str, None] = {}
    for block in asks:
        cases = [case["backend"] for case in block.get("cases", []) if "backend" in case]
        libraries |= dict.fromkeys([*cases, *block.get("grid", {}).get("backend", [])])
    names = [name for name in libraries if kind.supports(name)]
    return {"asked": bool(asks), "libraries": names, "all": len(names) == len(libraries)}


def format_listing(listing: Mapping[str, Any]) -> str:
    """Format the listing as two tables, for a terminal of 100 columns: experiments, and libraries by device."""
    entries = listing["experiments"]
    name_width = max(map(len, entries)) + 2
    head = f"{'experiment':{name_width}}{'points':>6}{'minutes':>9}  "
    lines = [f"Points and predicted minutes of the preset {listing['default']}, which `make study` measures here", ""]
    lines += [f"{head}what it measures, and its parameters"]
    for name, entry in entries.items():
        size = f"{entry['points']:6}{entry['minutes']:9.1f}" if entry["points"] else f"{'–':>6}{'–':>9}"
        for start, text in (
            (f"{name:{name_width}}{size}  ", entry["says"]),
            ("", f"({', '.join(entry['parameters'])})"),
        ):
            margin = " " * len(head)
            lines += textwrap.wrap(text, 100, initial_indent=start or margin, subsequent_indent=margin)
    lines += [
        "",
        f"Libraries by device in the preset {listing['preset']}; (maker): GPUs that this machine does not have",
    ]
    rows = [["", *next(iter(entries.values()))["devices"]]]
    rows += [[name, *map(_format_cell, entry["devices"].values())] for name, entry in entries.items()]
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    lines += ["".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += ["yes: all points. Library names: only points with these libraries. –: no points.", ""]
    if not listing["cupy"] and any(device["id"].startswith("cuda") for device in listing["devices"]):
        lines.append(f"CuPy is not installed, but the libraries cupy and cuda need it: pip install {cupy_package()}")
    lines += [f"{device['id']}: {device['name']}" for device in listing["devices"]]
    return "\n".join([*lines, *(f"left out: {reason}" for reason in listing["left_out"])])


def _format_cell(support: Mapping[str, Any]) -> str:
    if support["asked"] and support["all"]:
        return "yes"
    return ", ".join(support["libraries"]) or "–"
