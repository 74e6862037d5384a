"""Inference: request latency, gains from libraries, and text generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from report.data.network_labels import group, title
from report.formatting import capitalize, format_count, format_number, format_part, join_words, two_digits
from report.pages.charts import Chart, bar_chart
from report.pages.estimate_list import ListEntry, cases_with_most_threads, estimate_list, gpu_suffix, has_gpu
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.families.runtimes import network_order, weight_count
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import (
    amounts,
    as_number,
    as_share,
    divide_cases,
    filled_texts,
    impossible_results,
    ratios,
    sentence,
    shares,
)
from report.pages.verdict_words import NOTHING
from report.quantities.inference import LEAST_SAMPLES

# Latency budgets for claim G15 in milliseconds, each with the use that sets it.
BUDGETS = {10: "a control loop", 33: "a video frame", 100: "a conversation"}
PHASES = {"prefill": "the prompt is read", "decode": "text is written"}
VERBS = {"prefill": "reading a prompt", "decode": "writing text"}
PEAK, BANDWIDTH = "of the arithmetic peak", "of the memory's bandwidth"
LAYERS = {"convolution": "convolutions", "lstm": "LSTMs", "product": "products"}
_CALL = ("device", "model", "phase", "context", "batch", "dtype", "backend", "threads")


def _size_key(case: Mapping[str, Any]) -> tuple[float, str]:
    """Return a key to sort networks by weight count, then by name."""
    return weight_count(case) or 0.0, str(case["model"])


def _model_label(case: Mapping[str, Any]) -> str:
    return f"{title(str(case['model']))}{gpu_suffix(str(case['device']))}"


def _weight_text(case: Mapping[str, Any]) -> str:
    counted = weight_count(case)
    return NOTHING if counted is None else format_number(counted)


def _budget_sentences(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    """Name the networks whose whole interval lies within a latency budget, each under the smallest such budget."""
    names: dict[int, list[str]] = {}
    for case in cases:
        high = as_number(case).high
        budget = next((at for at in BUDGETS if high is not None and 1e3 * high < at), None)
        if budget:
            names.setdefault(budget, []).append(title(str(case["model"])))
    parts = [f"{join_words(names[at])} within {at} ms" for at in BUDGETS if at in names]
    return [f"By name: {'; '.join(parts)}."] if parts else []


def _groups(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    return [group(str(case["model"])) for case in cases]


def _wait_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show each model's 99th percentile latency for single requests, in its fastest library and number format."""
    cases = sorted(records(view.quantity("inference.fastest_p99_s", batch=1)), key=network_order)
    if not cases:
        return
    most = max(BUDGETS)
    quickest: dict[str, dict[str, Any]] = {}
    for case in sorted(cases, key=lambda case: float(case["estimate"])):
        quickest.setdefault(str(case["model"]), case)
    best = list(quickest.values())
    many = sum(1e3 * float(case["estimate"]) < most for case in best)
    measured = {case["model"] for case in records(view.quantity("inference.latency_s", batch=1))}
    unknown = sorted(measured - set(quickest), key=lambda model: title(str(model)))
    answers = format_part(many, len(best) + len(unknown), "models", "answers", "answer")
    answer = f"{answers} 99% of single requests within {most} ms"
    text = f"{answer}; the slowest takes {{time}}"
    if unknown:
        text = answer = f"{answer}; {len(unknown)} answered too few requests to say"
    headline = sentence(text, answer, time=amounts([max(best, key=lambda case: float(case["estimate"]))], "s"))
    highs = [high for case in best if (high := as_number(case).high) is not None]
    surely = [f"{sum(1e3 * high < at for high in highs)} within {at} ms" for at in BUDGETS]
    says = []
    if highs:
        models = format_count(len(highs), "model")
        says.append(f"Certainly in time, of {models} with a known interval: {join_words(surely)}.")
        says += _budget_sentences(best)
    if unknown:
        says.append(
            f"A 99th percentile needs {LEAST_SAMPLES} requests; {join_words([title(str(model)) for model in unknown])} "
            "answered fewer, because slow models answer few in the same seconds."
        )
    if has_gpu(cases):
        cpu = {str(case["model"]): float(case["estimate"]) for case in cases if case["device"] == "cpu"}
        pairs = [case for case in cases if case["device"] != "cpu" and case["model"] in cpu]
        sooner = sum(cpu[str(pair["model"])] < float(pair["estimate"]) for pair in pairs)
        if pairs:
            says.append(
                f"Of {format_count(len(pairs), 'model')} measured on both, the CPU answers {sooner or 'none'} sooner."
            )
    yield estimate_list(
        name,
        headline,
        [(_model_label(case), case, [_weight_text(case), str(case["detail"])]) for case in cases],
        "s", "99% of requests are answered within, ms",
        f"● measured on {view.name}: one request at a time, by the quickest library and number format. Models from the "
        "fewest weights to the most.",
        ["Model", "Weights", "By", "99% are answered within"],
        1e-3, list(BUDGETS), "; ".join(f"{at} ms: {what}" for at, what in BUDGETS.items()), True,
        says, ["G15", "W31"] if has_gpu(cases) else ["G15"], groups=_groups(cases),
    )  # fmt: skip


