"""Tokens a second against memory bandwidth: one language model on chips from a small computer to a data-centre GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import median

from report.advice.formats import find_format
from report.advice.models import find_model
from report.advice.outcomes import Outcome, read_outcomes
from report.advice.own_outcomes import own_outcomes
from report.formatting import two_digits
from report.pages.chart_rows import as_percent
from report.pages.charts import Chart
from report.pages.exhibit_types import Exhibit, Family, Table
from report.pages.figure_data import Evidence
from report.pages.markdown import link
from report.pages.pictures.drawing import Point, scatter_chart

# The model and format whose tokens the picture counts.
MODEL, FORMAT = "Llama 3.1 8B", "Q4_K_M"
# Size range, relative to MODEL, in which models' rates are shown as they are.
_LIKE = (0.75, 1.2)
# Formats with fewer bits are left out, since unpacking them takes longer than reading.
_FEWEST_BITS, _MOST_BITS = 3.9, 8.6
# Share of the most that memory allows, from which a chip counts as near to it.
_NEAR = 0.4
# Chips to name first, by a part in their names.
_KNOWN = ("H100", "RTX 4090", "RTX 3090", "A100", "M2 Ultra", "RTX 4060 Ti", "T4", "Raspberry Pi 5", "Ryzen 7 5700G",
          "M1", "RTX 5090", "i9-13900K", "M4 Pro", "EPYC 9175F")  # fmt: skip


@dataclass(frozen=True)
class ChipRate:
    """A chip's best rate. bandwidth: in B/s; rate: in tokens/s of MODEL; share: of the most that bandwidth allows.

    converted: the rate is another model's, in proportion to the bytes of both.
    """

    name: str
    bandwidth: float
    rate: float
    share: float
    is_gpu: bool
    tier: str
    outcome: Outcome


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show each chip's best rate, published or measured here, and the most that its memory allows."""
    size = model_bytes()
    rates = sorted(
        [*best_rates(read_outcomes(), size, "published"), *_own_rates(evidence, size)],
        key=lambda rate: rate.bandwidth,
    )
    cpus, gpus = ([rate for rate in rates if rate.is_gpu is is_gpu] for is_gpu in (False, True))
    if not cpus or not gpus:
        return
    fastest_cpu, fastest_gpu = (max(group, key=lambda rate: rate.rate) for group in (cpus, gpus))
    near = sum(rate.share >= _NEAR for rate in rates)
    points = [
        Point(rate.bandwidth / 1e9, rate.rate, rate.rate, rate.rate, rate.name, rate.tier, rate.is_gpu, _rank(rate))
        for rate in rates
    ]
    rows = [_table_row(rate) for rate in rates]
    yield Exhibit(
        Chart(
            "picture-tokens-bandwidth",
            f"Memory sets how fast {MODEL} writes: {two_digits(fastest_cpu.rate)} tokens a second on the best CPU, "
            f"{two_digits(fastest_gpu.rate)} on the best GPU",
            scatter_chart(
                points, ("memory bandwidth, GB/s", "tokens a second"),
                line=(1e9 / size, "the most that memory allows"),
            ),
            "A mark per chip, its best rate for one user. ● measured here, beside the measured bandwidth. ○ published, "
            "of a dense model of about this size, beside the rated bandwidth. ◑ derived, from another model’s rate and "
            f"the bytes of both. The line: the weights ({size / 1e9:.1f} GB) are read once for each token. Most "
            "rates were published once, without an interval.",
            "; ".join(f"{row[0]}: {row[1]}, {row[2]} tokens a second" for row in rows[:: -(-len(rows) // 12)]),
        ),
        [f"{near} of {len(rates)} chips reach {as_percent(_NEAR)} or more of the rate that their memory allows; half "
         f"reach more than {as_percent(median(rate.share for rate in rates))}."],
        Table(["Chip", "Memory", "Tokens/s", "Of the most", "By", "From"], rows, "lrrrll",
              f"Best rate per chip, as {MODEL} in 4 bits"),
        ["W06", "G18", "G06", "N07"],
    )  # fmt: skip


def _own_rates(evidence: Evidence, size: float) -> Iterator[ChipRate]:
    """Yield the best rate on each machine measured here, beside the bandwidth that was measured on it."""
    outcomes, _ = own_outcomes(evidence.folder) if evidence.folder else ([], {})
    for view in evidence.views:
        bandwidth = view.quantity("bandwidth.rate", device="cpu", op="triad")
        mine = [
            outcome for outcome in outcomes if outcome.row["node"] == view.node and outcome.situation.machine.is_cpu
        ]
        for rate in best_rates(mine, size, "measured") if len(bandwidth) else ():
            best = float(bandwidth["estimate"].max())
            yield replace(rate, name=view.name, bandwidth=best, share=rate.rate * size / best)


def _table_row(rate: ChipRate) -> list[str]:
    row, situation = rate.outcome.row, rate.outcome.situation
    source = link(f"{row['measured_by']}, {row['date'][:4]}", row["url"]) if row.get("url") else "this study"
    model = situation.model.name if situation.model else ""
    return [rate.name, f"{rate.bandwidth / 1e9:,.0f} GB/s", two_digits(rate.rate), as_percent(rate.share), source,
            f"{model}, {situation.format.name}"]  # fmt: skip


def model_bytes() -> float:
    """Count the bytes for MODEL's weights in FORMAT."""
    model, form = find_model(MODEL, "decode", None), find_format(FORMAT)
    assert form is not None
    return (model.active or model.parameters) * form.weight_bits / 8


def best_rates(outcomes: Iterable[Outcome], size: float, tier: str) -> Iterator[ChipRate]:
    """Yield each chip's best rate as MODEL's tokens a second, from its runs with models near that size, else all runs.

    size: bytes for MODEL's weights. tier: the outcomes' evidence tier.
    """
    runs: dict[str, list[tuple[bool, float, Outcome]]] = {}
    for outcome in outcomes:
        situation = outcome.situation
        inputs, machine = situation.inputs, situation.machine
        if situation.job.kind != "decode" or machine.count > 1 or inputs["experts"] or situation.model is None:
            continue
        if not machine.rated and tier == "published":
            continue
        if (outcome.situation.job.amount("users") or 1) > 1 or not _FEWEST_BITS <= inputs["weight_bits"] <= _MOST_BITS:
            continue
        scale = inputs["active"] * inputs["weight_bits"] / 8 / size
        is_alike = _LIKE[0] <= scale <= _LIKE[1]
        runs.setdefault(machine.name, []).append((is_alike, scale / outcome.time, outcome))
    for name, chip_runs in runs.items():
        alike = [run for run in chip_runs if run[0]]
        is_alike, rate, outcome = max(alike or chip_runs, key=lambda run: run[1])
        machine = outcome.situation.machine
        yield ChipRate(
            _short_name(name), machine.bandwidth, rate, rate * size / machine.bandwidth, not machine.is_cpu,
            tier if is_alike else "derived", outcome,
        )  # fmt: skip


def _short_name(name: str) -> str:
    if name.startswith("processor of "):
        return f"{name.removeprefix('processor of Apple ')} (CPU)"
    for words in ("GeForce ", "Tesla ", "AMD ", "Intel ", "Apple "):
        name = name.removeprefix(words)
    return re.sub(r"( \(|,| (SXM|PCIe|NVL)).*", "", name)


def _rank(rate: ChipRate) -> int:
    known = [place for place, part in enumerate(_KNOWN) if part in rate.name]
    return known[0] if known else len(_KNOWN) + (rate.tier != "measured")


FAMILY = Family(
    "tokens-bandwidth", "Tokens a second against memory bandwidth",
    "What decides how fast a language model answers one user?", show, "pictures",
)  # fmt: skip
