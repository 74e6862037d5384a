"""The first block of a user's own report: each machine's numbers beside the published ones, and its noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from report.data import network_labels
from report.data.best_results import Best, best_results, count_disturbed, read_results
from report.estimates import device_kind
from report.formatting import capitalize, count_machines_and_runs, format_count, format_interval, range_words, with_unit
from report.pages.figure_data import Evidence
from report.pages.verdict_words import NOTHING


def own_machines(evidence: Evidence, changes: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the template context for the user's machines; None if the report has only published ones.

    changes: from `edition_changes.changes_since_last`. Raises StudyError if the gathered results cannot be read.
    """
    if not evidence.own or evidence.folder is None:
        return None
    _, table = read_results(evidence.folder)
    published = table.filter(~pl.col("node").is_in(sorted(evidence.own)))
    machines = []
    for name in (name for name in evidence.shown_nodes if name in evidence.own):
        rows = table.filter(node=name)
        noisy = count_disturbed(rows)
        machines.append(
            {
                "name": evidence.names.get(name, name),
                "rows": [_row(best) for best in best_results(rows, published)],
                "noisy": format_count(noisy.total(), "result"),
                "is_noisy": bool(noisy),
                "all": f"{rows.height:,}",
                "by": ", ".join(f"{experiment} {number}" for experiment, number in noisy.most_common()),
            }
        )
    return {"machines": machines, "more": len(evidence.own) > len(machines), "changes": changes}


def _row(best: Best) -> dict[str, str]:
    values = sorted(best.beside.values())
    model = best.labels.get("model")
    return {
        "what": capitalize(best.number.title) + (f", {network_labels.title(str(model))}" if model else ""),
        "device": device_kind(best.device).upper(),
        "result": format_interval(best.estimate, best.low, best.high, best.unit),
        "beside": range_words(with_unit(values[0], best.unit), with_unit(values[-1], best.unit)) if values else NOTHING,
        "machines": count_machines_and_runs([*best.beside]) if values else NOTHING,
    }
