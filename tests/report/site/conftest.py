"""Judged synthetic nodes, editions made by hand, and a whole site rendered once."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from report.data.dataset import Dataset
from report.data.gather import gather
from report.data.gathered import read_dataset
from report.data.reference import REFERENCE, read_reference
from report.judging.judge import judge
from report.render import render
from report.site.build import build
from tests.report.conftest import Factory
from tests.report.rendering import once

URL = "https://example.org/study/"


@dataclass(frozen=True)
class Judged:
    """A folder with data/, what gather wrote, and verdicts.json; the document that this holds."""

    folder: Path
    document: dict[str, Any]

    @property
    def verdicts(self) -> Path:
        return self.folder / "verdicts.json"

    @property
    def data(self) -> Path:
        return self.folder / "data"


def judged(folder: Path, rates: dict[str, float], when: str) -> None:
    """Verdicts on nodes by name, each with the multiply-adds per cycle that it retires; judged `when`."""
    factory = Factory(folder / "nodes")
    for name, rate in rates.items():
        node = factory(name).gemm(rate).gemm(rate / 2, n=256).clock()
        node.point("gemm", 1.0, dtype="int8", status="unsupported", reason="=HYPERLINK(1) is no dtype")
        node.write()
    gather([factory.root], folder / "data", allow_synthetic=True)
    data: Dataset = read_dataset(folder / "data", read_reference(REFERENCE))
    document = judge(data, folder / "verdicts.json", allow_synthetic=True)
    document = {**document, "generated_utc": when, "origin": "measured"}
    (folder / "verdicts.json").write_text(json.dumps(document), encoding="utf-8")


def kept(folder: Path) -> Judged:
    """What `judged` wrote."""
    return Judged(folder, json.loads((folder / "verdicts.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The first edition: one node, on which N03 is challenged."""
    rates = {"node-a": 27.9}
    return kept(once(tmp_path_factory, "first-edition", lambda folder: judged(folder, rates, "2026-01-01T00:00:00Z")))


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The second: the node is slower, so that N03 is supported, and another node has come."""
    rates = {"node-a": 4.0, "node-b": 3.0}
    return kept(once(tmp_path_factory, "second-edition", lambda folder: judged(folder, rates, "2026-02-01T00:00:00Z")))


@pytest.fixture
def changed(first: Judged) -> Callable[..., dict[str, Any]]:
    """The first edition's document with changes: `changed(lambda document: …)`."""

    def make(*edits: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        document = copy.deepcopy(first.document)
        for edit in edits:
            edit(document)
        return document

    return make


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, first: Judged, second: Judged) -> Path:
    """The second edition's whole site, told of the first."""
    out = tmp_path_factory.mktemp("site") / "report"
    before = dict(os.environ)
    render(second.verdicts, out, "pandoc", second.data, URL, first.verdicts)
    build(out, second.verdicts, second.data, URL, first.verdicts)
    assert dict(os.environ) == before
    return out
