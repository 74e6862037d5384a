"""docs/bench.md: the tables of a run, and how they came about. Every number comes from its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from studies.bench import aa, truth

SHARE_BAND = (0.93, 0.97)
TEMPLATE = Path(__file__).with_name("page.md")


def text(data: dict[str, Any]) -> str:
    """The whole page, in Markdown."""
    points = truth.verdicts(data["truth"])
    outcomes = [truth.against_band(low, high) for low, high in zip(points["low"], points["high"], strict=True)]
    methods = [(name, *aa.row(data["aa"], method)) for method, name in aa.NAMES.items()]
    options: dict[str, Any] = {"trim_blocks": True, "keep_trailing_newline": True, "undefined": jinja2.StrictUndefined}
    return jinja2.Template(TEMPLATE.read_text("utf-8"), **options).render(
        **data,
        points=points.assign(outcome=outcomes).to_dict("records"),
        tally={word: sum(one.startswith(word) for one in outcomes) for word in ("met", "undecided", "missed")},
        methods=[(name, aa.share_against_band(seen, SHARE_BAND), seen, *cost) for name, seen, *cost in methods],
        flagged=aa.flagged(data["aa"]),
        bands=(truth.BAND, SHARE_BAND),
    )
