"""The linter finds nothing in a report as it is rendered, and each check finds what was broken for it."""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from report.commands.lint.program import ALLOWED, NOT_PROSE, NUMBER, prose, template_prose
from report.commands.lint.study import PACKAGE, check

from contract.errors import StudyError
from report.cli import main
from report.commands.lint import CHECKS, Study, run
from report.data.gather import gather
from report.data.gathered import read_dataset
from report.data.ranges import parse_ranges
from report.data.reference import REFERENCE, read_reference
from report.judging.judge import judge
from report.render import render, strokes
from report.render.figures import Drawing, keep, name_axis
from report.render.twelve import RULES
from tests.report.conftest import Factory

Broken = Callable[..., list[str]]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A report of a small synthetic node: products by several libraries, the clock, the peak, and memory."""
    folder = tmp_path_factory.mktemp("lint")
    synthetic = Factory(folder / "nodes")
    node = synthetic().clock().peak(2e11).peak(4e11, threads=2)
    for n in (256, 512, 1024):
        for backend, per_cycle in (("torch", 20.0), ("numpy", 27.9)):
            for threads in (1, 2):
                node.gemm(per_cycle * 0.97 * threads, n=n, backend=backend, threads=threads)
    for footprint in (2**15, 2**20, 2**27):
        node.point("bandwidth", 1e9 / 2e10, backend="llvm", dtype="float64", bytes=1e9,
                   params={"op": "triad", "footprint": footprint})  # fmt: skip
    for model, batch in (("mlp", 32), ("cnn", 32)):
        node.point("training", {"time": 0.02, "matmul_flop_share": 0.97, "matmul_time_share": 0.8},
                   params={"model": model, "batch": batch}, flop=1e9)  # fmt: skip
    gather([synthetic.write([node])], folder / "data", allow_synthetic=True)
    evidence = read_dataset(folder / "data", read_reference(REFERENCE))
    judge(evidence, folder / "verdicts.json", allow_synthetic=True)
    render(folder / "verdicts.json", folder / "report", "pandoc", folder / "data")
    return Study(folder / "verdicts.json", folder / "data", folder / "report")


@pytest.fixture
def broken(study: Study) -> Broken:
    """Runs one check on the study with some of its files replaced; gives what it finds."""

    def with_these(name: str, **replaced: Any) -> list[str]:
        other = Study(study.verdicts, study.data, study.report)
        # What was read already is not read again.
        for key in ("document", "summary", "entries", "source", "page", "figures"):
            other.__dict__[key] = replaced.get(key, getattr(study, key))
        return list(map(str, CHECKS[name].faults(other)))

    return with_these


@pytest.fixture
def document(study: Study) -> dict[str, Any]:
    """The verdicts, to be changed."""
    return copy.deepcopy(study.document)


def of(document: dict[str, Any], quantity: str) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """The first verdict with a decided part of this quantity, that part and its cells."""
    for verdict in document["verdicts"]:
        for part in verdict["parts"]:
            cells = [cell for cell in verdict["cells"] if cell["part"] == part["name"]]
            if part["quantity"] == quantity and cells:
                return verdict, part, cells
    raise AssertionError(f"no verdict rests on {quantity}")


def test_a_report_as_it_is_rendered_has_no_fault(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    status = run(study.verdicts, study.data, study.report, study.reference)
    told = capsys.readouterr().out
    assert status == 0, told
    assert f"{len(CHECKS)} checks" in told
    assert len(study.figures) > 5
    assert sum(len(cells) for *_, cells in study.parts()) > 20


def test_a_fault_is_one_line_and_the_exit_code_is_1(
    study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(study.report, tmp_path / "report")
    page = tmp_path / "report" / "index.qmd"
    page.write_text(page.read_text().replace("rule version 1]", "rule]", 1))
    words = ["--verdicts", str(study.verdicts), "--data", str(study.data), "--report", str(tmp_path / "report")]
    assert main(["lint", *words]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"page-version: claim \w\d\d: its card does not say version 1 of its rule\. Render again", line)


@pytest.mark.parametrize(("what", "told"), [("report", "report render"), ("verdicts", "no such file")])
def test_a_file_that_is_missing_is_named(study: Study, tmp_path: Path, what: str, told: str) -> None:
    given = {"verdicts": study.verdicts, "data": study.data, "report": study.report, what: tmp_path / "none"}
    with pytest.raises(StudyError, match=told):
        run(given["verdicts"], given["data"], given["report"], REFERENCE)


def test_a_check_has_a_name_of_its_own() -> None:
    with pytest.raises(ValueError, match="rule-version"):
        check("rule-version", "")(lambda _study: [])


def test_every_check_stands_in_the_table_of_rules_and_every_name_there_is_a_checks() -> None:
    assert len(RULES) == 12
    named = {name for rule in RULES for name in rule.checks}
    assert named <= set(CHECKS)
    # What no rule of theirs asks for: where a number comes from, and that both renderers read the page alike.
    assert set(CHECKS) - named == {
        "unit",
        "key-number",
        "reason-numbers",
        "figure-axes",
        "page-number",
        "page-version",
        "page-whole",
        "page-words",
        "markdown-anchors",
        "markdown-code",
        "markdown-fences",
        "markdown-images",
        "markdown-raw",
        "markdown-signs",
        "markdown-tables",
        "pdf-standard",
        "quarto-settings",
        "typed-number",
    }


def test_a_rule_without_a_version_or_reason_is_found(broken: Broken, document: dict[str, Any]) -> None:
    first, second, third = document["verdicts"][0], document["verdicts"][1], of(document, "gemm.mac_per_cycle_per_core")
    first["version"], second["version"], second["changes"] = None, 3, [{"version": 2, "reason": "a slip"}]
    third[1]["threshold_why"] = " "
    found = broken("rule-version", document=document)
    assert [line.partition(": ")[2].split(". ")[0] for line in found] == [
        f"claim {first['id']}: its rule has no version",
        f"claim {second['id']}: version 3 of its rule has no reason",
        next(line for line in found if "threshold" in line).partition(": ")[2].split(". ")[0],
    ]


def test_an_interval_that_was_lost_left_out_or_made_up_is_found(broken: Broken, document: dict[str, Any]) -> None:
    _, _, cells = of(document, "gemm.mac_per_cycle_per_core")
    cells[0]["low"] = cells[0]["high"] = None
    lost = broken("interval", document=document)
    assert "no interval, though all behind it have one" in lost[0]
    assert "without an interval" in lost[1]
    cells[0]["low"] = cells[0]["high"] = cells[0]["estimate"]
    assert any("told as exact, though it was timed" in line for line in broken("interval", document=document))
    cells[0]["low"], cells[0]["high"] = cells[0]["estimate"] * 2, cells[0]["estimate"] * 3
    assert any("is not within" in line for line in broken("interval", document=document))


def test_a_cell_that_counts_nothing_is_found(broken: Broken, document: dict[str, Any]) -> None:
    of(document, "gemm.mac_per_cycle_per_core")[2][0]["n_samples"] = 0
    assert ["no number of rounds or of samples" in line for line in broken("counts", document=document)] == [True]


def test_a_number_without_unit_or_with_another_than_its_entry_is_found(
    broken: Broken, document: dict[str, Any]
) -> None:
    of(document, "gemm.mac_per_cycle_per_core")[1]["unit"] = ""
    of(document, "reference.value")[1]["unit"] = "days"
    found = broken("unit", document=document)
    assert len(found) == 2
    assert {"no unit" in found[0], "while its entry is in" in found[1]} == {True} or "no unit" in found[1]


def test_a_row_that_is_not_there_or_of_another_node_is_found(broken: Broken, document: dict[str, Any]) -> None:
    _, _, cells = of(document, "gemm.mac_per_cycle_per_core")
    rows = cells[0]["behind"]
    cells[0]["behind"] = "99999"
    assert "row 99999 is not in the summary" in broken("rows", document=document)[0]
    cells[0]["behind"] = ""
    assert "no row of the summary is behind it" in broken("rows", document=document)[0]
    cells[0].update(behind=rows, node="another-node")
    assert "no row behind it is of another-node" in broken("rows", document=document)[0]


def test_a_reading_that_is_not_its_row_is_found(broken: Broken, document: dict[str, Any]) -> None:
    _, _, cells = of(document, "training.matmul_time_share")
    assert len(parse_ranges(cells[0]["behind"])) == 1
    cells[0]["estimate"] *= 1.0001
    (found,) = broken("reading", document=document)
    assert "estimate" in found
    assert f"row {cells[0]['behind']}" in found


def test_an_entry_that_is_unknown_unused_or_misread_is_found(broken: Broken, document: dict[str, Any]) -> None:
    _, part, cells = of(document, "reference.value")
    part["entries"] += ["no.such.entry"]
    found = broken("entries", document=document)
    assert "there is no entry 'no.such.entry'" in found[0]
    assert "decides nothing here" in found[1]
    part["entries"].pop()
    cells[0]["estimate"] += 1
    assert "is not what its entry says" in broken("entries", document=document)[0]
    of(document, "gemm.mac_per_cycle_per_core")[1]["entries"] = [cells[0]["entry"]]
    assert any("told as measured, and rests on" in line for line in broken("entries", document=document))


def test_a_verdicts_number_that_is_no_cells_is_found(broken: Broken, document: dict[str, Any]) -> None:
    verdict, part, _ = of(document, "gemm.mac_per_cycle_per_core")
    part["estimate"] = 12345.0
    found = broken("key-number", document=document)
    assert "its number 12345 is none of its cells'" in found[0]
    assert verdict["id"] in found[1]


def test_a_number_in_a_reason_that_is_no_cells_is_found(broken: Broken, document: dict[str, Any]) -> None:
    _, part, _ = of(document, "gemm.mac_per_cycle_per_core")
    assert re.search(r"\d \[", part["reason"])
    part["reason"] = re.sub(r"\d(?= \[)", "99", part["reason"], count=1)
    assert "which is no cell's" in broken("reason-numbers", document=document)[0]


@pytest.mark.parametrize(
    ("says", "fault"),
    [
        ("On {node}, x is {value} times as fast ({labels})", True),
        ("On {node}, x is {value} times as fast as y ({labels})", False),
        ("On {node}, x is {value} times ({labels})", True),
        ("On {node}, x takes {value} times what y takes ({labels})", False),
        ("On {node}, x reaches {value}", False),
    ],
)
def test_a_multiple_of_nothing_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, fault: bool
) -> None:
    from report.commands.lint import verdicts
    from report.quantities import Quantity

    made = Quantity("some.gain", "1", "measured", (), (), (), says, lambda data: None)  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(verdicts, "quantities", lambda: {made.name: made})
    assert bool(in_program("ratio-base", tmp_path, "a.py", "")) == fault


def said(study: Study, line: str) -> str:
    """The page with a sentence more, in the first section of what was measured."""
    head, mark, rest = study.source.partition("\n## What was measured")
    title, heading, text = rest.partition("\n### ")
    name, end, body = text.partition("\n")
    return f"{head}{mark}{title}{heading}{name}{end}\n{line}\n\n{body}"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("- It is 3.41 times as fast as before.", "has no interval"),
        ("| a | ×123 |", "has no interval"),
        ("- It is 3.41 [3.21, 3.61] times.", "does not say of what"),
        ("- It is 3.41 [3.21, 3.61] times as fast as before.", None),
        ("- It is 3.41 (no interval) times as fast as before.", None),
        ("- A product of 1,000 × 1,000 was measured ten times.", None),
    ],
)
def test_a_bare_ratio_is_found(broken: Broken, study: Study, line: str, told: str | None) -> None:
    found = broken("ratio-interval", source=said(study, line))
    assert ([told in one for one in found] == [True]) if told else not found


def test_ratios_without_absolute_values_are_found(broken: Broken, study: Study, document: dict[str, Any]) -> None:
    head, mark, rest = study.source.partition("\n## What was measured")
    alone = "\n\n### Gains {#measured-gains}\n\n- It is 3.41 [3.21, 3.61] times as fast as before.\n\n## Nodes"
    assert "tells ratios and no rate" in broken("ratio-absolute", source=head + mark + alone)[0]
    of(document, "gemm.scaling_efficiency")[2][0]["behind"] = ""
    assert "cannot be looked up" in broken("ratio-absolute", document=document)[0]
    assert "no number has its source" in broken("ratio-absolute", source=study.source.replace("{.n ", "{.m "))[-1]
    assert rest


def test_a_number_on_the_page_that_is_not_its_cells_is_found(broken: Broken, study: Study) -> None:
    spans = re.findall(r"\[([^\[\]]*\[[^\[\]]*\][^\[\]]*)\]\{\.n (data-rows=\"[^\"]*\")\}", study.source)
    text, by = spans[-1]
    assert (
        "does not stand on the page with its source" in broken("page-cells", source=study.source.replace(text, "9"))[0]
    )
    assert f"index.html does not hold its source ({by})" in broken("page-cells", page=study.page.replace(by, ""))[0]


def test_a_ratio_tells_what_it_is_made_from(study: Study) -> None:
    card = study.source.partition("#### [W14]")[2].partition("\n#### ")[0]
    sides = re.findall(r"([\d.]+) GFLOP/s \((\w+), row (\d+)\)", card)
    assert {experiment for _, experiment, _ in sides} == {"gemm", "peak"}, card
    for rate, _, row in sides:
        assert float(rate) * 1e9 == pytest.approx(study.summary.loc[int(row)]["flop_per_s"], rel=5e-3)


@pytest.mark.parametrize("where", ["the opening", "the table", "its card"])
def test_a_claim_with_two_numbers_is_found(broken: Broken, study: Study, where: str) -> None:
    told = {
        "the opening": r"(?m)^Found: \[\S+",
        "the table": r"(?m)^(\| \[W14\]\(#W14\).*)\[[\d.]+ \[",
        "its card": r"(?s)(#### \[W14\].*?\nNumber\n: +)\[+[\d.]+ \[",
    }[where]
    text = re.sub(told, lambda found: f"{found[1] if found.lastindex else 'Found: '}[99 [", study.source, count=1)
    assert text != study.source
    (fault,) = broken("page-number", source=text)
    assert f"{where} does not tell" in fault


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("NVIDIA H100, cUDA cores, as CUDA", "“cUDA”: a name"),
        ("in place of 1 hours", "“1 hours”"),
        ("x days (days)", "“days (days)”"),
    ],
)
def test_a_wrong_word_is_found(broken: Broken, study: Study, wrong: str, told: str) -> None:
    assert broken("page-words", source=study.source) == []
    (fault,) = broken("page-words", source=f"{study.source}\n{wrong}, 401 kFLOP\n")
    assert told in fault


def test_a_card_without_the_version_of_its_rule_is_found(broken: Broken, study: Study) -> None:
    assert "its card does not say" in broken("page-version", source=study.source.replace("rule version", "rule"))[0]
    assert "has no card" in broken("page-version", source=study.source.replace("#### [N01]", "#### [N99]"))[0]


def test_measurements_without_their_counts_are_found(broken: Broken, study: Study) -> None:
    (text,) = re.findall(r"Synthetic, 2 cores: \d+ series, [^.]*\.", study.source)
    assert "round" in text
    assert "sample" in text
    assert broken("page-counts", source=study.source.replace(text, ""))


def figure(draw: Callable[[Any], Any], tmp_path: Path) -> str:
    """The SVG of a figure whose axes `draw` has filled."""

    def drawn(_shows: Any) -> Figure:
        made = Figure(figsize=(3, 2))
        draw(made.add_axes((0.2, 0.2, 0.7, 0.7)))
        return made

    keep(Drawing("some", {}, drawn, "", ""), tmp_path, None)
    return (tmp_path / "some.svg").read_text(encoding="utf-8")


def titled(axes: Any) -> None:
    name_axis(axes, "x", "size", "B")
    name_axis(axes, "y", "rate", "B/s")


def test_strokes_that_nobody_declared_are_found_and_declared_ones_are_not(broken: Broken, tmp_path: Path) -> None:
    def fair(axes: Any) -> None:
        titled(axes)
        strokes.join(axes, [1, 2, 3], [1, 4, 9], "size", marker="o")
        strokes.intervals(axes, [1, 2, 3], [0, 3, 8], [2, 5, 10])
        strokes.level(axes, 5.0)

    def by_hand(axes: Any) -> None:
        fair(axes)
        axes.plot([0, 1, 2], [3, 1, 2])

    assert not broken("figure-strokes", figures={"some": figure(fair, tmp_path)})
    (found,) = broken("figure-strokes", figures={"some": figure(by_hand, tmp_path)})
    assert "a stroke of no declared kind (line2d_" in found
    other = figure(fair, tmp_path).replace("join.size", "join.models")
    assert "points are joined along 'models'" in broken("figure-strokes", figures={"some": other})[0]


@pytest.mark.parametrize(
    ("xs", "along", "told"),
    [
        (["mlp", "cnn"], "batch", "do not rise"),
        ([2.0, 1.0], "batch", "do not rise"),
        ([1.0, float("nan")], "batch", "do not rise"),
        ([1.0, 2.0], "model", "may not be joined along 'model'"),
        ([1.0, 2.0], "", "may not be joined"),
    ],
)
def test_points_are_joined_along_ordered_variables_alone(xs: list[Any], along: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        strokes.join(Figure().add_axes((0, 0, 1, 1)), xs, [1.0, 2.0], along)


def test_axes_without_title_or_unit_are_found(broken: Broken, tmp_path: Path) -> None:
    def marks(axes: Any) -> None:
        strokes.points(axes, [1], [2], marker="o")

    def bare(axes: Any) -> None:
        marks(axes)
        axes.set_xlabel("size").set_gid("title.x.1")
        name_axis(axes, "y", "gain", log=True)

    def unitless(axes: Any) -> None:
        marks(axes)
        name_axis(axes, "x", "share")
        name_axis(axes, "y", "gain", log=True)

    def found(draw: Callable[[Any], None]) -> list[str]:
        return broken("figure-axes", figures={"some": figure(draw, tmp_path)})

    assert ["has no title" in line for line in found(marks)] == [True, True]
    assert ["'size' has no unit" in line for line in found(bare)] == [True]
    assert not found(unitless)


def test_marks_without_an_interval_need_a_word_in_the_caption(broken: Broken, tmp_path: Path) -> None:
    def bare(axes: Any) -> None:
        titled(axes)
        strokes.points(axes, [1, 2], [1, 2], bare=2, marker="o")
        axes.text(1, 1, "×1.9")

    svg = figure(bare, tmp_path)
    found = broken("figure-intervals", figures={"some": svg}, source="![Rates.](figures/some.svg)")
    assert "2 mark(s) without an interval" in found[0]
    assert "the ratio '×1.9' has no interval" in found[1]
    told = "![Rates. No interval is drawn at all: one round.](figures/some.svg)"
    ranged = svg.replace("×1.9", "×1.9 [1.8, 2.0]")
    assert not broken("figure-intervals", figures={"some": ranged}, source=told)


def in_program(check: str, tmp_path: Path, name: str, text: str) -> list[str]:
    """What a check finds in a package of one file."""
    path = tmp_path / "report" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    none = tmp_path / "none"
    return list(map(str, CHECKS[check].faults(Study(none, none, none, package=tmp_path / "report"))))


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("a.py", "x = 'products reach 412 GFLOP/s'", "412"),
        ("a.py", "x = f'products of {n} reach 41.2% of the peak'", "41.2%"),
        ("a.py", "x = 'with 95% intervals'", "95%"),
        ("templates/a.qmd", "Products reach 412 GFLOP/s on << node >>.", "412"),
        ("templates/a.qmd", "- [<< claim.id >>](#<< claim.id >>){.tile} in 3,571 of the cases", "3,571"),
    ],
)
def test_a_typed_number_is_found(tmp_path: Path, name: str, text: str, number: str) -> None:
    (found,) = in_program("typed-number", tmp_path, name, text)
    assert f"{Path('report') / name}, line 1: the number {number} is typed" in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", '"""Products reach 412 GFLOP/s."""'),
        ("a.py", "x = re.compile(r'of 412 cells')"),
        ("a.py", "x = f'{a:.3f} of {b:>12}'"),
        ("a.py", "x = f'with {LEVEL} intervals, in float32, by W15'"),
        ("a.py", "raise StudyError('more than 412 cells')"),
        ("a.py", "x = {'label': 'cell', 'y': 412.0}"),
        (
            "templates/a.qmd",
            '<% if x > 412 %>\n: Cells of << claim.id >> {.cells widths="13 24 20"}\n```bash\n-p 8\n```\n',
        ),
        ("templates/a.qmd", "### References\n\n- A. Smith (1999). Rates. *Journal* 3(1), 28--35."),
    ],
)
def test_what_is_no_number_in_prose_is_not_found(tmp_path: Path, name: str, text: str) -> None:
    assert not in_program("typed-number", tmp_path, name, text)


def test_every_exception_is_needed_and_says_why() -> None:
    """An exception that nothing needs is a hole."""
    modules = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in NOT_PROSE]
    texts = [text for path in modules for _, text in prose(path)]
    texts += [text for path in (PACKAGE / "templates").rglob("*.qmd") for _, text in template_prose(path)]
    numbered = [text for text in texts if NUMBER.search(text)]
    for pattern, why in ALLOWED.items():
        assert why
        # A pattern without groups is alternatives, each of which is an exception.
        grouped = re.search(r"(?<!\\)\(", pattern)
        for one in [pattern] if grouped else re.split(r"(?<!\\)\|", pattern):
            assert any(re.search(one, text) for text in numbered), one


def test_who_draws_besides_strokes_is_found(tmp_path: Path) -> None:
    text = (
        "def draw(axes, figure):\n    axes.plot([0, 1], [1, 0])\n    figure.savefig('a.svg')\n    strokes.bar(axes)\n"
    )
    lines, saved = in_program("own-strokes", tmp_path, "a.py", text)
    assert "report/a.py, line 2: axes.plot draws by itself" in lines
    assert "line 3: saves a figure by itself" in saved


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('<table class="claims"', "<table", "0 of 1 table.claims of its source"),
        ("</caption>", " {.claims widths=“6 28”}</caption>", "'{.claims widths=“6 28”}' stands in it as text"),
        ("<h2>", "<h2>See ?@tbl-one: ", "'?@tbl-one' stands in it as text"),
        ('class="table-frame', 'class="frame', "div.table-frame of its source"),
        ("<figure", "<div", "figure of its source"),
        ('<form class="filter"', "<form", "0 of 1 form.filter of its source"),
        ("script-src 'sha256-", "script-src 'none", "its scripts may not run"),
        ("script-src", "x-src", "its scripts may not run"),
    ],
)
def test_a_page_that_a_renderer_broke_is_found(study: Study, broken: Broken, old: str, new: str, told: str) -> None:
    assert old in study.page
    found = broken("page-whole", page=study.page.replace(old, new, 1))
    assert any(told in line for line in found), found
