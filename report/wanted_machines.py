"""Find the machines that would decide open claims, from the verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from contract.files import read_yaml
from contract.machine_needs import Machine, Need, Preset, Wanted
from contract.node import kind_of_node
from report import ROOT
from report.outcomes import OTHERS, Verdict
from report.quantities import quantities

PRESETS = ROOT / "workflow" / "presets"
# Settings of a run.
SETTINGS = ROOT / "config" / "config.yaml"

Record = Mapping[str, Any]


def wanted_machines(document: Record) -> Wanted:
    """Return the machines that would decide claims without an own deciding measurement.

    document: content of `verdicts.json`. A need for which no preset with a budget measures all experiments is left out,
    and so is a need for a source.
    """
    labels = kind_labels(document)
    needs = [need for claim in document["verdicts"] for need in _claim_needs(claim, labels)]
    return Wanted(tuple(str(node["id"]) for node in document["nodes"]), tuple(needs))


def kind_labels(document: Record) -> dict[str, str]:
    """Return the name of each measured kind of node."""
    return {kind_of_node(str(node["id"])): str(node["label"]) for node in document["nodes"]}


def _claim_needs(claim: Record, labels: Mapping[str, str]) -> Iterator[Need]:
    """Yield a need per machine for a claim that is open or decided by published measurements."""
    verdict = Verdict(claim["verdict"])
    if verdict is Verdict.NOT_TESTABLE or (verdict.is_decided and claim["decided_on"] != OTHERS):
        return
    groups: dict[Machine, dict[str, Sequence[str]]] = {}
    for part in claim["parts"]:
        for machine, experiments in part_needs(claim, part, labels):
            groups.setdefault(machine, {})[str(part["name"])] = experiments
    for machine, parts in groups.items():
        names = tuple(sorted({name for experiments in parts.values() for name in experiments}))
        if preset := _shortest_preset(names):
            yield Need(
                str(claim["id"]),
                not verdict.is_decided,
                machine,
                names,
                preset,
                tuple(filter(None, parts)) if len(groups) > 1 else (),
            )


def part_needs(claim: Record, part: Record, labels: Mapping[str, str]) -> Iterator[tuple[Machine, Sequence[str]]]:
    """Yield each machine that would decide a part of a claim, with the experiments to measure there.

    labels: the name of each measured kind of node.
    """
    need = part["waits"] or part["missing"]
    if need:
        if need["verdict"] != Verdict.AWAITING_SOURCE and not need.get("why"):
            devices, energy = set(need.get("devices", [])), tuple(need.get("energy", []))
            yield Machine(need.get("baseline", ""), _beside_cpu(devices), energy), need["experiments"]
        return
    if part["outcome"] != Verdict.UNDECIDED or not part["more_rounds"]:
        return
    quantity = quantities()[part["quantity"]]
    cases = [case for case in claim["cases"] if case["part"] == part["name"] and case["outcome"] == "undecided"]
    devices = {"gpu" for case in cases if case["device"] and case["device"] != "cpu"} | set(quantity.kinds)
    if part["more_rounds"]["in_one_round"]:
        yield Machine(devices=_beside_cpu(devices)), quantity.experiments
        return
    rounds = min((int(rounds) for rounds, number in part["more_rounds"]["decided_by"].items() if number), default=None)
    for kind in dict.fromkeys(kind_of_node(str(case["node"])) for case in cases if case["node"]):
        if rounds and kind in labels:
            yield Machine(devices=_beside_cpu(devices), like=(kind, labels[kind]), rounds=rounds), quantity.experiments


def _beside_cpu(devices: set[str]) -> tuple[str, ...]:
    return tuple(sorted(devices - {"cpu"}))


def _shortest_preset(experiments: Sequence[str]) -> Preset | None:
    """Return the preset with the smallest budget that measures these experiments; None if there is none."""
    return next((preset for preset, names in _presets(PRESETS) if names.issuperset(experiments)), None)


def default_preset() -> Preset:
    """Return the preset of a run without settings."""
    name = read_yaml(SETTINGS)["preset"]
    return next(preset for preset, _ in _presets(PRESETS) if preset.name == name)


@cache
def _presets(folder: Path) -> list[tuple[Preset, frozenset[str]]]:
    """Return the presets with a budget and their experiments; the shortest preset first."""
    presets = []
    for path in folder.glob("*.yaml"):
        content = read_yaml(path)
        if budget := content.get("budget_min"):
            presets.append((Preset(path.stem, budget["cpu"], budget["gpu"]), frozenset(content["experiments"])))
    return sorted(presets, key=lambda pair: pair[0].gpu)
