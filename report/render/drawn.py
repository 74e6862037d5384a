"""Draws the figures of a report that have changed, on all processors at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from tempfile import gettempdir

from contract import ending
from report.render.figures import Drawing, paint, reuse

# Below this many, starting processes takes longer than drawing.
_FEW = 12


def draw(drawings: Sequence[Drawing], folder: Path, earlier: Path | None) -> int:
    """Put every drawing's SVG into `folder`, copied from `earlier` where it shows the same.

    Returns how many were drawn. Raises OSError if the folder cannot be written.
    """
    wanted = [(drawing, key) for drawing in drawings if (key := reuse(drawing, folder, earlier))]
    if len(wanted) < _FEW or ending.available_cpus() < 2:
        for drawing, key in wanted:
            paint(drawing, folder, key)
        return len(wanted)
    # Not forked from here: libraries that have read the data have threads of their own.
    # The server's socket lies in the temporary folder, and its whole path may have some hundred bytes.
    served = os.name == "posix" and len(os.fsencode(gettempdir())) < 64
    context = get_context("forkserver" if served else "spawn")
    if served:
        context.set_forkserver_preload(sorted({drawing.draw.__module__ for drawing, _ in wanted}))
    with ending.pool(min(ending.available_cpus(), len(wanted)), context) as pool:
        drawn = [pool.submit(paint, drawing, folder, key) for drawing, key in wanted]
        for one in drawn:
            one.result()
    return len(wanted)
