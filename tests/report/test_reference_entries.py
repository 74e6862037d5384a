"""Command `references` lists the users of every reference entry, and fails if an entry is unused."""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from report.cli import main
from report.data.dataset import Dataset, MissingSourceError
from report.data.node_reader import Nodes
from report.data.reference_figures import REFERENCE, format_figure, read_reference
from report.judging.claim_files import Claim
from report.judging.contradictions import Contradiction
from report.judging.part_evaluation import QuantityCache
from report.judging.reference_use import reference_users
from report.quantities import quantities, several_devices

from .made_estimates import NO_DATA, part
from .test_claims import make_entry, write_references

DAYS = "llama405b.days_from_gpu_hours"


def claim(name: str, **more: Any) -> Claim:
    return Claim(name, "whygpu", "A section", "Something.", "none", "documented", 1, Path(f"{name}.yaml"), **more)


def list_users(
    *entries: dict[str, Any], claims: tuple[Claim, ...] = (), against: tuple[Contradiction, ...] = ()
) -> Any:
    """Return the users of `entries` in a dataset without measurements."""
    cache = QuantityCache(Dataset(Nodes([], []), {item["id"]: item for item in entries}, NO_DATA.table))
    with suppress(MissingSourceError):
        cache.estimates(quantities()[DAYS])
    return reference_users(cache, claims, against, None)


def test_claim_uses_its_sources_and_compared_entries() -> None:
    rule_part = part("exists", 1, quantity="reference.value", scope={"entry": ["a.x"]})
    claims = (claim("W01", parts=(rule_part,)), claim("W02", sources=("a.x", "b.x")))
    used_by = list_users(*(make_entry(name, 1.0) for name in ("a.x", "b.x", "c.x")), claims=claims)
    assert used_by == {"a.x": ["W01", "W02"], "b.x": ["W02"], "c.x": []}


@pytest.mark.parametrize("value", [10.0, None])
def test_claim_uses_entries_that_its_quantity_looks_up(value: float | None) -> None:
    """A quantity uses an entry even if the look-up fails because the entry has no verified value."""
    hours = make_entry("llama31-405b.gpu_hours", value, "h")
    days_claim = claim("W04", parts=(part("exists", 1, quantity=DAYS),))
    used_by = list_users(hours, make_entry("llama31-405b.gpus", 10.0, "1"), claims=(days_claim,))
    assert used_by["llama31-405b.gpu_hours"][:2] == ["W04", DAYS]
    assert used_by["llama31-405b.gpus"][0] == "W04" or value is None


def test_patterns_contradictions_and_ratings_count_as_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = [make_entry("card-9.memory_bytes_per_s", 1e12, "B/s"), make_entry("card-9.fp32_flops", None, "FLOP/s")]
    others = [make_entry(name, 2.0, "1") for name in ("card-9.slots", "chip.lanes", "chip.sockets")]
    monkeypatch.setattr(several_devices, "ENTRIES", ("*.lanes",), raising=False)
    used_by = list_users(*rates, *others, against=(Contradiction({"id": "cards"}, (), (others[0],)),))
    assert used_by == {
        "card-9.memory_bytes_per_s": ["rating card-9"],
        "card-9.fp32_flops": ["rating card-9"],
        "card-9.slots": ["contradiction cards"],
        "chip.lanes": ["quantities of several_devices"],
        "chip.sockets": [],
    }


@pytest.mark.parametrize(
    ("value", "more", "text"),
    [
        (7.8e11, {"low": 6.5e11, "high": 7.8e11}, "780 [650, 780] GB/s"),
        (None, {}, "no figure"),
        (True, {"unit": "1"}, "yes"),
        (False, {"unit": "1"}, "no"),
        (2022, {"unit": "1", "what": "Year in which it came to market"}, "2022"),
    ],
)
def test_figures_are_formatted(value: Any, more: dict[str, Any], text: str) -> None:
    assert format_figure(make_entry("a.x", value, **{"unit": "B/s", **more})) == text


def test_references_lists_unverified_first_and_fails_for_unused(
    published_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "reference"
    shutil.copytree(REFERENCE, folder)
    write_references(folder, make_entry("lonely.figure", 1.0, "B/s"))
    assert main(["references", "--records", "--data", str(published_study / "data"), "--reference", str(folder)]) == 1
    output = capsys.readouterr().out
    lines = output.splitlines()
    unread = [name for name, entry in read_reference(REFERENCE).items() if entry["status"] == "not verified"]
    assert lines[0] == f"{len(unread)} figures not verified:"
    assert [line.split(":")[0].strip() for line in lines[1 : len(unread) + 1]] == unread
    # If this fails because other entries are listed, use these entries or remove them from data/reference.
    assert lines[-2:] == ["1 used by nobody:", "  lonely.figure: 1 B/s, verified"]
    assert re.search(r"mlperf-training-3\.1: \d+ of \d+ records: .*G09", output)
    assert "mlperf-training-3.1/intel.16-nodes-spr-pytorch.resnet: " in output
