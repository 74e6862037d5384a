"""Will it fit: the memory that well-known jobs need beside GPUs with 8 to 80 GB."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from report.advice.answers import MEMORY_RANGE, TIGHT, memory
from report.advice.chips import GIB, Machine, find_machine
from report.advice.jobs import WORK, Job, examine
from report.formatting import join_words
from report.pages.chart_rows import as_percent
from report.pages.charts import AMBER, BLUE, GRID, INK, PAPER, Chart, is_narrow, wrap_text
from report.pages.exhibit_types import Exhibit, Family, Table
from report.pages.figure_data import Evidence
from report.pages.verdict_words import PREDICTED

# A card that people have, for each memory size.
CARDS = ("RTX 4060", "RTX 3060 12 GB", "RTX 4060 Ti 16 GB", "RTX 4090", "L40S", "H100 SXM")
# Tokens that a chat keeps.
CHAT_TOKENS = 4096
# Jobs by title: kind, model, format, sizes.
JOBS = {
    "Make pictures with Stable Diffusion XL": ("pictures", "Stable Diffusion XL base 1.0", "fp16", {}),
    "Fine-tune BERT-base": ("fine-tune", "BERT-base", "bf16", {"batch": 32, "tokens_per_sample": 128}),
    "Train ResNet-50, 32 images at once": ("train", "ResNet-50", "bf16", {"batch": 32}),
    "Chat with 8 billion parameters in 4 bits": ("decode", "Llama 3.1 8B", "Q4_K_M", {"tokens_in": CHAT_TOKENS}),
    "Chat with 8 billion in 16 bits": ("decode", "Llama 3.1 8B", "fp16", {"tokens_in": CHAT_TOKENS}),
    "Fine-tune 8 billion by QLoRA": ("lora", "Llama 3.1 8B", "4bit (QLoRA)", {}),
    "Fine-tune all weights of 8 billion": ("fine-tune", "Llama 3.1 8B", "bf16", {"batch": 1}),
    "Chat with 32 billion in 4 bits": ("decode", "Qwen2.5 32B", "Q4_K_M", {"tokens_in": CHAT_TOKENS}),
    "Chat with 70 billion in 4 bits": ("decode", "Llama 3.1 70B", "Q4_K_M", {"tokens_in": CHAT_TOKENS}),
}  # fmt: skip
_COLOURS = {"fits": BLUE, "tight": AMBER, "no": PAPER}
_SIGNS = {"fits": "✓", "tight": "≈", "no": "✗"}


@dataclass(frozen=True)
class FitRow:
    """A job. required_bytes: memory that it takes on the largest card; fits: per card fits, tight or no."""

    title: str
    required_bytes: float
    fits: Sequence[str]


def show(_evidence: Evidence) -> Iterable[Exhibit]:
    """Show each job's memory, and whether it fits on each card."""
    cards = [find_machine(name) for name in CARDS]
    rows = sorted(map(_fit_row, JOBS), key=lambda row: row.required_bytes)
    last = max(cards, key=lambda card: card.memory_bytes)
    middle = next(place for place, name in enumerate(CARDS) if name == "RTX 4090")
    count = sum(row.fits[middle] != "no" for row in rows)
    large = sum(row.fits[-1] == "no" for row in rows)
    ending = f"; {large} {'needs' if large == 1 else 'need'} more than {_gigabytes(last)} GB" if large else ""
    yield Exhibit(
        Chart(
            "picture-memory-fit",
            f"{count} of {len(rows)} common jobs fit on a card with {_gigabytes(cards[middle])} GB{ending}",
            _fit_drawing(rows, cards),
            f"{PREDICTED.sign} {PREDICTED.name}: sums of weights, gradients, optimiser, activations and cache, within "
            f"{as_percent(1 - MEMORY_RANGE[0])} below and {as_percent(MEMORY_RANGE[1] - 1)} above. ≈ tight: less than "
            f"{as_percent(TIGHT)} is left. Chats keep {CHAT_TOKENS:,} tokens. Cards: "
            + join_words([f"{card.name} ({_gigabytes(card)} GB)" for card in cards]) + ".",
            "; ".join(f"{row.title}: {row.required_bytes / 1e9:.0f} GB" for row in rows),
        ),
        ["A job that does not fit on one GPU takes several, or a CPU with enough main memory, at its lower speed."],
        Table(["Job", "Memory", *(f"{_gigabytes(card)} GB" for card in cards)],
              [[row.title, f"{row.required_bytes / 1e9:.1f} GB", *(_SIGNS[fits] for fits in row.fits)] for row in rows],
              "lr" + "l" * len(cards), "Memory of each job, and the cards on which it fits"),
        ["G17", "G21", "G14", "G20"],
    )  # fmt: skip


def _fit_row(title: str) -> FitRow:
    kind, model, precision, sizes = JOBS[title]
    fits, required = [], 0.0
    for name in CARDS:
        work = {key: float(sizes[key]) if key in sizes else None for key in WORK}
        job = Job(id=title, kind=kind, model=model, hardware=name, precision=precision, work=work)
        parts, _, state = memory(examine(job), kind)
        fits.append(state)
        required = sum(parts.values())
    return FitRow(title, required, fits)


def _gigabytes(card: Machine) -> int:
    return round(card.memory_bytes / GIB)


def _card_label(card: Machine) -> str:
    """Return a column's heading: '24 GB', and the card's name without its memory."""
    name = re.sub(r"^GeForce | SXM\d?| \d+ GB", "", card.name)
    return f"{_gigabytes(card)} GB\n{wrap_text(name, 8)}"


def _fit_drawing(rows: Sequence[FitRow], cards: Sequence[Machine]) -> Callable[[float], Figure]:
    """Return a drawing with a row per job, a column per card, and a sign and a colour where they meet."""

    def draw(width: float) -> Figure:
        narrow = is_narrow(width)
        height = 0.44 if narrow else 0.34
        figure = Figure(figsize=(width, height * len(rows) + 0.8))
        axes = figure.add_subplot()
        for place, row in enumerate(rows):
            for column, fits in enumerate(row.fits):
                axes.add_patch(Rectangle((column - 0.46, place - 0.44), 0.92, 0.88, facecolor=_COLOURS[fits],
                                         edgecolor=GRID, linewidth=1.0))  # fmt: skip
                axes.text(column, place, _SIGNS[fits], ha="center", va="center", fontsize=11, weight="bold",
                          color=INK if fits == "no" else PAPER)  # fmt: skip
        axes.set_xlim(-0.5, len(cards) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        labels = [f"{_gigabytes(card)}\nGB" if narrow else _card_label(card) for card in cards]
        axes.set_xticks(range(len(cards)), labels)
        axes.xaxis.tick_top()
        names = [f"{row.title}: {row.required_bytes / 1e9:.0f} GB" for row in rows]
        axes.set_yticks(range(len(rows)), [wrap_text(name, 20 if narrow else 46) for name in names])
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        return figure

    return draw


FAMILY = Family(
    "memory-fit", "Will it fit?",
    "Which jobs fit into the memory of which GPU?", show, "pictures",
)  # fmt: skip
