"""Quantities whose cases are published figures: documented evidence, which is never mixed with measurements."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.derivations import is_verified
from report.estimates import Estimates, exact_estimates
from report.formatting import format_count, uncapitalize
from report.quantities import quantity


@quantity("reference.value", "", ("entry", "subject"), tier="documented")
def reference_value(data: Dataset) -> Estimates:
    """Value of each verified reference entry, in the entry's unit.

    low and high equal the value, unless the entry gives a range.
    """
    return exact_estimates(
        [
            {
                "entry": name,
                "subject": entry["subject"],
                "estimate": float(entry["value"]),
                "low": float(entry.get("low", entry["value"])),
                "high": float(entry.get("high", entry["value"])),
                "detail": f"{entry['subject']}, {uncapitalize(entry['what'])}",
            }
            for name, entry in data.reference.items()
            if is_verified(data, name)
        ]
    )


_PROCESSORS = "server-processors-2023.cores"


@quantity("processors.cores", "1", ("entry", "processor"), tier="documented")
def processors_cores(data: Dataset) -> Estimates:
    """Cores per server processor listed by Intel and AMD as launched in July 2023, one case per processor."""
    entry = data.entry(_PROCESSORS)
    sizes = [float(cores) for cores, number in entry["distribution"].items() for _ in range(number)]
    return exact_estimates(
        [
            {
                "entry": _PROCESSORS,
                "processor": at,
                "estimate": cores,
                "detail": f"a server processor with {format_count(int(cores), 'core')}",
            }
            for at, cores in enumerate(sorted(sizes), start=1)
        ]
    )
