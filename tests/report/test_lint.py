"""Command `lint`: no faults in real verdicts, and each check detects its fault."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from report.cli import main
from report.commands.lint import CHECKS, Study, find_faults, print_faults
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.reference_figures import REFERENCE, read_reference
from report.data.row_ranges import parse_ranges
from report.judging.judge import judge

from .conftest import Factory

PRODUCT, SHARE, FIGURE = "gemm.mac_per_cycle_per_core", "training.matmul_time_share", "reference.value"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Verdicts for a small synthetic node: gemm in two libraries, clock, peak and training."""
    folder = tmp_path_factory.mktemp("lint")
    node = Factory(folder / "nodes")().clock().peak(2e11).peak(4e11, threads=2)
    for n in (256, 512):
        for backend, per_cycle in (("torch", 20.0), ("numpy", 27.9)):
            for threads in (1, 2):
                node.gemm(per_cycle * 0.97 * threads, n=n, backend=backend, threads=threads)
    shares = {"time": 0.02, "matmul_flop_share": 0.97, "matmul_time_share": 0.8}
    node.point("training", shares, params={"model": "mlp", "batch": 32}, flop=1e9).write()
    gather([folder / "nodes"], folder / "data", allow_synthetic=True)
    evidence = read_dataset(folder / "data", read_reference(REFERENCE))
    judge(evidence, folder / "verdicts.json", allow_synthetic=True)
    return Study(folder / "verdicts.json", folder / "data")


