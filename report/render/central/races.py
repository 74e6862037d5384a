"""Races: who is ahead in one kind of work over its size, and where it turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from report import statistics
from report.estimates import Estimates, concat
from report.quantities import offload, tabular, training
from report.render.measurements.base import View
from report.render.measurements.marks import factor, known, records
from report.render.measurements.offload import OPS
from report.transforms import crossings

# What a kind of work is sized by.
BYTES, ROWS, BATCH, WEIGHTS = "bytes", "rows", "batch", "parameters"
TABLES = {"filter": "filter", "sort": "sort", "group_by": "group by", "join": "join"}
ANSWER, TEXT = "one answer", "one text, token by token"
# Single requests in the format that every device has.
_PLAIN = {"uses": 1, "dtype": "float32"}
_USUAL = {**_PLAIN, "host_memory": "pinned", "launch": "eager", "baseline": "node"}
_ONE = {"batch": 1}


@dataclass(frozen=True)
class Race:
    """A challenger and a holder in one kind of work.

    sizes: rising; sides: at each, 1 where the challenger is surely ahead, -1 where the holder is, 0 where neither
    surely is; ratios: at each, how many times as fast the challenger is, in words. turn: between which sizes they
    change places (estimate, low, high), None where they do not.
    """

    field: str
    work: str
    node: str
    device: str
    sizes: tuple[float, ...]
    sides: tuple[int, ...]
    ratios: tuple[str, ...]
    turn: tuple[float, float, float] | None

    @property
    def outcome(self) -> str:
        """`turns` or `turns back` (the challenger leads above, or below); `challenger` or `holder`, who leads always;
        `partly`, where one of them leads at some sizes and nobody surely does at the others; else `open`."""
        if self.turn:
            above = [side for size, side in zip(self.sizes, self.sides, strict=True) if size >= self.turn[2] and side]
            return "turns" if above[0] > 0 else "turns back"
        led = set(self.sides)
        if len(led) > 1:
            return "partly"
        return {1: "challenger", -1: "holder"}.get(led.pop(), "open")


def race(gain: Estimates, along: str, field: str, work: str, view: View, device: str) -> Race | None:
    """The race of which `gain` holds the challenger's speed over the holder's, by the label `along`; None of nothing.

    Of several cells of one size the one nearest to a draw stands for it.
    """
    if not len(gain) or along not in gain.labels:
        return None
    frame = gain.frame.assign(**{along: pd.to_numeric(gain.frame[along])}).dropna(subset=[along, "estimate"])
    frame = frame.assign(apart=np.abs(np.log(frame["estimate"].to_numpy(float)))).sort_values([along, "apart"])
    cells = Estimates(frame.drop_duplicates(along).reset_index(drop=True), gain.log)
    if not len(cells):
        return None
    low, high = cells.ends(statistics.DECIDING)
    sides = np.where(low > 1, 1, np.where(high < 1, -1, 0))
    told = records(cells)
    turn = _turn(cells.by(along), along)
    return Race(
        field,
        work,
        view.node,
        device,
        tuple(float(one[along]) for one in told),
        tuple(map(int, sides)),
        tuple(map(factor, told)),
        turn,
    )


def _turn(gain: Estimates, along: str) -> tuple[float, float, float] | None:
    """Where the ratio passes 1, as the rule `crossover` finds it."""
    even = Estimates(gain.frame.assign(estimate=1.0, low=1.0, high=1.0, se=0.0, df=np.inf), gain.log)
    both = concat([gain.label(side="challenger"), even.label(side="holder")])
    found = crossings(both, {"over": "side", "of": "challenger", "to": "holder", "along": along}).estimates
    ends = [known(found.frame[name].iloc[0]) for name in ("estimate", "low", "high")] if len(found) else []
    at = [end for end in ends if end is not None]
    return (at[0], at[1], at[2]) if len(at) == 3 else None


def against_gpu(view: View, device: str) -> Iterator[Race]:
    """A GPU against all cores of its host at their best, way there and back included."""
    requests = view.quantity("offload.speedup", device=device, **_USUAL)
    yield from _each(requests, "op", OPS, "size", BYTES, view, device)
    tables = view.quantity("tabular.gpu_gain", device=device, transfers="included")
    yield from _each(tables, "op", TABLES, "rows", ROWS, view, device)
    steps = view.quantity("training.speedup", device=device, baseline="node", precision="best")
    yield from _each(steps, "model", _models(steps), "batch", BATCH, view, device)
    latency = view.quantity("inference.latency_s", backend="best", dtype="float32", **_ONE)
    rates = view.quantity("generation.tokens_per_s", phase="decode", **_ONE)
    for work, speeds in ((ANSWER, offload.per_second(latency)), (TEXT, rates)):
        if len(speeds):
            of = ["backend", "dtype"]
            gpu, cpu = (speeds.only(device=one).best(["model", WEIGHTS], of=of) for one in (device, "cpu"))
            found = race(gpu / cpu, WEIGHTS, WEIGHTS, work, view, device)
            yield from [found] if found else []


def against_one_core(view: View) -> Iterator[Race]:
    """All cores of a CPU against one of them, each side by its fastest library."""
    most = int(view.rows.loc[view.rows["device"] == "cpu", "threads"].max()) if "cpu" in view.devices() else 0
    if most < 2:
        return

    def gain(speeds: Estimates, by: Sequence[str]) -> Estimates:
        every, one = (speeds.only(threads=n).best(by) for n in (most, 1)) if len(speeds) else (speeds, speeds)
        return every / one

    def each(speeds: Estimates, label: str, names: Mapping[str, str], along: str, field: str) -> Iterator[Race]:
        yield from _each(gain(speeds, [label, along]), label, names, along, field, view, "cpu")

    yield from each(_requests(view), "op", OPS, "size", BYTES)
    yield from each(view.pick(tabular.rates(view.data), device="cpu"), "op", TABLES, "rows", ROWS)
    steps = view.pick(training.samples_per_second(view.data), device="cpu", dtype="float32")
    yield from each(steps, "model", _models(steps), "batch", BATCH)
    latency = view.quantity("inference.latency_s", device="cpu", dtype="float32", **_ONE)
    texts = view.quantity("generation.tokens_per_s", device="cpu", dtype="float32", phase="decode", **_ONE)
    for work, speeds in ((ANSWER, offload.per_second(latency)), (TEXT, texts)):
        found = race(gain(speeds, ["model", WEIGHTS]), WEIGHTS, WEIGHTS, work, view, "cpu")
        yield from [found] if found else []


def _each(
    gain: Estimates, label: str, names: Mapping[str, str], along: str, field: str, view: View, device: str
) -> Iterator[Race]:
    """A race for each of these values of a label that was measured."""
    for value, work in names.items():
        found = race(gain.only(**{label: value}), along, field, work, view, device) if len(gain) else None
        if found:
            yield found


def _models(steps: Estimates) -> dict[str, str]:
    """The models of training steps, those at the most batches first."""
    if not len(steps):
        return {}
    many = steps.frame.groupby("model")["batch"].nunique()
    return {str(model): str(model) for model in sorted(many.index, key=lambda model: (-many[model], str(model)))}


def _requests(view: View) -> Estimates:
    """Requests per second of the CPU by operation and size; square products of the experiment gemm among them."""
    mine = view.pick(offload.requests(view.data), device="cpu", **_PLAIN)
    products = view.cells("gemm", device="cpu", dtype="float32")
    parts = [mine] if len(mine) else []
    if len(products):
        n = products.frame["n"]
        products = products.at(((products.frame["m"] == n) & (products.frame["k"] == n)).to_numpy(bool))
        sizes = [offload.size("gemm", int(n), int(n), int(n), "float32") for n in products.frame["n"]]
        parts.append(products.label(op="gemm", size=sizes))
    return offload.per_second(concat([_reduced(part) for part in parts])) if parts else Estimates.empty()


def _reduced(cells: Estimates) -> Estimates:
    """The labels that requests and products share."""
    shared = ["op", "size", "threads", "backend"]
    return cells.without(*[name for name in cells.labels if name not in shared])
