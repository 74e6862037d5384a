"""A fleet with ten machines: pages stay light, show the extremes, and count all machines."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from pypdf import PdfReader

from contract.files import write_json
from report.data.gathered_files import read_summary
from report.pages import machine_selection, site_paths
from report.pages.arithmetic import derivation_entries
from report.pages.downloads import write_downloads
from report.pages.figure_data import Evidence
from report.pages.render import render
from tests.report.built_once import build_once, loaded_bytes
from tests.report.pages.edition_files import Study, read_study, write_study

MANY = 10
# Names and rates are in different orders, so nodes that are sorted by name are not sorted by rate.
RATES = {f"node-{place:02d}": 4.0 + 0.4 * (place * 7 % MANY) for place in range(MANY)}
ENDS = {min(RATES, key=lambda name: RATES[name]), max(RATES, key=lambda name: RATES[name])}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return read_study(
        build_once(tmp_path_factory, "many-machines", lambda folder: write_study(folder, RATES, "2026-01-01T00:00:00Z"))
    )


@pytest.fixture(scope="module")
def fleet_site(fleet: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the fleet's site. Tests share the folder, so they must not write to it."""

    # Pages on claims that no machine decides do not depend on the number of machines, and take long to draw.
    shown = [verdict for verdict in fleet.document["verdicts"] if any(case["node"] for case in verdict["cases"])]
    verdicts = tmp_path_factory.mktemp("fleet") / "verdicts.json"
    write_json(verdicts, {**fleet.document, "verdicts": shown})

    def make(folder: Path) -> None:
        render(verdicts, folder, "pandoc", fleet.data)
        write_downloads(folder, fleet.verdicts, fleet.dataset)

    return build_once(tmp_path_factory, "many-machines-site", make)


def test_the_slowest_the_median_and_the_fastest_are_shown(fleet: Study) -> None:
    chosen = Evidence(fleet.document, fleet.data).shown_nodes
    order = sorted(RATES, key=lambda name: RATES[name])
    assert len(chosen) == 3 and set(chosen) > ENDS
    assert len(order) // 2 - 1 <= order.index(*{*chosen} - ENDS) <= len(order) // 2 + 1


def test_sole_measurer_and_one_machine_per_folder_are_shown() -> None:
    table = pd.DataFrame(
        [
            {"node": node, "experiment": name, "device": "cpu", "backend": "torch", "dtype": "float32", "threads": 1,
             "params": "{}", "metric": "time", "status": "ok", "estimate": 1.0 + place}
            for place, node in enumerate("abcdefghij")
            for name in ("gemm", *(["odd"] if node == "c" else []))
        ]
    ).astype({"device": "category"})  # fmt: skip
    nodes = [{"id": node, "source": "results/nodes" if node == "h" else "data/nodes"} for node in "abcdefghij"]
    assert machine_selection.select_nodes(nodes, table) == ["a", "c", "f", "h", "j"]
    # With more than six source folders (here ten), no machine is selected merely to represent its folder.
    apart = [{**node, "source": node["id"]} for node in nodes]
    assert machine_selection.select_nodes(apart, table) == ["a", "c", "f", "j"]


def test_runs_of_few_machines_are_all_shown() -> None:
    runs = [{"id": f"kind-{at % 2:06x}.aaaaaa.{at}", "source": "data/nodes"} for at in range(2, 12)]
    assert machine_selection.select_nodes(runs, None) == [run["id"] for run in runs]


def test_selection_text_counts_runs_or_known_machines() -> None:
    assert "1 of 3 runs are shown one by one: the first." in machine_selection.selection_text(
        1, ["a.aaaaaa", "a.aaaaaa.2", "b"], known=False
    )
    assert "1 of 2 machines" in machine_selection.selection_text(1, ["a.aaaaaa", "b"], known=True)


def test_results_of_hidden_machines_are_counted() -> None:
    number = {"value": 2.0, "low": 2.0, "high": 2.0, "unit": "s"}
    beside = [{**number, "name": "time", "case": "a job", "labels": {"node": node}} for node in "abc"]
    record = {
        "formula": "t", "result": {**number, "symbol": "t"}, "case": "a job", "inputs": [], "sensitivity": [],
        "beside": beside,
    }  # fmt: skip
    for nodes, count in ((None, 3), (["a", "c"], 2), ([], 0)):
        (entry,) = derivation_entries([{"name": "", "arithmetic": record}], shown=nodes)
        assert (len(entry["beside"]), entry["more"]) == (count, 3 - count)


def test_rows_of_shown_machines_keep_their_index(fleet: Study) -> None:
    whole = read_summary(fleet.data)
    data = Evidence(fleet.document, fleet.data).data
    assert data is not None and set(data.table["node"]) == {node.id for node in data.nodes.nodes}
    assert len(data.table) == len(whole) * 3 // MANY
    own = whole.loc[data.table.index]
    assert list(own["estimate"].dropna()) == list(data.table["estimate"].dropna())
    assert set(own["node"]) == set(data.table["node"])
    assert set(data.samples("gemm")["node"]) == set(data.table["node"])


def test_pages_of_many_machines_are_light_and_count_all(fleet_site: Path) -> None:
    assert loaded_bytes(fleet_site / "index.html") <= 400_000
    texts = {path.relative_to(fleet_site): path.read_text(encoding="utf-8") for path in fleet_site.rglob("*.html")}
    pages = {str(path.with_suffix("")): text for path, text in texts.items()}
    assert max(map(len, pages.values())) <= 1_000_000
    for name, page in pages.items():
        rows = [len(re.findall("<tr", table)) for table in page.split("<table")]
        assert max(rows) <= 130 or name in ("claims", "sources") or name.startswith(("evidence/", "runs/")), name
    sentence = f"3 of {MANY} machines are shown one by one"
    assert all(sentence in pages[name] for name in ("machines", "measurements/matrix-products"))
    assert len(re.findall("<h2", pages["machines"])) == 3 + 1
    assert len(PdfReader(fleet_site / site_paths.PDF).pages) <= 30
    assert len(list((fleet_site / "figures").glob("matrix-products-*.phone.svg"))) <= 3 * 4
    for name in ("index", "editions", "claims/N03"):
        assert f"and {MANY - 3} other machines" in pages[name], name


def test_the_site_has_all_results_and_samples(fleet: Study, fleet_site: Path) -> None:
    folder = fleet_site / site_paths.DATASET
    assert len(pd.read_csv(folder / "results.csv")) == len(read_summary(fleet.data))
    assert set(pd.read_parquet(folder / "samples.parquet")["node"]) == set(RATES)
