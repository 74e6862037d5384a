"""Write into docs/gpu.md what a run costs by card: `python -m docs.card_costs`.

A run is billed for the minutes of the preset `rented` on a GPU, and for those of starting, installing and packing.
Prices: the median for one GPU and hour among the published offers (data/published/cloud-gpus.csv).
"""

from __future__ import annotations

import re
from pathlib import Path

from experiments.sweep import read_preset
from report.advice.prices import hourly_prices

PAGE = Path(__file__).with_name("gpu.md")
# Minutes to start a machine, install, run `preflight` and pack.
BESIDE_MIN = 15
CARDS = {
    "t4": "T4", "rtx-a4000": "RTX A4000", "v100-sxm2-16gb": "V100", "l4": "L4", "a10g": "A10G",
    "rtx-a6000": "RTX A6000", "a40": "A40", "a100-pcie-40gb": "A100 40 GB", "a100-sxm-80gb": "A100 80 GB",
    "h100-pcie": "H100 PCIe", "h100-sxm": "H100 SXM",
}  # fmt: skip
TABLE = re.compile("(<!-- made by `python -m docs.card_costs` -->\n).*?(<!-- end -->)", re.DOTALL)


def cost_table() -> str:
    """Return the table in Markdown: card, price for an hour, price for a run."""
    minutes = read_preset("rented")["budget_min"]["gpu"] + BESIDE_MIN
    prices = hourly_prices()
    lines = [f"| Card | USD for an hour | USD for a run of {minutes} minutes |", "|---|---:|---:|"]
    lines += [f"| {name} | {prices[chip]:.2f} | {prices[chip] * minutes / 60:.2f} |" for chip, name in CARDS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(TABLE.sub(lambda match: match[1] + cost_table() + match[2], page), encoding="utf-8")
