"""Hours that a server with two processors takes for published training runs, from what such servers did in MLPerf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from report.data.dataset import Dataset
from report.derivations import Formula, Input, assumed_input, computed_input, documented_input
from report.derived_estimates import Derivation, DerivedEstimates, derive
from report.quantities.cpu_servers import BERT_SYMBOLS, Symbols, bert_inputs
from report.quantities.derived import arithmetic_quantity
from report.quantities.published import value_or_default
from report.quantities.train_hours import RUNS, total_flop

_IMAGES = "mlperf-training-3.1.16x2x8480plus.resnet_images_per_s"
# One server and four servers that trained the same network.
_ALONE = "mlperf-training-2.1/intel.1-node-spr-pytorch.dlrm"
_TOGETHER = "mlperf-training-2.1/intel.4-nodes-spr-pytorch.dlrm"
# MLPerf's trainings on servers without GPUs, each by the record with the fewest servers, in words.
TRAINED = {
    _ALONE: "DLRM to MLPerf's target",
    "mlperf-training-3.0/intel.8-nodes-spr-pytorch.bert": "BERT-large, MLPerf's part",
    "mlperf-training-3.1/intel.16-nodes-spr-pytorch.resnet": "ResNet-50 to MLPerf's target",
    "mlperf-training-3.1/intel.4-nodes-spr-pytorch.dlrm_dcnv2": "DLRM-DCNv2 to MLPerf's target",
    "mlperf-training-3.0/intel.16-nodes-spr-pytorch.ssd": "RetinaNet to MLPerf's target",
}
_SERVER = "two processors with AMX, as in MLPerf"

_KEPT: Symbols = {"s": ("share of its speed that a server keeps in the cluster", "1")}
DIRECT = Formula("T = t * m * s", "h", {"t": ("time of the whole training", "s"), "m": ("servers", "1"), **_KEPT})
TRANSFORMER = Formula(
    "T = F * s / (Q / m * w * B * L)", "h", {"F": ("operations of the run", "FLOP"), **BERT_SYMBOLS, **_KEPT}
)
CONVOLUTIONAL = Formula(
    "T = F * s / (I / m * o * M)",
    "h",
    {
        "F": ("operations of the run", "FLOP"),
        "I": ("images that the cluster trained ResNet-50 on per second", "1/s"),
        "m": ("its servers", "1"),
        "o": ("operations for each multiply-add of the forward pass", "FLOP"),
        "M": ("multiply-adds of ResNet-50 for an image, forward", "1"),
        **_KEPT,
    },
)


@arithmetic_quantity(
    "ladder.server_hours", "h", ("run", "scale", "list", "server"), formulas=(DIRECT, TRANSFORMER, CONVOLUTIONAL)
)
def server_hours(data: Dataset) -> DerivedEstimates:
    """Hours that one server with two processors and matrix units takes for a training run.

    list: published, a run from the list in `ladder.hours_to_train`. Its operations are divided by the rate at which
    each server in a cluster trained BERT large (transformers) or ResNet-50 (convolutional networks) in MLPerf Training
    3.1. MLPerf: a run that such servers did train; its time is multiplied by their number. Servers lose time in a
    cluster, so the estimate is the most that one alone takes. low: as if clusters slowed each server down as much as
    four servers slowed each other down in training DLRM. Memory limits are left out. Raises MissingSourceError.
    """
    return derive(list(_works(data)))


def _works(data: Dataset) -> Iterator[Derivation]:
    kept = _kept_share(data)
    for run in RUNS:
        labels = {"run": run.name, "scale": run.scale, "list": "published", "server": _SERVER}
        inputs = {"F": Input(total_flop(run, data), "FLOP", "documented", f"figures of {run.name}"), "s": kept}
        if run.family == "transformer":
            yield Derivation(labels, TRANSFORMER, {**inputs, **bert_inputs(data)}, "at the rate of BERT large")
        else:
            yield Derivation(labels, CONVOLUTIONAL, {**inputs, **image_inputs(data)}, "at the rate of ResNet-50")
    for key, name in TRAINED.items():
        if record := data.published.records_by_key.get(key):
            yield _direct_work(record, name, kept, data)


def _direct_work(record: Mapping[str, Any], name: str, kept: Input, data: Dataset) -> Derivation:
    servers = value_or_default(record["nodes"], 1.0)
    inputs = {
        "t": published_input(record, data, "s"),
        "m": assumed_input(servers, "1", "the entry's name and system description"),
        "s": kept if servers > 1 else assumed_input(1.0, "1", "a server alone"),
    }
    labels = {"run": name, "scale": "large", "list": "MLPerf", "server": _SERVER}
    detail = f"{'at most, ' if servers > 1 else ''}{servers:g} x {float(record['value']):,.0f} s"
    return Derivation(labels, DIRECT, inputs, detail)


def image_inputs(data: Dataset) -> dict[str, Input]:
    return {
        "I": documented_input(data, _IMAGES),
        "m": assumed_input(16.0, "1", "the submission's name and system description (16-nodes-SPR)"),
        "o": assumed_input(6.0, "FLOP", "two operations forward and four backward for each multiply-add"),
        "M": computed_input(data, ["resnet50.mac"], data.figure("resnet50.mac"), "1", "ResNet-50, forward"),
    }


def _kept_share(data: Dataset) -> Input:
    """Return how much speed a server keeps in a cluster: 1, or as little as four kept in training DLRM."""
    records = data.published.records_by_key
    low = 1.0
    if _ALONE in records and _TOGETHER in records:
        alone, together = records[_ALONE], records[_TOGETHER]
        low = float(alone["value"]) / (float(together["value"]) * float(together["nodes"]))
    why = "all of it, which makes the hours the most; at least what four servers kept that trained DLRM in MLPerf 2.1"
    return Input(1.0, "1", "assumed", why, low, 1.0, in_interval=True)


def published_input(record: Mapping[str, Any], data: Dataset, unit: str) -> Input:
    title = str(data.published.sources[str(record["source"])]["title"])
    low, high = (value_or_default(record[end], record["value"]) for end in ("low", "high"))
    return Input(
        float(record["value"]), unit, "documented", title, low, high, (), f"record {record['key']}", in_interval=True
    )
