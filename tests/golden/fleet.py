"""A synthetic fleet: a 64-core server with an H100, a desktop and a laptop, each with a GPU.

The fleet and the published nodes together have the data to decide every claim that measurements can decide. Stand-in
machines measured the fleet: rounds.parquet with earlier presets, and added.parquet with later ones. Never edit these
files.
"""

from __future__ import annotations

from pathlib import Path

FLEET = Path(__file__).parent / "fleet"
