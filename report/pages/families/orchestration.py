"""Orchestration: the time that training loops lose to data preparation, idle GPUs, and multi-device jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from report.formatting import format_count, join_words, two_digits
from report.pages.chart_rows import alt_text, model_and_batch, percent_case
from report.pages.charts import Chart, bar_chart, estimate_chart
from report.pages.estimate_list import ListEntry, estimate_list, format_range, gpu_suffix
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import amounts, as_share, divide_cases, filled_texts, ratios, sentence, shares
from report.quantities.orchestration import PRELOADED
from report.quantities.several_devices import BATCH

SOURCES = {PRELOADED: "batches in place", "memory": "samples in memory", "encoded": "encoded samples",
           "photographs": "photographs"}  # fmt: skip
LOOP = ("device", "model", "batch", "source", "dtype", "threads")
WAIT, STEP = "waiting for the next batch", "training step"


def _sort_key(case: Mapping[str, Any]) -> tuple[str, str, int]:
    """Return a sort key: device, model, and data source; the source that needs the least preparation comes first."""
    return str(case["device"]), str(case["model"]), [*SOURCES].index(str(case["source"]))


def _lost_time_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show the share of time that each loop loses to data preparation with its best worker count."""
    cases = sorted(records(view.quantity("orchestration.time_lost")), key=_sort_key)
    if not cases:
        return
    most = max(cases, key=lambda case: (bool(as_share(case).shown_bounds()), float(case["estimate"])))
    per_sample: dict[tuple[str, str], dict[str, Any]] = {}
    for record in sorted(records(view.quantity("orchestration.decode_time")), key=lambda case: int(case["workers"])):
        per_sample.setdefault((str(record["model"]), str(record["source"])), record)
    entries: list[ListEntry] = []
    for case in cases:
        sample = per_sample.get((str(case["model"]), str(case["source"])))
        label = f"{case['model']}, {SOURCES[str(case['source'])]}{gpu_suffix(str(case['device']))}"
        entries.append(
            (label, percent_case(case), [str(case["detail"]), format_estimate(sample, "s") if sample else ""])
        )
    slowest = max(per_sample.values(), key=lambda case: float(case["estimate"]), default=None)
    says = []
    if slowest:
        what = SOURCES[str(slowest["source"])]
        takes = amounts([slowest], "s")
        says += filled_texts([sentence(f"Preparing {what} takes one process {{time}} each.", time=takes)])
    yield estimate_list(
        name,
        sentence(
            f"Preparing data costs a training loop up to {{share}} of its time: {most['model']} on "
            f"{SOURCES[str(most['source'])]}",
            "This run does not show what preparing data costs a training loop",
            share=shares([most], most=True),
        ),
        entries, "%", "time lost against batches in place (%)",
        f"● measured on {view.name}, each with the number of worker processes that does best.",
        ["Loop", "Workers", "Preparing a sample", "Time lost"], log=False, says=says,
    )  # fmt: skip


