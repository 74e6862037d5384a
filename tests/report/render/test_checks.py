"""The published nodes' report holds what every report must, and each check finds what was spoilt for it."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from report import PACKAGE
from report.data.rows import read_rows
from report.render import strokes
from report.render.figures import Drawing, keep, name_axis
from tests.report.render import checks
from tests.report.render.checks import ALLOWED, CHECKS, Check, Published


@pytest.fixture(scope="session")
def whole(published: Path, published_report: Path) -> Published:
    return Published.of(published / "verdicts.json", published_report)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_published_report_has_no_fault(whole: Published, check: Check) -> None:
    assert list(check(whole)) == []


def test_the_checks_saw_what_there_is(whole: Published) -> None:
    assert len(whole.figures) > 50 and len(whole.lines) > 3000 and len(list(whole.parts())) > 40
    assert len(checks._SPAN.findall(whole.source)) > 100 and whole.source.count("\n: ") > 40


def measured(line: str) -> Callable[[str], str]:
    """A sentence more in the first section of what was measured."""
    return lambda text: re.sub(r"(\n## What was measured(?s:.)*?\n### .*\n)", rf"\1\n{line}\n", text, count=1)


def put(old: str, new: str) -> Callable[[str], str]:
    """Something else in the place of all that is like `old`."""
    return lambda text: re.sub(old, new, text)


MULTIPLES, ONE_NUMBER = checks.multiples_have_their_interval_and_their_base, checks.a_claim_is_told_with_one_number
TEXT, TABLES = checks.nothing_in_the_source_is_more_than_text, checks.every_table_has_its_caption_and_whole_rows
CELLS, WORDS = checks.every_cell_is_told_with_what_it_rests_on, checks.words_are_as_people_write_them
WHOLE = checks.the_page_holds_what_its_source_does
A_TABLE = "\n| a | b |\n|---|---|\n"


@pytest.mark.parametrize(
    ("check", "where", "spoil", "told"),
    [
        (MULTIPLES, "markdown", measured("- It is 3.41 times as fast as before."), "no interval"),
        (MULTIPLES, "markdown", measured("| a | ×123 |"), "no interval"),
        (MULTIPLES, "markdown", measured("- It is 3.41 [3.21, 3.61] times."), "of what"),
        (MULTIPLES, "markdown", measured("- 3.41 [3.21, 3.61] times as fast.\n\n### Next\n"), "multiples alone"),
        (CELLS, "markdown", put(r"\{\.n ", "{.m "), "does not stand on the page"),
        (CELLS, "page", put(r" data-rows=", " rows="), "index.html does not hold"),
        (ONE_NUMBER, "markdown", put(r"(?m)^Found: .*", "Found: 99"), "the opening does not tell"),
        (ONE_NUMBER, "markdown", put(r"(?m)^(\| \[W15\]\(#W15\) \|).*", r"\1 99 |"), "the table does not tell"),
        (
            ONE_NUMBER,
            "markdown",
            put(r"(?m)^(#### \[W15\](?:.*\n(?!#))*?Number\n: +).*", r"\1 99"),
            "its card does not",
        ),
        (WORDS, "markdown", put(r"\Z", "\nNVIDIA H100, cUDA cores, as CUDA\n"), "cUDA"),
        (WORDS, "markdown", put(r"\Z", "\nin place of 1 hours\n"), "1 hours"),
        (WORDS, "markdown", put(r"\Z", "\nx days (days)\n"), "days (days)"),
        (TEXT, "markdown", put(r"\Z", "\nMail me@example.org.\n"), "@"),
        (TEXT, "markdown", put(r"\Z", "\nIt costs $5 and $6.\n"), "$"),
        (TEXT, "markdown", put(r"\Z", "\nLess <b>bold</b>.\n"), "<"),
        (TEXT, "markdown", put(r"\Z", "\n```{python}\n1\n```\n"), "a cell of code"),
        (TEXT, "markdown", put(r"\Z", "\n```{=latex}\n1\n```\n"), "a cell of code"),
        (TEXT, "markdown", put(r"\Z", "\nSo it is `r 1 + 1` here.\n"), "`r"),
        (TEXT, "markdown", put(r"\Z", "\n{{< include secret.txt >}}\n"), "{{<"),
        (TABLES, "markdown", put(r"\Z", f"\n{A_TABLE}| 1 | 2 |\n\nText.\n"), "caption and widths"),
        (TABLES, "markdown", put(r"\Z", f'\n{A_TABLE}\n: It {{.x widths="50 40"}}\n'), "caption and widths"),
        (TABLES, "markdown", put(r"\Z", f'\n{A_TABLE}| 1 | 2 | 3 |\n\n: It {{.x widths="50 50"}}\n'), "cells"),
        (WHOLE, "page", put('<table class="claims"', "<table"), "1 of 1 table.claims"),
        (WHOLE, "page", put("</caption>", " {.claims widths=“6 28”}</caption>"), "stands in it as text"),
        (WHOLE, "page", put("<h2>", "<h2>See ?@tbl-one: "), "?@tbl-one"),
        (WHOLE, "page", put("<figure", "<div"), "figure are missing"),
        (WHOLE, "page", put('<form class="filter"', "<form"), "form.filter are missing"),
        (WHOLE, "page", put("script-src 'sha256-", "script-src 'none"), "its scripts may not run"),
    ],
)
def test_what_is_spoilt_is_found(
    whole: Published, check: Check, where: str, spoil: Callable[[str], str], told: str
) -> None:
    spoilt = spoil(getattr(whole, where))
    assert spoilt != getattr(whole, where)
    changed: dict[str, Any] = {where: spoilt}
    found = list(check(replace(whole, **changed)))
    assert any(told in line for line in found), found


@pytest.mark.parametrize(
    ("check", "line"),
    [
        (MULTIPLES, "- It is 3.41 [3.21, 3.61] times as fast as before, at 2.00 GFLOP/s."),
        (MULTIPLES, "- A product of 1,000 × 1,000 was measured ten times."),
        (TEXT, r"Escaped \@word, \$x\$, \<b\> and [a link](<https://example.org/@a?b=1&c=$2>)."),
        (TEXT, "```bash\nmake study < file\n```"),
        (TABLES, '| a \\| b | c |\n|---:|:---|\n| 1 | |\n\n: It {.x .y widths="50 50"}'),
    ],
)
def test_what_is_sound_is_let_through(whole: Published, check: Check, line: str) -> None:
    assert list(check(replace(whole, markdown=measured(line.replace("\\", r"\\"))(whole.markdown)))) == []


def test_a_number_that_is_not_its_cells_is_found(whole: Published) -> None:
    document = copy.deepcopy(whole.document)
    verdict = next(one for one in document["verdicts"] if one["id"] == "W15")
    verdict["cells"][0]["estimate"] *= 1.1
    assert "W15" in next(CELLS(replace(whole, document=document)))


def test_a_ratio_tells_what_it_is_made_from(whole: Published, published: Path) -> None:
    """G30's number is one time over another: both stand in its card, as the rows have them."""
    card = whole.source.partition("#### [G30]")[2].partition("\n#### ")[0]
    sides = re.findall(r"([\d.]+) ([mµ])s \((\w+), row (\d+)\)", card)
    assert [experiment for *_, experiment, _ in sides] == ["inference", "inference"]
    rows = read_rows(published / "data", {int(row) for *_, row in sides})
    for time, unit, _, row in sides:
        assert float(time) * {"m": 1e-3, "µ": 1e-6}[unit] == pytest.approx(rows[int(row)]["estimate"], rel=5e-3)


