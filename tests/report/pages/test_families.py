"""Every family of measurements shows something of a fleet with GPUs, and nothing where nothing was measured."""

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
from report.pages import charts
from report.pages.exhibit_types import Exhibit, Family, format_estimate
from report.pages.failures import Failures
from report.pages.families import checks, convergence
from report.pages.figure_data import Evidence
from report.pages.markdown import identifier
from report.pages.sections import exhibits_of
from report.pages.site_content import families, family_charts
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
def shown(fleet: Evidence, published: Path) -> dict[str, list[Exhibit]]:
    """What each family shows, of the fleet; of the published nodes where it rests on others' runs."""
    own = Evidence(read_json(published / "verdicts.json"), published / "data")
    return {family.key: list(family.show(fleet)) or list(family.show(own)) for family in families()}


def known(key: str) -> Family:
    return next(family for family in families() if family.key == key)


@pytest.mark.parametrize("key", [family.key for family in families()])
def test_a_family_shows_what_was_measured_on_a_phone_too(shown: dict[str, list[Exhibit]], key: str) -> None:
    assert shown[key]
    ids = {path.stem for path in (Path(__file__).parents[3] / "report" / "claims").glob("*.yaml")}
    for exhibit in shown[key]:
        assert exhibit.chart.title and exhibit.chart.alt
        assert set(exhibit.claims) <= ids
        if exhibit.table:
            assert {len(exhibit.table.align), *map(len, exhibit.table.rows)} == {len(exhibit.table.head)}
        with charts.theme():
            figure = exhibit.chart.draw(charts.NARROW)
            figure.canvas.draw()
        assert figure.get_figwidth() == charts.NARROW
        assert any(axes.has_data() for axes in figure.axes), exhibit.chart.name


def test_figures_have_names_of_their_own_that_can_be_file_names(shown: dict[str, list[Exhibit]]) -> None:
    names = Counter(str(identifier(exhibit.chart.name)) for exhibits in shown.values() for exhibit in exhibits)
    assert [name for name, count in names.items() if count > 1] == []
    # The names of claims' figures are their ids.
    assert not [name for name in names if re.fullmatch(r"[A-Z]\d\d", name) or name.startswith("front-")]


@pytest.mark.parametrize("key", [family.key for family in families()])
def test_a_study_without_nodes_shows_nothing(key: str) -> None:
    shown = [one.chart.name for one in known(key).show(Evidence(EMPTY, None))]
    # How the intervals do where the truth is known is no matter of the nodes.
    assert [name for name in shown if name != "checks-simulated"] == []


def test_the_figures_of_a_family_are_made_alone_or_with_those_of_all(fleet: Evidence) -> None:
    key = families()[0].key
    alone = family_charts(fleet, key, Failures())
    assert [chart.name for chart in alone] == [exhibit.chart.name for exhibit in exhibits_of(known(key), fleet)] != []
    every = [chart.name for chart in family_charts(fleet, "measurements", Failures())]
    assert every == [exhibit.chart.name for family in families() for exhibit in exhibits_of(family, fleet)]


@pytest.mark.parametrize("unknown", [None, float("nan")])
@pytest.mark.parametrize(("rounds", "told"), [(1, "1.45 (one round)"), (3, "1.45")])
def test_a_number_of_a_table_has_no_interval_where_none_is_known(unknown: Any, rounds: int, told: str) -> None:
    assert format_estimate({"estimate": 1.45, "low": unknown, "high": unknown, "n_rounds": rounds}, "1") == told


def test_a_family_that_is_none_is_refused(fleet: Evidence) -> None:
    with pytest.raises(StudyError, match="unknown family 'gem'"):
        family_charts(fleet, "gem", Failures())


def test_a_number_that_measured_points_lack_is_told_with_its_reason(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    for batch in (32, 64, 128):
        about: dict[str, Any] = {"device": "cuda:0", "params": {"model": "mlp", "batch": batch}}
        node.point("training", 1e-3, **about)
        reason = "kernels are no multiple of the steps" if batch > 32 else "no kernels"
        node.point("training", 0.0, metric="kernel_time", status="failed", reason=reason, **about)
    # A point without any number has an outcome of its own, and lacks none of several.
    node.point("gemm", 0.0, status="oom", reason="out of memory", params={"m": 9, "n": 9, "k": 9})
    evidence = SimpleNamespace(data=nodes_dataset(synthetic, node), names={node.id: "the machine"})
    (told,) = checks._lacking_exhibit(cast(Evidence, evidence))
    assert told.table and told.table.rows == [
        ["the machine", "kernel_time of training", "3", "failed: kernels are no multiple of the steps"]
    ]


@pytest.mark.parametrize(
    ("highs", "words"),
    [((-0.01, 0.01, 0.0), "1 of 3 networks make"), ((0.5, 0.0, 0.1), "larger batches do not surely bring more errors")],
)
def test_networks_that_surely_err_more_in_larger_batches_are_counted(
    fleet: Evidence, highs: Sequence[float], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slopes = convergence._slopes
    monkeypatch.setattr(
        convergence, "_slopes",
        lambda *where: ([{**case, "high": high} for case, high in zip(slopes(*where)[0], highs, strict=False)], []),
    )  # fmt: skip
    titles = [exhibit.chart.title for exhibit in convergence.FAMILY.show(fleet)]
    assert any(words in title for title in titles), titles
