"""Training steps, from one core with default PyTorch to the whole machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from report.data.network_labels import GROUPS, NETWORKS, group, title
from report.formatting import format_number, join_words, two_digits
from report.pages.chart_rows import figure_suffix, format_rough, library_name
from report.pages.charts import Chart
from report.pages.estimate_list import estimate_list, gpu_suffix
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import Number, amounts, divide_cases, filled_texts, ratios, sentence
from report.pages.step_chart import step_chart
from report.pages.verdict_words import BARS, NOTHING
from report.quantities.training import ALONE, BASE, DEFAULT, TOP, WHOLE

Rungs = dict[str, dict[str, Any]]
_STEP = ["device", "model", "batch", "dtype"]
# Ways to train that the figure shows; the table shows all.
DRAWN = (ALONE, DEFAULT, WHOLE, TOP)


def ladders(view: View) -> dict[tuple[str, int], Rungs]:
    """Return each model's rungs (ways to train, plainest first), by model and batch size.

    Each model has a single batch size here: the size with the largest number of different rates among its rungs.
    """
    rungs_by_step: dict[tuple[str, int], Rungs] = {}
    for case in sorted(records(view.quantity("training.ladder")), key=lambda case: (case["place"], case["estimate"])):
        rungs_by_step.setdefault((str(case["model"]), int(case["batch"])), {})[str(case["rung"])] = case
    chosen: dict[str, tuple[str, int]] = {}
    for at in sorted(
        rungs_by_step, key=lambda key: (len({rung["estimate"] for rung in rungs_by_step[key].values()}), key[1])
    ):
        if BASE in rungs_by_step[at] and len(rungs_by_step[at]) > 2:
            chosen[at[0]] = at
    return {at: rungs_by_step[at] for at in sorted(chosen.values())}


def largest_tuning_gain(evidence: Evidence) -> dict[str, Any] | None:
    """Find the largest certain gain from tuning on the same cores; return its model, view, batch and gain.

    A gain is certain if its interval lies above 1 and the bounds differ by less than the factor WIDE. Gains on the
    user's own machines come before others. Returns None if no gain is certain.
    """
    gains: list[dict[str, Any]] = [
        {"model": model, "view": view, "batch": batch, "gain": gain}
        for view in evidence.views
        for (model, batch), rungs in ladders(view).items()
        if WHOLE in rungs and DEFAULT in rungs
        and (gain := divide_cases(rungs[WHOLE], rungs[DEFAULT])).low and gain.low > 1 and gain.is_narrow
    ]  # fmt: skip
    return max(gains, key=lambda gain: (gain["view"].own, gain["gain"].value), default=None)


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show for each node the rungs per model, training steps of published networks, and gains from capturing graphs."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    yield from _ladder_exhibit(view, place)
    for device in view.devices():
        yield from _network_exhibit(view, device, f"training-named-{figure_suffix(place, device)}")
    yield from captured_exhibit(view, f"training-captured-{place}")


def _ladder_exhibit(view: View, place: int) -> Iterable[Exhibit]:
    """Show for each model how many times as fast each way trains as plain PyTorch on one core."""
    models = ladders(view)
    if not models:
        return
    gains = {
        at: {name: divide_cases(rung, rungs[BASE]) for name, rung in rungs.items()
             if not _is_same_point(rung, rungs[BASE])}
        for at, rungs in models.items()
    }  # fmt: skip
    shown = [name for name in DRAWN if any(name in gain for gain in gains.values())]
    rows: list[dict[str, Any]] = [
        {"label": f"{model}, batch {batch:,}", "text": _rates_text(rungs), "short": _rates_text(rungs),
         "marks": [{"step": name, "estimate": gain.value, "low": gain.low, "high": gain.high,
                    "one_round": gain.low is None}
                   for name in shown if (gain := gains[model, batch].get(name))]}
        for (model, batch), rungs in models.items()
    ]  # fmt: skip
    rows = [row for row in rows if row["marks"]]
    best = {
        key: ratios(known, "as fast")
        for key, name in (("cores", WHOLE), ("gpu", TOP))
        if (known := [gain[name] for gain in gains.values() if name in gain])
    }
    if not rows:
        return
    subject = {"cores": "All cores, with the fastest library and number format, train {cores}", "gpu": "a GPU {gpu}"}
    heading = sentence(
        f"{join_words([subject[key] for key in best])} as plain PyTorch on one core"
        if best
        else "Training steps on one core, by library and number format",
        "This run does not show what tuning and all cores gain over plain PyTorch on one core",
        **best,
    )
    yield Exhibit(
        Chart(
            f"training-{place}",
            str(heading),
            step_chart(rows, shown, "times as fast as plain PyTorch on one core", "1: plain PyTorch on one core"),
            f"● measured on {view.name}. On the right: samples a second in plain PyTorch on one core and at best. "
            f"{BARS}. Tuned: the fastest library and number format.",
            "; ".join(f"{row['label']}, {mark['step']}: {two_digits(mark['estimate'])}"
                      for row in rows for mark in row["marks"]),
        ),
        [],
        Table(
            ["Step", "Way", "By", "Rate", "Gain"],
            [
                [f"{model}, batch {batch:,}", name, str(rung["detail"]), format_estimate(rung, "samples/s"),
                 f"×{format_number(rung['estimate'] / rungs[BASE]['estimate'], 2)}"]
                for (model, batch), rungs in models.items()
                for name, rung in rungs.items()
            ],
            "lllrr",
            f"Training steps on {view.name}",
        ),
        ["N11", "G04", "W02"],
        heading,
    )  # fmt: skip


def _is_same_point(case: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    return bool(case["estimate"] == base["estimate"] and case["detail"] == base["detail"])


def _rates_text(rungs: Rungs) -> str:
    """Format the rate of plain PyTorch on one core and the highest rate: '13 → 40/s'."""
    first, last = rungs[BASE], max(rungs.values(), key=lambda rung: float(rung["estimate"]))
    return f"{format_rough(first['estimate'])} → {format_rough(last['estimate'])}/s"


def _network_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show training steps of published networks: examples per second and peak memory.

    Each network, batch size and number format is shown in its fastest backend.
    """
    rates = view.quantity("training.rate", device=device, model=list(NETWORKS))
    best = records(rates.best_per_group(_STEP, keep=["backend", "threads"]) if len(rates) else rates)
    if not best:
        return
    best.sort(key=lambda case: (GROUPS.index(group(str(case["model"]))), str(case["model"]), int(case["batch"]),
                               float(case["estimate"])))  # fmt: skip
    memory = {
        _point_key(record): record for record in records(view.quantity("training.peak_memory_bytes", device=device))
    }
    entries = [
        (f"{title(str(case['model']))}, batch {int(case['batch']):,}, {case['dtype']}", case,
         [library_name(str(case["backend"])), str(int(case["threads"])) if case["threads"] else NOTHING,
          format_estimate(memory[_point_key(case)], "B") if _point_key(case) in memory else NOTHING])
        for case in best
    ]  # fmt: skip
    where = "" if device == "cpu" else " on the GPU"
    plain = {_point_key({**record, "backend": ""}): record for record in records(rates) if record["backend"] == "torch"}
    tuned_steps = [(case, plain[key]) for case in best if (key := _point_key({**case, "backend": ""})) in plain]
    yield estimate_list(
        name,
        sentence(
            f"Well-known networks train at {{rate}} examples a second{where}",
            f"This run does not show how fast well-known networks train{where}",
            rate=amounts(best),
        ),
        entries, "samples/s", "examples a second",
        f"● measured on {view.device_name(device)}: a step of AdamW, each format in its fastest backend.",
        ["Step", "By", "Threads", "Memory at its peak", "Rate"], log=True,
        says=[*filled_texts([
            sentence("The fastest other format trains {gain} as float32.", gain=ratios(_format_gains(best), "as fast")),
            sentence("The fastest backend trains {gain} as plain PyTorch, in the same format.",
                     gain=ratios([divide_cases(*pair) for pair in tuned_steps], "as fast")),
        ])],
        groups=[group(str(case["model"])) for case in best],
    )  # fmt: skip


