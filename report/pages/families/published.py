"""Published measurements: CPUs that a GPU replaces, GPU speedups, and CPU figures to compare with ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from report.formatting import capitalize, format_count, join_words, threshold_text, two_digits, with_unit
from report.pages.chart_rows import alt_text
from report.pages.charts import Chart, estimate_chart
from report.pages.estimate_list import format_range
from report.pages.exhibit_types import Exhibit, Family, Table, records
from report.pages.figure_data import Evidence
from report.pages.heading_numbers import ratios, sentence
from report.pages.machine_selection import filter_cases
from report.pages.verdict_words import BARS, format_interval
from report.quantities.published import machine_name
from report.quantities.published_speeds import PROCESSOR

# Claims whose published evidence is drawn: on GPU speedups in training, and on GPU memory bandwidth relative to a
# desktop and to a server. The shaded band in figures is the TRAINING claim's threshold.
TRAINING, DESKTOP, SERVER = "G09", "W07", "G06"
# Caveats on CPU figures, by source.
_REMARKS = {
    "anybench-stream": "The triad on the Ryzen moves a third more than it counts, which favours the GPU.",
    "opencl-benchmark": "OpenCL leaves much of the EPYC's bandwidth unused, which favours the GPU.",
    "uob-portability": "Fujitsu's A64FX is a server processor with the kind of memory that GPUs have.",
}


def _first_part(document: Mapping[str, Any], claim: str) -> Mapping[str, Any]:
    """Return a claim's first part from its verdict; an empty mapping if there is none."""
    return next(
        (verdict["parts"][0] for verdict in document["verdicts"] if verdict["id"] == claim and verdict["parts"]), {}
    )


def _published_cases(evidence: Evidence, claim: str) -> list[dict[str, Any]]:
    """Return published cases for a claim, each with its strength: 'direct', or 'indirect', which decides nothing."""
    return [
        {**case, "strength": str(other["strength"])}
        for other in _first_part(evidence.document, claim).get("others") or ()
        for case in records(evidence.quantity(other["quantity"], **other["scope"]))
    ]


def _threshold_band(document: Mapping[str, Any]) -> tuple[tuple[float, ...], str]:
    """Return the range of training speedups that an article claims, and a label for the range."""
    limits = tuple(map(float, _first_part(document, TRAINING).get("threshold") or ()))
    return limits, f"an article's {threshold_text(limits, '1')} times, for training" if limits else ""


