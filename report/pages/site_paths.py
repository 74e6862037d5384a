"""File paths in a published report, relative to its folder.

The paths are the same in all editions, so that links to them stay valid. Rows in `summary.csv` are numbered, and
verdicts and samples refer to these numbers.
"""

from __future__ import annotations

import hashlib
import re

PAGE, PDF, APPENDIX, RENDERED = "index.html", "report.pdf", "appendix.pdf", "render.json"
# File that lists failed pages and figures. `report render` writes it last.
FAILURES = "failures.json"
VERDICTS, VERDICTS_TABLE = "verdicts.json", "verdicts.csv"
SUMMARY, DICTIONARY, NODES, FILES = "data/summary.csv", "data/dictionary.csv", "data/nodes.json", "data/files.csv"
# Samples of all nodes in one file, which is written if there are too many nodes for each to have its own tables.
SAMPLES = "data/samples.parquet"
EDITIONS = "editions.json"

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,98}[A-Za-z0-9_-])?")
_UNFIT = re.compile(r"[^A-Za-z0-9]+")


def samples_path(node: str, experiment: str, device: str) -> str:
    """Return the path for samples from a node, experiment and device, in data/: 'NODE/gemm.cuda-0.csv'.

    The path does not depend on the size of the table, so that links from earlier editions stay valid. It is safe as a
    path and as a URL for any name.
    """
    return f"data/{_safe_name(node)}/{_safe_name(experiment)}.{_safe_name(device.replace(':', '-'))}.csv"


def _safe_name(name: str) -> str:
    """Make a name safe in file names and URLs; a changed name gets a digest, so that it differs from other names."""
    if _NAME.fullmatch(name) and ".." not in name:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_UNFIT.sub('-', name).strip('-')[:60]}-{digest}".lstrip("-")