def _iteration_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show how an iteration is split into waiting and training, by data source and worker count.

    The exhibit is for the loop with the longest wait.
    """
    wait_shares = records(view.quantity("orchestration.wait_share"))
    times = {_iteration_key(record): record for record in records(view.cases("orchestration"))}
    wait_shares = [case for case in wait_shares if _iteration_key(case) in times]
    if not wait_shares:
        return
    loops = {tuple(case[key] for key in LOOP if key != "source") for case in wait_shares}
    longest = max(wait_shares, key=lambda case: case["estimate"] * times[_iteration_key(case)]["estimate"])
    loop = tuple(longest[key] for key in LOOP if key != "source")
    loop_cases = sorted((case for case in wait_shares if tuple(case[key] for key in LOOP if key != "source") == loop),
                  key=lambda case: (_sort_key(case), int(case["workers"])))  # fmt: skip
    bars: list[dict[str, Any]] = []
    table = []
    for case in loop_cases:
        iteration, wait = times[_iteration_key(case)], float(case["estimate"])
        workers = "" if case["source"] == PRELOADED else f", {format_count(int(case['workers']), 'worker')}"
        label, ms = f"{SOURCES[str(case['source'])]}{workers}", 1e3 * float(iteration["estimate"])
        bars += [{"case": label, "ms": ms * wait, "of": WAIT}, {"case": label, "ms": ms * (1 - wait), "of": STEP}]
        table.append([label, format_estimate(iteration, "s"), format_estimate(case, "1")])
    fallback = f"This run does not show how long {model_and_batch(longest)} waits for its data"
    waits = shares([longest])
    title = sentence(
        f"An iteration of {model_and_batch(longest)} waits for its data {{share}} of the time", fallback, share=waits
    )
    with_workers = [
        case for case in loop_cases if case["source"] == longest["source"] and case["workers"] > longest["workers"]
    ]
    ready = [case for case in loop_cases if case["source"] == PRELOADED]
    if with_workers and ready:
        best = min(with_workers, key=lambda case: float(times[_iteration_key(case)]["estimate"]))
        ratio = divide_cases(times[_iteration_key(best)], times[_iteration_key(ready[0])])
        if (as_share(best).high or 1.0) < (as_share(longest).low or 0.0):
            title = sentence(
                f"Worker processes cut the wait for {SOURCES[str(longest['source'])]} from {{before}} of an iteration "
                "to "
                "{after}; an iteration then takes {ratio} as with batches in place",
                str(title),
                before=waits,
                after=shares([best]),
                ratio=ratios([ratio], "as long"),
            )
    yield Exhibit(
        Chart(
            name, str(title), bar_chart(pd.DataFrame(bars), "ms", "case", "ms of an iteration", "of", stacked=True),
            f"● measured on {view.name}, {model_and_batch(longest)}{gpu_suffix(str(longest['device']))}: medians; the "
            "table has their intervals.",
            "; ".join(f"{row['case']}, {row['of']}: {two_digits(row['ms'])} ms" for row in bars),
        ),
        ["An iteration of the loop prepares one batch and trains on it.",
         *(["Worker processes take cores that the training step needs."] if longest["device"] == "cpu" else [])],
        Table(["Data", "An iteration", "Share that is waiting"], table, "lrr",
              f"{model_and_batch(longest)} on {view.name}, one of {format_count(len(loops), 'loop')}"),
        heading=title,
    )  # fmt: skip


def _iteration_key(case: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(case[key] for key in (*LOOP, "workers"))


def _idle_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show GPU idle time with preloaded batches, per model at its largest batch."""
    cases = records(view.quantity("orchestration.gpu_idle_share", backend="torch"))
    if not cases:
        return
    largest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for case in sorted(cases, key=lambda case: (str(case["model"]), str(case["dtype"]), int(case["batch"]))):
        largest[case["model"], case["dtype"], case["device"]] = case
    yield estimate_list(
        name,
        sentence(
            "A GPU idles for {share} of a training step, even with its batch in place",
            "This run does not show how long a GPU idles with its batch in place",
            share=shares(largest.values()),
        ),
        [(f"{model_and_batch(case)}, {case['dtype']}{gpu_suffix(str(case['device']))}", percent_case(case),
          []) for case in largest.values()],
        "%", "part of a step in which no kernel runs (%)",
        f"● measured on {view.name}, plain PyTorch; each model and number format at its largest batch.",
        ["Step", "Idle"], log=False, says=["Between two kernels a GPU waits until its host has started the next."],
    )  # fmt: skip