class Broken:
    """Copy of a study whose verdicts a test breaks, with a method that lists the faults that a check finds."""

    def __init__(self, study: Study) -> None:
        self.study = replace(study)
        # Copy the cached properties, to avoid reading the files again.
        for key in ("document", "summary", "entries"):
            self.study.__dict__[key] = copy.deepcopy(getattr(study, key))

    def find_part(self, quantity: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return the first verdict that has a suitable part on `quantity`, then this part and its first case.

        A part is suitable if it has cases and its rule is not `ratio`.
        """
        for verdict in self.study.document["verdicts"]:
            for part in verdict["parts"]:
                cases = [case for case in verdict["cases"] if case["part"] == part["name"]]
                if part["quantity"] == quantity and part["rule"] != "ratio" and cases:
                    return verdict, part, cases[0]
        raise AssertionError(f"no verdict rests on {quantity}")

    def faults(self, check: str) -> Iterator[str]:
        """Yield messages from one check, as the command prints them after the check name."""
        for where, what, do in CHECKS[check][1](self.study):
            yield f"{where}: {what}. {do}"


@pytest.fixture
def broken_study(study: Study) -> Broken:
    return Broken(study)


def test_real_verdicts_have_no_faults(study: Study, published_study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for checked in (study, Study(published_study / "verdicts.json", published_study / "data")):
        status = print_faults(checked.verdicts, checked.data, checked.reference)
        output = capsys.readouterr().out
        assert status == 0, output
        assert f"{len(CHECKS)} checks" in output
        assert sum(len(cases) for *_, cases in checked.parts()) > 15


def test_fault_prints_one_line_and_exits_with_1(
    broken_study: Broken, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken_study.find_part(PRODUCT)[2]["n_samples"] = 0
    verdicts = tmp_path / "verdicts.json"
    verdicts.write_text(json.dumps(broken_study.study.document), encoding="utf-8")
    assert main(["lint", "--verdicts", str(verdicts), "--data", str(broken_study.study.data)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"counts: claim \w\d\d, .*: no number of rounds or of samples\. Let the quantity .*", line)


@pytest.mark.parametrize("field", ["verdicts", "data"])
def test_missing_file_is_named(study: Study, tmp_path: Path, field: str) -> None:
    with pytest.raises(StudyError, match=r"none.*no such file"):
        find_faults(replace(study, **{field: tmp_path / "none"}))


WITHOUT_INTERVAL = {"low": None, "high": None}
WITHOUT_REASON = {"estimate": None, **WITHOUT_INTERVAL, "detail": ""}


@pytest.mark.parametrize(
    ("check", "quantity", "change", "message"),
    [
        ("rule-version", PRODUCT, lambda v, p, c: v.update(version=4), "version 4 of its rule has no reason"),
        ("rule-version", PRODUCT, lambda v, p, c: v.update(version=2, changes=[{"version": 2, "reason": " "}]),
         "version 2 of its rule has no reason"),
        *(("rule-version", PRODUCT, lambda v, p, c, key=key: p.update({key: ""}), f"decided without {key}")
          for key in ("rule", "threshold_why", "threshold")),
        *(("interval", PRODUCT, lambda v, p, c: c.update(WITHOUT_INTERVAL), message)
          for message in ("no interval, though all behind it have one", "without an interval")),
        ("interval", PRODUCT, lambda v, p, c: c.update(low=c["estimate"], high=c["estimate"]), "is exact, though it"),
        ("interval", PRODUCT, lambda v, p, c: c.update(estimate=c["high"] * 2), "is not within ["),
        ("interval", PRODUCT, lambda v, p, c: c.update(WITHOUT_REASON), "neither an estimate nor a word why"),
        ("counts", PRODUCT, lambda v, p, c: c.update(n_rounds=0), "no number of rounds or of samples"),
        ("unit", PRODUCT, lambda v, p, c: p.update(unit=""), "no unit"),
        ("unit", FIGURE, lambda v, p, c: p.update(unit="d"), "in d, while its entry is in"),
        ("rows", PRODUCT, lambda v, p, c: c.update(behind="99999"), "row 99999 is not in the summary"),
        ("rows", PRODUCT, lambda v, p, c: c.update(behind=""), "no row of the summary is behind it"),
        ("rows", PRODUCT, lambda v, p, c: c.update(node="another"), "no row behind it is of another"),
        ("reading", SHARE, lambda v, p, c: c.update(estimate=c["estimate"] * 1.0001), "is not row"),
        ("reading", SHARE, lambda v, p, c: c.update(low=c["low"] * 0.99), "low "),
        ("entries", FIGURE, lambda v, p, c: p["entries"].append("no.such"), "there is no entry 'no.such'"),
        ("entries", FIGURE, lambda v, p, c: p["scope"].update(entry=[]), "which decides nothing here"),
        ("entries", FIGURE, lambda v, p, c: c.update(estimate=c["estimate"] + 1), "is not what its entry says"),
        ("entries", PRODUCT, lambda v, p, c: p.update(entries=["h100-sxm.sms"]), "measured, and rests on h100-sxm.sms"),
        ("key-number", PRODUCT, lambda v, p, c: p.update(estimate=12345.0),
         "its number 12345 is none of what it is made of"),
        ("key-number", PRODUCT, lambda v, p, c: v.update(estimate=12345.0), "its number 12345 is none of"),
    ],
)  # fmt: skip
def test_checks_detect_broken_verdicts(
    broken_study: Broken, check: str, quantity: str, change: Callable[[Any, Any, Any], Any], message: str
) -> None:
    records = broken_study.find_part(quantity)
    change(*records)
    assert any(message in line and records[0]["id"] in line for line in broken_study.faults(check))


def test_case_with_one_round_needs_no_interval(broken_study: Broken) -> None:
    verdict, _, case = broken_study.find_part(PRODUCT)
    case.update(WITHOUT_INTERVAL, n_rounds=1, outcome="undecided")
    assert not [line for line in broken_study.faults("interval") if f"claim {verdict['id']}" in line]


def test_checks_detect_broken_data_and_entries(broken_study: Broken) -> None:
    _, part, _ = broken_study.find_part(FIGURE)
    broken_study.study.entries[part["entries"][0]]["status"] = "not verified"  # type: ignore[index]
    (row,) = parse_ranges(broken_study.find_part(SHARE)[2]["behind"])
    broken_study.study.__dict__["summary"] = broken_study.study.summary.drop(row)
    assert any("which was not verified" in line for line in broken_study.faults("entries"))
    assert any(f"row {row} is not in the summary" in line for line in broken_study.faults("rows"))
