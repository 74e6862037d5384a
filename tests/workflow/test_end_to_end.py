"""From a clone to a published report, on real measurements of the machine that runs the tests."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pypdf
import pytest
from bs4 import BeautifulSoup

from tests.report.render.pdf_words import text_of
from tests.workflow.conftest import Clone

pytestmark = pytest.mark.slow
TINY = ("--config", "preset=tests/workflow/tiny.yaml")
DECIDED = ("N02", "N03", "G02", "W04", "W12", "W14", "W15", "W16")


@pytest.fixture(scope="module")
def verdicts(study: Clone) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((study.path / "results/verdicts.json").read_text())
    return content


def test_every_claim_has_a_verdict_that_says_what_it_rests_on(study: Clone, verdicts: dict[str, Any]) -> None:
    ids = [verdict["id"] for verdict in verdicts["verdicts"]]
    assert len(set(ids)) == len(ids) == len(list((study.path / "report" / "claims").glob("*.yaml")))
    for verdict in verdicts["verdicts"]:
        assert len(verdict["reason"]) > 20, verdict["id"]
        if verdict["verdict"] in ("supported", "challenged", "depends"):
            assert verdict["evidence_tier"] in ("measured", "derived", "documented"), verdict["id"]
            assert verdict["cells"], verdict["id"]
        if verdict["verdict"].startswith("awaiting"):
            assert verdict["verdict"] in verdict["reason"], verdict["id"]


def test_what_this_machine_can_decide_is_decided_here(verdicts: dict[str, Any]) -> None:
    by_id = {verdict["id"]: verdict for verdict in verdicts["verdicts"]}
    for name in DECIDED:
        assert by_id[name]["verdict"] in ("supported", "challenged", "depends", "undecided"), by_id[name]["reason"]
        assert by_id[name]["estimate"] is not None
    (node,) = {cell["node"] for name in ("N03", "W15", "N02") for cell in by_id[name]["cells"]} & {
        node["id"] for node in verdicts["nodes"] if "results" in node["source"]
    }
    assert node


def test_the_tables_hold_the_same_in_both_formats_and_nothing_undeclared(study: Clone) -> None:
    data = study.path / "results/data"
    samples = pd.read_parquet(data / "samples.parquet")
    with (data / "samples.csv").open(newline="") as file:
        assert sum(1 for _ in csv.reader(file)) == len(samples) + 1
    assert len(pd.read_csv(data / "summary.csv")) == len(pd.read_parquet(data / "summary.parquet"))
    words = pd.read_csv(data / "dictionary.csv").set_index("table")["column"]
    assert list(words["samples"]) == list(samples.columns)
    # A column that means the same in both tables is told once.
    assert set(pd.read_parquet(data / "summary.parquet").columns) <= set(words["summary"]) | set(words["samples"])
    assert set(samples["origin"]) == {"measured"}
    # What asks about accelerators alone leaves no empty rounds on a CPU.
    assert not (samples["experiment"].eq("transfer") & samples["device"].eq("cpu")).any()


def test_points_are_measured_in_three_processes_in_different_orders(study: Clone) -> None:
    samples = pd.read_parquet(study.path / "results/data/samples.parquet")
    own = samples[samples["experiment"].eq("gemm") & samples["sample"].eq(0) & samples["device"].eq("cpu")]
    own = own[own["node"].eq(json.loads((study.path / "results/node.json").read_text())["id"])]
    runs = [
        group.sort_values("elapsed_s")["params"].str.cat(group["backend"]).tolist() for _, group in own.groupby("run")
    ]
    assert len(runs) == 3
    assert len({tuple(order) for order in runs}) == 3
    assert len({tuple(sorted(order)) for order in runs}) == 1


def test_what_is_seen_is_a_line_for_each_stage_and_finding(study: Clone) -> None:
    said = (study.path / "said").read_text()
    order = [
        "discovering what this machine is",
        "points: in all about",
        "measuring, round 1 of 3",
        "preliminary page: results/preliminary/index.html",
        "measuring, round 2 of 3",
        "measuring, round 3 of 3",
        "gathering the samples",
        "judging the claims",
        "88 claims: ",
        "rendering the report",
        "report: results/report/index.html",
    ]
    places = [said.find(words) for words in order]
    assert -1 not in places and places == sorted(places), said
    told = re.findall(r"^\[.+ left\]   (\S+) on cpu, round (\d): \d+ points? in", said, re.MULTILINE)
    assert sorted(told) == sorted((name.split(".")[0], name.split(".")[2]) for name in study.rounds)
    for noise in ("rule measure:", "jobid", "steps (", "Traceback", "\r"):
        assert noise not in said
    lines = [line.partition("] ")[2] for line in said.splitlines() if "note: " in line]
    assert len(lines) == len(set(lines)), "a note was repeated"


def test_the_page_after_round_1_is_marked_as_preliminary_and_gives_way_to_the_report(study: Clone) -> None:
    page = BeautifulSoup((study.path / "preliminary.html").read_text(encoding="utf-8"), "html.parser")
    notice = page.select_one(".notice").get_text(" ", strip=True)
    assert notice.startswith("Preliminary , after the first of 3 rounds")
    assert "so this machine has none yet" in notice
    verdicts = [row.find_all("td")[2].get_text() for row in page.select("table.claims tbody tr")]
    assert len(verdicts) == len(list((study.path / "report" / "claims").glob("*.yaml")))
    assert "challenged" in verdicts
    assert not (study.path / "results/preliminary").exists()
    final = (study.path / "results/report/index.html").read_text(encoding="utf-8")
    assert "after the first of 3 rounds" not in final


def test_a_second_run_has_nothing_to_do(study: Clone) -> None:
    before = study.rounds
    again = study.snakemake(*TINY)
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout + again.stderr
    assert study.rounds == before


def test_a_touched_claim_is_judged_and_rendered_again_without_measuring(study: Clone) -> None:
    before = study.rounds
    (study.path / "report/claims/W15.yaml").touch()
    plan = study.snakemake(*TINY, "-n")
    jobs = set(re.findall(r"^(?:local)?rule (\w+):", plan.stdout + plan.stderr, re.MULTILINE))
    assert jobs == {"judge", "report", "lint", "site", "study"}
    done = study.snakemake(*TINY)
    assert done.returncode == 0, done.stderr
    assert study.rounds == before


def test_published_nodes_are_only_ever_read(study: Clone) -> None:
    changed = study.run("git", "status", "--porcelain", "--", "data").stdout
    assert changed == ""


def test_the_page_holds_every_verdict_and_loads_nothing(study: Clone) -> None:
    page = BeautifulSoup((study.path / "results/report/index.html").read_text(encoding="utf-8"), "html.parser")
    text = page.get_text()
    for series, last in (("N", 18), ("G", 32), ("W", 38)):
        for number in range(1, last + 1):
            assert page.find(id=f"{series}{number:02}") is not None
    assert "synthetic" not in (page.find(role="alert") or page.new_tag("p")).get_text()
    for tag, attribute in (("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")):
        for element in page.find_all(tag):
            assert not str(element.get(attribute, "")).startswith(("http", "//"))
    assert all(image.get("alt") for image in page.find_all("img"))
    assert "make study" in text


def test_the_report_is_a_site_with_its_verdicts_and_samples(study: Clone) -> None:
    report = study.path / "results" / "report"
    assert (report / "verdicts.json").read_bytes() == (study.path / "results" / "verdicts.json").read_bytes()
    node = json.loads((study.path / "results" / "node.json").read_text(encoding="utf-8"))["id"]
    assert (report / "data" / node / "clock.cpu.csv").is_file() and (report / "og.png").is_file()
    assert not (report / "feed.xml").exists(), "without an address there is none"
    page = BeautifulSoup((report / "index.html").read_text(encoding="utf-8"), "html.parser")
    linked = {link["href"] for link in page.find_all("a", href=True) if link["href"].startswith("data/")}
    assert linked and all((report / name).is_file() for name in linked)


def test_the_page_works_in_a_browser(study: Clone, chromium: Any) -> None:
    context = chromium.new_context(viewport={"width": 360, "height": 740})
    page = context.new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    outside: list[str] = []
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else outside.append(request.url)
    )
    page.goto((study.path / "results/report/index.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    rows = page.locator("table.claims tbody tr")
    claims = len(list((study.path / "report" / "claims").glob("*.yaml")))
    assert rows.count() == claims
    box = page.locator("input[type=search]").first
    box.fill("W15")
    page.wait_for_timeout(300)
    visible = [rows.nth(index).inner_text() for index in range(claims) if rows.nth(index).is_visible()]
    assert 1 <= len(visible) < claims
    assert any("W15" in row for row in visible)
    assert (trouble, outside) == ([], [])
    context.close()


def test_the_report_was_linted_and_lacks_only_intervals_that_load_can_cost(study: Clone) -> None:
    said = (study.path / "results/lint.txt").read_text().splitlines()
    # A point that a busy machine leaves a single round has no interval; all else is the report's own doing.
    assert said and [line for line in said if "no fault" not in line and not line.startswith("ratio-interval: ")] == []


def test_the_pdf_is_a_document(study: Clone) -> None:
    path = study.path / "results/report/report.pdf"
    text = text_of(path)
    assert len(pypdf.PdfReader(path).pages) >= 10
    for name in ("N01", "G32", "W38"):
        assert name in text
    assert "�" not in text


def test_the_summary_counts_what_the_verdicts_hold(study: Clone, verdicts: dict[str, Any]) -> None:
    said = study.run(sys.executable, "-m", "report", "summary", "--verdicts", "results/verdicts.json")
    assert said.returncode == 0, said.stderr
    for verdict, count in verdicts["tally"].items():
        assert re.search(rf"^{verdict}\b.*\b{count}$", said.stdout, re.MULTILINE), said.stdout


def test_most_of_a_rounds_time_is_measuring(study: Clone) -> None:
    """Not how fast: only that the seconds spent are recorded and add up."""
    for node in json.loads((study.path / "results/data/nodes.json").read_text()):
        assert node["id"]
    for path in (study.path / "results/nodes").glob("*/gemm.cpu.1.parquet"):
        import pyarrow.parquet as parquet

        about = json.loads(parquet.read_schema(path).metadata[b"study"])
        assert 0 < about["warmup_s"] + about["timed_s"] < about["wall_s"]


def test_the_sources_for_quarto_lie_beside_the_page(study: Clone) -> None:
    folder = study.path / "results/report"
    assert (folder / "index.qmd").read_text(encoding="utf-8").startswith("---\n")
    assert list(Path(folder / "figures").glob("*.svg"))
