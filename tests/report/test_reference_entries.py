"""Every published figure in data/reference has a use, and who uses it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from report.cli import main
from report.data.dataset import Dataset
from report.data.nodes import read_nodes
from report.data.reference import REFERENCE, read_reference, stated
from report.judging.claims import Claim, Part
from report.judging.contradictions import Contradiction, Figures
from report.judging.evaluate import QuantityCache
from report.judging.judge import CLAIMS
from report.judging.reference_use import list_references, listed, named, told, unused, uses
from report.quantities import several_devices

from .conftest import Factory
from .test_claims import references
from .test_triangulation import ENTRIES, entry


def evidence(synthetic: Factory, *entries: dict[str, Any]) -> QuantityCache:
    node = synthetic("node-a").clock()
    return QuantityCache(Dataset(read_nodes([synthetic.write([node])], True), {one["id"]: one for one in entries}))


def claim(name: str, **more: Any) -> Claim:
    return Claim(name, "whygpu", "A section", "Something.", "documented", 1, Path(f"{name}.yaml"), **more)


def documented(*names: str) -> Part:
    return Part("", "reference.value", "exists", 1, "So.", scope={"entry": list(names)})


def test_no_entry_of_the_reference_is_an_orphan() -> None:
    """A figure is there for a claim, a quantity, a contradiction, a comparison or a prediction: else it goes."""
    text, lost = list_references(None, CLAIMS, REFERENCE)
    assert lost == [], "give these a use, or remove them from data/reference"
    unread = [name for name, entry in read_reference(REFERENCE).items() if entry["status"] == "not verified"]
    lines = text.splitlines()
    assert lines[0] == f"{len(unread)} figures not verified:"
    assert [line.split(":")[0].strip() for line in lines[1 : len(unread) + 1]] == unread


def test_a_claim_uses_what_it_names_and_what_its_rule_compares(synthetic: Factory) -> None:
    found = evidence(synthetic, *(entry(name, 1.0) for name in ("a.x", "b.x", "c.x")))
    wanted = [claim("W01", parts=(documented("a.x"),)), claim("W02", sources=("a.x", "b.x"))]
    users = uses(found, wanted, [], None)
    assert users == {"a.x": ["W01", "W02"], "b.x": ["W02"], "c.x": []}
    assert unused(users) == ["c.x"]


def test_a_claim_uses_what_its_quantity_asked_for_on_this_evidence(synthetic: Factory) -> None:
    names = ("llama31-405b.gpu_hours", "llama31-405b.gpus")
    found = evidence(synthetic, *(entry(name, 10.0, "h" if "hours" in name else "1") for name in names))
    part = Part("", "llama405b.days_from_gpu_hours", "at_least", 1, "So.")
    users = uses(found, [claim("W04", parts=(part,))], [], None, run=True)
    for name in names:
        assert users[name][0] == "W04"
        assert "llama405b.days_from_gpu_hours" in users[name]


def test_an_entry_that_is_asked_for_in_vain_is_used_all_the_same(synthetic: Factory) -> None:
    """A quantity that waits for its source is who the failed look-up is kept for."""
    found = evidence(synthetic, entry("llama31-405b.gpus", None, "1", status="not verified"))
    assert "llama405b.days_from_gpu_hours" in uses(found, [], [], None, run=True)["llama31-405b.gpus"]


def test_a_pattern_that_a_module_declares_is_a_use(synthetic: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    found = evidence(synthetic, entry("chip.lanes", 1.0), entry("chip.sockets", 1.0))
    assert unused(uses(found, [], [], None)) == ["chip.lanes", "chip.sockets"]
    monkeypatch.setattr(several_devices, "ENTRIES", ("*.lanes",), raising=False)
    users = uses(found, [], [], None)
    assert users["chip.lanes"] == ["quantities of several_devices"]
    assert users["chip.sockets"] == []


def test_contradictions_and_predictions_are_uses(synthetic: Factory) -> None:
    chip = [entry("card-9.memory_bytes_per_s", 1e12), entry("card-9.fp32_flops", None, "FLOP/s", status="not verified")]
    asked = entry("card-9.slots", 2.0, "1")
    words = {"title": "T", "question": "Q", "conflict": "by figures", "why": "W", "stands": "each", "boundary": "B"}
    one = Contradiction("cards", sides=(), figures=Figures((asked,), 1.0, "So."), **words)
    users = uses(evidence(synthetic, *chip, asked), [], [one], None)
    assert users["card-9.slots"] == ["contradiction cards"]
    assert users["card-9.memory_bytes_per_s"] == users["card-9.fp32_flops"] == ["prediction card-9"]


def test_entries_are_told_with_the_unverified_first() -> None:
    reference = {one["id"]: one for one in ENTRIES}
    users = {name: ["W01", *(f"quantity.{n}" for n in range(8))] for name in reference}
    users["range.memory_bytes_per_s"] = []
    lines = told(reference, users).splitlines()
    assert lines[0] == "2 figures not verified:"
    assert lines[1].startswith("  small.memory_bytes_per_s: 2 TB/s: W01, quantity.0")
    assert lines[1].endswith("and 3 more")
    assert "  blank.memory_bytes_per_s: no figure: " in lines[2]
    assert lines[-2:] == ["1 used by nobody:", "  range.memory_bytes_per_s: 8.00 [3.00, 8.00] TB/s, verified"]
    assert named(["W01"]) == "W01"


def test_a_listed_entry_holds_its_source_and_its_users() -> None:
    (one,) = listed({"a.x": ENTRIES[0]}, {"a.x": ["W01"]})
    assert one["source"]["url"] == "https://example.org/"
    assert one["source"]["date"] == "2024"
    assert (one["value"], one["unit"], one["used_by"]) == (4e12, "B/s", ["W01"])


@pytest.mark.parametrize(
    ("value", "more", "said"),
    [
        (3.35e12, {}, "3.35 TB/s"),
        (7.8e11, {"low": 6.5e11, "high": 7.8e11}, "780 [650, 780] GB/s"),
        (None, {}, "no figure"),
        (True, {"unit": "1"}, "yes"),
        (False, {"unit": "1"}, "no"),
        (2022, {"unit": "1", "what": "Year in which it came to market"}, "2022"),
    ],
)
def test_a_figure_is_told_in_words(value: Any, more: dict[str, Any], said: str) -> None:
    assert stated({**entry("a.x", value), **more}) == said


def test_the_command_lists_them_and_fails_for_an_orphan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["references"]) == 0
    assert "0 used by nobody" in capsys.readouterr().out
    folder = tmp_path / "reference"
    folder.mkdir()
    for path in REFERENCE.glob("*.yaml"):
        (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    references(folder, entry("lonely.figure", 1.0))
    assert set(read_reference(folder)) - set(read_reference(REFERENCE)) == {"lonely.figure"}
    assert main(["references", "--reference", str(folder)]) == 1
    assert "lonely.figure" in capsys.readouterr().out
