"""Trained models that answer: how long a request waits, what libraries gain, and text that is read and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from report.formatting import capital, count, number, several, two_digits, with_unit
from report.pages.charts import Chart, bars
from report.pages.evidence import Evidence, View
from report.pages.exhibit import Exhibit, Family, Table, records, stated, times
from report.pages.listed import Case, has_gpu, listed, most_threads, on_gpu, span
from report.pages.words import NOTHING

# Budgets of claim G15 in milliseconds.
BUDGETS = {10: "a control loop", 33: "a video frame", 100: "a conversation"}
PHASES = {"prefill": "the prompt is read", "decode": "text is written"}
VERBS = {"prefill": "reading a prompt", "decode": "writing text"}
PEAK, BANDWIDTH = "of the arithmetic peak", "of the memory's bandwidth"
LAYERS = {"convolution": "convolutions", "lstm": "LSTMs", "product": "products"}
_CALL = ("device", "model", "phase", "context", "batch", "dtype", "backend", "threads")


def _size(cell: Mapping[str, Any]) -> tuple[float, str]:
    """Orders models from the fewest weights to the most."""
    return float(cell.get("parameters") or 0.0), str(cell["model"])


def _model(cell: Mapping[str, Any]) -> str:
    return f"{cell['model']}{on_gpu(str(cell['device']))}"


def _waits(view: View, name: str) -> Iterable[Exhibit]:
    """The 99th percentile of single requests, of each model at its quickest."""
    cells = sorted(records(view.quantity("inference.fastest_p99_s", batch=1)), key=_size)
    if not cells:
        return
    most = max(BUDGETS)
    quickest: dict[str, dict[str, Any]] = {}
    for cell in sorted(cells, key=lambda one: float(one["estimate"])):
        quickest.setdefault(str(cell["model"]), cell)
    best = list(quickest.values())
    within = sum(1e3 * float(one["estimate"]) < most for one in best)
    surely = [f"{sum(1e3 * float(one['high']) < at for one in best)} within {at} ms" for at in BUDGETS]
    says = [f"Counted by the whole interval, so many models answer in time: {several(surely)}."]
    if has_gpu(cells):
        cpu = {str(one["model"]): float(one["estimate"]) for one in cells if one["device"] == "cpu"}
        pairs = [one for one in cells if one["device"] != "cpu" and one["model"] in cpu]
        sooner = sum(cpu[str(one["model"])] < float(one["estimate"]) for one in pairs)
        says.append(f"Of {count(len(pairs), 'model')} measured on both, the CPU answers {sooner or 'none'} sooner.")
    yield listed(
        name,
        f"{within} of {len(best)} models answer 99% of single requests within {most} ms; the slowest takes "
        f"{with_unit(best[-1]['estimate'], 's', 2)}",
        [(_model(one), one, [number(float(one["parameters"])), str(one["detail"])]) for one in cells],
        "s", "time within which 99% of requests are answered, ms",
        f"● measured on {view.name}: one request at a time, by the quickest library and number format. Models from the "
        "fewest weights to the most.",
        ["Model", "Weights", "By", "99% are answered within"],
        1e-3, list(BUDGETS), "; ".join(f"{at} ms: {what}" for at, what in BUDGETS.items()), True,
        says, ["G15", "W31"] if has_gpu(cells) else ["G15"],
    )  # fmt: skip


def _onnx(view: View, name: str) -> Iterable[Exhibit]:
    """What ONNX Runtime gains over PyTorch as it comes, and 8-bit numbers over that."""
    cells = sorted(most_threads(records(view.quantity("inference.onnx_gain", batch=1, dtype="float32"))), key=_size)
    if not cells:
        return
    small = most_threads(records(view.quantity("inference.int8_gain", batch=1)))
    eight = {(one["model"], one["device"]): one for one in small}
    says = [
        f"For {sum(float(one['low']) > 1 for one in cells)} of {len(cells)} models the whole interval lies above 1."
    ]
    if eight:
        gained = span([float(one["estimate"]) for one in eight.values()], two_digits)
        says.append(f"8-bit whole numbers make {count(len(eight), 'model')} another {gained} times as fast.")
    cases = []
    for one in cells:
        key = (one["model"], one["device"])
        cases.append((_model(one), one, [stated(eight[key], "1") if key in eight else NOTHING]))
    yield listed(
        name,
        f"ONNX Runtime answers single requests {span([float(one['estimate']) for one in cells], two_digits)} times as "
        "fast as PyTorch as it comes",
        cases, "1", "time with PyTorch over time with ONNX Runtime",
        f"● measured on {view.name}, float32, all threads, one sample in a request.",
        ["Model", "8-bit over float32, both in ONNX Runtime", "ONNX Runtime over PyTorch"],
        1.0, [1.0], "1: equally fast", True, says, ["G30"],
    )  # fmt: skip


def _text(view: View, name: str) -> Iterable[Exhibit]:
    """What reading a prompt and writing text use of the machine."""
    rates = most_threads(records(view.quantity("generation.tokens_per_s", batch=1)))
    rates.sort(key=lambda one: (*_size(one), str(one["dtype"]), one["phase"] == "decode"))
    shares = {
        called: {tuple(one[label] for label in _CALL): one for one in records(view.quantity(f"generation.{which}"))}
        for called, which in ((PEAK, "peak_share"), (BANDWIDTH, "bandwidth_share"))
    }
    drawn, lines = [], []
    for rate in rates:
        way = "" if rate["backend"] == "torch" else f", {rate['backend']}"
        case, phase = f"{rate['model']}, {rate['dtype']}{way}{on_gpu(str(rate['device']))}", rate["phase"]
        used = {called: of.get(tuple(rate[label] for label in _CALL)) for called, of in shares.items()}
        drawn += [{"case": f"{case}: {PHASES[phase]}", "share": 100 * float(one["estimate"]), "of": called, "in": phase}
                  for called, one in used.items() if one]  # fmt: skip
        words = [stated(one, "1") if one else NOTHING for one in used.values()]
        lines.append([case, PHASES[phase], stated(rate, "tokens/s"), *words])
    if not drawn:
        return
    table = pd.DataFrame(drawn)
    most = table[table["of"] == PEAK].groupby("in")["share"].max()
    parts = [f"{VERBS[phase]} uses up to {two_digits(most[phase])}%" for phase in VERBS if phase in most]
    yield Exhibit(
        Chart(
            name, capital(f"{several(parts)} of the arithmetic peak"),
            bars(table, "share", "case", "percent", hue="of"),
            f"● measured on {view.name}, one text at a time. Bandwidth: only of models that are too large for caches.",
            "; ".join(f"{one['case']}: {two_digits(one['share'])}% {one['of']}" for one in drawn),
        ),
        [*_dearer(rates), "Each written token reads all weights from memory; the tokens of a prompt share them."],
        Table(["Model", "When", "Rate", "Share of the peak", "Share of the bandwidth"], lines, "llrrr",
              f"Text on {view.name}"),
    )  # fmt: skip


def _dearer(rates: Sequence[dict[str, Any]]) -> list[str]:
    """How much longer a token takes that is written, of the largest model with both."""
    for slow in sorted((one for one in rates if one["phase"] == "decode"), key=_size, reverse=True):
        for fast in rates:
            if fast["phase"] == "prefill" and all(fast[name] == slow[name] for name in _CALL if name != "phase"):
                read, wrote = float(fast["estimate"]), float(slow["estimate"])
                return [f"{slow['model']} in {slow['dtype']} reads {two_digits(read)} tokens/s and writes "
                        f"{two_digits(wrote)}: a written token takes {times(read / wrote)} as long."]  # fmt: skip
    return []


def _libraries(view: View, name: str) -> Iterable[Exhibit]:
    """What the maker's library gains over PyTorch's own kernels, layer by layer."""
    cells = records(view.quantity("libraries.gain"))
    if not cells:
        return
    cells.sort(key=lambda one: (one["device"] != "cpu", one["layer"], str(one["shape"]), one["batch"]))
    formats = {str(one["dtype"]) for one in cells}
    cases: list[Case] = []
    for one in cells:
        both = ", both passes" if one["passes"] == "both" else ""
        dtype = f", {one['dtype']}" if len(formats) > 1 else ""
        shape = f"{one['layer']} {str(one['shape']).replace('-', ' ')}, batch {int(one['batch'])}"
        cases.append((f"{shape}{both}{dtype}{on_gpu(str(one['device']))}", one, []))
    layers = several([LAYERS[layer] for layer in LAYERS if any(one["layer"] == layer for one in cells)])
    gains = span([float(one["estimate"]) for one in cells], two_digits)
    instead = ", and for products the fastest kernel of this study" if "products" in layers else ""
    whose = "the maker's library" if has_gpu(cells) else "oneDNN"
    yield listed(
        name, f"Without {whose}, {layers} take {gains} times as long",
        cases, "1", "time without the library over time with it",
        f"● measured on {view.name} in {several(sorted(formats))}.",
        ["Layer", "Time without over time with"], 1.0, [1.0], "1: no gain", None,
        [f"Without the library, PyTorch's own kernels compute{instead}."],
        ["G07"],
    )  # fmt: skip


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """For each node waits, ONNX Runtime, text and libraries."""
    for place, view in enumerate(evidence.views, 1):
        yield from _waits(view, f"inference-wait-{place}")
        yield from _onnx(view, f"inference-onnx-{place}")
        yield from _text(view, f"inference-text-{place}")
        yield from _libraries(view, f"inference-library-{place}")


FAMILY = Family(
    "inference", "Answers of trained models",
    "How long does a request to a trained model wait, and what makes the answer quicker?", show,
)  # fmt: skip