# ------------------------------------------------------------------ figures


def titled(axes: Any) -> None:
    name_axis(axes, "x", "size", "B")
    name_axis(axes, "y", "rate", "B/s")


def fair(axes: Any) -> None:
    titled(axes)
    strokes.join(axes, [1, 2, 3], [1, 4, 9], "size", marker="o")
    strokes.intervals(axes, [1, 2, 3], [0, 3, 8], [2, 5, 10])
    axes.text(1, 1, "×1.9 [1.8, 2.0]")


def by_hand(axes: Any) -> None:
    fair(axes)
    axes.plot([0, 1, 2], [3, 1, 2])


def untitled(axes: Any) -> None:
    strokes.points(axes, [1], [2], marker="o")


def unitless(axes: Any) -> None:
    untitled(axes)
    axes.set_xlabel("size").set_gid("title.x.1")
    name_axis(axes, "y", "gain", log=True)


def bare(axes: Any) -> None:
    titled(axes)
    strokes.points(axes, [1, 2], [1, 2], bare=2, marker="o")


def bare_ratio(axes: Any) -> None:
    fair(axes)
    axes.text(1, 2, "×1.9")


JOINED, AXES = checks.points_are_joined_along_what_lies_between_them, checks.every_axis_has_a_title_and_a_unit
INTERVALS = checks.every_mark_has_its_interval_or_the_caption_says_why_not


