"""Command `advise`: answer a reader's own job on a machine, or find the cheapest machine that meets a wish."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.schema import did_you_mean
from report.advice.answers import answer, answer_record, read_calibration
from report.advice.chips import find_machine
from report.advice.choices import OwnResult, Wish, compare, kind_words, read_words
from report.advice.jobs import WORK, Job, UnclearJobError
from report.advice.terminal import format_answers
from report.advice.this_machine import THIS, machine_text, measure_here
from report.advice.units import LONG, UNITS, plain_unit

_TIME = re.compile(r"([\d.]+) ?(s|seconds?|m|min|minutes?|h|hours?|d|days?)")
_TIMES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RESULT = re.compile(r"(\d[\d,]*(?:\.\d+)?|\.\d+) ?([a-z].*)?")


def answer_command(arguments: Namespace) -> None:
    """Run the command. Raises StudyError for a job that makes no sense, or a file that cannot be read."""
    calibration = read_calibration()
    if arguments.jobs:
        for line in answer_file(arguments.jobs, calibration):
            print(line)
        return
    if not arguments.kind:
        raise StudyError("advise: tell the job, such as --chat or --train (`--help` lists them), or give --jobs FILE")
    job, wish = job_from_options(arguments), wish_from_options(arguments)
    own = parse_result(arguments.normal, job.kind) if arguments.normal else None
    measured = measure_here(arguments.kind, machine_text(THIS), calibration) if arguments.measure else None
    if not arguments.on:
        if own is not None:
            raise StudyError("advise: --normal needs a machine: tell it by --on")
        advice = compare(job, wish, _affordable(arguments.budget), calibration)
        if all(each.situation is None for each in advice.answers):
            raise StudyError(f"advise: {advice.answers[0].refused}")
        print(format_answers(job.kind, [], advice, calibration, own, measured))
        return
    answers = [answer(replace(job, hardware=machine_text(name)), calibration) for name in arguments.on]
    if all(each.situation is None for each in answers):
        raise StudyError(f"advise: {answers[0].refused}")
    values = [each for each in answers if each.value]
    if own and values and all(own.item_seconds(each) is None for each in values):
        raise StudyError("advise: --normal needs the length of the job: tell its size by --work")
    print(format_answers(job.kind, answers, None, calibration, own, measured))


def answer_file(path: Path, calibration: Mapping[str, Any]) -> Iterator[str]:
    """Yield a JSON line for each line in a file with jobs. Raises StudyError for a line that is no JSON object."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise StudyError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise StudyError(f"{path}, line {number}: must be a JSON object")
        yield json.dumps(answer_record(record, calibration), ensure_ascii=False)


def parse_time(text: str) -> float:
    """Parse a time such as '2h' or '30 min' to seconds. Raises StudyError."""
    match = _TIME.fullmatch(text.strip().lower())
    try:
        seconds = float(match[1]) * _TIMES[match[2][0]] if match else 0.0
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e12:
        raise StudyError(f"{text!r} is not a time such as 30min, 2h or 3d")
    return seconds


def parse_result(text: str, kind: str) -> OwnResult:
    """Parse a reader's own time or rate, such as '30h', '8 token/s' or '2.3 s/step'. Raises StudyError."""
    if _TIME.fullmatch(text.strip().lower()):
        return OwnResult(parse_time(text), "s", text)
    match = _RESULT.fullmatch(text.strip().lower())
    amount = float(match[1].replace(",", "")) if match and match[2] else 0.0
    if not match or not 0 < amount < 1e12:
        raise StudyError(f"--normal {text!r} is neither a time such as 30h nor a rate such as 8 {UNITS[kind][0]}")
    try:
        return OwnResult(amount, plain_unit(match[2], kind), text)
    except UnclearJobError as error:
        raise StudyError(f"--normal {text}: {error}") from error


def job_from_options(arguments: Namespace) -> Job:
    """Read the job from the command's options, with the usual length for a run. Raises StudyError for a bad size."""
    work: dict[str, float | None] = dict.fromkeys(WORK)
    for setting in arguments.work:
        name, _, value = setting.partition("=")
        if name not in WORK:
            raise StudyError(f"--work {setting}: no size is called {name!r}{did_you_mean(name, list(WORK))}")
        try:
            number = float(value)
        except ValueError:
            raise StudyError(f"--work {setting}: must be NAME=NUMBER") from None
        if not 0 < number < 1e18:
            raise StudyError(f"--work {setting}: must be above 0")
        work[name] = number
    words = kind_words(arguments.kind)
    if words["wish"] == "time" and not any(work[name] for name in ("samples", "steps", words["size"])):
        work[words["size"]] = float(words["usual"]) * float(words.get("size_factor", 1))
    usual_model = arguments.software or "XGBoost" if arguments.kind == "tables" else ""
    return Job(
        id="",
        kind=arguments.kind,
        model=arguments.model or usual_model,
        hardware="",
        parameters=arguments.parameters,
        precision=arguments.precision,
        work=work,
        software=arguments.software,
        year=arguments.year,
        unit=words["unit"],
    )


def wish_from_options(arguments: Namespace) -> Wish:
    """Read the wish: a rate by --want or a time by --within, else what readers usually want. Raises StudyError."""
    words = kind_words(arguments.kind)
    kind = arguments.kind if arguments.kind in read_words()["kinds"] else "decode"
    if words["wish"] == "rate":
        if arguments.within:
            raise StudyError(f'advise: --within is for a time; say --want, such as "20 {words["unit"]}"')
        match = _RESULT.fullmatch((arguments.want or str(words["usual_wish"])).strip().lower())
        amount = float(match[1].replace(",", "")) if match else 0.0
        try:
            same = match is not None and plain_unit(match[2] or "", kind) == words["unit"]
        except UnclearJobError:
            same = False
        if not same or not 0 < amount < 1e12:
            raise StudyError(f'--want {arguments.want!r} is not a rate such as "20 {words["unit"]}"')
        return Wish(kind, amount)
    if arguments.want:
        raise StudyError("advise: --want is for a rate; say --within, such as 2h")
    hours = parse_time(arguments.within) / LONG["hours"] if arguments.within else float(words["usual_wish"])
    return Wish(kind, hours)


def _affordable(budget: float | None) -> list[str]:
    """List the machines in advice.yaml whose launch price is within a budget in USD; machines without a price stay."""
    machines: list[str] = list(read_words()["machines"])
    return machines if budget is None else [name for name in machines if (find_machine(name).usd or 0) <= budget]
