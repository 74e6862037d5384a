"""The record of a derived claim's arithmetic: it gives the cell again, and says what each input would turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from report.judging.judge import CLAIMS, judge
from report.render.arithmetic import awaited, worked_parts

from .conftest import Factory
from .priced import REFERENCE, evidence, priced, trained

DERIVED = [
    "W01", "W04", "W12", "W16", "W25", "W26", "W33", "N11", "N13", "G08", "G17", "G20", "G21", "G22", "G26", "G29",
]  # fmt: skip


@pytest.fixture
def judged(synthetic: Factory, tmp_path: Path) -> dict[str, Any]:
    found = evidence(synthetic, trained(priced(synthetic), 400))
    document = judge(found, tmp_path / "verdicts.json", CLAIMS, allow_synthetic=True)
    written = json.loads((tmp_path / "verdicts.json").read_text(encoding="utf-8"))
    assert written["tally"] == document["tally"]
    return {one["id"]: one for one in written["verdicts"]}


def test_every_derived_claim_has_its_formulas(judged: dict[str, Any]) -> None:
    for name in DERIVED:
        for part in judged[name]["parts"]:
            assert part["arithmetic"]["formulas"], name


def test_the_record_leads_from_entries_to_the_result(judged: dict[str, Any]) -> None:
    record = judged["W04"]["parts"][1]["arithmetic"]
    values = {one["symbol"]: one["value"] for one in record["inputs"]}
    seconds = values["w"] * values["N"] * values["D"] / (values["n"] * values["u"] * values["P"])
    assert record["result"]["value"] == pytest.approx(seconds / 86400) and record["result"]["unit"] == "d"
    assert all(name in REFERENCE for one in record["inputs"] for name in one["entries"])
    assert {one["symbol"] for one in record["inputs"] if one["in_interval"]} == {"u"}


def test_each_input_with_a_range_is_moved_to_both_ends(judged: dict[str, Any]) -> None:
    record = judged["W25"]["parts"][0]["arithmetic"]
    for one in [record, *record["also"]]:
        result = one["result"]["value"]
        moved = {(turn["symbol"], turn["end"]): turn for turn in one["sensitivity"]}
        for given in one["inputs"]:
            ends = [end for end in ("low", "high") if given[end] is not None and given[end] != given["value"]]
            assert all((given["symbol"], end) in moved for end in ends), given["symbol"]
        assert all(turn["value"] != pytest.approx(result) for turn in moved.values())
    documented = next(one for one in [record, *record["also"]] if any(i["symbol"] == "L" for i in one["inputs"]))
    padding = next(turn for turn in documented["sensitivity"] if turn["symbol"] == "L")
    assert padding["value"] == pytest.approx(documented["result"]["value"] / 2)
    assert padding["outcome"] == "depends" and padding["verdict"] == "depends"


def test_the_page_says_it_in_words(judged: dict[str, Any]) -> None:
    shown = worked_parts(judged["W25"]["parts"])
    assert shown[0]["formula"].startswith("k = F / ") and "×" in shown[0]["formula"]
    assert any(one["beside"] for one in shown)
    texts = [row["result"] for one in shown for row in one["beside"]]
    assert any(text.endswith("MW") for text in texts) and any(text.endswith("USD") for text in texts)
    rows = {row["symbol"]: row for row in shown[0]["inputs"]}
    assert rows["G"]["value"] == "30.84 million hours" and "llama31-405b.gpu_hours" in rows["G"]["where"]
    assert not worked_parts(judged["N11"]["parts"]) and awaited(judged["N11"]["parts"]) == ["S = g / c"]
