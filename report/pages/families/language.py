"""Language models: rates for writing text and reading prompts, the limit set by memory, and gains from GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from report.data.network_labels import title
from report.formatting import capitalize, format_count, format_number, join_words, two_digits
from report.pages.chart_rows import figure_suffix, is_single_round, library_name
from report.pages.charts import Chart, bar_chart
from report.pages.estimate_list import cases_with_most_threads, estimate_list
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.families.inference import share_in_table
from report.pages.families.runtimes import unmeasured_sentences
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import amounts, as_share, divide_cases, filled_texts, ratios, sentence, shares
from report.pages.verdict_words import NOTHING
from report.quantities.language import DECODE, EXPERIMENT, PROMPT

Case = dict[str, Any]
WRITTEN, ALLOWED = "written", "what memory allows"
VERBS = {PROMPT: "reads", DECODE: "writes"}
_POINT = ("model", "format", "tokens", "backend", "threads")
_FILE = ("model", "tokens", "format")


def _fastest_cases(view: View, device: str, phase: str) -> list[Case]:
    """Return the cases with the fastest runtime and thread count, sorted from the slowest case to the fastest.

    There is a case for each model, file format and text length in tokens.
    """
    cases = records(view.quantity("language.fastest", device=device, phase=phase))
    return sorted((case for case in cases if case["format"] != "best"), key=lambda case: float(case["estimate"]))


def _all_cases(view: View, device: str, phase: str) -> list[Case]:
    """Return all cases in a phase, sorted by model, text length and format, then from fastest to slowest."""
    cases = records(view.quantity("language.tokens_per_s", device=device, phase=phase))
    return sorted(cases, key=lambda case: (*map(str, (case[name] for name in _FILE)), -float(case["estimate"])))


def _case_label(case: Mapping[str, Any]) -> str:
    return f"{title(str(case['model']))}, {case['format']}"


def _point_label(case: Mapping[str, Any]) -> str:
    """Name a model file, runtime and thread count: 'Qwen2.5 0.5B, Q8_0, llama.cpp (xllamacpp), 1 thread'."""
    threads = f", {format_count(int(case['threads']), 'thread')}" if case["threads"] else ""
    return f"{_case_label(case)}, {library_name(str(case['backend']))}{threads}"


def _bandwidth_shares(view: View, device: str) -> dict[tuple[Any, ...], Case]:
    """Map each point to the fraction of the memory bandwidth that it uses to write tokens."""
    cases = records(view.quantity("language.bandwidth_share", device=device))
    return {tuple(case[name] for name in _POINT): case for case in cases}


def _decode_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show tokens written per second in the fastest runtime, compared with the memory bandwidth limit."""
    cases = _fastest_cases(view, device, DECODE)
    if not cases:
        return
    used = _bandwidth_shares(view, device)
    of = {id(case): used.get(tuple({**case, "backend": case["runtime"]}[name] for name in _POINT)) for case in cases}
    bars: list[dict[str, Any]] = []
    for case in cases:
        alone = ", one round" if is_single_round(case) else ""
        bars.append({"case": _case_label(case) + alone, "rate": float(case["estimate"]), "of": WRITTEN})
        if (share := of[id(case)]) and not as_share(share).impossible:
            bars.append({**bars[-1], "rate": float(case["estimate"]) / float(share["estimate"]), "of": ALLOWED})
    measured = [as_share(share, f"writing with {_case_label(case)}", "the memory's bandwidth")
                for case in cases if (share := of[id(case)])]  # fmt: skip
    where = "on the CPU" if device == "cpu" else "on the GPU"
    heading = sentence(
        f"Language models write {{rate}} tokens a second {where}"
        + (", {share} of what memory allows" if measured else ""),
        f"This run does not show how fast language models write {where}",
        rate=amounts(cases), **({"share": shares(measured)} if measured else {}),
    )  # fmt: skip
    points = _all_cases(view, device, DECODE)
    lines = [[title(str(point["model"])), str(point["format"]), library_name(str(point["backend"])),
              _format_threads(point), format_estimate(point, "tokens/s"),
              share_in_table(used.get(tuple(point[name] for name in _POINT))), _format_error(view, device, point)]
             for point in points]  # fmt: skip
    yield Exhibit(
        Chart(
            name, str(heading), bar_chart(pd.DataFrame(bars), "rate", "case", "tokens a second", hue="of"),
            f"● measured on {view.device_name(device)}: one text at a time, each file in its fastest runtime; the "
            "table has the intervals. What memory allows: the measured bandwidth over the bytes that a token reads.",
            "; ".join(f"{row['case']}: {two_digits(row['rate'])} {row['of']}" for row in bars),
        ),
        [*filled_texts(_format_gains(cases)), *_runtime_sentences(cases), *filled_texts(_core_gains(points)),
         *unmeasured_sentences(view, device, EXPERIMENT, "measurement"),
         "The files have the public models' exact shapes with random weights, which do not change the speed."],
        Table(["Model", "Format", "Runtime", "Threads", "Written", "Of the bandwidth", "Error"], lines, "lllrrrr",
              f"Tokens written on {view.device_name(device)}; error of the logits"),
        heading=heading,
    )  # fmt: skip


def _format_threads(case: Mapping[str, Any]) -> str:
    return str(int(case["threads"])) if case["threads"] else NOTHING


def _format_error(view: View, device: str, case: Mapping[str, Any]) -> str:
    """Format the largest relative error in a point's logits."""
    points = view.points(EXPERIMENT, device=device)
    for column in (*_POINT, "phase"):
        points = points[points[column] == case[column]]
    worst = points["error"].max()
    return NOTHING if pd.isna(worst) else format_number(float(worst), 2)


