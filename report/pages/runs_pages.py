"""Pages by GPU, by job and by model: ratings, prices, and every run that others published."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from report.advice.chips import GIB, Machine
from report.advice.outcomes import Outcome, read_outcomes
from report.advice.prices import hourly_price_lists
from report.advice.sentences import time_unit, two_figures
from report.formatting import capitalize, format_count, with_unit
from report.pages.advice_page import kind_title
from report.pages.markdown import Markdown, identifier, link
from report.pages.site_sources import Page
from report.pages.verdict_words import NOTHING

FOLDER = "runs"
# Fewest runs for a page, by GPU or processor, and by model.
FEWEST_BY_CHIP, FEWEST_BY_MODEL = 10, 30
_LAPTOPS = ("apple", "cpu-laptop", "gpu-laptop")


@dataclass(frozen=True)
class Topic:
    """A page's subject. group: heading in the index; machine: the chip, on a chip's page."""

    group: str
    key: str
    title: str
    outcomes: Sequence[Outcome]
    machine: Machine | None = None

    @property
    def path(self) -> str:
        return f"{FOLDER}/{identifier(self.key)}"


@cache
def topics() -> tuple[Topic, ...]:
    """Return all subjects with enough published runs: chips, kinds of machines, jobs and models."""
    outcomes = read_outcomes()
    chips: dict[str, list[Outcome]] = {}
    kinds: dict[str, list[Outcome]] = {}
    models: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        situation = outcome.situation
        kinds.setdefault(situation.job.kind, []).append(outcome)
        if situation.machine.rated:
            chips.setdefault(situation.machine.name, []).append(outcome)
        if situation.model:
            models.setdefault(situation.model.name, []).append(outcome)
    laptops = [outcome for outcome in outcomes if outcome.situation.machine.kind in _LAPTOPS]
    return (
        *(
            Topic("By GPU or processor", _page_key(name), name, own, own[0].situation.machine)
            for name, own in sorted(chips.items(), key=lambda item: -len(item[1]))
            if len(own) >= FEWEST_BY_CHIP
        ),
        Topic("By GPU or processor", "laptops", "Laptops and Apple’s computers", laptops),
        *(Topic("By job", f"job-{kind}", capitalize(kind_title(kind)), own) for kind, own in kinds.items()),
        *(
            Topic("By model", f"model-{_page_key(name)}", _usual_spelling(own), own)
            for name, own in sorted(models.items(), key=lambda item: -len(item[1]))
            if len(own) >= FEWEST_BY_MODEL
        ),
    )


def _usual_spelling(outcomes: Sequence[Outcome]) -> str:
    """Return the model's name as most sources write it."""
    return Counter(outcome.row["model"] for outcome in outcomes).most_common(1)[0][0]


def _page_key(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def runs_pages() -> Iterator[Page]:
    """Yield the index with prices, and a page per subject."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for topic in topics():
        entry = {"path": Markdown(topic.path), "title": topic.title, "count": format_count(len(topic.outcomes), "run")}
        groups.setdefault(topic.group, []).append(entry)
    yield Page(f"{FOLDER}/index", "runs-index", "Published runs and prices",
               "Prices, memory and published runs by GPU, by job and by model.",
               {"groups": groups, "prices": _price_rows()}, key="jobs")  # fmt: skip
    for topic in topics():
        yield _topic_page(topic)


def _topic_page(topic: Topic) -> Page:
    tables = [
        {"title": "" if topic.group == "By job" else capitalize(kind_title(kind)),
         "rows": [_run_cells(outcome) for outcome in own]}
        for kind, own in _group_by_kind(topic.outcomes).items()
    ]  # fmt: skip
    sources = len({outcome.source for outcome in topic.outcomes})
    return Page(topic.path, "runs", topic.title,
                f"{topic.title}: {format_count(len(topic.outcomes), 'published run')} from {sources} sources.",
                {"facts": _chip_facts(topic.machine) if topic.machine else [], "tables": tables,
                 "is_chip": topic.machine is not None,
                 "count": format_count(len(topic.outcomes), "run"), "sources": format_count(sources, "source")},
                key="jobs", toc=len(tables) > 2)  # fmt: skip


def _group_by_kind(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Group runs by job; within a job, sort by model and then from the fastest to the slowest."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: (outcome.row["model"].lower(), outcome.time)):
        groups.setdefault(outcome.situation.job.kind, []).append(outcome)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def _run_cells(outcome: Outcome) -> dict[str, str]:
    row, situation = outcome.row, outcome.situation
    value, unit = float(row["value"]), row["unit"]
    if unit == "s":
        unit, size = time_unit(value)
        value /= size
    number = situation.machine.count
    software = row["software"] or NOTHING
    return {
        "model": row["model"] or row["software"],
        "hardware": (f"{number} × " if number > 1 else "") + situation.machine.name, "number": f"{number}",
        "format": situation.format.name if row["precision"] else NOTHING, "software": software,
        "result": f"{two_figures(value)} {unit}", "by": link(f"{row['measured_by']}, {row['date'][:4]}", row["url"]),
    }  # fmt: skip


def _chip_facts(machine: Machine) -> list[tuple[str, str]]:
    """Return a chip's ratings and prices: name and value."""
    facts = [
        ("Memory", f"{machine.memory_bytes / GIB:.0f} GB" if not machine.is_cpu and machine.memory_told else ""),
        ("Rated memory bandwidth", with_unit(machine.bandwidth, "B/s")),
        ("Rated for float32", with_unit(machine.vector_flops, "FLOP/s")),
        ("Rated at most, dense", with_unit(machine.matrix_flops, "FLOP/s")),
        ("Power", with_unit(machine.power_w, "W") if machine.power_w else ""),
        ("Year", str(machine.year)),
        ("Price at launch", f"{machine.usd:,.0f} USD" if machine.usd else ""),
        ("Rented, an hour", _rent_text(machine)),
    ]
    return [(name, value) for name, value in facts if value]


def _rent_text(machine: Machine) -> str:
    """Return the median hourly price and its range: '2.73 USD (1.10 to 5.12, 14 offers)'; '' without an offer."""
    prices = hourly_price_lists().get(machine.chip, ())
    if not prices:
        return ""
    spread = f" ({min(prices):.2f} to {max(prices):.2f}, {format_count(len(prices), 'offer')})"
    return f"{median(prices):.2f} USD" + (spread if len(prices) > 1 else "")


def _price_rows() -> list[Mapping[str, Any]]:
    """Return a row per GPU with a price, from the least memory to the most."""
    machines = {outcome.situation.machine.chip: outcome.situation.machine for outcome in read_outcomes()}
    pages = {topic.machine.chip: topic for topic in topics() if topic.machine}
    priced = [machine for machine in machines.values() if not machine.is_cpu and (machine.usd or _rent_text(machine))]
    return [
        {
            "name": machine.name, "path": Markdown(pages[machine.chip].path) if machine.chip in pages else "",
            "memory": f"{machine.memory_bytes / GIB:.0f} GB", "bandwidth": with_unit(machine.bandwidth, "B/s"),
            "year": str(machine.year), "launch": f"{machine.usd:,.0f}" if machine.usd else NOTHING,
            "rent": _rent_text(machine) or NOTHING,
        }
        for machine in sorted(priced, key=lambda machine: (machine.memory_bytes, machine.bandwidth))
    ]  # fmt: skip
