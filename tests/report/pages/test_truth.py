"""Pages of disturbed measurements tell no number that cannot be, and name the machine; no two titles are alike.

The disturbed measurements are synthetic: the published ones with peaks, bandwidths and times changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from contract.files import read_json
from report.data.dataset import Dataset
from report.data.node_reader import Nodes
from report.pages.exhibit_types import Exhibit
from report.pages.figure_data import Evidence
from report.pages.sections import exhibits_of
from report.pages.site_content import families

# Seeds of the random disturbances; more by hand.
SEEDS = int(os.environ.get("TRUTH_SEEDS", "2"))
_PERCENT = re.compile(r"(\d[\d,]*(?:\.\d+)?)%")
# Empty words: gains of 1, ranges without width, all of one.
_EMPTY = re.compile(
    r"(?<![\d.,])1(?:\.0+)? times|(?<![\d.,])([\d.,]+(?: \S+)?) to \1(?![\d.,])"
    r"|\b(?:[Aa]ll|none of) 1 |\bnan\b|\binf\b|\bNone\b"
)


def disturbed(evidence: Evidence, change: dict[str, float], seed: int | None = None) -> Evidence:
    """The same evidence, the rates of some experiments changed by a factor; with a seed, of all, at random."""
    data = evidence.data
    assert data is not None
    table = data.table.copy()
    random = np.random.default_rng(seed)
    for experiment in table["experiment"].unique():
        rows = (table["experiment"] == experiment) & (table["unit"] == "s")
        each = int(rows.sum())
        factor = np.full(each, 1 / change.get(str(experiment), 1.0))
        if seed is not None:
            factor = factor * 10 ** random.uniform(-1, 1) * 10 ** random.choice([0, 0, random.uniform(-1, 1)], each)
            wide = np.exp(random.choice([0.0, 0.3, 3.0], each) * random.uniform(0, 1, each))
            for end, by in (("low", 1 / wide), ("high", wide)):
                table.loc[rows, end] *= by
            alone = rows & (random.uniform(0, 1, len(table)) < random.choice([0.0, 0.2, 1.0]))
            table.loc[alone, ["low", "high", "log_se", "df"]] = np.nan
            table.loc[alone, "n_rounds"] = 1
        table.loc[rows, ["estimate", "low", "high"]] = table.loc[rows, ["estimate", "low", "high"]].mul(factor, axis=0)
        table.loc[rows, ["flop_per_s", "bytes_per_s"]] = table.loc[rows, ["flop_per_s", "bytes_per_s"]].div(
            factor, axis=0
        )
    made = Evidence(evidence.document, evidence.folder)
    made.__dict__["data"] = Dataset(data.nodes, data.reference, table, data.published)
    return made


def spoken(exhibit: Exhibit) -> Iterator[str]:
    """Sentences of an exhibit on its page."""
    yield from (exhibit.section, exhibit.chart.title, *exhibit.says)


def lies(text: str) -> list[str]:
    """Impossible or empty parts of a sentence."""
    found = [one[0] for one in _PERCENT.finditer(text) if float(one[1].replace(",", "")) > 100]
    return found + [one[0] for one in _EMPTY.finditer(text)]


@pytest.fixture(scope="module")
def published_evidence(published: Path) -> Evidence:
    return Evidence(read_json(published / "verdicts.json"), published / "data")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_sentence_of_a_disturbed_study_is_impossible_or_empty(published_evidence: Evidence, seed: int) -> None:
    study = disturbed(published_evidence, {}, seed)
    told = [
        (one.chart.name, text) for family in families() for one in exhibits_of(family, study) for text in spoken(one)
    ]
    assert len(told) > 50
    assert [(name, text, found) for name, text in told if (found := lies(text))] == []


def test_no_two_prompts_of_the_published_machines_bear_one_name(published_evidence: Evidence) -> None:
    (family,) = [family for family in families() if family.key == "language"]
    shown = [one for one in exhibits_of(family, published_evidence) if "prompt" in one.chart.name and one.table]
    assert shown
    for one in shown:
        assert one.table
        names = [row[0] for row in one.table.rows]
        assert len(names) > 1
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("number", [1, 3, 14])
def test_no_heading_occurs_twice_and_several_machines_are_named(published_evidence: Evidence, number: int) -> None:
    study = copies(published_evidence, number)
    names = [*study.names.values()]
    figures, headings = [], []
    for family in families():
        shown = exhibits_of(family, study)
        figures += [one.chart.name for one in shown]
        titles = [text for one in shown for text in (one.section, one.chart.title) if text]
        assert len(set(titles)) == len(titles), family.key
        headings += [one.section or one.chart.title for one in shown if not one.within or one.section]
        # A figure of one of several machines says which.
        alone = [one for one in shown if one.machine and number > 1]
        assert [one.chart.title for one in alone if not any(name in one.chart.title for name in names)] == []
    assert len(set(figures)) == len(figures) > 20
    assert len(set(headings)) == len(headings)


def copies(evidence: Evidence, number: int) -> Evidence:
    """A study of so many machines with the same numbers, which only their names tell apart: those of a real one."""
    data = evidence.data
    assert data is not None
    node = data.nodes.nodes[-1]
    own = data.table[data.table["node"] == node.id]
    ids = [f"{node.id}.{at}" for at in range(number)]
    table = pd.concat([own.assign(node=name) for name in ids], ignore_index=True)
    nodes = Nodes([replace(node, record={**node.record, "id": name}) for name in ids], [])
    record = evidence.document["nodes"][-1]
    named = [{**record, "id": name, "label": f"machine {at:02d}"} for at, name in enumerate(ids)]
    study = Evidence({**evidence.document, "nodes": named}, None)
    study.__dict__["data"] = Dataset(nodes, data.reference, table, data.published)
    return study
