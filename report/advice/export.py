"""The adviser for the page: formulas as JavaScript; machines, models, constants and prices as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from report.advice.chips import Machine, find_machine
from report.advice.choices import example_job, hourly_cost, read_words
from report.advice.formats import find_program
from report.advice.formulas import BOUNDS, FORMULAS, MEMORY
from report.advice.jobs import examine, hardware_class, machine_inputs, model_inputs
from report.advice.models import find_model
from report.advice.prices import purchase, rent

ARITHMETIC = ("unknown", "float32", "tf32", "float16", "bfloat16", "float8", "int8")


def scripts() -> dict[str, dict[str, str]]:
    """Return JavaScript function bodies by kind: time for an item, least time, and memory by part."""
    return {
        "time": {kind: formula.javascript() for kind, formula in FORMULAS.items()},
        "least": {kind: formula.javascript() for kind, formula in BOUNDS.items()},
        "memory": {kind: each.javascript() for kind, each in MEMORY.items()},
    }


def machine_record(machine: Machine) -> dict[str, Any]:
    """Return a machine for the page, with its FLOP/s by number format."""
    by_format = {name: machine_inputs(machine, name)["flops"] for name in ARITHMETIC}
    return {
        "name": f"{machine.count}x {machine.name}" if machine.count > 1 else machine.name,
        "kind": machine.kind,
        "class": hardware_class(machine),
        "inputs": {name: value for name, value in machine_inputs(machine, "float16").items() if name != "flops"},
        "flops": by_format,
        "watts": machine.power_w * machine.count if machine.power_w else None,
        "usd": purchase(machine),
        "usd_per_hour": rent(machine),
        "cost": hourly_cost(machine, rent(machine)),
    }


def tables(calibration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the page's data as a record for JSON."""
    words = read_words()
    kinds = {}
    for kind, words_of_kind in words["kinds"].items():
        record = calibration["kinds"][kind]
        kinds[kind] = {
            **words_of_kind,
            "constants": record["constants"],
            "programs": record["programs"],
            "year": record["year"],
            "low": record["low"],
            "high": record["high"],
            "sources_by_class": record["sources_by_class"],
            "sources": record["held_out"]["sources"],
            "error": record["held_out"]["median_error"],
            "coverage": record["held_out"]["coverage"],
        }
    models = {
        kind: [
            {
                "name": name,
                "inputs": model_inputs(find_model(name, kind)) if kind != "tables" else {},
                "program": find_program(name),
            }
            for name in names
        ]
        for kind, names in words["models"].items()
    }
    examples = []
    for example in words["examples"]:
        situation = examine(example_job(example, words["machines"][0]))
        examples.append(
            {
                **{name: example[name] for name in ("id", "title", "kind", "model", "wish")},
                "work": dict(example["work"]),
                "inputs": dict(situation.inputs),
                "program": situation.program,
                "arithmetic": situation.format.arithmetic,
            }
        )
    return {
        "date": calibration["date"],
        "share": calibration["share"],
        "kinds": kinds,
        "machines": [machine_record(find_machine(name)) for name in words["machines"]],
        "models": models,
        "examples": examples,
        "sentences": dict(words["sentences"]),
    }
