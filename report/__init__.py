"""From samples to verdicts: gathers what nodes measured, judges the claims, writes the report.

It meets `experiments` only in the data, through `contract`.
"""

from pathlib import Path

# Where this package's own files lie, and the study's.
PACKAGE = Path(__file__).parent
ROOT = PACKAGE.parent
