"""Build the page "Do I need one?": a form to fill in, eight examples, and held-out errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from report.advice.answers import CALIBRATION, FEW, TIGHT, read_calibration
from report.advice.calibration import FEWEST_SOURCES
from report.advice.choices import OWNED_HOURS, Wish, compare, example_job, read_words
from report.advice.export import script_text, tables
from report.advice.jobs import TRAINING, run_length
from report.advice.nearest import nearest_outcomes
from report.advice.outcomes import Outcome, read_outcomes
from report.advice.sentences import plain_number, say_advice, time_unit, two_figures
from report.pages.markdown import Markdown, identifier, link
from report.pages.site_sources import Page
from report.publish.claimreview import script_json

DATA = "site/advice-data.js"
# Number of sources in the list.
WORST = 10


@cache
def advice_page(path: Path | None = None) -> Page:
    """Build the page, and the script that it loads. path: output of `report calibrate`, None for data/advice.json."""
    calibration = read_calibration(path or CALIBRATION)
    data = script_json(tables(calibration), separators=(",", ":"))
    return Page("advice", "advice", "Do I need one?",
                "Tell your job: what it needs, how long it takes on which machine, and how sure that is.",
                advice_context(calibration, read_outcomes()),
                key="jobs", files={DATA: script_text(calibration, data)})  # fmt: skip


def advice_context(calibration: Mapping[str, Any], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Build the template context."""
    words = read_words()
    return {
        "examples": [_example(example, calibration, outcomes) for example in words["examples"]],
        "errors": [_error_row(kind, record["held_out"]) for kind, record in calibration["kinds"].items()],
        "worst": _worst_sources(calibration, outcomes),
        "date": str(calibration["date"]),
        "outcomes": plain_number(calibration["outcomes"]),
        "sources": plain_number(calibration["sources"]),
        "median_error": percent(calibration["median_error"]),
        "share": percent(calibration["share"]),
        "fewest": str(FEWEST_SOURCES),
        "wider": plain_number(FEW),
        "tight": percent(TIGHT),
        "years": plain_number(OWNED_HOURS / 365 / 24),
        "machines": str(len(words["machines"])),
        "data": Markdown(DATA),
    }


def percent(share: float) -> str:
    return f"{share:.0%}"


def kind_title(kind: str) -> str:
    words = read_words()
    return str(words["kinds"][kind]["title"] if kind in words["kinds"] else words["other_kinds"][kind])


def _example(example: Mapping[str, Any], calibration: Mapping[str, Any], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return an example's title and sentences, and the published runs nearest to the machine to choose."""
    machines = read_words()["machines"]
    job = example_job(example, machines[0])
    advice = compare(job, Wish(job.kind, float(example["wish"])), machines, calibration)
    situation = advice.best.situation if advice.best else None
    return {
        "id": identifier(str(example["id"])),
        "title": str(example["title"]),
        "sentences": say_advice(advice),
        "nearest": [outcome_link(each) for each in nearest_outcomes(situation, outcomes)] if situation else [],
    }


def outcome_link(outcome: Outcome) -> Markdown:
    """Return a published run as a link: model, hardware, value and author."""
    row = outcome.row
    value = float(row["value"])
    name, size = time_unit(value) if row["unit"] == "s" else (row["unit"], 1.0)
    if row["unit"] == "s":
        name += _size_text(outcome)
    author = f"{row['measured_by']}, {row['date'][:4]}"
    return link(f"{row['model']} on {row['hardware']}: {two_figures(value / size)} {name}, by {author}", row["url"])


def _size_text(outcome: Outcome) -> str:
    """Return the size that belongs to the time for a whole run: ' for 5.0 minutes of sound', ' for 10,500,000 rows'."""
    job = outcome.situation.job
    words = read_words()["kinds"].get(job.kind)
    size = words and (run_length(outcome.situation) if job.kind in TRAINING else job.amount(words["size"]))
    if not size:
        return ""
    if words["size"] != "audio_s":
        return f" for {plain_number(size)} {words['size'].replace('_', ' ')}"
    name, seconds = time_unit(size)
    return f" for {two_figures(size / seconds)} {name} of sound"


def _error_row(kind: str, held_out: Mapping[str, Any]) -> dict[str, str]:
    return {
        "kind": kind_title(kind),
        "outcomes": str(held_out["outcomes"]),
        "sources": str(held_out["sources"]),
        "error": percent(held_out["median_error"]),
        "coverage": percent(held_out["coverage"]),
        "width": two_figures(held_out["width"]),
    }


def _worst_sources(calibration: Mapping[str, Any], outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """List the sources that were predicted worst when they were held out."""
    addresses = {(each.situation.job.kind, each.source): each.row["url"] for each in reversed(outcomes)}
    errors = [
        (errors["median"], kind, source, errors["outcomes"])
        for kind, record in calibration["kinds"].items()
        for source, errors in record["held_out"]["by_source"].items()
    ]
    return [
        {
            "source": link(source, addresses.get((kind, source), "")),
            "kind": kind_title(kind),
            "outcomes": str(number),
            "error": percent(median),
        }
        for median, kind, source, number in sorted(errors, reverse=True)[:WORST]
    ]
