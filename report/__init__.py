"""Gather the nodes' samples, judge the claims, write the report.

Imports nothing from `experiments`: both packages share data files and `contract`.
"""

from pathlib import Path

PACKAGE = Path(__file__).parent
ROOT = PACKAGE.parent
