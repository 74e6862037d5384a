"""Answers: time or rate with a range, memory by part, energy and price, for a job on a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from contract.files import read_json
from report import ROOT
from report.advice.calibration import FEWEST_SOURCES, Constants
from report.advice.chips import UnknownNameError
from report.advice.formulas import BOUNDS, FORMULAS, MEMORY
from report.advice.jobs import Job, Situation, UnclearJobError, examine, parse_job
from report.advice.prices import purchase, rent
from report.advice.units import LONG, UNITS, in_unit, plain_unit, seconds_per_unit

CALIBRATION = ROOT / "data" / "advice.json"
# A job is tight if less than this share is left in memory.
TIGHT = 0.07
# Memory sums are within these factors, as authors report for theirs: they are not fitted here.
MEMORY_RANGE = (0.88, 1.25)
# Ranges grow by this factor for hardware classes with fewer than three sources.
FEW = 1.35
# Hardware classes so alike that outcomes for one also apply to the other, with a wider range.
NEIGHBOURS = {"card": "datacentre", "datacentre": "card"}
# Share that a chip takes from its rated power at work.
POWER_SHARE = 0.7
BYTES = {"GB": 1e9, "GiB": 2**30, "MB": 1e6, "MiB": 2**20, "B": 1.0, "bytes": 1.0, "G": 2**30, "gb": 1e9}


@dataclass(frozen=True)
class Range:
    """An 80% range: low end, middle and high end."""

    low: float
    middle: float
    high: float

    def scale(self, factor: float) -> Range:
        return Range(self.low * factor, self.middle * factor, self.high * factor)


@dataclass(frozen=True)
class Answer:
    """Answer to a job.

    value: in `unit`; time: seconds for one item; parts: memory in bytes, by part; fits: fits, tight or no.

    bound: what physics does not let it pass, in `unit`; refused: why there is no value. sources, error: for this kind,
    held out; class_sources: sources for this hardware class.
    """

    job: Job
    situation: Situation | None = None
    value: Range | None = None
    unit: str = ""
    time: Range | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    room: float = 0.0
    fits: str = ""
    bound: float | None = None
    refused: str = ""
    nearest: tuple[str, ...] = ()
    sources: int = 0
    class_sources: int = 0
    error: float = 0.0

    @property
    def required_bytes(self) -> float:
        """Memory that the job needs, in bytes."""
        return sum(self.parts.values())

    @property
    def seconds(self) -> Range | None:
        """Seconds for the whole job, where its length is told."""
        if self.situation is None or self.time is None:
            return None
        try:
            factor, _ = seconds_per_unit(self.situation, "s")
        except UnclearJobError:
            return None
        return self.time.scale(factor)

    @property
    def watts(self) -> float | None:
        """Power that the chips take at work, in W; None if their rating is not known."""
        machine = self.situation.machine if self.situation else None
        if machine is None or machine.power_w is None:
            return None
        return machine.power_w * machine.count * POWER_SHARE

    @property
    def usd_per_hour(self) -> float | None:
        return rent(self.situation.machine) if self.situation else None

    @property
    def usd(self) -> float | None:
        return purchase(self.situation.machine) if self.situation else None


@cache
def read_calibration(path: Path = CALIBRATION) -> Mapping[str, Any]:
    """Read the record that `report.advice.calibration.calibrate` returns."""
    record: Mapping[str, Any] = read_json(path)
    return record


def _constants(record: Mapping[str, Any]) -> Constants:
    return Constants(record["constants"], record["factors"], record["year"])


def answer(job: Job, calibration: Mapping[str, Any]) -> Answer:
    """Answer a job. A job that cannot be answered comes back with the reason in `refused`."""
    try:
        return _answer(job, calibration)
    except UnknownNameError as error:
        return Answer(job, refused=str(error), nearest=error.nearest)
    except UnclearJobError as error:
        return Answer(job, refused=str(error))


def _answer(job: Job, calibration: Mapping[str, Any]) -> Answer:
    if job.kind in ("fit", "memory"):
        return _answer_memory(job)
    unit = plain_unit(job.unit, job.kind)
    situation = examine(job)
    # Tells whether the work has what the unit needs.
    seconds_per_unit(situation, unit)
    record = calibration["kinds"][job.kind]
    parts, room, fits = memory(situation, job.kind)
    least = BOUNDS[job.kind].time(situation.inputs, {})
    bound = in_unit(situation, least, unit)
    class_sources = int(record["sources_by_class"].get(situation.hardware_class, 0))
    known = class_sources or int(record["sources_by_class"].get(NEIGHBOURS.get(situation.hardware_class, ""), 0))
    shared: dict[str, Any] = {
        "situation": situation, "unit": unit, "parts": parts, "room": room, "fits": fits, "bound": bound,
        "sources": record["held_out"]["sources"], "class_sources": class_sources,
        "error": record["held_out"]["median_error"],
    }  # fmt: skip
    if record["held_out"]["sources"] < FEWEST_SOURCES or known == 0:
        return Answer(job, refused=f"nobody published {job.kind} on this class of hardware", **shared)
    time = time_range(situation, record)
    # Nothing is faster than its rated bandwidth and FLOP/s allow.
    time = Range(*(max(seconds, least) for seconds in (time.low, time.middle, time.high)))
    ends = [in_unit(situation, seconds, unit) for seconds in (time.low, time.middle, time.high)]
    return Answer(job, value=Range(min(ends), ends[1], max(ends)), time=time, **shared)


def time_range(situation: Situation, record: Mapping[str, Any]) -> Range:
    """Return the seconds for one item with their range. record: a kind's calibration."""
    kind = situation.job.kind
    middle = _constants(record).log_time(FORMULAS[kind], situation)
    sources = record["sources_by_class"][situation.hardware_class]
    wider = 1.0 if sources >= FEWEST_SOURCES else FEW
    centre = (record["low"] + record["high"]) / 2
    half = (record["high"] - record["low"]) / 2 * wider
    return Range(math.exp(middle + centre - half), math.exp(middle + centre), math.exp(middle + centre + half))


