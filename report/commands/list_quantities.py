"""The command quantities: what a claim may be decided by."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from contract.errors import StudyError
from contract.schema import did_you_mean
from report.quantities import quantities


def lines(word: str = "") -> Iterator[str]:
    """Every quantity with the word in its name or its description: unit, tier, labels, and what it is.

    Raises StudyError if there is none.
    """
    known = quantities()
    found = {name: one for name, one in known.items() if word.lower() in f"{name} {one.compute.__doc__}".lower()}
    if not found:
        raise StudyError(f"no quantity speaks of {word!r}.{did_you_mean(word, list(known))}")
    for name, one in found.items():
        unit = "no unit" if one.unit == "1" else one.unit
        yield f"{name}  [{unit}; {one.tier}]"
        first = " ".join((one.compute.__doc__ or "").split("\n\n")[0].split())
        yield from textwrap.wrap(first, 110, initial_indent="    ", subsequent_indent="    ")
        if one.labels:
            labels = f"labels: {', '.join(one.labels)}"
            yield from textwrap.wrap(labels, 110, initial_indent="    ", subsequent_indent="      ")
