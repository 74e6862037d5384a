"""Command `quantities`: list the quantities for claims."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from contract.errors import StudyError
from contract.schema import did_you_mean
from report.quantities import quantities


def describe_quantities(word: str = "") -> Iterator[str]:
    """Describe every quantity with `word` in its name or description: unit, tier, meaning, labels.

    Raises StudyError if none matches.
    """
    known = quantities()
    matches = {name: item for name, item in known.items() if word.lower() in f"{name} {item.compute.__doc__}".lower()}
    if not matches:
        raise StudyError(f"no quantity matches {word!r}.{did_you_mean(word, list(known))}")
    for name, quantity in matches.items():
        unit = "no unit" if quantity.unit == "1" else quantity.unit
        yield f"{name}  [{unit}; {quantity.tier}]"
        first = " ".join((quantity.compute.__doc__ or "").split("\n\n")[0].split())
        yield from textwrap.wrap(first, 110, initial_indent="    ", subsequent_indent="    ")
        if quantity.labels:
            labels = f"labels: {', '.join(quantity.labels)}"
            yield from textwrap.wrap(labels, 110, initial_indent="    ", subsequent_indent="      ")
