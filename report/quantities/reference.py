"""Published figures as cells: documented evidence, never mixed with measured."""

from __future__ import annotations

from report.cells import Cells, exact
from report.evidence import Data
from report.quantities import quantity
from report.wording import within


@quantity(
    "reference.value",
    unit="",
    tier="documented",
    labels=("entry", "subject"),
    says="{labels}: {value}",
)
def value(data: Data) -> Cells:
    """One cell per verified reference entry; low = high = value unless the entry gives a range. Unit: the entry's."""
    rows = [
        {
            "entry": name,
            "subject": entry["subject"],
            "estimate": float(entry["value"]),
            "low": float(entry.get("low", entry["value"])),
            "high": float(entry.get("high", entry["value"])),
            "detail": f"{entry['subject']}, {within(entry['what'])}",
        }
        for name, entry in data.reference.items()
        if entry["status"] == "verified" and entry.get("value") is not None
    ]
    return exact(rows) if rows else Cells.empty()
