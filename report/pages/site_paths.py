"""Where the files of a published report lie, relative to its folder: the same in every edition, so that links last.

`summary.csv` numbers its rows, verdicts name the rows behind them, and every sample bears the number of its row.
"""

from __future__ import annotations

import hashlib
import re

PAGE, PDF, APPENDIX, RENDERED = "index.html", "report.pdf", "appendix.pdf", "render.json"
# Pages and figures that could not be made; written last.
FAILURES = "failures.json"
VERDICTS, VERDICTS_TABLE = "verdicts.json", "verdicts.csv"
SUMMARY, DICTIONARY, NODES, FILES = "data/summary.csv", "data/dictionary.csv", "data/nodes.json", "data/files.csv"
# All samples in one file, where they are too many for tables of their own.
SAMPLES = "data/samples.parquet"
EDITIONS = "editions.json"

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,98}[A-Za-z0-9_-])?")
_UNFIT = re.compile(r"[^A-Za-z0-9]+")


def samples(node: str, experiment: str, device: str) -> str:
    """The table of all samples that one device of one node gave in one experiment, in data/: 'NODE/gemm.cuda-0.csv'.

    One name whatever its size: a link in last year's edition still leads to the same measurements. Nothing in the
    names can lead out of the folder, or fail to be an address.
    """
    return f"data/{_fit(node)}/{_fit(experiment)}.{_fit(device.replace(':', '-'))}.csv"


def _fit(name: str) -> str:
    """A name that a file may bear anywhere: itself, or what is left of it with a digest that keeps it apart."""
    if _NAME.fullmatch(name) and ".." not in name:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_UNFIT.sub('-', name).strip('-')[:60]}-{digest}".lstrip("-")
