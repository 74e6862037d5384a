"""Quantities of equivalence: on how many models a device, or a library, trains as the CPU does as it comes."""

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
# What says nothing of the model: it was not tried.
_NOT_TRIED = ("skipped",)


def outcomes(data: Dataset) -> pd.DataFrame:
    """One row for every model, device, format and library in every round: status, reason, and whether it agrees.

    The reference is left out where it is compared with itself. A model that was measured in several ways agrees
    if it does in all of them.
    """
    samples = data.samples("equivalence")
    rows = samples[(samples["experiment"] == "equivalence") & ~samples["status"].isin(_NOT_TRIED)]
    itself = (rows["device"] == "cpu") & (rows["dtype"] == "float32") & (rows["backend"] == "torch")
    # Of a wrong result there are values as well: it runs, but it does not agree.
    counts = ~itself & ((rows["status"] != "ok") | (rows["metric"] == "agrees_share"))
    rows = rows[counts].drop_duplicates([*POINT, "round"])
    rows = rows.assign(
        model=[json.loads(params)["model"] for params in rows["params"]],
        agrees=(rows["status"] == "ok") & (rows["value"] == 1),
    )
    keys = [*_GROUP, "model", "round"]
    found = rows.sort_values("agrees", kind="stable").drop_duplicates(keys)
    return found[[*keys, "status", "reason", "agrees"]].sort_values(keys, ignore_index=True)


def _agreement_shares(data: Dataset, kind: str) -> Estimates:
    """Share of the models that agree, by device, format and library; rounds are the unit.

    A format or library that a device lacks altogether gives no estimate.
    """
    own: Mapping[Any, Any] = data.table[data.table["experiment"] == "equivalence"].groupby(_GROUP).groups
    rows, shares = [], []
    for key, tried in outcomes(data).groupby(_GROUP):
        labels = dict(zip(_GROUP, key, strict=True))
        if device_kind(str(labels["device"])) == kind and (tried["status"] != "unsupported").any():
            by_round = tried.groupby("round")["agrees"].mean()
            counts = {"n_rounds": len(by_round), "n_samples": len(tried), "detail": _describe(tried)}
            rows.append({**labels, **counts, "source_rows": tuple(sorted(own[key]))})
            shares.append(by_round.to_numpy(float))
    return Estimates.from_points(rows, statistics.estimate_on_linear_scale(shares, counted=True, share=True))


def _describe(tried: pd.DataFrame) -> str:
    """How many models there are, and which of them do not agree, or do not run, in some round."""
    text = [format_count(tried["model"].nunique(), "model")]
    ran = tried["status"].isin(("ok", "wrong"))
    for verb, rows in (("differing", tried[ran & ~tried["agrees"]]), ("not running", tried[~ran])):
        if len(rows):
            text.append(f"{verb}: {join_words(sorted(rows['model'].unique()))}")
    return ", ".join(text)


@quantity("equivalence.models_that_agree", "1", _LABELS, device="gpu")
def models_that_agree(data: Dataset) -> Estimates:
    """Share of the models that run on a GPU with nothing but the device's name changed, with the CPU's losses.

    One that breaks off, or whose losses leave the tolerance, counts against it. The models are the study's, not a
    sample of others: the interval is over rounds, each with weights and batches of its own.
    """
    return _agreement_shares(data, "gpu")
