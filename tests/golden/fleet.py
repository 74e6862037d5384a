"""A synthetic fleet: a server of 64 cores with an H100, a desktop and a laptop, each with a GPU.

With them and the published nodes every rule that can be decided is. They were measured by stand-ins, in rounds of
earlier presets (rounds.parquet) and of later ones (added.parquet), and stay as they are.
"""

from __future__ import annotations

from pathlib import Path

FLEET = Path(__file__).parent / "fleet"
