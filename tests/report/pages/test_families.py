"""Measurement families: each has exhibits for a fleet with GPUs, and none for a study without nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from contract.errors import StudyError
from contract.files import read_json
from report.pages import charts, site_content
from report.pages.exhibit_types import Exhibit, Family, format_estimate
from report.pages.failures import Failures
from report.pages.families import ORDER, checks, convergence
from report.pages.figure_data import Evidence
from report.pages.markdown import identifier
from report.pages.sections import exhibits_of
from report.pages.site_content import families, family_charts
from report.pages.site_sources import template_environment
from tests.report.conftest import Factory
from tests.report.figure_evidence import nodes_dataset

EMPTY: dict[str, list[Any]] = {
    name: [] for name in ("verdicts", "nodes", "refused", "published", "references", "replaced")
}


@pytest.fixture(scope="module")
def fleet(published_with_fleet: Path) -> Evidence:
    """The published nodes with a synthetic fleet: a server with a GPU, a desktop and a laptop."""
    return Evidence(read_json(published_with_fleet / "verdicts.json"), published_with_fleet / "data")


@pytest.fixture(scope="module")
def fleet_exhibits(fleet: Evidence) -> dict[str, list[Exhibit]]:
    """Each family's exhibits for the fleet, as its page shows them."""
    return {family.key: exhibits_of(family, fleet) for family in families()}


@pytest.fixture(scope="module")
def family_exhibits(fleet_exhibits: dict[str, list[Exhibit]], published_study: Path) -> dict[str, list[Exhibit]]:
    """Each family's exhibits for the fleet, or for the published nodes if the family has none for the fleet."""
    own = Evidence(read_json(published_study / "verdicts.json"), published_study / "data")
    return {family.key: fleet_exhibits[family.key] or exhibits_of(family, own) for family in families()}


def find_family(key: str) -> Family:
    return next(family for family in families() if family.key == key)


@pytest.mark.parametrize("key", [family.key for family in families()])
def test_family_has_complete_exhibits_that_draw_on_a_phone(family_exhibits: dict[str, list[Exhibit]], key: str) -> None:
    # A family that is not in ORDER belongs to a new experiment. It may lack exhibits, because it has no data yet.
    assert family_exhibits[key] or key.replace("-", "_") not in ORDER
    ids = {path.stem for path in (Path(__file__).parents[3] / "report" / "claims").glob("*.yaml")}
    for exhibit in family_exhibits[key]:
        assert exhibit.chart.title and exhibit.chart.alt
        assert set(exhibit.claims) <= ids
        if exhibit.table:
            assert {len(exhibit.table.align), *map(len, exhibit.table.rows)} == {len(exhibit.table.head)}
        with charts.theme():
            figure = exhibit.chart.draw(charts.NARROW)
            figure.canvas.draw()
        assert figure.get_figwidth() == charts.NARROW
        assert any(axes.has_data() for axes in figure.axes), exhibit.chart.name


def test_figure_names_are_distinct_and_unreserved(family_exhibits: dict[str, list[Exhibit]]) -> None:
    names = Counter(
        str(identifier(exhibit.chart.name)) for exhibits in family_exhibits.values() for exhibit in exhibits
    )
    assert [name for name, count in names.items() if count > 1] == []
    # No exhibit has a reserved name: claim ids name the figures on claim pages, and front- begins the names of front
    # page figures.
    assert not [name for name in names if re.fullmatch(r"[A-Z]\d\d", name) or name.startswith("front-")]


@pytest.mark.parametrize("key", [family.key for family in families()])
def test_study_without_nodes_shows_nothing(key: str) -> None:
    names = [exhibit.chart.name for exhibit in find_family(key).show(Evidence(EMPTY, None))]
    # The only exhibits allowed without nodes are those on simulated data, because they need none.
    assert [name for name in names if not name.startswith("checks-simulated")] == []


