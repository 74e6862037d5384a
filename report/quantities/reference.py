"""Published figures as cases: documented evidence, never mixed with measured."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.derivations import verified
from report.estimates import Estimates, exact
from report.formatting import count, within
from report.quantities import quantity


@quantity("reference.value", "", ("entry", "subject"), tier="documented")
def reference_value(data: Dataset) -> Estimates:
    """One case per verified reference entry; low = high = value unless the entry gives a range. Unit: the entry's."""
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


_PROCESSORS = "server-processors-2023.cores"


@quantity("processors.cores", "1", ("entry", "processor"), tier="documented")
def processors_cores(data: Dataset) -> Estimates:
    """Cores of each server processor that Intel and AMD listed as launched in July 2023, a case a processor."""
    entry = data.entry(_PROCESSORS)
    sizes = [float(cores) for cores, number in entry["distribution"].items() for _ in range(number)]
    return exact(
        [
            {
                "entry": _PROCESSORS,
                "processor": at,
                "estimate": cores,
                "detail": f"a server processor with {count(int(cores), 'core')}",
            }
            for at, cores in enumerate(sorted(sizes), start=1)
        ]
    )
