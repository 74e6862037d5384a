"""List the experiments, and the libraries each uses on each kind of device (`list`)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.devices import KINDS, detect
from experiments.devices.base import Device
from experiments.kernels.cuda_compile import cupy_package, installed_cupy_fault
from experiments.registry import Experiment, experiments
from experiments.sweep import preset_path

# The listing shows the points in this preset, since it is the largest preset.
PRESET = "full"


def list_experiments() -> dict[str, Any]:
    """Return the output for `list --json`, without opening a device.

    devices: entries as in a node record. left_out: one line per unusable device. experiments: for each experiment,
    its description, its parameters, and `devices` with an entry per type of device (CPU, NVIDIA GPU, …). An entry's key
    names this machine's devices of that type ('cuda:0 … cuda:7'), or, if there are none, the maker ('(NVIDIA)').
    Each entry has three fields:
    asked: True if the preset measures the experiment on this type of device.
    libraries: among the libraries that the preset asks for on this type of device, those that the device supports.
    all: True if the device supports all the libraries that the preset asks for on it.
    """
    from ruamel.yaml import YAML

    devices, left_out = detect()
    # Do not validate the preset, since validation is slow and the tests already validate this project's presets.
    parts = YAML(typ="safe").load(preset_path(PRESET))["experiments"]
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
            "devices": {column: _describe_support(experiment, blocks, kind) for column, kind in columns.items()},
        }
    return {
        "preset": PRESET,
        "devices": [device.describe() for device in devices],
        "left_out": left_out + installed_cupy_fault(),
        "cupy": importlib.util.find_spec("cupy") is not None,
        "experiments": described,
    }


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
    lines = []
    for name, entry in listing["experiments"].items():
        lines += [f"{name:14}{entry['says']}", f"{'':14}parameters: {', '.join(entry['parameters'])}"]
    lines += ["", f"Points in the preset {listing['preset']} by device; (maker): GPUs this machine does not have"]
    rows = [["", *next(iter(listing["experiments"].values()))["devices"]]]
    rows += [[name, *map(_format_cell, entry["devices"].values())] for name, entry in listing["experiments"].items()]
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
