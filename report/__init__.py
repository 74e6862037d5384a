"""Gather the nodes' samples, judge the claims, write the report.

This package imports nothing from `experiments`. The two packages have only data files and the package `contract` in
common.
"""

from pathlib import Path

PACKAGE = Path(__file__).parent
ROOT = PACKAGE.parent
