"""Equivalence: models whose losses on another device or library agree with default PyTorch on the CPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from report import statistics
from report.data.dataset import Dataset
from report.data.summary import POINT
from report.estimates import Estimates, device_kind
from report.formatting import format_count, join_words
from report.quantities import quantity

_LABELS = ("dtype", "backend")
_GROUP = ["node", "device", "dtype", "backend"]
# Statuses of models that were not tried, which are left out.
_NOT_TRIED = ("skipped",)


def model_outcomes(data: Dataset) -> pd.DataFrame:
    """Return one row per model, device, format, library and round.

    Columns: status, reason, and agrees (True if the losses agree with the reference). The reference itself, float32 in
    PyTorch on the CPU, is left out. If a model is measured in several ways, it agrees only if all its measurements
    agree.
    """
    samples = data.samples("equivalence")
    rows = samples[(samples["experiment"] == "equivalence") & ~samples["status"].isin(_NOT_TRIED)]
    itself = (rows["device"] == "cpu") & (rows["dtype"] == "float32") & (rows["backend"] == "torch")
    # For a point with status `ok`, keep only the row with the metric `agrees_share`. A point with any other status does
    # not agree, so keep any one of its rows.
    counts = ~itself & ((rows["status"] != "ok") | (rows["metric"] == "agrees_share"))
    rows = rows[counts].drop_duplicates([*POINT, "round"])
    rows = rows.assign(
        model=[json.loads(params)["model"] for params in rows["params"]],
        agrees=(rows["status"] == "ok") & (rows["value"] == 1),
    )
    keys = [*_GROUP, "model", "round"]
    per_model = rows.sort_values("agrees", kind="stable").drop_duplicates(keys)
    return per_model[[*keys, "status", "reason", "agrees"]].sort_values(keys, ignore_index=True)


def _agreement_shares(data: Dataset, kind: str) -> Estimates:
    """Compute the share of models that agree, by device, format and library; the interval is over rounds.

    A device has no estimate for a format or library that it does not support.
    """
    rows_by_group: Mapping[Any, Any] = (
        data.table[data.table["experiment"] == "equivalence"].groupby(_GROUP, observed=True).groups
    )
    rows, shares = [], []
    for key, results in model_outcomes(data).groupby(_GROUP, observed=True):
        labels = dict(zip(_GROUP, key, strict=True))
        if device_kind(str(labels["device"])) == kind and (results["status"] != "unsupported").any():
            by_round = results.groupby("round", observed=True)["agrees"].mean()
            counts = {"n_rounds": len(by_round), "n_samples": len(results), "detail": _describe(results)}
            rows.append({**labels, **counts, "source_rows": tuple(sorted(rows_by_group[key]))})
            shares.append(by_round.to_numpy(float))
    return Estimates.from_points(rows, statistics.estimate_on_linear_scale(shares, counted=True, share=True))


def _describe(results: pd.DataFrame) -> str:
    """Count the models, and list those that disagree or fail to run in any round."""
    text = [format_count(results["model"].nunique(), "model")]
    ran = results["status"].isin(("ok", "wrong"))
    for verb, rows in (("differing", results[ran & ~results["agrees"]]), ("not running", results[~ran])):
        if len(rows):
            text.append(f"{verb}: {join_words(sorted(rows['model'].unique()))}")
    return ", ".join(text)


@quantity("equivalence.models_that_agree", "1", _LABELS, device="gpu")
def models_that_agree(data: Dataset) -> Estimates:
    """Share of models that train on a GPU with only the device name changed, and reach the same losses as on the CPU.

    A model does not count as agreeing if it does not run, or if its losses differ by more than the tolerance. The
    models are the study's own, not a sample from a larger set, so the interval covers only the variation over rounds,
    each with its own weights and batches.
    """
    return _agreement_shares(data, "gpu")
