"""What GPUs that were not measured would do beside this node's CPU: predictions, never among what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from report.data.dataset import Dataset
from report.formatting import count, exactly, interval, several, with_unit
from report.predicted.overview import overview, told_error
from report.predicted.verdicts import value
from report.render import hatched
from report.render.figures import Drawing
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View

# The published model by whose text GPUs are compared.
READER = "Llama 3.1 8B"


# The evidence of the last view and what follows from it: the same for every node of a report.
_LAST: list[tuple[Dataset, dict[str, Any]]] = []


def foretold(data: Dataset) -> dict[str, Any]:
    if not _LAST or _LAST[0][0] is not data:
        _LAST[:] = [(data, overview(data))]
    return _LAST[0][1]


def show(view: View) -> Iterable[Exhibit]:
    """One exhibit for each node whose CPU has trained the models."""
    found = foretold(view.data)
    gpus = [gpu for gpu in found["gpus"] if _speedups(gpu, view.node)]
    if gpus:
        yield Exhibit(_reading(view, found, gpus), _drawing(view, gpus), _table(view, found["gpus"]))


def _speedups(gpu: dict[str, Any], node: str) -> list[dict[str, Any]]:
    """A GPU's predicted speed-ups over the CPU of a node, from the least to the greatest."""
    return sorted((cell for cell in gpu["speedup"] if cell["node"] == node), key=value)


def _told(cell: dict[str, Any]) -> str:
    if "at_most" in cell:
        return f"at most {_round(cell['at_most'])}"
    return interval(cell["estimate"], cell["low"], cell["high"], "1")


def _span(cells: Sequence[dict[str, Any]]) -> str:
    """'at most 227 (gpt2, batch 1) to at most 5,400 (cnn, batch 256)'."""
    ends = [f"{_told(cell)} ({cell['model']}, batch {cell['batch']})" for cell in (cells[0], cells[-1])]
    return " to ".join(dict.fromkeys(ends))


def _reading(view: View, found: dict[str, Any], gpus: Sequence[dict[str, Any]]) -> list[str]:
    """What kind of numbers these are, before any of them."""
    said = ["Predicted, not measured: from the verified figures of datasheets and the operations that were counted."]
    if found["measured"]:
        said.append(
            f"Scaled by what {several(found['measured'])} reach of their datasheets; {told_error(found['errors'])}."
        )
    else:
        said.append(
            "No GPU of the list was measured, so nothing scales them: they are upper bounds without intervals, what "
            "a GPU could do if nothing but its rated arithmetic and bandwidth held it up. They can refute that a GPU "
            "is so much faster; they cannot show it."
        )
    lacking = [gpu["name"] for gpu in found["gpus"] if gpu not in gpus]
    if lacking:
        said.append(
            f"Of {count(len(lacking), 'GPU')} the reference has no verified figure that bounds a training step: "
            f"{several(lacking)}."
        )
    return [view.say(line) for line in said]


def _drawing(view: View, gpus: Sequence[dict[str, Any]]) -> Drawing:
    rows = []
    for gpu in sorted(gpus, key=lambda gpu: -value(_speedups(gpu, view.node)[-1])):
        cells = _speedups(gpu, view.node)
        low, high = value(cells[0]), value(cells[-1])
        bound = any("at_most" in cell for cell in cells)
        told = f"{'≤ ' if bound else ''}{' to '.join(dict.fromkeys(map(_round, (low, high))))}"
        rows.append(
            {"label": gpu["name"].removeprefix("NVIDIA ").removeprefix("GeForce "), "low": low, "high": high,
             "open": bound, "told": told}
        )  # fmt: skip
    shows = {"rows": rows, "x": "times the rate of all cores at their best", "one": "dashed line: as fast as the CPU"}
    caption = (
        "Predicted, not measured: how many times faster one GPU would train than all cores of this CPU, each at its "
        "best format, from the model and batch that gain least to those that gain most. Hatched bars are "
        f"predictions; an arrowhead marks an upper bound. CPU: {view.label}."
    )
    return hatched.drawing(view.name("predicted-training"), shows, caption, "Predicted, not measured.")


def _round(value: float) -> str:
    """Two digits: a prediction has no more."""
    return exactly(float(f"{value:.2g}"))


def _table(view: View, gpus: Sequence[dict[str, Any]]) -> Table:
    rows = []
    for gpu in gpus:
        cells, figures = _speedups(gpu, view.node), gpu["figures"]
        published = {one["model"]: one for one in gpu["published"]}
        tokens = (published.get(READER) or {}).get("tokens_per_s_at_most")
        rows.append(
            [
                gpu["name"],
                _figure(figures, "memory_bytes", "B"),
                _figure(figures, "memory_bytes_per_s", "B/s"),
                _figure(figures, "bf16_flops", "FLOP/s"),
                _span(cells) if cells else "not foretold",
                _crossover(gpu, view.node),
                f"≤ {_round(tokens)}" if tokens else NOTHING,
                _largest(gpu, "answers"),
                _largest(gpu, "trains"),
            ]
        )
    return Table(
        "Predicted, not measured. Speed-up: of training over all cores of this CPU, each at its best format, over "
        "models and batches. Faster from: the batch from which the GPU is ahead. Writes: tokens a second of one text "
        f"by {READER} in bfloat16. Answers, trains: the largest published model whose weights (to train: with "
        "gradients and moments) its memory holds. Figures are rated ones; what was not verified is left out. "
        f"CPU: {view.label}",
        ["GPU", "Memory", "Bandwidth", "bfloat16", "Predicted speed-up", "Faster from", "Writes", "Answers", "Trains"],
        rows,
        "lrrrllrll",
        [18, 12, 14, 14, 32, 16, 10, 14, 14],
    )


def _figure(figures: dict[str, float], name: str, unit: str) -> str:
    return with_unit(figures[name], unit) if name in figures else NOTHING


def _crossover(gpu: dict[str, Any], node: str) -> str:
    """Where the GPU gets ahead, for the models where that lies among the batches; nothing of bounds."""
    found = [one for one in gpu["crossover"] if one["node"] == node and one["high"] is not None]
    return "; ".join(f"{one['model']}: batch {one['high']:g}" for one in found) or NOTHING


def _largest(gpu: dict[str, Any], use: str) -> str:
    """The largest published model that its memory holds for a use."""
    known = [one for one in gpu["published"] if one[use] is not None]
    if not known:
        return NOTHING
    fits = [one for one in known if one[use]]
    return str(max(fits, key=lambda one: float(one["parameters"]))["model"]) if fits else "none of them"


FAMILY = Family("predicted", "What GPUs that were not measured would do", show)
