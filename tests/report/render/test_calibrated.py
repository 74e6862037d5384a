"""How often the rules err, in words: counted from the table, with what exceeds named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from report.render import TEMPLATES
from report.render.calibrated import RARE, calibrated, read_calibration
from report.render.markdown import environment
from report.render.page import context
from report.statistics import DECIDING


def share(value: float) -> dict[str, float]:
    return {"share": value, "low": max(0.0, value - 0.001), "high": min(1.0, value + 0.001)}


def simulated(question: str, wrong: float, depends: float = 0.0, rounds: int = 3) -> dict[str, Any]:
    return {
        "question": question, "noise": "2% between rounds", "rounds": rounds, "points": 10, "trials": 10_000,
        "nodes": 1000, "width": 0.05, "supported": share(wrong), "challenged": share(0.001), "depends": share(depends),
        "undecided": share(1 - wrong - 0.001 - depends), "right": [{"widths": 1, **share(0.8)}],
    }  # fmt: skip


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "calibration.json"
    about = {"origin": "synthetic", "level": DECIDING, "drawn": 0.95, "seed": 1, "samples_per_round": 5}
    path.write_text(json.dumps({**about, "rows": rows}))
    return path


def test_what_exceeds_is_counted_and_named(tmp_path: Path) -> None:
    told = calibrated(written(tmp_path, simulated("one point", 0.006), simulated("some point", 0.0312, 0.1)))
    assert (told["kept"], told["trials"], told["rare"]) == ("1 of the 2", "20,000", f"{RARE:.0%}")
    assert told["exceeded"] == ["some point, 2% between rounds, 3 rounds, 10 points: 3.1%"]
    assert told["rows"][0]["supported"] == "0.60% [0.50, 0.70]" and told["rows"][0]["right"] == "80%"
    assert told["rows"][1]["undecided"].endswith(", and 10.0% depends")


def test_where_nothing_exceeds_nothing_is_named(tmp_path: Path) -> None:
    told = calibrated(written(tmp_path, simulated("one point", 0.01)))
    assert told["kept"] == "all 1" and told["exceeded"] == []


def test_the_method_section_holds_the_whole_table(make_document: Any) -> None:
    told, _ = context(make_document(), None)
    shown = environment(TEMPLATES).get_template("parts/method.qmd").render(told)
    table = [
        line
        for line in shown.partition("{#calibration}")[2].partition("\n### ")[0].splitlines()
        if line.startswith("| ")
    ]
    rows = read_calibration()["rows"]
    assert len(table) == len(rows) + 1
    for line, one in zip(table[1:], rows, strict=True):
        assert one["question"] in line and f"{one['trials']:,}" in line
        assert f"{100 * one['supported']['share']:.2f}%" in line.replace("\\", "")