def _rank_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Compare each rank's rate in a multi-device job to the rate of a rank that runs alone."""
    cases = records(view.quantity("several_devices.efficiency"))
    if not cases:
        return
    talks = records(view.quantity("several_devices.communication_share"))
    same = ("device", "model", "batch", "ranks", "interconnect", "dtype", "threads")
    entries: list[ListEntry] = []
    for job in cases:
        talk = next((other for other in talks if all(other[key] == job[key] for key in same)), None)
        label = f"{model_and_batch(job)}, {format_count(int(job['ranks']), 'rank')}{gpu_suffix(str(job['device']))}"
        entries.append((label, percent_case(job), [format_estimate(talk, "1") if talk else ""]))
    says = ["A rank is a process that trains on its own batch, on its own core or GPU; after every step all ranks "
            "average their gradients."]  # fmt: skip
    if talks:
        says += filled_texts([sentence("Averaging takes {share} of a step.", share=shares(talks))])
    ranks = join_words(sorted({str(int(case["ranks"])) for case in cases}), "or")
    lost = [share for share in map(as_share, cases) if share.high is not None and share.high < 1]
    each = f"each of {ranks} ranks loses against a rank alone"
    title = sentence(
        f"Each of {ranks} ranks trains at {{share}} of the rate of a rank alone",
        f"This run does not show what {each}",
        share=shares(lost),
    )
    if len(lost) < len(cases):
        says.append(f"In {len(cases) - len(lost)} of {len(cases)} jobs no loss is certain: the interval reaches 100%, "
                    "or none is known.")  # fmt: skip
    yield estimate_list(
        name,
        title,
        entries, "%", "rate of a rank over that of a rank alone (%)", f"● measured on {view.name}.",
        ["Job", "Averaging, share of a step", "Rate of a rank over one alone"],
        1.0, [100.0], "100%: nothing is lost", False, says,
    )  # fmt: skip


def _gpu_count_exhibit(evidence: Evidence) -> Iterable[Exhibit]:
    """Show how many GPUs a model in training needs, for the GPU with the most memory and the one with the least."""
    by_model: dict[str, list[dict[str, Any]]] = {}
    for record in records(evidence.quantity("several_devices.gpus_needed")):
        by_model.setdefault(str(record["model"]), []).append(record)
    rows: list[dict[str, Any]] = []
    table = []
    for model, cases in sorted(by_model.items(), key=lambda item: max(float(case["estimate"]) for case in item[1])):
        low, high = (end(cases, key=lambda case: float(case["estimate"])) for end in (min, max))
        fewest, most = float(low["estimate"]), float(high["estimate"])
        text = format_range([fewest, most], lambda value: f"{value:,.0f}")
        rows.append({"label": model, "estimate": fewest, "other": most, "low": fewest, "high": most, "text": text,
                     "tier": "derived"})  # fmt: skip
        table.append([model, f"{fewest:,.0f}", str(low["accelerator"]), f"{most:,.0f}", str(high["accelerator"])])
    if not rows:
        return
    alone = [row["label"] for row in rows if row["estimate"] == 1]
    largest = max(rows, key=lambda row: float(row["estimate"]))
    yield Exhibit(
        Chart(
            "orchestration-needed",
            f"One GPU with the most memory holds {len(alone)} of {len(rows)} models while they train; "
            f"{largest['label']} needs {largest['text']} GPUs",
            estimate_chart(rows, "GPUs needed to hold a model while it trains", log=True),
            "◑ derived: 16 bytes of memory for each weight, over the memory of a GPU. Left mark: the GPU with the most "
            "memory; right mark: that with the least.",
            alt_text(rows),
        ),
        [f"Memory for activations is counted for this study's own models only, with a batch of {BATCH} samples."],
        Table(["Model", "Fewest", "Of", "Most", "Of"], table, "lrlrl", "GPUs whose memory holds a model in training"),
        ["G21"],
    )  # fmt: skip


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show for each node lost time, iterations, idle GPUs and ranks, then how many GPUs each model needs."""
    yield from exhibits_per_machine(evidence, _machine_exhibits)
    yield from _gpu_count_exhibit(evidence)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    yield from _lost_time_exhibit(view, f"orchestration-lost-{place}")
    yield from _iteration_exhibit(view, f"orchestration-turn-{place}")
    yield from _idle_exhibit(view, f"orchestration-idle-{place}")
    yield from _rank_exhibit(view, f"orchestration-ranks-{place}")


FAMILY = Family(
    "orchestration", "Keeping devices busy",
    "What do data preparation and communication cost, and how many GPUs does a model need?", show,
)  # fmt: skip
