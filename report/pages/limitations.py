"""List the study's limits as far as its data show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from contract.errors import StudyError
from report.data.gathered_files import read_summary
from report.data.summary import POINT
from report.formatting import format_count, join_words, shorten_names
from report.outcomes import SENSITIVE

# Sensors that are read with each sample: their names in words, and the consequence if no machine has a reading.
_SENSORS = {
    "clock_mhz": (
        "clock",
        "rates are given per second, and per clock cycle only where a calibrated loop measures the clock",
    ),
    "power_w": ("power", "the energy of a sample or request is unknown"),
    "temperature_c": ("temperature", "a slow run cannot be blamed on heat"),
}
# Results from fewer rounds are reported as a limit: they have no interval, or one that rests partly on the variances of
# other results (see `statistics.moderate`).
_FEWEST_ROUNDS = 3


def study_limits(document: Mapping[str, Any], data: Path | None) -> list[dict[str, str]]:
    """Return limits with name and text, most important first.

    data: folder written by `report gather`, or None. Raises StudyError if the folder cannot be read.
    """
    nodes, verdicts = document["nodes"], document["verdicts"]
    texts = [
        ("Hardware", _hardware_limit(nodes, verdicts)),
        ("Virtual machines", _virtual_machine_limit(nodes)),
        ("Counters", _sensor_limit(data) if data else ""),
        ("Rounds", _round_limit(data) if data else ""),
        ("Readings of the articles", _reading_limit(verdicts)),
        ("Lists of cases", _list_limit(verdicts)),
        ("Sources", _source_limit(document)),
    ]
    return [{"name": name, "text": text} for name, text in texts if text]


def _hardware_limit(nodes: Sequence[Mapping[str, Any]], verdicts: Sequence[Mapping[str, Any]]) -> str:
    gpus = sorted(
        {str(device["name"]) for node in nodes for device in node.get("devices") or [] if device["kind"] != "cpu"}
    )
    cpus = sorted({_processor_name(node) for node in nodes if node["hardware"].get("cpu")})
    waiting = sum(verdict["verdict"] == "awaiting hardware" for verdict in verdicts)
    first = f"GPUs measured: {shorten_names(gpus, 'kind')}." if gpus else "No GPU has been measured."
    if waiting:
        claims = format_count(waiting, "claim")
        first += f" {claims} {'waits' if waiting == 1 else 'wait'} for hardware that no machine here has."
    if not gpus:
        first += " Everything about GPUs rests on published results, and is marked ○."
    if not cpus:
        return first
    return (
        f"{first} Processors measured: {shorten_names(cpus, 'kind')}. Estimates for "
        "larger servers are our cores multiplied up; a real server loses some of that, so this favours CPUs."
    )


def _processor_name(node: Mapping[str, Any]) -> str:
    cpu = node["hardware"]["cpu"]
    cores = cpu.get("usable_cores") or cpu.get("cores")
    name = str(cpu.get("model") or node["id"])
    return f"{name} ({format_count(int(cores), 'core')})" if cores else name


def _virtual_machine_limit(nodes: Sequence[Mapping[str, Any]]) -> str:
    virtual = [
        str(node.get("label") or node["id"]) for node in nodes if (node["hardware"].get("cpu") or {}).get("virtual")
    ]
    if not virtual:
        return ""
    return (
        f"{shorten_names(virtual, 'machine')} {'is a virtual machine' if len(virtual) == 1 else 'are virtual machines'}"
        ": the work of neighbours on the same host shows only as stolen time and as spread between runs, and the "
        "reported cache and memory may be shared."
    )


def _sensor_limit(data: Path) -> str:
    path = data / "samples.parquet"
    if not path.is_file():
        return ""
    try:
        table = pl.scan_parquet(path).select(pl.len(), pl.col(*_SENSORS).null_count()).collect()
    except (OSError, pl.exceptions.PolarsError) as broken:
        raise StudyError(f"{path}: cannot be read ({str(broken).splitlines()[0]}): gather again") from None
    silent = [column for column in _SENSORS if 0 < table["len"][0] == table[column][0]]
    if not silent:
        return ""
    names = join_words([_SENSORS[column][0] for column in silent])
    follows = "; ".join(_SENSORS[column][1] for column in silent)
    return f"No machine gave a reading of its {names} beside the samples: {follows}."


def _round_limit(data: Path) -> str:
    table = read_summary(data, [*POINT, "status", "n_rounds"])
    ok = table[table["status"] == "ok"]
    few_rounds = int((ok["n_rounds"] < _FEWEST_ROUNDS).sum())
    missing = len(table[POINT].drop_duplicates()) - len(ok[POINT].drop_duplicates())
    sentences = []
    if few_rounds:
        sentences.append(
            f"{few_rounds:,} of {format_count(len(ok), 'result')} come from fewer than {_FEWEST_ROUNDS} runs: counts "
            "and readings that do not vary, trainings with many seeds, and results that a budget or load cut short."
        )
    if missing:
        sentences.append(f"{format_count(missing, 'measurement')} gave no result; the measurements list the reasons.")
    return " ".join(sentences)


def _reading_limit(verdicts: Sequence[Mapping[str, Any]]) -> str:
    decided = [verdict for verdict in verdicts if verdict.get("robust")]
    sensitive = sum(verdict["robust"] == SENSITIVE for verdict in decided)
    opinions = sum(verdict["verdict"] == "not testable" for verdict in verdicts)
    text = (
        "An article says more than a number: each claim is our paraphrase, and each threshold is our reading of its "
        "words."
    )
    if decided:
        text += (
            f" Another reasonable reading, number format, baseline or result would change {sensitive} of "
            f"{format_count(len(decided), 'verdict')} that this study or documents decide."
        )
    if opinions:
        text += f" {format_count(opinions, 'claim')} {'is' if opinions == 1 else 'are'} not testable."
    return text


def _list_limit(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Name the claims that are decided by counting cases in a list of our choice; '' if there are none."""
    counted = [
        str(verdict["id"])
        for verdict in verdicts
        if any((part.get("share") or {}).get("listed") for part in verdict.get("parts") or [])
    ]
    if not counted:
        return ""
    return (
        f"Where a claim says most, we count a list of our own: {join_words(counted)}. The lists contain what people "
        "run as far as we know; nobody has counted what all people run, and another list may give another verdict."
    )


def _source_limit(document: Mapping[str, Any]) -> str:
    entries = document.get("references") or []
    unverified = sum(entry["status"] != "verified" for entry in entries)
    if not unverified:
        return ""
    waiting = [str(verdict["id"]) for verdict in document["verdicts"] if verdict["verdict"] == "awaiting source"]
    follows = f"; {join_words(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for one" if waiting else ""
    return (
        f"{unverified} of {format_count(len(entries), 'published figure')} could not be read in their primary source "
        f"and decide nothing{follows}."
    )