def memory(situation: Situation, kind: str) -> tuple[dict[str, float], float, str]:
    """Return each part in bytes, the bytes that can be used, and fits, tight or no."""
    parts = MEMORY[kind].bytes(situation.inputs)
    room = parts.pop("room")
    parts = {name: value for name, value in parts.items() if value > 0}
    share = sum(parts.values()) / room
    return parts, room, "fits" if share <= 1 - TIGHT else "tight" if share <= 1 else "no"


def memory_kind(job: Job, situation: Situation) -> str:
    """Return the kind to sum memory for, from the words in a job whose kind is fit or memory."""
    words = f"{job.text} {job.precision or ''} {job.software or ''}".lower()
    model = situation.model
    if "lora" in words or "peft" in words or "adapter" in words:
        return "lora"
    if any(word in words for word in ("fine-tun", "finetun", "train", "sft", "optimi", "adam")):
        return "fine-tune" if "tun" in words or "sft" in words else "train"
    if model is None:
        return "tables"
    kinds = {"language": "decode", "encoder": "embed", "speech": "transcribe", "diffusion": "pictures"}
    return kinds.get(model.kind, "classify")


def _answer_memory(job: Job) -> Answer:
    situation = examine(job)
    kind = memory_kind(job, situation)
    parts, room, fits = memory(situation, kind)
    needed = sum(parts.values())
    if job.unit in BYTES:
        scaled = needed / BYTES[job.unit]
        value = Range(scaled * MEMORY_RANGE[0], scaled, scaled * MEMORY_RANGE[1])
        return Answer(job, situation=situation, value=value, unit=job.unit, parts=parts, room=room, fits=fits)
    if job.kind == "memory":
        value = Range(needed / 1e9 * MEMORY_RANGE[0], needed / 1e9, needed / 1e9 * MEMORY_RANGE[1])
        return Answer(job, situation=situation, value=value, unit="GB", parts=parts, room=room, fits=fits)
    # 1: it fits, perhaps with little to spare; 0: it does not.
    does = [float(needed * factor <= room) for factor in (MEMORY_RANGE[1], 1.0, MEMORY_RANGE[0])]
    return Answer(
        job, situation=situation, value=Range(*does), unit=job.unit or "fits", parts=parts, room=room, fits=fits
    )


def answer_record(record: Mapping[str, Any], calibration: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a job in JSON with a record for JSON."""
    try:
        job = parse_job(record)
    except UnclearJobError as error:
        return {"id": str(record.get("id", "")), "refused": str(error), "bound": None}
    return as_record(answer(job, calibration))


def as_record(answered: Answer) -> dict[str, Any]:
    """Return an answer as a record for JSON."""
    job, situation = answered.job, answered.situation
    recognised = {}
    if situation:
        recognised = {
            "hardware": situation.machine.label,
            "class": situation.hardware_class,
            "model": situation.model.name if situation.model else None,
            "format": situation.format.name,
            "program": situation.program or "as found",
            "assumed": dict(situation.assumed),
        }
    shared = {
        "unit": answered.unit or job.unit or UNITS.get(job.kind, ("",))[0],
        "fits": answered.fits or None,
        "memory_bytes": {name: round(value) for name, value in answered.parts.items()} or None,
        "room_bytes": round(answered.room) if answered.room else None,
    }
    if answered.value is None:
        return {
            "id": job.id,
            "refused": answered.refused,
            "bound": answered.bound,
            "nearest": list(answered.nearest),
            **shared,
            "recognised": recognised,
        }
    seconds, watts, hour = answered.seconds, answered.watts, answered.usd_per_hour
    more: dict[str, Any] = {"seconds": None, "energy_wh": None, "usd_rented": None, "usd_bought": answered.usd}
    if seconds is not None:
        more["seconds"] = _ends(seconds)
        more["energy_wh"] = _ends(seconds.scale(watts / LONG["hours"])) if watts else None
        more["usd_rented"] = _ends(seconds.scale(hour / LONG["hours"])) if hour else None
    return {
        "id": job.id,
        "low": answered.value.low,
        "middle": answered.value.middle,
        "high": answered.value.high,
        **shared,
        "basis": {
            **recognised,
            "bound": answered.bound,
            "held_out_error": answered.error or None,
            "sources": answered.sources or None,
            "sources_of_class": answered.class_sources or None,
        },
        **more,
    }


def _ends(value: Range) -> list[float]:
    return [value.low, value.middle, value.high]