def test_figures_are_made_per_family_or_for_all(
    fleet: Evidence, fleet_exhibits: dict[str, list[Exhibit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {key: [exhibit.chart.name for exhibit in exhibits] for key, exhibits in fleet_exhibits.items()}
    key = families()[0].key
    assert [chart.name for chart in family_charts(fleet, key, Failures())] == names[key] != []
    # Use the fixture's exhibits, because to make all again takes long.
    monkeypatch.setattr(site_content, "exhibits_of", lambda family, _: fleet_exhibits[family.key])
    every = [chart.name for chart in family_charts(fleet, "measurements", Failures())]
    assert every == [name for family in families() for name in names[family.key]]


@pytest.mark.parametrize("unknown", [None, float("nan")])
@pytest.mark.parametrize(("rounds", "text"), [(1, "1.45 (one round)"), (3, "1.45")])
def test_table_number_omits_an_unknown_interval(unknown: Any, rounds: int, text: str) -> None:
    assert format_estimate({"estimate": 1.45, "low": unknown, "high": unknown, "n_rounds": rounds}, "1") == text


def test_unknown_family_is_refused(fleet: Evidence) -> None:
    with pytest.raises(StudyError, match="unknown family 'gem'"):
        family_charts(fleet, "gem", Failures())


def test_missing_metric_is_listed_with_its_reason(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    for batch in (32, 64, 128):
        shared: dict[str, Any] = {"device": "cuda:0", "params": {"model": "mlp", "batch": batch}}
        node.point("training", 1e-3, **shared)
        reason = "kernels are no multiple of the steps" if batch > 32 else "no kernels"
        node.point("training", 0.0, metric="kernel_time", status="failed", reason=reason, **shared)
    # The exhibit does not list this point: the point has no value at all, and its status already says why.
    node.point("gemm", 0.0, status="oom", reason="out of memory", params={"m": 9, "n": 9, "k": 9})
    evidence = SimpleNamespace(data=nodes_dataset(synthetic, node), names={node.id: "the machine"})
    (exhibit,) = checks._lacking_exhibit(cast(Evidence, evidence))
    assert exhibit.table and exhibit.table.rows == [
        ["the machine", "kernel_time of training", "3", "failed: kernels are no multiple of the steps"]
    ]


@pytest.mark.parametrize(
    ("highs", "words"),
    [
        ((-0.01, 0.01, 0.0), "1 of 3 networks make"),
        ((0.5, 0.0, 0.1), "larger batches do not certainly bring more errors"),
    ],
)
def test_title_counts_networks_whose_error_surely_grows_with_batch_size(
    fleet: Evidence, highs: Sequence[float], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slopes = convergence._slopes
    monkeypatch.setattr(
        convergence, "_slopes",
        lambda *args: ([{**case, "high": high} for case, high in zip(slopes(*args)[0], highs, strict=False)], []),
    )  # fmt: skip
    titles = [exhibit.chart.title for exhibit in convergence.FAMILY.show(fleet)]
    assert any(words in title for title in titles), titles


def test_family_page_names_the_format_measured_in_place_of_another() -> None:
    cards = [
        {"id": "cuda:0", "kind": "gpu", "name": "Tesla T4", "substitutes": {"bfloat16": "float16"}},
        {"id": "cuda:1", "kind": "gpu", "name": "NVIDIA H100"},
    ]
    nodes = [{"id": "kind.aaaaaa", "label": "a server", "devices": cards, "n_ok": 1}]
    page = site_content._family_page(families()[0], [], Evidence({**EMPTY, "nodes": nodes}, None), [])
    text = template_environment().get_template("family.qmd").render(page.context)
    assert "Tesla T4 has no units for bfloat16: measured in float16." in text
    assert "H100" not in text


@pytest.mark.parametrize(
    ("verdict", "node", "shown", "heading"),
    [
        ("supported", "a", ["a", "b"], "Claims that rest on it"),
        ("supported", "c", ["a", "b"], "See also"),
        ("undecided", "a", ["a"], "See also"),
        ("supported", None, ["a"], "See also"),
        ("supported", None, [], "Claims that rest on it"),
        ("supported", "a", [], "See also"),
    ],
)
def test_claim_rests_on_a_figure_only_if_its_machines_decide_it(
    verdict: str, node: str | None, shown: list[str], heading: str
) -> None:
    claim = {"id": "G06", "verdict": verdict, "cases": [{"node": node}]}
    used = {name: [entry["id"] for entry in claims] for name, claims in site_content._claims_by_use([claim], shown)}
    assert used[heading] == ["G06"] and sum(map(len, used.values())) == 1


def test_roofline_shows_the_rated_roofs_of_gpus_beside_a_measured_processor(fleet: Evidence) -> None:
    exhibit = next(iter(find_family("roofline").show(fleet)))
    with charts.theme():
        figure = exhibit.chart.draw(charts.NARROW)
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    rated = [label for label in labels if label.endswith(", rated")]
    assert len(rated) == 3 == len(exhibit.table.rows if exhibit.table else ())
    assert [label[:2] for label in labels if label[1:2] == ":"] == ["1:", "2:", "3:", "4:", "5:"]


def test_training_steps_are_dots_with_intervals(fleet: Evidence) -> None:
    exhibit = next(exhibit for exhibit in find_family("training").show(fleet) if exhibit.subject == "training")
    with charts.theme():
        axes = exhibit.chart.draw(charts.WIDE).axes[0]
    assert "as plain PyTorch on one core" in exhibit.chart.title
    assert not axes.patches and any(line.get_alpha() == 0.4 for line in axes.lines)