def _range_row(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chart row with two marks, a line between them, and text for both."""
    least, most = float(low["estimate"]), float(high["estimate"])
    return {"estimate": most, "other": least, "low": least, "high": most,
            "text": format_range((least, most), two_digits),
            "tier": "published"}  # fmt: skip


def _range_text(case: Mapping[str, Any]) -> str:
    """Format a number and its range over benchmark entries: '31 (24 to 38)'."""
    around = format_interval(case["low"], case["high"], "1", 2)
    return two_digits(case["estimate"]) + (f" ({around})" if around else "")


def replaced_chart(document: Mapping[str, Any], name: str) -> Chart:
    """Draw for each job how many server processors the slowest and the fastest GPU in an MLPerf round replace."""
    jobs = sorted(document["replaced"], key=lambda job: (not job["training"], -job["most"]["estimate"]))
    best = {kind: [job["most"]["estimate"] for job in jobs if job["training"] is kind] for kind in (True, False)}
    most = "at most " if any(job["machines"] > 1 for job in jobs if job["training"]) else ""
    kinds = [f"{most}{format_range(best[True], two_digits)} server processors in training"] if best[True] else []
    kinds += (
        [f"{format_range(best[False], two_digits)}{'' if kinds else ' server processors'} in inference"]
        if best[False]
        else []
    )
    slow, fast = (join_words(list(dict.fromkeys(str(job[end]["gpu"]) for job in jobs))) for end in ("least", "most"))
    rounds = join_words(sorted({str(job["setting"]).removeprefix("MLPerf ") for job in jobs}))
    rows = [{"label": capitalize(str(job["job"])), **_range_row(job["least"], job["most"])} for job in jobs]
    return Chart(
        name, f"In each MLPerf round, the fastest GPU did the work of {join_words(kinds)}",
        estimate_chart(rows, "server processors whose work one GPU did", *_threshold_band(document), log=True),
        f"○ published by entrants of MLPerf {rounds}. Left mark: the slowest GPU of the round ({slow}). Right mark: "
        f"the fastest ({fast}). {_sharing_text(jobs)}",
        alt_text(rows),
    )  # fmt: skip


def _sharing_text(jobs: Sequence[Mapping[str, Any]]) -> str:
    """Format how many jobs several servers shared, whose results are divided; '' if no servers did."""
    shared = [job for job in jobs if job["machines"] > 1]
    if not shared:
        return ""
    most = max(job["machines"] for job in shared)
    return (
        f"In {len(shared)} of {format_count(len(jobs), 'job')}, up to {most} servers worked together. Working together "
        "slows them down, so these numbers are upper limits."
    )


def _replaced_exhibit(evidence: Evidence) -> Iterable[Exhibit]:
    jobs, (limits, _) = evidence.document.get("replaced") or [], _threshold_band(evidence.document)
    if not jobs:
        return
    says = ["Both sides ran the same benchmark, each in the number format that its entrant chose. Results of several "
            "GPUs or servers are divided by the number of GPUs or processors. One GPU replaces half as many servers of "
            "two processors."]  # fmt: skip
    if limits:
        least, most = (sum(job[end]["estimate"] >= limits[0] for job in jobs) for end in ("least", "most"))
        says.append(f"The fastest GPU did the work of {two_digits(limits[0])} processors or more in {most} of "
                    f"{len(jobs)} jobs, the slowest GPU in {least or 'none'}.")  # fmt: skip
    table = [[capitalize(str(job["job"])), str(job["setting"]), str(job["processor"]), str(job["machines"]),
              *(f"{_range_text(job[end])}, {job[end]['gpu']}" for end in ("least", "most"))]
             for job in jobs]  # fmt: skip
    yield Exhibit(
        replaced_chart(evidence.document, "published-replaced"), says,
        Table(["Job", "Round", "Processor", "Servers", "By the slowest GPU", "By the fastest GPU"], table, "lllrll",
              "Server processors whose work one GPU did, with range"), [TRAINING, "W02", "N11", "N12"])  # fmt: skip


def _training_exhibit(evidence: Evidence) -> Iterable[Exhibit]:
    """Show each GPU's smallest and largest training speedup over a server processor, from its newest source."""
    by_gpu: dict[tuple[bool, str], list[dict[str, Any]]] = {}
    for case in _published_cases(evidence, TRAINING):
        if case["baseline"] == PROCESSOR:
            by_gpu.setdefault((case["strength"] != "direct", str(case["gpu"])), []).append(case)
    rows: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    table = []
    for (old, gpu), cases in by_gpu.items():
        newest = max(str(case["source"]) for case in cases)
        cases = sorted((case for case in cases if case["source"] == newest), key=lambda case: float(case["estimate"]))
        rows[old].append({"label": gpu, "side": "undecided" if old else "", **_range_row(cases[0], cases[-1])})
        table += [[gpu, str(case["model"]), str(case["cpu"]), _range_text(case), newest] for case in cases]
    tuned, weak = (sorted(rows[old], key=lambda row: -row["estimate"]) for old in (False, True))
    if not tuned:
        return
    title = f"The fastest GPU, {tuned[0]['label']}, trains {tuned[0]['text']} times as fast as one server processor"
    if weak:
        reached = format_range([row[end] for row in weak for end in ("other", "estimate")], two_digits)
        title += f"; over weak CPU software, older GPUs reached {reached} times"
    limits, called = _threshold_band(evidence.document)
    below = sum(row["estimate"] < limits[0] for row in tuned)
    yield Exhibit(
        Chart(
            "published-training", title,
            estimate_chart([*tuned, *weak], "training speed over one server processor", limits, called, log=True),
            "○ published; a line joins the benchmarks with the smallest and the largest lead. Blue: MLPerf, trained to "
            "the same quality, in the newest round with that GPU. Grey: image networks with Torch of 2016.",
            alt_text([*tuned, *weak]),
        ),
        ["Results of several GPUs or servers are divided by the number of GPUs or processors. Over a whole server "
         "of two processors, each ratio is half as large.",
         f"{below} of the {len(tuned)} kinds of GPU in MLPerf stay below {two_digits(limits[0])} times a processor in "
         "every benchmark."],
        Table(["GPU", "Benchmark", "Processor", "Times as fast", "Source"], table, "lllrl",
              "Training on one GPU over one server processor, with the range over entries"),
        [TRAINING, "G08", "N11", "N12", "W02"])  # fmt: skip


def _memory_exhibit(evidence: Evidence) -> Iterable[Exhibit]:
    """Compare GPU memory bandwidth to a desktop's and to a server's.

    GPU and desktop were measured by different programs, GPU and server by the same program.
    """
    published = evidence.data.published.records_by_key if evidence.data else {}
    by_claim = {
        claim: [case for case in _published_cases(evidence, claim) if case["strength"] == "direct"]
        for claim in (DESKTOP, SERVER)
    }
    if not all(by_claim.values()):
        return
    spans = [format_range([case["estimate"] for case in cases], two_digits) for cases in by_claim.values()]
    rows, table = [], []
    for claim, cases in by_claim.items():
        for case in sorted(cases, key=lambda case: -float(case["estimate"])):
            above, below = (published[key] for key in (str(case["records"]).split()[at] for at in (0, -1)))
            gpu, cpu, ratio, rate = (
                machine_name(above),
                machine_name(below),
                float(case["estimate"]),
                float(below["value"]),
            )
            rows.append({"label": f"{gpu} over {cpu}", "estimate": ratio, "text": two_digits(ratio),
                         "tier": "published", "side": "challenges" if claim == DESKTOP else ""})  # fmt: skip
            table.append([gpu, with_unit(ratio * rate, "B/s"), cpu, with_unit(rate, "B/s"), two_digits(ratio),
                          str(below["model"]), str(case["source"])])  # fmt: skip
    says = [text for source, text in _REMARKS.items() if any(source in line[-1] for line in table)]
    yield Exhibit(
        Chart(
            "published-memory",
            f"Memory of data-centre GPUs is {spans[0]} times as fast as a desktop's, and {spans[1]} times as fast as a "
            "server processor's",
            estimate_chart(rows, "memory bandwidth, GPU over CPU", [1.0], "equal", log=True,
                           ends=("CPU faster", "GPU faster")),
            "○ published. Orange: over a desktop with two channels of DDR5, by different programs. Blue: over the "
            "fastest server processor of the source, by the same program.",
            alt_text(rows),
        ), says,
        Table(["GPU", "Its memory", "CPU", "Its memory", "Times as fast", "Pass", "Source"], table, "lrlrrll",
              "Measured memory bandwidth, beyond all caches"),
        [DESKTOP, SERVER, "N07"])  # fmt: skip


def _counterpart_exhibit(evidence: Evidence) -> Iterable[Exhibit]:
    """Compare our CPU figures with published ones, in a row per figure and machine."""
    rows: list[dict[str, Any]] = []
    table = []
    for pair in evidence.document.get("counterparts") or []:
        published, unit = float(pair["published"]), str(pair["unit"])
        for case in filter_cases(pair["here"], evidence.shown_nodes):
            name = evidence.names.get(str(case["node"]), str(case["label"]))
            ends = {end: float(case[end]) / published if case[end] is not None else None for end in ("low", "high")}
            label = str(pair["title"]) + (f" ({name})" if len(pair["here"]) > 1 else "")
            rows.append({"label": label, "estimate": float(case["ratio"]), **ends, "text": two_digits(case["ratio"]),
                         "tier": "derived", "rate": unit != "1"})  # fmt: skip
            table.append([str(pair["title"]), f"{with_unit(case['estimate'], unit)} on {name}",
                          f"{with_unit(published, unit)} on {pair['machine']}", f"×{two_digits(case['ratio'])}",
                          str(pair["differs"])])  # fmt: skip
    speeds = [row for row in rows if row["rate"]]
    if not speeds:
        return
    slow = [row for row in speeds if row["high"] is not None and row["high"] < 1]
    fast = [row for row in speeds if row["low"] is not None and row["low"] > 1]
    figures = format_count(len(speeds), "comparison")
    how = (
        f"faster in {len(fast) or 'none'} of {figures} and slower in {len(slow) or 'none'}"
        if slow or fast
        else f"neither faster nor slower for certain, in {figures}"
    )
    title = sentence(
        f"Compared with similar published CPUs, ours are {how}: {{ratio}}",
        f"Compared with similar published CPUs, ours are {how}",
        ratio=ratios(speeds, "as fast"),
    )  # fmt: skip
    says = ["A slow CPU would make every GPU look good, so we compare ours with published figures. The processors are "
            "similar, not identical; the table says how they differ, and which side that favours."]  # fmt: skip
    if len(speeds) < len(rows):
        says.append("The ratio for predictable branches is a check, not a speed: similar CPUs should agree.")
    yield Exhibit(
        Chart(
            "published-beside", str(title),
            estimate_chart(rows, "measured here over published", [1.0], "equal", log=True,
                           ends=("ours slower", "ours faster")),
            f"◑ derived: measured here over published. {BARS} of what was measured here.",
            alt_text(rows),
        ), says,
        Table(["What", "Here", "Published", "Ratio", "Why they may differ"], table, "lllrl",
              "Our CPU figures and published figures"))  # fmt: skip


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show CPUs that a GPU replaces, GPU speedups, and our CPU figures compared with published ones."""
    for exhibits in (_replaced_exhibit, _training_exhibit, _memory_exhibit, _counterpart_exhibit):
        yield from exhibits(evidence)


FAMILY = Family(
    "published", "What others measured",
    "How far ahead are GPUs in published runs, and do our CPU figures agree with published figures?", show,
)  # fmt: skip
