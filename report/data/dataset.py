"""What quantities draw on: the summary of all nodes, and published figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import pandas as pd
import polars as pl

from contract.node import kind_of_node
from contract.sample_table import SAMPLES
from report.data.node_reader import Nodes
from report.data.published_records import Published
from report.data.summary import POINT, summarise
from report.estimates import Estimates, concat_estimates, device_kind
from report.formatting import count_machines_and_runs, host_label, instance_name

# Columns of the summary from which cases are made, besides the point's own and the value.
_OF_CELLS = ("unit", "low", "high", "log_se", "df", "n_rounds", "n_samples")
# Counters average over up to a second, and a point's first readings still hold its preparation.
SETTLED = 0.5


class MissingSourceError(Exception):
    """A published figure that a quantity needs is not at hand, or was not verified. `what` says which."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


@dataclass
class Used:
    """What was asked of the evidence: experiments with a metric (empty: any), and entries of the reference."""

    rows: set[tuple[str, str]] = field(default_factory=set)
    entries: set[str] = field(default_factory=set)

    def add(self, other: Used) -> None:
        self.rows |= other.rows
        self.entries |= other.entries


@dataclass
class Dataset:
    """The evidence: summary rows of all nodes, the nodes themselves, reference entries by id, and others' measurements.

    summarised: the summary, where it is at hand already, with rows numbered from 0; else it is
    made from the nodes' samples. Its text is categories, as that of samples. What is asked of it is
    noted in `used`, for a reader to follow.
    """

    nodes: Nodes
    reference: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    summarised: InitVar[pd.DataFrame | None] = None
    published: Published = field(default_factory=Published)
    used: Used = field(default_factory=Used)
    _made: dict[tuple[Any, ...], tuple[Any, Used]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self, summarised: pd.DataFrame | None) -> None:
        self.table = categorical(summarise(self.nodes.samples()) if summarised is None else summarised)

    @contextmanager
    def following(self) -> Iterator[Used]:
        """Note what is asked meanwhile by itself, and with what was asked before."""
        before, self.used = self.used, Used()
        try:
            yield self.used
        finally:
            before.add(self.used)
            self.used = before

    def once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` makes of the evidence, the first time; later that again, with what it asked for noted again."""
        if key not in self._made:
            with self.following() as used:
                self._made[key] = make(), used
        made, used = self._made[key]
        self.used.add(used)
        return made

    @cached_property
    def _places(self) -> Mapping[Any, Any]:
        """Positions of the rows that are ok, by experiment and metric."""
        ok = np.flatnonzero((self.table["status"] == "ok").to_numpy(bool))
        found: Any = self.table.iloc[ok].groupby(["experiment", "metric"], sort=False, observed=True).indices
        return {key: np.sort(ok[places]) for key, places in found.items()}

    def summary(self, experiment: str, metric: str = "time", value: str = "estimate") -> Estimates:
        """Cases of one experiment's points that are ok; the point's parameters become labels.

        value: estimate (in the metric's unit), or flop_per_s or bytes_per_s.
        """
        places = self._places.get((experiment, metric), np.empty(0, dtype=np.intp))
        self.used.rows.update([(experiment, metric)])
        places = places[self.table[value].take(places).notna().to_numpy()]
        # Column by column: the table has many more than cases need.
        names = dict.fromkeys([*POINT, *_OF_CELLS, value])
        rows = pd.DataFrame({name: self.table[name].take(places) for name in names})
        return _cases(rows, value, list(zip(rows.index)))

    def without_launches(self, experiment: str, value: str = "estimate") -> Estimates:
        """Cases as of `summary` by the time that the device alone takes: in a graph, where a call is short on a GPU.

        The time of such a call by itself is the host's, which launches it.
        """
        called, alone = (self.summary(experiment, metric, value) for metric in ("time", "graph_time"))
        names = [name for name in called.labels if name in alone.labels]
        short = set(alone.rows(*names)) if names else set()
        return (
            concat_estimates([called.at([point not in short for point in called.rows(*names)]), alone])
            if short
            else called
        )

    @cached_property
    def disturbed(self) -> frozenset[int]:
        """Numbers of the summary's rows of which most rounds are disturbed: see `disturbances.disturbed_rounds`."""
        # Summaries of earlier editions lack the column, as their samples lack the flag.
        if "n_disturbed" not in self.table:
            return frozenset()
        most = 2 * self.table["n_disturbed"] > self.table["n_rounds"]
        return frozenset(self.table.index[most.to_numpy(bool)].tolist())

    def samples(self, *experiments: str, columns: Sequence[str] = ()) -> pd.DataFrame:
        """Samples of these experiments, ok or not, in the columns of `contract.sample_table.SAMPLES` (or in these)."""
        self.used.rows.update((name, "") for name in experiments)
        return categorical(self.nodes.samples(*experiments, columns=columns))

    def of_samples(self, samples: pd.DataFrame) -> Estimates:
        """Cases of samples that were computed from an experiment's own, one metric of it; rounds are their unit."""
        made = summarise(samples)
        made = made[made["status"] == "ok"]
        return _cases(made, "estimate", self.source_rows(made))

    def source_rows(self, made: pd.DataFrame) -> list[tuple[int, ...]]:
        """Numbers of the summary's rows of each of these points, whatever their metric."""
        seen = set(made["experiment"].unique())
        places = [at for (experiment, _), at in self._places.items() if experiment in seen]
        if not places:
            return [()] * len(made)
        own = self.table.take(np.sort(np.concatenate(places)))
        rows = _points(own).with_columns(number=pl.Series(own.index.to_numpy())).group_by(POINT).agg("number")
        numbers = [*map(tuple, rows["number"].to_list()), ()]
        at = _points(made).join(rows.drop("number").with_row_index("at"), on=POINT, how="left", maintain_order="left")
        return [numbers[place] for place in at["at"].fill_null(len(rows)).to_list()]

    def readings(self, experiment: str, column: str, metric: str = "time", settled: float = SETTLED) -> Estimates:
        """Cases of what a counter showed beside an experiment's samples, in the unit of that column of the samples.

        column: clock_mhz, memory_clock_mhz, temperature_c, power_w or utilisation. A round's value
        is the median over its samples past the share `settled` of them; rounds are the unit of the
        interval, as for times. A counter that shows no clock or no power does not count.
        """
        samples, unit = self.samples(experiment), (SAMPLES.columns[column].metadata or {})["unit"]
        read = samples[
            (samples["metric"] == metric)
            & (samples["status"] == "ok")
            & (samples[column] >= 0 if unit == "1" else samples[column] > 0)
        ]
        place = read.groupby([*POINT, "round"])["elapsed_s"].rank(pct=True)
        read = read[place > settled]
        return self.of_samples(read.assign(metric=column, value=read[column], unit=unit))

    def percentile(self, experiment: str, share: float, least: int, metric: str = "time") -> Estimates:
        """Cases of a percentile of an experiment's samples, by nearest rank: that of every round.

        Rounds with fewer than `least` samples say nothing of it; rounds are the unit of the
        interval, as for times.
        """
        samples = self.samples(experiment)
        samples = samples[(samples["metric"] == metric) & (samples["status"] == "ok")]
        if not len(samples):
            return Estimates.empty()
        rounds = samples.groupby([*POINT, "round"], observed=True)["value"]
        number, place = rounds.transform("size"), rounds.rank(method="first")
        # As numpy's method "inverted_cdf" has it.
        ranked = samples["value"].where(place == np.maximum(np.ceil(number * share), 1))
        keys = [samples[name] for name in [*POINT, "round"]]
        return self.of_samples(
            samples.assign(value=ranked.groupby(keys, observed=True).transform("max"))[number >= least]
        )

    def rows_read(self, used: Used) -> dict[str, tuple[int, ...]]:
        """By node, numbers of the ok rows of the experiments and metrics that were asked for."""
        places = [
            at
            for (experiment, metric), at in self._places.items()
            if (experiment, metric) in used.rows or (experiment, "") in used.rows
        ]
        if not places:
            return {}
        of = np.sort(np.concatenate(places))
        codes, ids = pd.factorize(self.table["node"].take(of))
        order = np.argsort(codes, kind="stable")
        numbers = self.table.index.to_numpy()[of[order]]
        parts = np.split(numbers, np.cumsum(np.bincount(codes))[:-1])
        return {str(node): tuple(part.tolist()) for node, part in zip(ids, parts, strict=True)}

    def entry(self, name: str) -> Mapping[str, Any]:
        """A verified published figure. Raises MissingSourceError."""
        self.used.entries.add(name)
        entry = self.reference.get(name)
        if entry is None:
            raise MissingSourceError(f"no reference entry {name}")
        if entry["status"] != "verified" or entry.get("value") is None:
            raise MissingSourceError(f"{entry['subject']}, {entry['what']} ({entry['source']['title']}: not verified)")
        return entry

    def figure(self, name: str) -> float:
        """The value of a verified published figure. Raises MissingSourceError."""
        return float(self.entry(name)["value"])

    def statuses(self, experiment: str, kind: str) -> pd.DataFrame:
        """Every row of the summary of an experiment on devices of one kind, ok or not."""
        return self.table[(self.table["experiment"] == experiment) & (self.table["device"].map(device_kind) == kind)]

    def record(self, node: str) -> Mapping[str, Any]:
        """What node.json says of a node."""
        return self._records[node]

    @cached_property
    def _records(self) -> dict[str, Mapping[str, Any]]:
        return {node.id: node.record for node in self.nodes.nodes}

    def with_kind(self, kind: str) -> list[str]:
        """Ids of the nodes that have a device of this kind."""
        return [node.id for node in self.nodes.nodes if kind in node.kinds()]

    def label(self, node: str) -> str:
        """A node's short name for people: its make, with its mark where several share that."""
        make = self.make(node)
        return f"{make} ({self.mark(node)})" if self._labels[1][make] > 1 else make

    def name(self, nodes: Sequence[str]) -> str:
        """Nodes of one kind together: 'AMD EPYC 9654, 2 cores, 3 machines' (or runs); of one its label."""
        if len(nodes) == 1:
            return self.label(nodes[0])
        make, kind = self.make(nodes[0]), kind_of_node(nodes[0])
        kinds = {kind_of_node(node) for node, name in self._labels[0].items() if name == make}
        # Kinds of one make are told apart by what tells them apart in the name: the hash of the hardware.
        mark = f" ({kind.rpartition('-')[2]})" if len(kinds) > 1 else ""
        return f"{make}{mark}, {count_machines_and_runs(nodes)}"

    def names(self, nodes: Iterable[str]) -> list[str]:
        """Nodes in words, those of one kind together."""
        kinds: dict[str, list[str]] = {}
        for node in nodes:
            kinds.setdefault(kind_of_node(node), []).append(node)
        return [self.name(alike) for alike in kinds.values()]

    def make(self, node: str) -> str:
        """What a node is called by its hardware alone."""
        return self._labels[0].get(node, node)

    def host(self, node: str) -> str:
        """The same without its GPUs."""
        return host_label(self._records[node]) if node in self._records else node

    @cached_property
    def _labels(self) -> tuple[dict[str, str], Counter[str]]:
        """Each node's label, and how many nodes share one."""
        labels = {node.id: node.label for node in self.nodes.nodes}
        return labels, Counter(labels.values())

    def mark(self, node: str) -> str:
        """What tells a node from all others: its instance or the day of its run; its id where others share those."""
        return self._marks.get(node, node)

    @cached_property
    def _marks(self) -> dict[str, str]:
        marks = {node.id: instance_name(node.record) for node in self.nodes.nodes}
        number = Counter(marks.values())
        return {node: mark if number[mark] == 1 else node for node, mark in marks.items()}


def categorical(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its text as categories in alphabetical order, which compare, group and sort as the texts do."""
    found: dict[str, pd.Series] = {}
    for name, column in table.items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            words = list(column.cat.categories)
            if words != sorted(words):
                found[str(name)] = column.cat.set_categories(sorted(words))
        elif isinstance(column.dtype, pd.StringDtype):
            found[str(name)] = column.astype("category")
    return table.assign(**found) if found else table


def _points(table: pd.DataFrame) -> pl.DataFrame:
    """The points of a table's rows, their text as strings."""
    text = [name for name in POINT if name != "threads"]
    return pl.from_pandas(table[POINT]).with_columns(pl.col(text).cast(pl.String), pl.col("threads").cast(pl.Int64))


P = ParamSpec("P")
T = TypeVar("T")


def once(make: Callable[Concatenate[Dataset, P], T]) -> Callable[Concatenate[Dataset, P], T]:
    """A function of the evidence, and of arguments that can be hashed, that is computed once for each of them."""

    @wraps(make)
    def made(data: Dataset, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = data.once((make, args, tuple(kwargs.items())), lambda: make(data, *args, **kwargs))
        return found

    return made


def _cases(rows: pd.DataFrame, value: str, source_rows: Sequence[tuple[int, ...]]) -> Estimates:
    """Rows of the summary as estimates, off the log scale if they are shares. source_rows: of each, their numbers."""
    if not len(rows):
        return Estimates.empty()
    # The same point recurs on every node: each text is read once.
    codes, texts = pd.factorize(rows["params"])
    params = pd.DataFrame([json.loads(text) for text in texts], dtype=object).take(codes).set_axis(rows.index)
    labels = [name for name in POINT if name not in ("experiment", "params")]
    frame = pd.concat([rows[labels].astype(object), params], axis=1).assign(
        estimate=rows[value].astype(float),
        low=rows["low"],
        high=rows["high"],
        se=rows["log_se"],
        df=rows["df"],
        n_rounds=rows["n_rounds"],
        n_samples=rows["n_samples"],
        detail="",
        source_rows=pd.Series(list(source_rows), rows.index, dtype=object),
    )
    if (rows["unit"] == "1").all():
        return Estimates(frame.reset_index(drop=True), log=False)
    return Estimates.from_estimates(frame)
