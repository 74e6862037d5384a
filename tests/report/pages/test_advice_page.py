"""The page "Do I need one?": the script agrees with Python, the address keeps the form, and no script is needed."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import expect

from report.advice.answers import Answer, answer, read_calibration
from report.advice.choices import Wish, compare, read_words
from report.advice.export import page_jobs, scripts, tables
from report.advice.formulas import FORMULAS
from report.advice.nearest import nearest_outcomes
from report.advice.outcomes import read_outcomes
from report.advice.sentences import cost, plain_number, say_advice, say_answer, two_figures, with_article
from report.pages.advice_page import advice_page
from tests.report.pages.conftest import Visit

JOBS, ADVISED = 2000, 60
# Sizes that jobs of a kind have, for random jobs.
SIZES = {
    "decode": ("tokens_in", "tokens_out"),
    "serve": ("users", "tokens_in", "tokens_out"),
    "train": ("samples", "batch", "tokens_per_sample", "pixels"),
    "fine-tune": ("samples", "batch", "tokens_per_sample", "pixels"),
    "lora": ("samples", "batch", "tokens_per_sample", "pixels"),
    "classify": ("samples", "batch", "pixels"),
    "detect": ("samples", "batch", "pixels"),
    "embed": ("samples", "batch", "tokens_per_sample"),
    "transcribe": ("audio_s", "batch"),
    "pictures": ("pictures", "pixels", "steps", "batch"),
    "tables": ("rows", "columns", "trees", "leaves"),
}
# Answers in the page, with advice on all machines for jobs that ask for it.
ANSWER = """(jobs) => jobs.map(({ job, machine, wish, advised }) => {
  const each = adviser.answer(job, adviser.tables.machines[machine]);
  const { value, time, parts, room, needed, fits, cost, least } = each;
  const said = wish && adviser.sayAnswer(each, wish);
  return { value, time, parts, room, needed, fits, cost, least, said,
    advice: advised ? adviser.sayAdvice(adviser.compare(job, wish)) : null };
})"""


def random_job(rng: random.Random, page_tables: Mapping[str, Any]) -> tuple[Any, Wish, dict[str, Any]]:
    """Return a random job for Python, a wish, and the same job for the page."""
    words = read_words()
    jobs = page_jobs()
    key = rng.choice(list(jobs))
    model = rng.choice(list(jobs[key]))
    job = jobs[key][model]
    place = rng.randrange(len(words["machines"]))
    sizes = {name: 10 ** rng.uniform(0, 6) for name in SIZES[job.kind] if rng.random() < 0.7}
    formats = words["kinds"][job.kind]["formats"]
    chosen = rng.randrange(len(formats)) if formats and rng.random() < 0.5 else None
    precision = job.precision if chosen is None else formats[chosen]
    job = replace(job, hardware=words["machines"][place], precision=precision, work={**job.work, **sizes})
    wish = Wish(job.kind, 10 ** rng.uniform(-2, 4))
    listed = page_tables["kinds"][job.kind]["formats"]
    return job, wish, {
        "job": {"key": key, "model": model, "format": None if chosen is None else listed[chosen], "sizes": sizes},
        "machine": place,
        "wish": {"kind": job.kind, "amount": wish.amount},
    }  # fmt: skip


def numbers(answered: Answer) -> dict[str, float]:
    """Return all numbers of an answer by name, as far as they are known."""
    ends: dict[str, float] = {}
    for name, each in (("value", answered.value), ("time", answered.time)):
        if each is not None:
            ends |= {f"{name} {place}": end for place, end in enumerate((each.low, each.middle, each.high))}
    price = cost(answered)
    return ends | dict(answered.parts) | {"room": answered.room} | ({} if price is None else {"cost": price})


def page_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    ends = {f"{name} {place}": end for name in ("value", "time") for place, end in enumerate(record[name] or ())}
    price = {} if record["cost"] is None else {"cost": record["cost"]}
    return ends | record["parts"] | {"room": record["room"]} | price


def test_page_agrees_with_python_on_random_jobs(site: Path, visit: Visit) -> None:
    """Numbers agree to 1e-9, and sentences letter by letter, in one page load and one call."""
    rng = random.Random(5)
    calibration, machines = read_calibration(), read_words()["machines"]
    page_tables = tables(calibration)
    jobs = [random_job(rng, page_tables) for _ in range(JOBS)]
    sent_jobs = [{**record, "advised": number < ADVISED} for number, (_, _, record) in enumerate(jobs)]
    records = visit(site / "advice.html").evaluate(ANSWER, sent_jobs)
    kinds, refused = set(), 0
    for (job, wish, sent), record in zip(jobs, records, strict=True):
        expected = answer(job, calibration)
        assert page_numbers(record) == pytest.approx(numbers(expected), rel=1e-9, abs=0), sent
        assert record["fits"] == expected.fits, sent
        assert record["said"] == say_answer(expected, wish), sent
        if record["advice"] is not None:
            assert record["advice"] == say_advice(compare(job, wish, machines, calibration)), sent
        kinds.add(job.kind)
        refused += expected.value is None
    assert kinds == set(SIZES) and 0 < refused < JOBS / 2


def test_address_restores_the_form(site: Path, visit: Visit) -> None:
    page = visit(site / "advice.html", permissions=["clipboard-read", "clipboard-write"])
    page.select_option("#advice-what", "lora")
    page.select_option("#advice-model", "Qwen3 14B")
    page.fill("#advice-size", "1234")
    page.fill("#advice-wish", "7.5")
    page.select_option("#advice-format", label="16 bits (bf16)")
    page.select_option("#advice-machine", "RTX 4090")
    sentence = page.locator("#advice-text").inner_text()
    assert "RTX 4090" in sentence
    page.click("button.copy")
    expect(page.locator("button.copy")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    reopened = visit(site / f"advice.html#{copied.partition('#')[2]}")
    fields = reopened.locator("#adviser :is(select, input)").all()
    assert [field.input_value() for field in fields] == [
        "lora",
        "Qwen3 14B",
        "1234",
        "7.5",
        "16 bits (bf16)",
        "RTX 4090",
    ]
    assert reopened.locator("#advice-text").inner_text() == sentence
    assert reopened.console_lines == []


def test_examples_fill_the_form_and_say_the_same(site: Path, visit: Visit) -> None:
    page = visit(site / "advice.html")
    for example in read_words()["examples"]:
        page.get_by_role("link", name=example["title"]).click()
        expect(page.locator("#advice-what")).to_have_value(example["id"])
        shown_text = f"{page.locator('#advice-text').inner_text()} {page.locator('#advice-more').inner_text()}".strip()
        written = page.locator(f"#job-{example['id']} + p").inner_text()
        assert shown_text == written
    assert page.console_lines == []


def test_form_works_by_keyboard_and_refuses_nonsense(site: Path, visit: Visit) -> None:
    page = visit(site / "advice.html#?what=nonsense&model=nothing&machine=no&size=-3")
    assert page.locator("#advice-what").input_value() == "chat"
    assert page.locator("#advice-text").inner_text() == "Give a size and a wish above 0."
    page.focus("#advice-size")
    page.keyboard.press("Control+A")
    page.keyboard.type("200")
    page.keyboard.press("Tab")
    page.keyboard.type("1000000")
    assert page.locator("#advice-text").inner_text().startswith("No machine in the list does that.")
    assert page.evaluate("document.activeElement.id") == "advice-wish"
    assert page.console_lines == []


@pytest.mark.parametrize(
    ("width", "shown"), [(320, "ol.candidates"), (800, "svg.advice-chart"), (1300, "svg.advice-chart")]
)
def test_picture_is_a_list_on_phones(site: Path, visit: Visit, width: int, shown: str) -> None:
    page = visit(site / "advice.html", width)
    assert page.locator("#advice-picture > :is(ol.candidates, svg.advice-chart)").count() == 1
    assert page.locator(shown).is_visible()
    assert page.locator("#advice-table tbody tr").count() == len(read_words()["machines"])
    boxes = page.evaluate(
        "[...document.querySelectorAll('.advice-chart text')].map((text) => text.getBoundingClientRect().toJSON())"
    )
    assert all(box["left"] >= 0 and box["right"] <= width for box in boxes)


def test_page_without_a_script_has_eight_sentences(site: Path, visit: Visit) -> None:
    page = visit(site / "advice.html", java_script_enabled=False)
    assert not page.locator("#adviser").is_visible() and page.locator("noscript").count() == 1
    text = BeautifulSoup((site / "advice.html").read_text(encoding="utf-8"), "html.parser")
    paragraphs = [heading.find_next("p").get_text() for heading in text.select("h3[id^=job-]")]
    assert len(paragraphs) == 8
    assert all(" to " in paragraph and "{" not in paragraph for paragraph in paragraphs)
    rows = text.find(string="Median error").find_parent("table").select("tbody tr")
    assert len(rows) == len(read_calibration()["kinds"])
    assert len(text.select("h3[id^=job-] ~ p a[href^=https]")) >= 14


def test_page_takes_the_constants_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "advice.json"
    path.write_text(json.dumps({**read_calibration(), "date": "2031-02-03"}), encoding="utf-8")
    page = advice_page(path)
    assert page.context["date"] == "2031-02-03"
    assert "constants of 2031-02-03" in page.files["site/advice-data.js"]


def test_scripts_have_no_unknown_names() -> None:
    """Each generated function uses inputs and constants alone."""
    for group, bodies in scripts().items():
        for kind, body in bodies.items():
            assert "Piecewise" not in body and "undefined" not in body, (group, kind)
    assert set(json.loads(json.dumps(tables(read_calibration())))["kinds"]) < set(FORMULAS)


def test_nearest_outcomes_come_from_different_sources() -> None:
    outcomes = read_outcomes()
    situation = outcomes[0].situation
    first, second = nearest_outcomes(situation, outcomes)
    assert first.source != second.source
    assert first.situation.job.kind == second.situation.job.kind == situation.job.kind
    assert first.situation.inputs["parameters"] == situation.inputs["parameters"]


def test_numbers_and_names_read_well() -> None:
    assert [two_figures(value) for value in (6.0, 0.852, 5123, 99.6, 1234567)] == [
        "6.0",
        "0.85",
        "5,100",
        "100",
        "1,200,000",
    ]
    assert [plain_number(value) for value in (12, 0.5, 1e6)] == ["12", "0.5", "1,000,000"]
    names = ("RTX 3060", "Ryzen 7", "EPYC 9554", "M1 16GB", "T4", "2x Xeon", "Instinct")
    assert [with_article(name).split()[0] for name in names] == ["an", "a", "an", "an", "a", "2x", "an"]