def _onnx_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show how much faster ONNX Runtime answers than default PyTorch.

    The table adds how much faster 8-bit numbers are than float32 in ONNX Runtime.
    """
    cases = sorted(
        cases_with_most_threads(records(view.quantity("inference.onnx_gain", batch=1, dtype="float32"))),
        key=network_order,
    )
    if not cases:
        return
    small = cases_with_most_threads(records(view.quantity("inference.int8_gain", batch=1)))
    eight = {(case["model"], case["device"]): case for case in small}
    lows = [low for case in cases if (low := as_number(case).low) is not None]
    surely = sum(low > 1 for low in lows)
    models = format_count(len(lows), "model")
    says = (
        [f"The gain is certain, with the whole interval above 1, for {surely or 'none'} of {models}."] if lows else []
    )
    if eight:
        gained = ratios(eight.values(), "as fast")
        says += filled_texts(
            [sentence("In 8-bit whole numbers, models answer {gain} as in float32, both in ONNX Runtime.", gain=gained)]
        )
    entries = []
    for case in cases:
        key = (case["model"], case["device"])
        entries.append((_model_label(case), case, [format_estimate(eight[key], "1") if key in eight else NOTHING]))
    yield estimate_list(
        name,
        sentence(
            "ONNX Runtime answers single requests {gain} as plain PyTorch",
            "This run does not show what ONNX Runtime gains over plain PyTorch",
            gain=ratios(cases, "as fast"),
        ),
        entries, "1", "time in PyTorch over time in ONNX Runtime",
        f"● measured on {view.name}, float32, all threads, one sample in a request.",
        ["Model", "8-bit over float32, both in ONNX Runtime", "ONNX Runtime over PyTorch"],
        1.0, [1.0], "1: equally fast", True, says, ["G30"], groups=_groups(cases),
    )  # fmt: skip


def _text_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show what share of peak arithmetic and memory bandwidth is used to read prompts and to write text."""
    rates = cases_with_most_threads(records(view.quantity("generation.tokens_per_s", batch=1)))
    rates.sort(key=lambda rate: (*_size_key(rate), str(rate["dtype"]), rate["phase"] == "decode"))
    used_by = {
        called: {
            tuple(record[label] for label in _CALL): record for record in records(view.quantity(f"generation.{which}"))
        }
        for called, which in ((PEAK, "peak_share"), (BANDWIDTH, "bandwidth_share"))
    }
    bars, lines, peaks = [], [], []
    for rate in rates:
        way = "" if rate["backend"] == "torch" else f", {rate['backend']}"
        case, phase = f"{rate['model']}, {rate['dtype']}{way}{gpu_suffix(str(rate['device']))}", rate["phase"]
        used_shares = {called: of.get(tuple(rate[label] for label in _CALL)) for called, of in used_by.items()}
        bars += [{"case": f"{case}: {PHASES[phase]}", "share": 100 * float(share["estimate"]), "of": called,
                   "in": phase}
                  for called, share in used_shares.items() if share and not as_share(share).impossible]  # fmt: skip
        words = [share_in_table(share) for share in used_shares.values()]
        peaks += [(phase, as_share(share, f"{VERBS[phase]} with {case}", called.removeprefix("of ")))
                  for called, share in used_shares.items() if share]  # fmt: skip
        lines.append([case, PHASES[phase], format_estimate(rate, "tokens/s"), *words])
    if not bars:
        return
    table = pd.DataFrame(bars)
    places = {
        phase: shares([share for at, share in peaks if at == phase and share.whole in PEAK], most=True)
        for phase in VERBS
        if any(at == phase and share.whole in PEAK for at, share in peaks)
    }
    title = sentence(
        capitalize(
            f"{join_words([f'{VERBS[phase]} uses up to {{{phase}}}' for phase in places])} of the arithmetic peak"
        ),
        "Reading a prompt and writing text, as shares of the machine's limits",
        **places,
    )
    yield Exhibit(
        Chart(
            name, str(title),
            bar_chart(table, "share", "case", "share used (%)", hue="of"),
            f"● measured on {view.name}, one text at a time; the table has the intervals of the rates. Bandwidth: only "
            "for models that are too large for caches.",
            "; ".join(f"{row['case']}: {two_digits(row['share'])}% {row['of']}" for row in bars),
        ),
        [*impossible_results((share for _, share in peaks if share.whole not in PEAK), view.name),
         *_token_cost_sentences(rates),
         "Each written token reads all weights from memory; the tokens of a prompt share them."],
        Table(["Model", "When", "Rate", "Share of the peak", "Share of the bandwidth"], lines, "llrrr",
              f"Text on {view.name}"),
        heading=title,
    )  # fmt: skip


