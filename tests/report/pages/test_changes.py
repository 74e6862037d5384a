"""What moved since an earlier edition stands on the page of editions."""

from __future__ import annotations

import json
from pathlib import Path

from report.pages import site
from report.pages.changes import since_last
from report.pages.content import editions_page

EARLIER = Path(__file__).parents[3] / "data" / "editions" / "1" / "verdicts.json"


def test_every_verdict_that_moved_is_told_with_its_reason(published: Path) -> None:
    now = json.loads((published / "verdicts.json").read_text(encoding="utf-8"))
    before = {one["id"]: one["verdict"] for one in json.loads(EARLIER.read_text(encoding="utf-8"))["verdicts"]}
    moved = [one["id"] for one in now["verdicts"] if before[one["id"]] != one["verdict"]]
    changes = since_last(now, published / "verdicts.json", EARLIER)
    assert changes is not None
    rows = {row["id"]: row for row in changes["rows"]}
    assert moved and set(moved) <= set(rows)
    assert all(len(rows[name]["why"]) > 10 for name in moved)
    text = site.source(editions_page(now, changes), site.templates(), {})
    assert all(f"(claims/{name}.qmd)" in text for name in moved)


def test_without_an_earlier_edition_it_says_so(published: Path) -> None:
    now = json.loads((published / "verdicts.json").read_text(encoding="utf-8"))
    assert since_last(now, published / "verdicts.json", None) is None
    assert "no earlier edition" in site.source(editions_page(now, None), site.templates(), {})
