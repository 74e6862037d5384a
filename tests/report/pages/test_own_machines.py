"""Test the block that a user's own report begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.files import read_json
from report.pages.figure_data import Evidence
from report.pages.own_machines import own_machines
from report.pages.site_sources import imprint, template_environment
from tests.report.test_machine_numbers import write_data


def make_evidence(folder: Path, *rows: dict[str, object]) -> Evidence:
    write_data(folder, *rows)
    return Evidence({"nodes": read_json(folder / "nodes.json")}, folder)


def test_numbers_stand_beside_the_published_machines(tmp_path: Path) -> None:
    training = {"experiment": "training", "item": "sample", "model": "resnet-50"}
    context = own_machines(
        make_evidence(
            tmp_path, {}, {"node": "b", "flop_per_s": 1e12}, {**training, "items_per_s": 9.0, "n_disturbed": 3}
        ),
        {"since": "2026-11-25", "headline": "2 of 88 verdicts changed.", "rows": ["N01"]},
    )
    assert context is not None
    (machine,) = context["machines"]
    product, trained = machine["rows"]
    assert product["what"] == "Matrix product" and product["device"] == "CPU"
    assert product["result"].startswith("2.00 [1.82, 2.22]")
    assert (product["beside"], product["machines"]) == ("1.00 TFLOP/s", "1 machine")
    assert trained["what"] == "Training, ResNet-50" and trained["beside"] == "–"
    assert (machine["noisy"], machine["all"], machine["by"]) == ("1 result", "2", "training 1")


def test_published_report_has_no_machine_of_a_user(published_study: Path, tmp_path: Path) -> None:
    document = read_json(published_study / "verdicts.json")
    assert own_machines(Evidence(document, published_study / "data"), None) is None
    assert imprint(document).startswith("Edition of ")
    nodes: list[dict[str, Any]] = [*document["nodes"], {"id": "laptop", "label": "Laptop (yours)", "source": "results"}]
    assert imprint({**document, "nodes": nodes}).startswith("Study of Laptop (yours), ")


def test_front_page_begins_with_the_users_machine(tmp_path: Path) -> None:
    own = own_machines(make_evidence(tmp_path, {}, {"node": "b"}), None)
    front: dict[str, Any] = {"answer": ["Yes."], "articles": (), "findings": (), "bases": (), "jobs": (), "sure": (),
                             "limits": (), "chart": None, "tally": "", "total": 1, "wrong": None}  # fmt: skip
    text = template_environment().get_template("index.qmd").render({"f": front, "own": own, "root": ""})
    places = [text.index(part) for part in ("## Your machine", "My machine", "\n\n## The answer", "Yes")]
    assert places == sorted(places)
