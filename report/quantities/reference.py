"""Published figures as cells: documented evidence, never mixed with measured."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.derivations import verified
from report.estimates import Estimates, exact
from report.formatting import within
from report.quantities import quantity, says


@quantity("reference.value", "", ("entry", "subject"), tier="documented")
@says("{labels}: {value}")
def value(data: Dataset) -> Estimates:
    """One cell per verified reference entry; low = high = value unless the entry gives a range. Unit: the entry's."""
    return exact(
        [
            {
                "entry": name,
                "subject": entry["subject"],
                "estimate": float(entry["value"]),
                "low": float(entry.get("low", entry["value"])),
                "high": float(entry.get("high", entry["value"])),
                "detail": f"{entry['subject']}, {within(entry['what'])}",
            }
            for name, entry in data.reference.items()
            if verified(data, name)
        ]
    )