def _format_gains(cases: Sequence[Case]) -> list[Any]:
    """Compare the fastest with the slowest format, for each model that has several formats."""
    gains = []
    for _, group in groupby(sorted(cases, key=lambda case: str(case["model"])), key=lambda case: str(case["model"])):
        rates = sorted(group, key=lambda case: float(case["estimate"]))
        if len({str(rate["format"]) for rate in rates}) > 1:
            text = (
                f"{title(str(rates[0]['model']))} writes {{gain}} in {rates[-1]['format']} as in {rates[0]['format']}."
            )
            gains.append(sentence(text, gain=ratios([divide_cases(rates[-1], rates[0])], "as fast")))
    return gains


def _runtime_sentences(cases: Sequence[Case]) -> list[str]:
    """Count for how many model files each runtime is the fastest."""
    most = Counter(library_name(str(case["runtime"])) for case in cases).most_common()
    counts = [f"{name} for {format_count(files, 'file')}" for name, files in most]
    return [f"Fastest: {join_words(counts)}."]


def _core_gains(points: Sequence[Case]) -> list[Any]:
    """Compare the rate on the most threads with the rate on one thread, for the same file and runtime."""
    alone = {tuple(point[name] for name in _POINT[:-1]): point for point in points if int(point["threads"]) == 1}
    many = [most_thread for most_thread in cases_with_most_threads(list(points)) if int(most_thread["threads"]) > 1]
    pairs = [(point, alone[key]) for point in many if (key := tuple(point[name] for name in _POINT[:-1])) in alone]
    gains = ratios([divide_cases(*pair) for pair in pairs], "as fast")
    return [sentence("All threads write {gain} as one thread.", gain=gains)] if pairs else []


def _prompt_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show prompt tokens read per second in the fastest runtime."""
    cases = _fastest_cases(view, device, PROMPT)
    if not cases:
        return
    written = {tuple(case[name] for name in _FILE): case for case in _fastest_cases(view, device, DECODE)}
    pairs = [(case, written[key]) for case in cases if (key := tuple(case[name] for name in _FILE)) in written]
    dearer = sentence("Writing a token takes {ratio} as reading one.",
                      ratio=ratios([divide_cases(*pair) for pair in pairs], "as long"))  # fmt: skip
    rest = [case for case in _all_cases(view, device, PROMPT)
            if not any(_is_same_point(case, best) for best in cases)]  # fmt: skip
    lines = [
        *((_case_label(case), case, [library_name(str(case["runtime"])), _format_threads(case)]) for case in cases),
        *((_point_label(case), case, [library_name(str(case["backend"])), _format_threads(case)]) for case in rest),
    ]
    lengths = sorted({int(case["tokens"]) for case in cases})
    yield estimate_list(
        name,
        sentence(
            f"Prompts of {join_words([f'{length:,}' for length in lengths], 'or')} tokens are read at {{rate}} tokens "
            "a second",
            "This run does not show how fast language models read a prompt",
            rate=amounts(cases),
        ),
        lines, "tokens/s", "tokens a second",
        f"● measured on {view.device_name(device)}: one prompt at a time. The fastest runtime for each file first.",
        ["Model and file", "Runtime", "Threads", "Read"], log=True,
        groups=["The fastest runtime"] * len(cases) + ["Others"] * len(rest),
        says=[*(filled_texts([dearer]) if pairs else []),
              "The tokens of a prompt share each read of the weights; each written token needs a read of its own."],
    )  # fmt: skip


def _is_same_point(point: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
    return point["backend"] == best["runtime"] and all(point[name] == best[name] for name in (*_FILE, "threads"))


def _gpu_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Compare a GPU with its host CPU, each in its fastest format and runtime, and in the same format."""
    cases = sorted(
        records(view.quantity("language.gpu_over_cpu")),
        key=lambda case: (str(case["phase"]) != DECODE, str(case["model"]), str(case["precision"])),
    )
    best = [case for case in cases if case["precision"] == "best"]
    if not cases:
        return
    phases = [phase for phase in (DECODE, PROMPT) if any(case["phase"] == phase for case in best)]
    gains = {phase: ratios([case for case in best if case["phase"] == phase], "as fast") for phase in phases}
    yield estimate_list(
        name,
        sentence(
            capitalize(f"a GPU {join_words([f'{VERBS[phase]} {{{phase}}}' for phase in phases])} as its host's CPU, "
                    "each in its fastest format and runtime"),
            "This run does not show what a GPU gains with language models",
            **gains,
        ),
        [(f"{title(str(case['model']))} {VERBS[str(case['phase'])]}, {_formats_label(case)}", case,
          [f"{library_name(str(case['runtime']))} over {library_name(str(case['cpu_runtime']))}"]) for case in cases],
        "1", "tokens a second, GPU over CPU", f"● measured on {view.name}, one text at a "
                                                                           "time.",
        ["Model", "Compared", "GPU over CPU"], 1.0, [1.0], "1: equally fast", True, ends=("CPU faster", "GPU faster"),
    )  # fmt: skip


def _formats_label(case: Mapping[str, Any]) -> str:
    return f"both in {case['dtype']}" if case["precision"] == "equal" else str(case["detail"])


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show how fast each device writes and reads tokens, and each GPU's speedup over its host."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    for device in view.devices():
        yield from _decode_exhibit(view, device, f"language-decode-{figure_suffix(place, device)}")
        yield from _prompt_exhibit(view, device, f"language-prompt-{figure_suffix(place, device)}")
    yield from _gpu_exhibit(view, f"language-gpu-{place}")


FAMILY = Family(
    "language", "Language models",
    "How fast does a language model read a prompt and write an answer, and how near is that to what memory allows?",
    show,
)  # fmt: skip
