"""Units for answers: from a natural item's time to rates, steps and whole runs, and back."""

from __future__ import annotations

import re

from report.advice.jobs import TRAINING, Situation, UnclearJobError, run_length

# Units by kind; the first is the usual one.
UNITS = {
    "decode": ("token/s", "s", "ms/token", "s/token"),
    "prompt": ("token/s", "s"),
    "serve": ("token/s", "request/s", "s"),
    "train": ("s", "s/step", "sample/s", "token/s", "step/s", "s/epoch"),
    "fine-tune": ("s", "s/step", "sample/s", "token/s", "step/s", "s/epoch"),
    "lora": ("s", "s/step", "sample/s", "token/s", "step/s", "s/epoch"),
    "classify": ("sample/s", "s/sample", "s", "ms/sample"),
    "detect": ("sample/s", "s/sample", "s", "ms/sample"),
    "embed": ("sample/s", "token/s", "request/s", "s", "s/sample"),
    "transcribe": ("s", "x"),
    "pictures": ("s/picture", "s/step", "step/s", "picture/s", "s"),
    "tables": ("s",),
}
_SPELLINGS = {
    "tokens/s": "token/s", "tok/s": "token/s", "t/s": "token/s", "samples/s": "sample/s", "images/s": "sample/s",
    "image/s": "sample/s", "img/s": "sample/s", "fps": "sample/s", "texts/s": "sample/s", "text/s": "sample/s",
    "requests/s": "request/s", "req/s": "request/s", "sentence/s": "sample/s", "sentences/s": "sample/s",
    "s/image": "s/picture", "pictures/s": "picture/s", "it/s": "step/s", "steps/s": "step/s", "s/it": "s/step",
    "iteration/s": "step/s", "seconds": "s", "second": "s", "sec": "s", "min": "minutes", "h": "hours", "hour": "hours",
    "minute": "minutes", "x real time": "x", "times real time": "x", "rtf": "x",
}  # fmt: skip
# Time units for whole runs, in seconds.
LONG = {"s": 1.0, "ms": 1e-3, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}


def plain_unit(unit: str, kind: str) -> str:
    """Return a unit as UNITS spells it. Raises UnclearJobError if a kind has no such unit."""
    text = re.sub(r" (a|per) second$", "/s", unit.strip().replace(" /", "/"))
    text = _SPELLINGS.get(text.lower(), text)
    units = UNITS.get(kind, ())
    if not text:
        return units[0]
    if kind == "pictures" and text == "sample/s":
        text = "picture/s"
    if kind in ("classify", "detect") and text in ("s/picture", "picture/s"):
        text = text.replace("picture", "sample")
    if text not in units and text not in LONG:
        raise UnclearJobError(f"unit {unit!r} is not one of {', '.join(units)} for {kind}")
    return text


def seconds_per_unit(situation: Situation, unit: str) -> tuple[float, bool]:
    """Return the factor from one item's time to a unit, and True for a rate.

    A rate is the factor over the time; a time is the factor times it. Raises UnclearJobError if a size
    is missing.
    """
    job, inputs = situation.job, situation.inputs
    kind = job.kind
    unit = plain_unit(unit, kind)
    if unit in LONG and unit != "s":
        factor, _ = seconds_per_unit(situation, "s")
        return factor / LONG[unit], False
    if kind == "decode":
        tokens = job.amount("tokens_out") or job.amount("samples")
        return {"token/s": (1.0, True), "s/token": (1.0, False), "ms/token": (1e3, False)}.get(unit) or (
            _require(tokens, "tokens_out"),
            False,
        )
    if kind == "prompt":
        return (inputs["tokens_in"], True) if unit == "token/s" else (1.0, False)
    if kind == "serve":
        if unit == "token/s":
            return 1.0, True
        if unit == "request/s":
            return 1 / inputs["tokens_out"], True
        return _require(job.amount("samples"), "samples") * inputs["tokens_out"], False
    if kind in TRAINING:
        if unit == "s/epoch":
            return _require(job.amount("samples"), "samples"), False
        if unit == "s":
            return _require(run_length(situation), "samples or steps"), False
        return {
            "s/step": (inputs["batch"], False),
            "step/s": (1 / inputs["batch"], True),
            "sample/s": (1.0, True),
            "token/s": (inputs["tokens_per_sample"], True),
        }[unit]
    if kind in ("classify", "detect"):
        if unit == "s":
            return inputs["samples"] or 1.0, False
        return {"sample/s": (1.0, True), "s/sample": (1.0, False), "ms/sample": (1e3, False)}[unit]
    if kind == "embed":
        if unit == "s":
            return _require(inputs["samples"] or None, "samples"), False
        return {"token/s": (inputs["tokens_per_sample"], True), "s/sample": (1.0, False)}.get(unit, (1.0, True))
    if kind == "transcribe":
        return (inputs["audio_s"], True) if unit == "x" else (1.0, False)
    if kind == "pictures":
        return {
            "s/picture": (1.0, False),
            "picture/s": (1.0, True),
            "s/step": (1 / inputs["steps"], False),
            "step/s": (inputs["steps"], True),
            "s": (inputs["pictures"], False),
        }[unit]
    return 1.0, False


def _require(value: float | None, name: str) -> float:
    if not value:
        raise UnclearJobError(f"work.{name} is missing, so a whole run has no length")
    return value


def item_time(situation: Situation, value: float, unit: str) -> float:
    """Convert a value in a unit to seconds for one item."""
    factor, rate = seconds_per_unit(situation, unit)
    return factor / value if rate else value / factor


def in_unit(situation: Situation, time: float, unit: str) -> float:
    """Convert seconds for one item to a unit."""
    factor, rate = seconds_per_unit(situation, unit)
    return factor / time if rate else factor * time
