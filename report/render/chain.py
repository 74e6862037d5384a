"""From a verdict to the samples that it was made from: the claim's file, the quantity's code, the rows of data."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from report.data.gathered import read_summary
from report.data.ranges import parse_ranges
from report.formatting import count, several
from report.quantities import quantities
from report.render.markdown import Markdown, code, escape, identifier
from report.site import paths

_PROJECT = Path(__file__).resolve().parents[2]
# Published figures beyond so many are told by their number; the list of references holds them all.
_MOST_ENTRIES = 8
# Experiments whose section bears another name.
_SECTIONS = {"gemm": "products", "libraries": "with-libraries"}
Origin = tuple[str, str, str]


def chains(
    verdicts: Sequence[Mapping[str, Any]], data: Path | None, sections: Mapping[str, str]
) -> dict[str, list[dict[str, Any]]]:
    """For each claim with cells, part by part: where its rule stands, what computes it, and from which data.

    data: the folder that `report gather` wrote, or None: rows are then not followed. sections: titles of the
    measurements that the page shows, by key. Raises StudyError if the verdicts name rows that the summary lacks.
    """
    followed = any(cell.get("behind") for verdict in verdicts for cell in verdict.get("cells") or [])
    origins = _origins(data) if data and followed else {}
    found: dict[str, list[dict[str, Any]]] = {}
    for verdict in verdicts:
        cells = verdict.get("cells") or []
        if not cells:
            continue
        parts = verdict.get("parts") or [{**verdict, "name": ""}]
        found[str(verdict["id"])] = [
            _part(
                part,
                [cell for cell in cells if (cell.get("part") or "") == (part.get("name") or "")],
                origins,
                sections,
            )
            for part in parts
        ]
    return found


def _part(
    part: Mapping[str, Any],
    cells: Sequence[Mapping[str, Any]],
    origins: Mapping[int, Origin],
    sections: Mapping[str, str],
) -> dict[str, Any]:
    numbers = sorted({number for cell in cells for number in parse_ranges(str(cell.get("behind") or ""))})
    entries = [str(name) for name in part.get("entries") or []]
    samples = _samples(numbers, origins) if origins else []
    measured = dict.fromkeys(_SECTIONS.get(one["experiment"], one["experiment"]) for one in samples)
    return {
        "name": str(part.get("name") or ""),
        "quantity": str(part.get("quantity") or ""),
        "means": _first(str(part.get("how") or "")),
        "code": _code(str(part.get("quantity") or "")),
        "rows": count(len(numbers), "row") if numbers else "",
        "followed": bool(part.get("followed", True)),
        "of": samples,
        "sections": [{"key": identifier(key), "title": sections[key]} for key in measured if key in sections],
        "entries": several(entries) if len(entries) <= _MOST_ENTRIES else f"{len(entries)} entries",
    }


def _first(text: str) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(text.split("\n\n")[0].split())


def _code(quantity: str) -> Markdown:
    """The file and line of the function that computes a quantity, or where it is declared if that is shared by many;
    '' for one that is not there any more."""
    known = quantities().get(quantity)
    if known is None:
        return Markdown("")
    function = inspect.unwrap(known.compute)
    file, line = Path(inspect.getfile(function)).resolve(), inspect.getsourcelines(function)[1]
    if file.name == "__init__.py":
        file, line = next(_declared(quantity, file.parent), (file, line))
    place = file.relative_to(_PROJECT) if file.is_relative_to(_PROJECT) else Path(file.name)
    return code(f"{place}, line {line}")


def _declared(quantity: str, folder: Path) -> Iterator[tuple[Path, int]]:
    """Where the name of a quantity stands in a module of this folder."""
    for path in sorted(folder.glob("*.py")):
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if f'"{quantity}"' in text:
                yield path, number


def _origins(data: Path) -> dict[int, Origin]:
    """Node, experiment and device of each row of the summary. Raises StudyError if it cannot be read."""
    table = read_summary(data)
    columns = (table[name].astype(str) for name in ("node", "experiment", "device"))
    return dict(zip(table.index, zip(*columns, strict=True), strict=True))


def _samples(numbers: Sequence[int], origins: Mapping[int, Origin]) -> list[dict[str, Any]]:
    """Each file of samples that the rows stand for, with the number of rows, the most first."""
    lost = next((number for number in numbers if number not in origins), None)
    if lost is not None:
        raise StudyError(f"the summary has no row {lost}: not the data that these verdicts were made from: judge again")
    counted = Counter(origins[number] for number in numbers)
    return [
        {
            "experiment": experiment,
            "link": Markdown(f"[{escape(experiment)}]({paths.samples(node, experiment, device)})"),
            "where": node if device == "cpu" else f"{node}, {device}",
            "rows": count(n, "row"),
        }
        for (node, experiment, device), n in sorted(counted.items(), key=lambda one: (-one[1], one[0]))
    ]
