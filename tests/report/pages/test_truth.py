"""Exhibits on disturbed measurements print no impossible number, and headings are distinct.

The disturbed measurements are synthetic: published measurements with changed times, rates and intervals.
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

# Random disturbances to try; set TRUTH_SEEDS for more.
SEEDS = int(os.environ.get("TRUTH_SEEDS", "1"))
_PERCENT = re.compile(r"(\d[\d,]*(?:\.\d+)?)%")
# Statements without content: "1 times", a range between equal numbers, "all 1" or "none of 1", and words such as "nan".
_EMPTY = re.compile(
    r"(?<![\d.,])1(?:\.0+)? times|(?<![\d.,])([\d.,]+(?: \S+)?) to \1(?![\d.,])"
    r"|\b(?:[Aa]ll|none of) 1 |\bnan\b|\binf\b|\bNone\b"
)


def disturb(evidence: Evidence, change: dict[str, float], seed: int | None = None) -> Evidence:
    """Copy the evidence and disturb its rates.

    change: factor for the rates of an experiment, by its name. seed: if it is given, disturb the rates, intervals and
    round counts in all experiments at random, too.
    """
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
    disturbed = Evidence(evidence.document, evidence.folder)
    disturbed.__dict__["data"] = Dataset(data.nodes, data.reference, table, data.published)
    return disturbed


def exhibit_sentences(exhibit: Exhibit) -> Iterator[str]:
    yield from (exhibit.section, exhibit.chart.title, *exhibit.says)


def find_faults(text: str) -> list[str]:
    """List impossible or empty statements in a sentence."""
    faults = [match[0] for match in _PERCENT.finditer(text) if float(match[1].replace(",", "")) > 100]
    return faults + [match[0] for match in _EMPTY.finditer(text)]


@pytest.fixture(scope="module")
def published_evidence(published_study: Path) -> Evidence:
    return Evidence(read_json(published_study / "verdicts.json"), published_study / "data")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_sentence_of_a_disturbed_study_is_impossible_or_empty(published_evidence: Evidence, seed: int) -> None:
    study = disturb(published_evidence, {}, seed)
    sentences = [
        (exhibit.chart.name, text)
        for family in families()
        for exhibit in exhibits_of(family, study)
        for text in exhibit_sentences(exhibit)
    ]
    assert len(sentences) > 50
    assert [(name, text, faults) for name, text in sentences if (faults := find_faults(text))] == []


def test_prompt_rows_have_distinct_names(published_evidence: Evidence) -> None:
    (family,) = [family for family in families() if family.key == "language"]
    shown = [
        exhibit
        for exhibit in exhibits_of(family, published_evidence)
        if "prompt" in exhibit.chart.name and exhibit.table
    ]
    assert shown
    for exhibit in shown:
        assert exhibit.table
        texts = exhibit.table.align.index("r")
        names = [tuple(row[:texts]) for row in exhibit.table.rows]
        assert len(names) > 1
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("number", [1, 3, 14])
def test_headings_are_distinct_and_name_their_machine(published_evidence: Evidence, number: int) -> None:
    study = copy_machine(published_evidence, number)
    names = [*study.names.values()]
    figures, headings = [], []
    for family in families():
        shown = exhibits_of(family, study)
        figures += [exhibit.chart.name for exhibit in shown]
        titles = [text for exhibit in shown for text in (exhibit.section, exhibit.chart.title) if text]
        assert len(set(titles)) == len(titles), family.key
        headings += [
            exhibit.section or exhibit.chart.title for exhibit in shown if not exhibit.within or exhibit.section
        ]
        # With several machines, a figure on a single machine must name that machine in its title.
        alone = [exhibit for exhibit in shown if exhibit.machine and number > 1]
        assert [
            exhibit.chart.title for exhibit in alone if not any(name in exhibit.chart.title for name in names)
        ] == []
    assert len(set(figures)) == len(figures) > 20
    assert len(set(headings)) == len(headings)


def copy_machine(evidence: Evidence, number: int) -> Evidence:
    """Copy one machine `number` times; the copies differ only in name."""
    data = evidence.data
    assert data is not None
    node = data.nodes.nodes[-1]
    own = data.table[data.table["node"] == node.id]
    ids = [f"{node.id}.{index}" for index in range(number)]
    table = pd.concat([own.assign(node=name) for name in ids], ignore_index=True)
    nodes = Nodes([replace(node, record={**node.record, "id": name}) for name in ids], [])
    record = evidence.document["nodes"][-1]
    records = [{**record, "id": name, "label": f"machine {index:02d}"} for index, name in enumerate(ids)]
    study = Evidence({**evidence.document, "nodes": records}, None)
    study.__dict__["data"] = Dataset(nodes, data.reference, table, data.published)
    return study
