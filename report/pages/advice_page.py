"""Build the page "Do I need one?": a form to fill in, eight examples, and held-out errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from report.advice.answers import CALIBRATION, FEW, TIGHT, Answer, read_calibration
from report.advice.calibration import FEWEST_SOURCES
from report.advice.choices import OWNED_HOURS, Advice, Wish, compare, example_job, read_words
from report.advice.export import script_text, tables
from report.advice.jobs import TRAINING, run_length
from report.advice.nearest import nearest_outcomes
from report.advice.outcomes import Outcome, read_outcomes
from report.advice.sentences import plain_number, say_advice, time_unit, two_figures, value_slots
from report.advice.units import LONG
from report.pages.markdown import Markdown, identifier, link
from report.pages.site_sources import Page
from report.pages.verdict_words import NOTHING, PREDICTED, claim_entry
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
                advice_context(calibration, compare_examples(path), read_outcomes()),
                key="jobs", files={DATA: script_text(calibration, data)})  # fmt: skip


def advice_context(
    calibration: Mapping[str, Any], compared: Mapping[str, Advice], outcomes: Sequence[Outcome]
) -> dict[str, Any]:
    """Build the template context. compared: from `compare_examples`."""
    words = read_words()
    return {
        "examples": [
            _example(example, advice, outcomes)
            for example, advice in zip(words["examples"], compared.values(), strict=True)
        ],
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


@cache
def compare_examples(path: Path | None = None) -> Mapping[str, Advice]:
    """Compare the listed machines for each example, by the example's id. path: as in `advice_page`."""
    words, calibration = read_words(), read_calibration(path or CALIBRATION)
    return {
        str(example["id"]): compare(
            example_job(example, words["machines"][0]),
            Wish(str(example["kind"]), float(example["wish"])),
            words["machines"],
            calibration,
        )
        for example in words["examples"]
    }


def example_rows(path: Path | None, verdicts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each example and the cheapest machine that does it; examples without one are left out."""
    by_id = {str(verdict["id"]): verdict for verdict in verdicts}
    rows = []
    for example in read_words()["examples"]:
        best = compare_examples(path)[str(example["id"])].best
        if best is None or best.value is None:
            continue
        slots = value_slots(best.job.kind, best.value)
        rows.append(
            {
                "id": identifier(str(example["id"])),
                "job": str(example["title"]),
                "hardware": best.job.hardware,
                "rate": f"{slots['value']} ({slots['low']} to {slots['high']})",
                "price": _job_price(best),
                "sure": f"{PREDICTED.sign} {PREDICTED.name}, off by {percent(best.error)}",
                "claims": [claim_entry(by_id[name]) for name in example["claims"] if name in by_id],
            }
        )
    return rows


def _job_price(answered: Answer) -> str:
    """Return what a job costs where the machine is rented, else the chip's launch price; '–' if neither is known."""
    if answered.usd_per_hour is not None:
        if answered.seconds is not None:
            return f"{two_figures(answered.seconds.middle / LONG['hours'] * answered.usd_per_hour)} USD, rented"
        return f"{two_figures(answered.usd_per_hour)} USD an hour, rented"
    return f"{plain_number(answered.usd)} USD at launch" if answered.usd is not None else NOTHING


def examples_for_claim(claim: str) -> list[dict[str, str]]:
    """Return the examples whose answer a claim bears on."""
    examples = [example for example in read_words()["examples"] if claim in example["claims"]]
    return [{"id": identifier(str(example["id"])), "title": str(example["title"])} for example in examples]


def percent(share: float) -> str:
    return f"{share:.0%}"


def kind_title(kind: str) -> str:
    words = read_words()
    return str(words["kinds"][kind]["title"] if kind in words["kinds"] else words["other_kinds"][kind])


def _example(example: Mapping[str, Any], advice: Advice, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return an example's title and sentences, and the published runs nearest to the machine to choose."""
    situation = advice.best.situation if advice.best else None
    return {
        "id": identifier(str(example["id"])),
        "title": str(example["title"]),
        "sentences": say_advice(advice),
        "claims": [identifier(name) for name in example["claims"]],
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
