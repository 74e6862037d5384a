"""Each card leads on to the claim's file, the quantity's code, the rows of data and the samples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from contract.files import read_json
from report.data.gather import gather
from report.data.ranges import parse_ranges
from report.render.chain import chains
from report.site import paths
from tests.report.conftest import Factory

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def judged(published: Path) -> tuple[dict[str, Any], Path]:
    """Verdicts on the published nodes, and the data that they were made from."""
    return read_json(published / "verdicts.json"), published / "data"


def test_each_claim_with_cells_leads_to_its_samples(judged: tuple[dict[str, Any], Path]) -> None:
    document, data = judged
    found = chains(document["verdicts"], data, {})
    assert set(found) == {one["id"] for one in document["verdicts"] if one["cells"]}
    for verdict in document["verdicts"]:
        for part, told in zip(verdict["parts"], found.get(verdict["id"], []), strict=False):
            cells = [cell for cell in verdict["cells"] if cell["part"] == part["name"]]
            behind = {number for cell in cells for number in parse_ranges(cell["behind"])}
            assert sum(int(one["rows"].split()[0].replace(",", "")) for one in told["of"]) == len(behind)
            assert bool(told["of"]) == bool(behind)


def test_the_code_of_each_quantity_stands_where_it_is_said(judged: tuple[dict[str, Any], Path]) -> None:
    document, data = judged
    for parts in chains(document["verdicts"], data, {}).values():
        for part in parts:
            place = re.fullmatch(r"\[(.+\.py), line (\d+)\]\{\.code\}", part["code"].replace("\\", ""))
            assert place, part
            lines = (PROJECT / place[1]).read_text(encoding="utf-8").splitlines()
            assert f'"{part["quantity"]}"' in "\n".join(lines[int(place[2]) - 1 : int(place[2]) + 12])
            assert part["means"]


def test_a_file_of_samples_has_the_address_that_the_site_gives_it(synthetic: Factory, tmp_path: Path) -> None:
    node = synthetic("gpu-node", gpus=1)
    node.point("gemm", 1e-3, device="cuda:0", params={"m": 8, "n": 8, "k": 8}, flop=1024.0)
    gather([synthetic.write([node])], tmp_path / "data", allow_synthetic=True)
    cell = {"part": "", "node": node.id, "behind": "0"}
    verdict = {"id": "W15", "cells": [cell], "parts": [{"name": "", "quantity": "gemm.rate", "how": "Rate.\n\nMore."}]}
    (part,) = chains([verdict], tmp_path / "data", {"products": "Matrix products by size"})["W15"]
    assert part["of"][0]["link"] == f"[gemm]({paths.samples(node.id, 'gemm', 'cuda:0')})"
    assert part["means"] == "Rate."
    assert part["sections"] == [{"key": "products", "title": "Matrix products by size"}]


def test_rows_that_are_not_there_are_an_error(judged: tuple[dict[str, Any], Path]) -> None:
    _, data = judged
    verdict = {"id": "W15", "cells": [{"part": "", "behind": "999999999"}], "parts": [{"name": "", "quantity": ""}]}
    with pytest.raises(StudyError, match=r"no row 999999999.*judge again"):
        chains([verdict], data, {})
