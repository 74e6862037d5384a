"""Dataset used to compute quantities: the summary of all nodes, and published figures."""

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
from numpy.typing import NDArray

from contract.node import kind_of_node
from contract.sample_table import SAMPLES
from report.data.machine_names import YOURS, short_names
from report.data.node_reader import Nodes
from report.data.published_records import Published
from report.data.sessions import later_sessions
from report.data.summary import POINT, summarise
from report.estimates import Estimates, concat_estimates, device_kind
from report.formatting import count_machines_and_runs, join_words

# Summary columns that estimates need in addition to POINT and the value's column.
_ESTIMATE_COLUMNS = ("unit", "low", "high", "scale", "log_se", "df", "n_rounds", "n_samples")
# Fraction of a round's counter readings to skip at the start. Counters average over up to a second, so early readings
# include the setup before the samples.
SETTLED = 0.5
# At most this many machines of a group are named.
_NAMED = 3


class MissingSourceError(Exception):
    """Missing or unverified published figure that a quantity needs. `what` is a text that names the figure."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


@dataclass
class DataUse:
    """Data that a computation has read.

    rows: (experiment, metric) pairs whose summary rows or samples were read; the metric '' means all metrics. entries:
    reference entry ids.
    """

    rows: set[tuple[str, str]] = field(default_factory=set)
    entries: set[str] = field(default_factory=set)

    def add(self, other: DataUse) -> None:
        self.rows |= other.rows
        self.entries |= other.entries


@dataclass
class Dataset:
    """Summary of all nodes (`table`), the nodes, reference entries by id, and published measurements.

    summarised: the summary table, with rows numbered from 0; if it is None, it is computed from the nodes' samples.
    short_names: short names of machines by node id (default: of these nodes).
    Text columns in `table` are categorical. used: records all data that is read, to trace results back to their data.
    """

    nodes: Nodes
    reference: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    summarised: InitVar[pd.DataFrame | None] = None
    published: Published = field(default_factory=Published)
    short_names: Mapping[str, str] = field(default_factory=dict)
    used: DataUse = field(default_factory=DataUse)
    _cache: dict[tuple[Any, ...], tuple[Any, DataUse]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self, summarised: pd.DataFrame | None) -> None:
        if summarised is None:
            summarised = summarise(self.nodes.samples(), self.later_sessions)
        self.table = categorical(summarised)
        if not self.short_names:
            self.short_names = short_names([{**node.record, "source": node.source} for node in self.nodes.nodes])

    @cached_property
    def later_sessions(self) -> pd.DataFrame:
        """Rounds outside their node's first session (`report.data.sessions`)."""
        return later_sessions(self.nodes.nodes)

    @contextmanager
    def track_use(self) -> Iterator[DataUse]:
        """Record the data that is read within the block; yield this record, and after the block add it to `used`."""
        before, self.used = self.used, DataUse()
        try:
            yield self.used
        finally:
            before.add(self.used)
            self.used = before

    def compute_once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Call `make` only once per key; return its result.

        A later call returns the cached result. It also adds to `used` the data that `make` read to compute the result.
        """
        if key not in self._cache:
            with self.track_use() as used:
                self._cache[key] = make(), used
        result, used = self._cache[key]
        self.used.add(used)
        return result

    @cached_property
    def _row_positions(self) -> Mapping[Any, Any]:
        """Positions in `table` of the rows with status ok, by experiment and metric; without superseded rows."""
        ok = np.flatnonzero((self.table["status"] == "ok").to_numpy(bool) & ~self._is_superseded(self.table))
        groups: Any = self.table.iloc[ok].groupby(["experiment", "metric"], sort=False, observed=True).indices
        return {key: np.sort(ok[positions]) for key, positions in groups.items()}

    @cached_property
    def superseded_results(self) -> frozenset[tuple[str, str, str]]:
        """Nodes, experiments and metrics that another node of the same kind measured under a newer protocol.

        Machines of one kind are pooled, and results of two protocols must not be.
        """
        if "protocol" not in self.table:
            return frozenset()
        place = ["node", "experiment", "metric"]
        rows = self.table[[*place, "protocol"]].drop_duplicates().astype(dict.fromkeys(place, str))
        protocols = rows["protocol"].fillna(0)
        kinds = [rows["node"].map(kind_of_node), rows["experiment"], rows["metric"]]
        older = rows[protocols < protocols.groupby(kinds, observed=True).transform("max")]
        return frozenset(older[place].itertuples(index=False, name=None))

    def _is_superseded(self, table: pd.DataFrame) -> NDArray[np.bool_]:
        """Tell for each row of samples or of the summary if it is superseded."""
        out = np.zeros(len(table), dtype=bool)
        for node, experiment, metric in self.superseded_results:
            named = (table["node"] == node) & (table["experiment"] == experiment) & (table["metric"] == metric)
            out |= named.to_numpy(bool)
        return out

    def summary(self, experiment: str, metric: str = "time", value: str = "estimate") -> Estimates:
        """Return the estimates for an experiment's points with status ok, labelled with their parameters.

        value: summary column to use: estimate (in the metric's unit), flop_per_s or bytes_per_s.
        """
        positions = self._row_positions.get((experiment, metric), np.empty(0, dtype=np.intp))
        self.used.rows.update([(experiment, metric)])
        positions = positions[self.table[value].take(positions).notna().to_numpy()]
        # Take only the needed columns, because the table has many others.
        names = dict.fromkeys([*POINT, *_ESTIMATE_COLUMNS, value])
        rows = pd.DataFrame({name: self.table[name].take(positions) for name in names})
        return _estimates_from_rows(rows, value, list(zip(rows.index)))

    def device_summary(self, experiment: str, value: str = "estimate") -> Estimates:
        """Return estimates like `summary`, from the metric `graph_time` at points that have it, else from `time`.

        graph_time is a call's time in a device graph. Outside graphs, launches dominate the time of short GPU calls.
        """
        times, graph_times = (self.summary(experiment, metric, value) for metric in ("time", "graph_time"))
        names = [name for name in times.labels if name in graph_times.labels]
        in_graphs = set(graph_times.rows(*names)) if names else set()
        if not in_graphs:
            return times
        return concat_estimates([times.take([point not in in_graphs for point in times.rows(*names)]), graph_times])

    @cached_property
    def disturbed_rows(self) -> frozenset[int]:
        """Numbers of the summary rows whose rounds are mostly disturbed; see `disturbances.disturbed_rounds`."""
        # Summaries from earlier editions lack this column.
        if "n_disturbed" not in self.table:
            return frozenset()
        most = 2 * self.table["n_disturbed"] > self.table["n_rounds"]
        return frozenset(self.table.index[most.to_numpy(bool)].tolist())

    def session_count(self, node: str) -> int:
        """Return the number of sessions in which a node was measured."""
        later = self.later_sessions
        return max([1, *later.loc[later["node"] == node, "session"].tolist()])

    @cached_property
    def session_rows(self) -> frozenset[int]:
        """Numbers of the summary rows whose intervals include the spread between sessions."""
        # Summaries from earlier editions lack this column.
        if "session_variance" not in self.table:
            return frozenset()
        return frozenset(self.table.index[self.table["session_variance"].notna().to_numpy()].tolist())

    def samples(self, *experiments: str, columns: Sequence[str] = ()) -> pd.DataFrame:
        """Return the experiments' samples with any status. columns: columns to return (default: all)."""
        self.used.rows.update((name, "") for name in experiments)
        affected = any(experiment in experiments or not experiments for _, experiment, _ in self.superseded_results)
        if not affected:
            return categorical(self.nodes.samples(*experiments, columns=columns))
        needed = dict.fromkeys([*columns, "node", "experiment", "metric"]) if columns else {}
        table = self.nodes.samples(*experiments, columns=list(needed))
        kept = table[~self._is_superseded(table)]
        return categorical(kept[list(columns)] if columns else kept)

    def estimates_from_samples(self, samples: pd.DataFrame) -> Estimates:
        """Summarise samples with computed values; return the estimates for points with status ok.

        samples: samples for one metric, with values computed from other samples. The intervals are computed from the
        spread between rounds.
        """
        points = summarise(samples, self.later_sessions)
        points = points[points["status"] == "ok"]
        return _estimates_from_rows(points, "estimate", self.source_rows(points))

    def source_rows(self, points: pd.DataFrame) -> list[tuple[int, ...]]:
        """Return for each point in `points` its summary row numbers for all metrics."""
        experiments = set(points["experiment"].unique())
        groups = [at for (experiment, _), at in self._row_positions.items() if experiment in experiments]
        if not groups:
            return [()] * len(points)
        candidates = self.table.take(np.sort(np.concatenate(groups)))
        row_numbers = pl.Series(candidates.index.to_numpy())
        rows = _points(candidates).with_columns(number=row_numbers).group_by(POINT).agg("number")
        numbers = [*map(tuple, rows["number"].to_list()), ()]
        at = _points(points).join(rows.drop("number").with_row_index("at"), on=POINT, how="left", maintain_order="left")
        return [numbers[position] for position in at["at"].fill_null(len(rows)).to_list()]

    def readings(self, experiment: str, column: str, metric: str = "time", settled: float = SETTLED) -> Estimates:
        """Return estimates for a counter that was read during an experiment, in its sample column's unit.

        column: clock_mhz, memory_clock_mhz, temperature_c, power_w or utilisation. settled: fraction of a round's
        samples to skip at the start; the round's value is the median over the other samples. Intervals are computed
        from the spread between rounds, as for times. Zero means a missing value, except for utilisation.
        """
        samples, unit = self.samples(experiment), (SAMPLES.columns[column].metadata or {})["unit"]
        read = samples[
            (samples["metric"] == metric)
            & (samples["status"] == "ok")
            & (samples[column] >= 0 if unit == "1" else samples[column] > 0)
        ]
        rank = read.groupby([*POINT, "round"], observed=True)["elapsed_s"].rank(pct=True)
        read = read[rank > settled]
        return self.estimates_from_samples(read.assign(metric=column, value=read[column], unit=unit))

    def percentile(self, experiment: str, share: float, least: int, metric: str = "time") -> Estimates:
        """Return estimates for a percentile of the samples in a round, by the nearest-rank method.

        share: the percentile as a fraction. least: rounds with fewer samples are left out. Intervals are computed from
        the spread between rounds, as for times.
        """
        samples = self.samples(experiment)
        samples = samples[(samples["metric"] == metric) & (samples["status"] == "ok")]
        if not len(samples):
            return Estimates.empty()
        rounds = samples.groupby([*POINT, "round"], observed=True)["value"]
        number, rank = rounds.transform("size"), rounds.rank(method="first")
        # Keep the sample at the nearest rank, as numpy's method "inverted_cdf" does.
        ranked = samples["value"].where(rank == np.maximum(np.ceil(number * share), 1))
        keys = [samples[name] for name in [*POINT, "round"]]
        return self.estimates_from_samples(
            samples.assign(value=ranked.groupby(keys, observed=True).transform("max"))[number >= least]
        )

    def row_numbers_by_node(self, used: DataUse) -> dict[str, tuple[int, ...]]:
        """Map each node to the numbers of its summary rows with status ok for the experiments and metrics in `used`."""
        groups = [
            rows
            for (experiment, metric), rows in self._row_positions.items()
            if (experiment, metric) in used.rows or (experiment, "") in used.rows
        ]
        if not groups:
            return {}
        positions = np.sort(np.concatenate(groups))
        codes, ids = pd.factorize(self.table["node"].take(positions))
        order = np.argsort(codes, kind="stable")
        numbers = self.table.index.to_numpy()[positions[order]]
        parts = np.split(numbers, np.cumsum(np.bincount(codes))[:-1])
        return {str(node): tuple(part.tolist()) for node, part in zip(ids, parts, strict=True)}

    def entry(self, name: str) -> Mapping[str, Any]:
        """Return a verified reference entry. Raises MissingSourceError if the entry is missing or unverified."""
        self.used.entries.add(name)
        entry = self.reference.get(name)
        if entry is None:
            raise MissingSourceError(f"no reference entry {name}")
        if entry["status"] != "verified" or entry.get("value") is None:
            raise MissingSourceError(f"{entry['subject']}, {entry['what']} ({entry['source']['title']}: not verified)")
        return entry

    def figure(self, name: str) -> float:
        """Return a verified reference entry's value. Raises MissingSourceError, like `entry`."""
        return float(self.entry(name)["value"])

    def statuses(self, experiment: str, kind: str) -> pd.DataFrame:
        """Return the summary rows with any status for an experiment on devices of one kind, 'cpu' or 'gpu'."""
        return self.table[(self.table["experiment"] == experiment) & (self.table["device"].map(device_kind) == kind)]

    def record(self, node: str) -> Mapping[str, Any]:
        """Return the node's record (node.json)."""
        return self._records[node]

    @cached_property
    def _records(self) -> dict[str, Mapping[str, Any]]:
        return {node.id: node.record for node in self.nodes.nodes}

    def nodes_with_device(self, kind: str) -> list[str]:
        """List the ids of nodes that have a device of this kind, 'cpu' or 'gpu'."""
        return [node.id for node in self.nodes.nodes if kind in node.kinds()]

    def label(self, node: str) -> str:
        """Format a node's display name: its hardware, and its short name if it is the user's or shares its hardware."""
        make, name = self.hardware_label(node), self.short_names.get(node, node)
        return f"{make} ({name})" if self._labels[1][make] > 1 or name.startswith(YOURS) else make

    def group_label(self, nodes: Sequence[str]) -> str:
        """Format nodes of one kind, as in 'AMD EPYC 9654, 2 cores, 3 machines'; format a single node with `label`."""
        if len(nodes) == 1:
            return self.label(nodes[0])
        make = self.hardware_label(nodes[0])
        names = list(dict.fromkeys(self.short_names.get(node, node).partition(",")[0] for node in nodes))
        # Many machines cannot all be named; several kinds with the same hardware label differ in the hardware's hash.
        kinds = {kind_of_node(node) for node, name in self._labels[0].items() if name == make}
        mark = f" ({join_words(names)})" if len(names) <= _NAMED else ""
        if not mark and len(kinds) > 1:
            mark = f" ({kind_of_node(nodes[0]).rpartition('-')[2]})"
        return f"{make}{mark}, {count_machines_and_runs(nodes)}"

    def group_labels(self, nodes: Iterable[str]) -> list[str]:
        """Format nodes with `group_label`; return a text for each node kind."""
        kinds: dict[str, list[str]] = {}
        for node in nodes:
            kinds.setdefault(kind_of_node(node), []).append(node)
        return [self.group_label(alike) for alike in kinds.values()]

    def hardware_label(self, node: str) -> str:
        """Return a node's display name without an instance label."""
        return self._labels[0].get(node, node)

    @cached_property
    def _labels(self) -> tuple[dict[str, str], Counter[str]]:
        """Each node's hardware label, and the number of nodes for each label."""
        labels = {node.id: node.label for node in self.nodes.nodes}
        return labels, Counter(labels.values())


def categorical(table: pd.DataFrame) -> pd.DataFrame:
    """Convert text columns to categorical columns in alphabetical order, which compare, group and sort like text."""
    converted: dict[str, pd.Series] = {}
    for name, column in table.items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            categories = list(column.cat.categories)
            if categories != sorted(categories):
                converted[str(name)] = column.cat.set_categories(sorted(categories))
        elif isinstance(column.dtype, pd.StringDtype):
            converted[str(name)] = column.astype("category")
    return table.assign(**converted) if converted else table


def _points(table: pd.DataFrame) -> pl.DataFrame:
    """Convert the POINT columns to polars, with plain strings."""
    text = [name for name in POINT if name != "threads"]
    return pl.from_pandas(table[POINT]).with_columns(pl.col(text).cast(pl.String), pl.col("threads").cast(pl.Int64))


P = ParamSpec("P")
T = TypeVar("T")


def cached_per_dataset(make: Callable[Concatenate[Dataset, P], T]) -> Callable[Concatenate[Dataset, P], T]:
    """Cache a function's results in the dataset that is its first argument.

    The other arguments are the cache key, so they must be hashable.
    """

    @wraps(make)
    def wrapper(data: Dataset, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = data.compute_once((make, args, tuple(kwargs.items())), lambda: make(data, *args, **kwargs))
        return result

    return wrapper


def _estimates_from_rows(rows: pd.DataFrame, value: str, source_rows: Sequence[tuple[int, ...]]) -> Estimates:
    """Convert summary rows to estimates, on a linear scale if all rows are shares, else on the log scale.

    source_rows: for each row, the numbers of the summary rows used to compute it.
    """
    if not len(rows):
        return Estimates.empty()
    # Parse each distinct text only once, because many nodes have the same points.
    codes, texts = pd.factorize(rows["params"])
    params = pd.DataFrame([json.loads(text) for text in texts], dtype=object).take(codes).set_axis(rows.index)
    labels = [name for name in POINT if name not in ("experiment", "params")]
    frame = pd.concat([rows[labels].astype(object), params], axis=1).assign(
        estimate=rows[value].astype(float),
        low=rows["low"],
        high=rows["high"],
        se=rows["log_se"],
        logit=rows["scale"] == "logit",
        df=rows["df"],
        n_rounds=rows["n_rounds"],
        n_samples=rows["n_samples"],
        detail="",
        source_rows=pd.Series(list(source_rows), rows.index, dtype=object),
    )
    if (rows["unit"] == "1").all():
        return Estimates(frame.reset_index(drop=True), log=False)
    return Estimates.from_estimates(frame)
