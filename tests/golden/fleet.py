"""A synthetic fleet: a server of 64 cores with an H100, a desktop and a laptop, each with a GPU.

The fleet and the published nodes together have the data to decide every decidable rule. Stand-in machines measured the
fleet with earlier presets (rounds.parquet) and later ones (added.parquet). Never edit it.
"""

from __future__ import annotations

from pathlib import Path

FLEET = Path(__file__).parent / "fleet"
