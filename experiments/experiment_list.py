"""What `list` says: the experiments, and by which libraries each kind of device is asked."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.devices import KINDS, detect
from experiments.devices.base import Device
from experiments.kernels.cuda_compile import package
from experiments.registry import Experiment, experiments
from experiments.sweep import preset_path

# The preset that asks most.
PRESET = "full"


def list_experiments() -> dict[str, Any]:
    """What `list --json` prints; no device is opened for it.

    devices: their entries of a node record. left_out: a line for each that is not
    among them. experiments: by name, what each says of itself, its parameters, and for
    each kind of device, called by its devices here or (its maker), whether the preset
    asks it anything, by which libraries it can answer, and whether these are all.
    """
    from ruamel.yaml import YAML

    devices, left_out = detect()
    # As it stands: to check it takes longer than all the rest, and our own has been.
    parts = YAML(typ="safe").load(preset_path(PRESET))["experiments"]
    columns = {}
    for kind in KINDS:
        names = [device.name for device in devices if type(device) is kind]
        columns[_column_title(names) or f"({kind.maker})"] = kind
    described = {}
    for name, one in experiments().items():
        blocks = parts[name]["sweep"] if name in parts else []
        described[name] = {
            "says": one.says,
            "parameters": list(one.parameters),
            "devices": {column: _describe_support(one, blocks, kind) for column, kind in columns.items()},
        }
    return {
        "preset": PRESET,
        "devices": [device.describe() for device in devices],
        "left_out": left_out,
        "cupy": importlib.util.find_spec("cupy") is not None,
        "experiments": described,
    }


def _column_title(names: Sequence[str]) -> str:
    """The devices of a kind in few words: 'cuda:0', 'cuda:0 … cuda:7'."""
    return names[0] if len(names) == 1 else " … ".join([*names[:1], *names[-1:]])


def _describe_support(
    experiment: Experiment, blocks: Sequence[Mapping[str, Any]], kind: type[Device]
) -> dict[str, Any]:
    asks = [block for block in blocks if block.get("on", kind.kind) == kind.kind and kind.kind in experiment.fits]
    libraries: dict[str, None] = {}
    for block in asks:
        cases = [case["backend"] for case in block.get("cases", []) if "backend" in case]
        libraries |= dict.fromkeys([*cases, *block.get("grid", {}).get("backend", [])])
    names = [name for name in libraries if kind.runs(name)]
    return {"asked": bool(asks), "libraries": names, "all": len(names) == len(libraries)}


def format_listing(listing: Mapping[str, Any]) -> str:
    """The same for people."""
    lines = []
    for name, one in listing["experiments"].items():
        lines += [f"{name:14}{one['says']}", f"{'':14}parameters: {', '.join(one['parameters'])}"]
    lines += ["", f"What the preset {listing['preset']} asks of the devices here and of (GPUs that are not here)"]
    rows = [["", *next(iter(listing["experiments"].values()))["devices"]]]
    rows += [[name, *map(_format_cell, one["devices"].values())] for name, one in listing["experiments"].items()]
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    lines += ["".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += ["yes: all of it. A library's name: what is done by that library alone. –: nothing.", ""]
    if not listing["cupy"] and any(device["id"].startswith("cuda") for device in listing["devices"]):
        lines.append(f"CuPy is not installed, which cupy and cuda need: pip install {package()}")
    lines += [f"{device['id']}: {device['name']}" for device in listing["devices"]]
    return "\n".join([*lines, *(f"left out: {reason}" for reason in listing["left_out"])])


def _format_cell(asked: Mapping[str, Any]) -> str:
    if asked["asked"] and asked["all"]:
        return "yes"
    return ", ".join(asked["libraries"]) or "–"