@pytest.mark.parametrize(
    ("check", "draw", "told"),
    [
        (JOINED, by_hand, "no declared kind: line2d_"),
        (AXES, untitled, "no title: x"),
        (AXES, untitled, "no title: y"),
        (AXES, unitless, "no unit: size"),
        (INTERVALS, bare, "2 marks without an interval"),
        (INTERVALS, bare_ratio, "a bare ratio ×1.9"),
        *((check, fair, None) for check in (JOINED, AXES, INTERVALS)),
    ],
)
def test_a_spoilt_figure_is_found_and_a_fair_one_is_not(
    tmp_path: Path, check: Check, draw: Callable[[Any], None], told: str | None
) -> None:
    def drawn(_shows: Any) -> Figure:
        made = Figure(figsize=(3, 2))
        draw(made.add_axes((0.2, 0.2, 0.7, 0.7)))
        return made

    keep(Drawing("some", {}, drawn, "", ""), tmp_path, None)
    svg = (tmp_path / "some.svg").read_text(encoding="utf-8")
    found = list(check(Published({}, "![Rates.](figures/some.svg)", "", {"some": svg})))
    assert any(told in line for line in found) if told else found == []
    if draw is bare:
        why = "![Rates. No interval is drawn at all: one round.](figures/some.svg)"
        assert list(check(Published({}, why, "", {"some": svg}))) == []
    if check is JOINED and not told:
        (line,) = check(Published({}, "", "", {"some": svg.replace("join.size", "join.models")}))
        assert "joined along models" in line


@pytest.mark.parametrize(
    ("xs", "along", "told"),
    [
        (["mlp", "cnn"], "batch", "do not rise"),
        ([2.0, 1.0], "batch", "do not rise"),
        ([1.0, float("nan")], "batch", "do not rise"),
        ([1.0, 2.0], "model", "may not be joined along 'model'"),
    ],
)
def test_points_are_joined_along_ordered_variables_alone(xs: list[Any], along: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        strokes.join(Figure().add_axes((0, 0, 1, 1)), xs, [1.0, 2.0], along)


# ------------------------------------------------------------------ the program

TYPED, DRAWS = checks.no_number_is_typed_into_prose, checks.only_strokes_draws
ESCAPING = checks.no_template_goes_round_the_escaping


@pytest.mark.parametrize(
    ("check", "name", "text", "told"),
    [
        (TYPED, "a.py", "x = 'products reach 412 GFLOP/s'", "412"),
        (TYPED, "a.py", "x = f'products of {n} reach 41.2% of the peak'", "41.2%"),
        (TYPED, "templates/a.qmd", "Products reach 412 GFLOP/s on << node >>.", "412"),
        (TYPED, "templates/a.qmd", "- [<< claim.id >>](#<< claim.id >>){.tile} in 3,571 of the cases", "3,571"),
        (TYPED, "a.py", '"""Products reach 412 GFLOP/s."""', None),
        (TYPED, "a.py", "x = re.compile(r'of 412 cells')", None),
        (TYPED, "a.py", "x = f'{a:.3f} of {b:>12}'", None),
        (TYPED, "a.py", "x = f'with {LEVEL} intervals, in float32, by W15'", None),
        (TYPED, "a.py", "raise StudyError('more than 412 cells')", None),
        (
            TYPED,
            "templates/a.qmd",
            '<% if x > 4 %>\n: Of << n >> {.a widths="13 87"}\n```bash\n-p 8\n```\n',
            None,
        ),
        (TYPED, "templates/a.qmd", "### References\n\n- A. Smith (1999). Rates. *Journal* 3(1), 28--35.", None),
        (DRAWS, "a.py", "def draw(axes):\n    axes.plot([0, 1], [1, 0])\n", "line 2: axes.plot"),
        (DRAWS, "a.py", "figure.savefig('a.svg')\n", "figure.savefig"),
        (DRAWS, "a.py", "strokes.bar(axes)\n", None),
        (ESCAPING, "templates/a.qmd", "```{=html}\n<b><< claim.says >></b>\n```\n", "<< claim.says >>"),
        (ESCAPING, "templates/a.qmd", "Text.\n\n<% macro badge(x) %><< x >><% endmacro %>\n", "<% macro"),
        (ESCAPING, "templates/a.qmd", "<%- set text %>a<% endset %>\n", "<%- set text %>"),
        (ESCAPING, "templates/a.qmd", "<% set loop_count = 1 %>\n```{=html}\n<hr>\n```\n", None),
    ],
)
def test_a_spoilt_program_is_found_and_a_fair_one_is_not(
    tmp_path: Path, check: Check, name: str, text: str, told: str | None
) -> None:
    path = tmp_path / "report" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    found = list(check(Published({}, "", "", {}, tmp_path / "report")))
    assert len(found) == 1 and told in found[0] if told else found == []


def test_every_exception_is_needed() -> None:
    """An exception that nothing needs is a hole."""
    texts = [text for _, _, text in checks.told(PACKAGE) if re.search(r"\d", text)]
    assert [pattern for pattern in ALLOWED if not any(re.search(pattern, text) for text in texts)] == []
