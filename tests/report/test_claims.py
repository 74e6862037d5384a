"""Claim and reference files: mistakes are named with their place."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from contract.errors import StudyError
from report.data.reference import read_reference
from report.derivations import _factor
from report.judging.claims import ARTICLES, read_claims
from report.quantities import quantities

ROOT = Path(__file__).parents[2]
FLAT: dict[str, Any] = {
    "id": "W15",
    "article": "whygpu",
    "section": "A section",
    "says": "Something about cores.",
    "kind": "measured",
    "quantity": "gemm.mac_per_cycle_per_core",
    "scope": {"device": "cpu", "dtype": "float32", "threads": 1, "backend": "best"},
    "rule": "at_most",
    "threshold": {"value": 1000, "why": "generous"},
    "note": "A note.",
    "version": 1,
}
ENTRY: dict[str, Any] = {
    "id": "chip.cores",
    "subject": "A chip",
    "what": "Cores",
    "value": 192,
    "unit": "1",
    "date": "2024-10",
    "source": {"title": "A datasheet", "publisher": "A maker", "url": "https://example.org/", "where": "page 1"},
    "status": "verified",
}


def write(folder: Path, claim: dict[str, Any], name: str | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name or claim['id']}.yaml"
    with path.open("w") as file:
        YAML().dump(claim, file)
    return path


def changed(**changes: Any) -> dict[str, Any]:
    """FLAT with other values; None removes a key."""
    claim = {**FLAT, **changes}
    return {key: value for key, value in claim.items() if value is not None}


def fault(folder: Path, claim: dict[str, Any], reference: dict[str, Any] | None = None, name: str | None = None) -> str:
    write(folder, claim, name)
    with pytest.raises(StudyError) as caught:
        read_claims(folder, reference or {})
    return str(caught.value)


def test_a_flat_claim_has_one_part(tmp_path: Path) -> None:
    write(tmp_path, changed(scale={"by": 128, "why": "a server"}, sensitivity=[200, 2000]))
    (claim,) = read_claims(tmp_path, {})
    (part,) = claim.parts
    assert (claim.id, part.threshold, part.scale, part.sensitivity) == ("W15", 1000, 128, [200, 2000])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rule": "at_mots"}, "rule: 'at_mots' is not allowed. Allowed: at_least, at_most, within, ratio, trend, "
         "exists, crossover, for_share_of. Did you mean 'at_most'?"),
        ({"quantity": "gemm.mac_per_cycle_per_cor"}, "Did you mean 'gemm.mac_per_cycle_per_core'?"),
        ({"scope": {"dtpye": "float32"}}, "unknown key. Allowed: node, device, dtype"),
        ({"scope": {"dtype": "flaot32"}}, "Did you mean 'float32'?"),
        ({"scope": {"dtype": ["float64", "flaot32"]}}, "Did you mean 'float32'?"),
        ({"sensitvity": [1]}, "Did you mean 'sensitivity'?"),
        ({"threshold": {"value": "many", "why": "?"}}, "threshold.value"),
        ({"threshold": {"value": 3}}, "missing: why"),
        ({"threshold": None}, "missing: threshold"),
        ({"rule": "ratio"}, "missing: options"),
        ({"rule": "ratio", "options": {"over": "device"}}, "missing: of, to"),
        ({"rule": "trend", "options": {"of": "gpu"}}, "missing: along"),
        ({"rule": "for_share_of", "options": {"along": "batch"}}, "missing: share"),
        ({"rule": "within"}, "is not of type array"),
        ({"threshold": {"value": [1, 2], "why": "a range"}}, "is not of type number"),
        ({"article": "whygpus"}, "Did you mean 'whygpu'?"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_file_line_and_key(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    message = fault(tmp_path, changed(**changes))
    assert said in message
    assert message.startswith(f"{tmp_path / 'W15.yaml'}, line ") or "missing" in said


def test_the_line_is_that_of_the_mistake(tmp_path: Path) -> None:
    assert ", line 12: rule: " in fault(tmp_path, changed(rule="at_mots"))
    lines = (tmp_path / "W15.yaml").read_text().splitlines()
    assert lines[11] == "rule: at_mots"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"see_also": ["W99"]}, "see_also: there is no claim 'W99'"),
        ({"sources": ["chip.core"]}, "there is no reference entry 'chip.core'. Did you mean 'chip.cores'?"),
        ({"quantity": "reference.value", "scope": {"entry": ["chip.core"]}}, "scope.entry: there is no"),
        ({"rule": "within", "threshold": {"value": [9, 1], "why": "?"}}, "the range [9, 1] ends before it begins"),
        ({"version": 2}, "version 2 has no reason under 'changes'"),
        ({"note": None}, "W15.yaml, line 1: (top level): missing: note"),
        ({"see_also": ["W15"]}, "see_also: W15 names itself"),
        ({"quantity": "reference.value", "scope": None}, "line 6: quantity: reference.value needs a scope"),
        ({"quantity": "a.b", "awaits": {"experiment": "a", "source": "b", "why": "c"}}, "awaits"),
        ({"all_of": [{"name": "a", "quantity": "gemm.rate", "rule": "exists", "threshold": {"value": 1, "why": "?"}}]},
         "'quantity' stands beside 'all_of'"),
        ({"kind": "judgement", "bears_on": []}, "a judgement is not decided by a rule"),
    ],
)  # fmt: skip
def test_mistakes_between_files_are_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    assert said in fault(tmp_path, changed(**changes), {"chip.cores": ENTRY})


def test_the_file_is_named_after_its_id(tmp_path: Path) -> None:
    assert "the file's name says 'W16'" in fault(tmp_path, FLAT, name="W16")


def test_parts_need_names_of_their_own(tmp_path: Path) -> None:
    part = {"name": "a", "quantity": "gemm.rate", "rule": "exists", "threshold": {"value": 1, "why": "?"}}
    flat = dict.fromkeys(("quantity", "scope", "rule", "threshold"))
    assert "two parts are named 'a'" in fault(tmp_path, changed(**flat, all_of=[part, part]))
    del part["name"]
    assert "missing: name" in fault(tmp_path, changed(**flat, all_of=[part]))


def test_a_claim_may_await_a_quantity_that_is_not_there_yet(tmp_path: Path) -> None:
    write(
        tmp_path,
        changed(quantity="offload.trip", scope={"size": "large"}, awaits={"experiment": "offload", "why": "x"}),
    )
    (claim,) = read_claims(tmp_path, {})
    assert claim.parts[0].awaits == {"experiment": "offload", "why": "x"}


def test_a_claim_without_rules_takes_those_of_the_one_it_is_the_same_as(tmp_path: Path) -> None:
    write(tmp_path, FLAT)
    bare = {key: FLAT[key] for key in ("article", "section", "says", "kind", "note", "version")}
    write(tmp_path, {**bare, "id": "W16", "same_as": "W15"})
    first, second = read_claims(tmp_path, {})
    assert second.parts == first.parts and second.id == "W16"


def test_every_published_claim_and_entry_reads() -> None:
    reference = read_reference(ROOT / "data" / "reference")
    claims = read_claims(ROOT / "report" / "claims", reference)
    order = [(list(ARTICLES).index(claim.article), claim.id) for claim in claims]
    assert order == sorted(order) and len(order) == len(list((ROOT / "report" / "claims").glob("*.yaml"))) >= 88


def test_every_quantity_of_a_published_claim_is_registered_or_awaited() -> None:
    claims = read_claims(ROOT / "report" / "claims", read_reference(ROOT / "data" / "reference"))
    for claim in claims:
        for part in claim.parts:
            assert part.awaits or part.quantity in quantities(), f"{claim.id}: {part.quantity}"


def test_every_unit_of_a_published_figure_is_one_that_pint_knows() -> None:
    units = {entry["unit"] for entry in read_reference(ROOT / "data" / "reference").values()} - {"yes or no"}
    assert len(units) > 10
    assert all(_factor(unit, unit) == 1 for unit in units)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"threshold": {"value": math.nan, "why": "so"}}, "threshold.value: not a finite number"),
        ({"threshold": {"value": 1e31, "why": "so"}}, "threshold.value"),
        ({"threshold": {"value": True, "why": "so"}}, "threshold.value"),
        ({"sensitivity": [1, -math.inf]}, "sensitivity.1: not a finite number"),
        ({"sensitivity": list(range(51))}, "sensitivity"),
        ({"scale": {"by": 0, "why": "so"}}, "scale.by"),
        ({"scale": {"by": math.inf, "why": "so"}}, "scale.by: not a finite number"),
        ({"version": 10**6}, "version: 1000000 is greater than the maximum"),
        ({"see_also": ["W16\n"]}, "see_also.0"),
    ],
)
def test_numbers_of_a_claim_are_finite_and_in_range(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    assert said in fault(tmp_path, changed(**changes))


def references(folder: Path, *entries: dict[str, Any]) -> Path:
    with (folder / "chips.yaml").open("w") as file:
        YAML().dump(list(entries), file)
    return folder


def test_reference_dates_are_text_however_yaml_reads_them(tmp_path: Path) -> None:
    (tmp_path / "chips.yaml").write_text(
        "- {id: a, subject: s, what: w, value: 1, unit: h, date: 2024-07-23, status: verified,\n"
        "   source: {title: t, publisher: p, url: 'https://example.org', where: x}}\n"
    )
    assert read_reference(tmp_path)["a"]["date"] == "2024-07-23"


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([ENTRY, ENTRY], "the id 'chip.cores' is used twice"),
        ([{**ENTRY, "low": 200}], "does not lie between low and high"),
        ([{key: value for key, value in ENTRY.items() if key != "value"}], "missing: value"),
        ([{**ENTRY, "status": "verifed"}], "Did you mean 'verified'?"),
        ([{**ENTRY, "value": math.inf}], "line 4: 0.value: not a finite number"),
        ([{**ENTRY, "value": -1}], "-1 is less than the minimum of 0"),
        ([{**ENTRY, "high": 1e31}], "greater than the maximum"),
        ([{**ENTRY, "unit": "GB/s"}], "'GB/s' is not a unit that is known here"),
        ([{**ENTRY, "unit": "h\n"}], "is not a unit that is known here"),
        ([{**ENTRY, "unit": "yes or no"}], "192 is not of type"),
        ([{**ENTRY, "date": "last year"}], "'last year' is no date: write 2024"),
        ([{**ENTRY, "id": "chip\n"}], "does not match"),
    ],
)
def test_mistakes_in_reference_data_are_named(tmp_path: Path, entries: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(StudyError, match=said.replace("?", r"\?")):
        read_reference(references(tmp_path, *entries))