def _point_key(case: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(case[name] for name in (*_STEP[1:], "backend", "threads"))


def _format_gains(cases: Iterable[Mapping[str, Any]]) -> list[Number]:
    """Return how much faster the fastest other format is than float32, for each network and batch."""
    pairs: dict[tuple[Any, ...], dict[bool, Mapping[str, Any]]] = {}
    for case in sorted(cases, key=lambda case: float(case["estimate"])):
        pairs.setdefault((case["model"], case["batch"]), {})[case["dtype"] == "float32"] = case
    return [divide_cases(pair[False], pair[True]) for pair in pairs.values() if len(pair) == 2]


def captured_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show how much faster a step is if it is launched as one graph, not operator by operator."""
    cases = sorted(
        records(view.quantity("training.capture_gain")),
        key=lambda case: (str(case["model"]), int(case["batch"]), str(case["dtype"])),
    )
    if not cases:
        return
    labels = [
        f"{case['model']}, batch {int(case['batch']):,}, {case['dtype']}{gpu_suffix(case['device'])}" for case in cases
    ]
    yield estimate_list(
        name,
        sentence(
            "Captured in one graph, a training step on the GPU runs {gain} as operator by operator",
            "This run does not show what capturing a training step in one graph gains on the GPU",
            gain=ratios(cases, "as fast"),
        ),
        [(label, case, []) for label, case in zip(labels, cases, strict=True)],
        "1", "time operator by operator (eager) over time in one graph",
        f"● measured on {view.name}, with Adam fused into one pass where captured.",
        ["Step", "Captured over eager"], 1.0, [1.0], "1: equally fast", None,
        ["Plain PyTorch launches each operator from the host, and steps of small models wait for these launches. "
         "Comparisons with a CPU take the faster way."],
        ["W02"],
    )  # fmt: skip


FAMILY = Family(
    "training", "Training: from one core to the whole machine",
    "How much does a training step gain from tuning, from all cores and from a GPU?", show,
)  # fmt: skip
