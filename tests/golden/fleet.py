"""A synthetic fleet: a server of 64 cores with an H100, a desktop and a laptop, each with a GPU.

Together with the published nodes it decides every decidable rule. Stand-ins produced it, with rounds from earlier
presets (rounds.parquet) and later ones (added.parquet). Never edit it.
"""

from __future__ import annotations

from pathlib import Path

FLEET = Path(__file__).parent / "fleet"