def share_in_table(case: Mapping[str, Any] | None) -> str:
    """Format a fraction for a table; an impossible fraction (above 1) is replaced by words."""
    if case is None:
        return NOTHING
    return "more than all: the limit was measured too low" if as_share(case).impossible else format_estimate(case, "1")


def _token_cost_sentences(rates: Sequence[dict[str, Any]]) -> list[str]:
    """Compare the time to write a token with the time to read one, for the largest model with both measurements."""
    for slow in sorted((rate for rate in rates if rate["phase"] == "decode"), key=_size_key, reverse=True):
        for fast in rates:
            if fast["phase"] == "prefill" and all(fast[name] == slow[name] for name in _CALL if name != "phase"):
                return filled_texts([sentence(
                    f"{slow['model']} in {slow['dtype']} reads {{read}} tokens/s and writes {{wrote}}: writing a "
                    "token takes {ratio} as reading one.",
                    read=amounts([fast]), wrote=amounts([slow]), ratio=ratios([divide_cases(fast, slow)], "as long"),
                )])  # fmt: skip
    return []


def _library_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show for each layer how many times as long it takes without the chip maker's library."""
    cases = records(view.quantity("libraries.gain"))
    if not cases:
        return
    cases.sort(key=lambda case: (case["device"] != "cpu", case["layer"], str(case["shape"]), case["batch"]))
    formats = {str(case["dtype"]) for case in cases}
    entries: list[ListEntry] = []
    for case in cases:
        both = ", both passes" if case["passes"] == "both" else ""
        dtype = f", {case['dtype']}" if len(formats) > 1 else ""
        shape = f"{case['layer']} {str(case['shape']).replace('-', ' ')}, batch {int(case['batch'])}"
        entries.append((f"{shape}{both}{dtype}{gpu_suffix(str(case['device']))}", case, []))
    layers = join_words([LAYERS[layer] for layer in LAYERS if any(case["layer"] == layer for case in cases)])
    instead = ", and for products the fastest kernel of this study" if "products" in layers else ""
    whose = "the maker's library" if has_gpu(cases) else "oneDNN"
    yield estimate_list(
        name,
        sentence(
            f"Without {whose}, {layers} take {{gain}}",
            f"This run does not show how long {layers} take without {whose}",
            gain=ratios(cases, "as long"),
        ),
        entries, "1", "time without the library over time with it",
        f"● measured on {view.name} in {join_words(sorted(formats))}.",
        ["Layer", "Time without over time with"], 1.0, [1.0], "1: no gain", None,
        [f"Without the library, PyTorch's own kernels do the work{instead}."],
        ["G07"],
    )  # fmt: skip


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show for each node latencies, gains from ONNX Runtime, text generation, and gains from libraries."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    yield from _wait_exhibit(view, f"inference-wait-{place}")
    yield from _onnx_exhibit(view, f"inference-onnx-{place}")
    yield from _text_exhibit(view, f"inference-text-{place}")
    yield from _library_exhibit(view, f"inference-library-{place}")


FAMILY = Family(
    "inference", "Answering requests",
    "How long does a single request to a model wait, and what makes the answer quicker?", show,
)  # fmt: skip
