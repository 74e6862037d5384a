"""Tables of measurements: machines, runs, software, points, samples and results, with their ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as arrow

from contract.errors import StudyError
from contract.microarchitecture import microarchitecture
from contract.node import machine_of_node, parse_job_name
from contract.node_pack import round_file_name
from contract.sample_dictionary import count_items, dictionary, metric_entry
from contract.sample_flags import parse_sample_flags
from report.data.disturbances import parse_flags
from report.data.names import read_names
from report.data.node_reader import Node
from report.data.sessions import later_sessions
from report.dataset.declaration import Column, dataset_unit, tables

# Columns that identify a point in samples: a point is the same on all nodes.
IDENTITY = ["experiment", "device", "backend", "dtype", "threads", "params"]
# Column of samples for the number in a flag's detail.
_FLAG_NUMBERS = {
    "queued": "queued", "crowded": "crowded", "stopped": "stopped_s", "memory": "stalled", "clock": "clock_drop",
}  # fmt: skip
# Reason in the detail of the flag `throttled`, and its code.
_THROTTLED = {
    "power": "throttled-power",
    "heat": "throttled-heat",
    "thermal": "throttled-heat",
    "quota": "throttled-quota",
}

# Columns of runs that a round's metadata holds under the same name.
_ROUND_KEYS = ("started_utc", "ended_utc", "wall_s", "stood_s", "warmup_s", "timed_s", "seed", "protocol")

Row = dict[str, Any]
# Node, experiment, device, round, attempt and process.
Run = tuple[str, str, str, int, int, str]


def run_id(node: str, experiment: str, device: str, round_no: int, attempt: int) -> str:
    """Return a run's id: the path of its file in data/nodes, without the suffix."""
    return f"{node}/{round_file_name(experiment, device, round_no, attempt).removesuffix('.parquet')}"


def point_id(experiment: str, *values: Any) -> str:
    """Return a point's id: the experiment and a hash of the other values in IDENTITY."""
    text = json.dumps([experiment, *values], ensure_ascii=False)
    return f"{experiment}.{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


class Protocols:
    """Protocols of the nodes' results."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._rounds: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        for node in nodes:
            for entry in node.rounds:
                name = str(entry["file"]).removesuffix(".parquet").rpartition(".")[0]
                self._rounds[node.id, *parse_job_name(name)] = entry

    def find(self, node: str, experiment: str, device: str, metric: str) -> int | None:
        """Return the protocol of a metric: its own, or else its experiment's; None if its rounds have none."""
        entry = self._rounds.get((node, experiment, device), {})
        return entry.get("metric_protocols", {}).get(metric, entry.get("protocol"))


def plain_samples(samples: pd.DataFrame) -> pl.DataFrame:
    """Return samples as a polars table with plain texts, and missing values in place of NaN."""
    table = pl.from_pandas(samples)
    texts = pl.col(pl.Categorical, pl.Enum).cast(pl.String)
    return table.with_columns(texts).with_columns(pl.col(pl.Float64).fill_nan(None), pl.col("threads").cast(pl.Int64))


def list_points(samples: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct points in samples, with the columns point_id and IDENTITY, sorted by id."""
    points = samples.select(IDENTITY).unique()
    ids = [point_id(*row) for row in points.iter_rows()]
    return points.with_columns(point_id=pl.Series(ids, dtype=pl.String)).select("point_id", *IDENTITY).sort("point_id")


def merge_points(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Merge tables of points. Raises StudyError if two points have one id."""
    points = pl.concat([*parts]).unique().sort("point_id")
    twice = points.filter(pl.col("point_id").is_duplicated())
    if len(twice):
        raise StudyError(
            f"two points have the id {twice['point_id'][0]}: lengthen the hash in report/dataset/measured.py"
        )
    return points


def sample_rows(samples: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Return samples with the ids of run and point, codes and numbers in place of flags, and units of the dataset."""
    runs = samples.select("node", "experiment", "device", "round", "attempt").unique()
    run_ids = pl.Series([run_id(*row) for row in runs.iter_rows()], dtype=pl.String)
    units = samples.select("metric", "unit").unique()
    new_units = pl.Series([dataset_unit(unit, metric) for metric, unit in units.iter_rows()], dtype=pl.String)
    flags = flag_columns(samples["flags"].unique().to_list())
    return (
        samples.join(points, on=IDENTITY, how="left", maintain_order="left")
        .join(runs.with_columns(run_id=run_ids), on=runs.columns, how="left", maintain_order="left")
        .join(units.with_columns(new_unit=new_units), on=units.columns, how="left", maintain_order="left")
        .join(flags, on="flags", how="left", maintain_order="left")
        .drop("flags", "unit")
        .rename({"sample": "sample_no", "codes": "flags", "new_unit": "unit"})
        .select(tables()["samples"].names)
    )


def flag_columns(texts: Sequence[str]) -> pl.DataFrame:
    """Return for each text of flags its codes and numbers."""
    rows: list[Row] = []
    for text in texts:
        row: Row = {"flags": text, **dict.fromkeys(_FLAG_NUMBERS.values())}
        codes = []
        for flag in parse_sample_flags(text):
            reason = next((code for word, code in _THROTTLED.items() if word in flag.detail), flag.name)
            codes.append(reason if flag.name == "throttled" else flag.name)
            if flag.name in _FLAG_NUMBERS and flag.figure:
                row[_FLAG_NUMBERS[flag.name]] = flag.amount
        rows.append({**row, "codes": " ".join(dict.fromkeys(codes))})
    numbers = dict.fromkeys(_FLAG_NUMBERS.values(), pl.Float64)
    return pl.DataFrame(rows, schema={"flags": pl.String, **numbers, "codes": pl.String})


def drift_by_run(samples: pl.DataFrame) -> dict[str, float]:
    """Return each run's drift: the median over its times of (its median / the median over the node's rounds), minus 1.

    samples: samples with status ok and a run_id; of them, those that count are used. Runs without times, or of points
    measured in one round, have none.
    """
    place = ["node", "point_id", "metric"]
    times = samples.filter("counts", pl.col("unit") == "s", pl.col("status") == "ok")
    medians = times.group_by(*place, "run_id").agg(pl.col("value").median())
    several = medians.filter(pl.len().over(place) > 1)
    drifts = several.with_columns(pl.col("value") / pl.col("value").median().over(place) - 1)
    return dict(drifts.group_by("run_id").agg(pl.col("value").median()).iter_rows())


def result_rows(
    summary: pl.DataFrame, points: pl.DataFrame, parameters: pl.DataFrame, protocols: Protocols
) -> tuple[arrow.Table, arrow.Table]:
    """Return the results of summary rows, in their order, and the results' flags.

    parameters: the parameter columns of each point_id. protocols: the nodes' protocols.
    """
    texts = summary["flags"].unique().to_list()
    codes = {text: " ".join(dict.fromkeys(flag.name for flag in parse_flags(text))) for text in texts}
    rows = summary.join(points, on=IDENTITY, how="left", maintain_order="left")
    for name, columns, kind, value in (
        ("machine_id", ["node"], pl.String, machine_of_node),
        ("protocol", ["node", "experiment", "device", "metric"], pl.Int64, protocols.find),
        ("dataset_unit", ["unit", "metric"], pl.String, dataset_unit),
        ("codes", ["flags"], pl.String, codes.__getitem__),
        ("item", ["experiment", "metric", "params"], pl.String, lambda *point: _items(*point)[0]),
        ("count", ["experiment", "metric", "params"], pl.Float64, lambda *point: _items(*point)[1]),
    ):
        rows = _map_distinct(rows, name, columns, kind, value)
    rows = rows.with_columns(
        result_id=pl.format("{}/{}/{}", "node", "point_id", "metric"), items_per_s=pl.col("count") / pl.col("estimate")
    )
    flags = _flag_rows(rows.select("result_id", "flags").filter(pl.col("flags") != ""))
    wide = rows.drop("flags", "unit").rename({"codes": "flags", "dataset_unit": "unit"})
    wide = wide.join(parameters, on="point_id", how="left", maintain_order="left")
    names = [*tables()["results"].names, *(name for name in parameters.columns if name != "point_id")]
    return wide.select(names).with_columns(pl.col(pl.Float64).fill_nan(None)).to_arrow(), flags


def _map_distinct(
    rows: pl.DataFrame, name: str, columns: Sequence[str], kind: type[pl.DataType], value: Callable[..., Any]
) -> pl.DataFrame:
    """Add a column that depends on others, and compute each distinct value only once."""
    distinct = rows.select(columns).unique()
    values = pl.Series(name, [value(*row) for row in distinct.iter_rows()], dtype=kind)
    return rows.join(distinct.with_columns(values), on=list(columns), how="left", maintain_order="left")


def _items(experiment: str, metric: str, params: str) -> tuple[str, float | None]:
    return count_items(experiment, json.loads(params)) if metric == "time" else ("", None)


def _flag_rows(rows: pl.DataFrame) -> arrow.Table:
    """Return the table result_flags for rows with result_id and flags, the flags as text in summary rows."""
    schema = tables()["result_flags"].schema()
    flags: list[Row] = []
    for text in rows["flags"].unique().to_list():
        flags += [
            {
                "flags": text,
                "flag": flag.name,
                "n_samples": flag.n if flag.of else None,
                "of_samples": flag.of or None,
                "worst": flag.amount,
                "detail": flag.most,
            }
            for flag in {flag.name: flag for flag in reversed(parse_flags(text))}.values()
        ]
    types = {"flags": pl.String, "flag": pl.String, "n_samples": pl.Int64, "of_samples": pl.Int64}
    table = pl.DataFrame(flags, schema={**types, "worst": pl.Float64, "detail": pl.String})
    return rows.join(table, on="flags").sort("result_id", "flag").select(schema.names).to_arrow().cast(schema)


def parameter_table(points: pl.DataFrame, columns: Mapping[str, Column]) -> pl.DataFrame:
    """Return the points' parameters as columns beside point_id. columns: as from `parameter_columns`."""
    read = [json.loads(text) for text in points["params"].to_list()]
    columns_by_name = {"point_id": points["point_id"]}
    for name, column in columns.items():
        values = [_parameter_value(row.get(name), column.type) for row in read]
        columns_by_name[column.name] = pl.Series(
            values, dtype=pl.Schema(arrow.schema([(column.name, column.arrow_type)]))[column.name]
        )
    return pl.DataFrame(columns_by_name)


def _parameter_value(value: Any, kind: str) -> Any:
    if value is None or kind != "text" or isinstance(value, str):
        return float(value) if kind == "number" and value is not None else value
    return json.dumps(value)


def parameter_types(points: pl.DataFrame) -> dict[str, set[type]]:
    """Return the Python types of each parameter's values in points."""
    types: dict[str, set[type]] = {}
    for text in points["params"].to_list():
        for name, value in json.loads(text).items():
            types.setdefault(name, set()).add(type(value))
    return types


def machine_rows(nodes: Iterable[Node]) -> list[Row]:
    """Return a row per machine, with the facts of its newest record."""
    newest: dict[str, Node] = {}
    for node in sorted(nodes, key=lambda node: str(node.record["started_utc"])):
        newest[machine_of_node(node.id)] = node
    return [_machine_row(name, node) for name, node in sorted(newest.items())]


def _machine_row(name: str, node: Node) -> Row:
    gpus = [card["name"] for card in node.record["hardware"]["gpus"]] or [
        device["name"] for device in node.record["devices"] if device["kind"] == "gpu"
    ]
    card, names = (node.record["hardware"]["gpus"] or [{}])[0], tables()["machines"].names
    about = node.record["hardware"]["cpu"]
    return {
        **_record_values("machines", node.record),
        "machine_id": name,
        "label": node.label,
        "microarchitecture": about.get("microarchitecture") or microarchitecture(about),
        "simd": " ".join(about.get("simd", [])),
        "cpu_id": read_names("cpu").find(about["model"]),
        "accelerator_id": read_names("accelerator").find(gpus[0]) if gpus else "",
        "gpu_reported": gpus[0] if gpus else "",
        "accelerators": gpus.count(gpus[0]) if gpus else 0,
        **{f"gpu_{key}": value for key, value in card.items() if f"gpu_{key}" in names},
        "unreadable": "; ".join(f"{key}: {why}" for key, why in sorted(node.record.get("unreadable", {}).items())),
    }


def run_rows(nodes: Iterable[Node], runs: Iterable[Run], drifts: Mapping[str, float]) -> list[Row]:
    """Return a row per run, sorted by id. drifts: drift by run id."""
    by_id = {node.id: node for node in nodes}
    later = later_sessions(by_id.values())
    sessions = {tuple(key): session for *key, session in later.itertuples(index=False, name=None)}
    about = {(node.id, str(entry["file"])): entry for node in by_id.values() for entry in node.rounds}
    metadata = [column for column in tables()["runs"].names if column in _ROUND_KEYS]
    rows: list[Row] = []
    for run in runs:
        node, experiment, device, round_no, attempt, process = by_id[run[0]], *run[1:]
        name = run_id(node.id, experiment, device, round_no, attempt)
        entry = about.get((node.id, round_file_name(experiment, device, round_no, attempt)), {})
        rows.append(
            {
                **_record_values("runs", node.record),
                **{key: entry.get(key) for key in metadata},
                "run_id": name,
                "node": node.id,
                "machine_id": machine_of_node(node.id),
                "experiment": experiment,
                "device": device,
                "round_no": round_no,
                "attempt": attempt,
                "process": process,
                "session": sessions.get(run[:5], 1),
                "drift": drifts.get(name),
                "contributed": node.contributed,
            }
        )
    return sorted(rows, key=lambda row: str(row["run_id"]))


def software_rows(nodes: Iterable[Node]) -> list[Row]:
    """Return a row per node and package, and per node and backend that measured."""
    rows = []
    for node in nodes:
        software = node.record["software"]
        for name, version in sorted(software["packages"].items()):
            rows.append({"node": node.id, "kind": "package", "name": name, "package": name, "version": version})
        for name, about in sorted(software.get("backends", {}).items()):
            rows.append({"node": node.id, "kind": "backend", "name": name, **about})
    return rows


def _record_values(table: str, record: Mapping[str, Any]) -> Row:
    """Return the columns of a table that stand in a node's record; None for those that it lacks."""
    return {
        column.name: _value_at(record, column.record.split(".")) for column in tables()[table].columns if column.record
    }


def _value_at(record: Any, path: Sequence[str]) -> Any:
    for step in path:
        if not isinstance(record, Mapping) or step not in record:
            return None
        record = record[step]
    return record


def metric_rows(pairs: Iterable[tuple[str, str, str]]) -> list[Row]:
    """Return a row per metric. pairs: experiment, metric and the study's unit of results."""
    experiments: dict[str, set[str]] = {}
    units: dict[str, str] = {}
    for experiment, metric, unit in pairs:
        experiments.setdefault(metric, set()).add(experiment)
        units.setdefault(metric, dataset_unit(unit, metric))
    rows = []
    for name, places in sorted(experiments.items()):
        entry = metric_entry(name)
        digits = [part for part in name.replace("_", ".").split(".") if part.isdecimal()]
        rows.append(
            {
                "metric": name,
                "unit": units[name],
                "better": entry.get("better", ""),
                "means": entry.get("meaning", ""),
                "experiments": " ".join(sorted(places)),
                "bin_upper": float(digits[-1]) if digits and entry.get("bins") else None,
            }
        )
    return rows


def parameter_rows(points: pl.DataFrame, columns: Mapping[str, Column]) -> list[Row]:
    """Return a row per parameter of points."""
    experiments: dict[str, set[str]] = {}
    for experiment, text in points.select("experiment", "params").iter_rows():
        for name in json.loads(text):
            experiments.setdefault(name, set()).add(experiment)
    known = dictionary()["parameters"]
    return [
        {
            "parameter": column.name,
            "type": column.type,
            "unit": column.unit,
            "means": "; ".join(
                [
                    column.means,
                    *(f"{where}: {means}" for where, means in known.get(name, {}).get("by_experiment", {}).items()),
                ]
            ),
            "experiments": " ".join(sorted(experiments[name])),
        }
        for name, column in columns.items()
    ]


def to_table(name: str, rows: Sequence[Mapping[str, Any]], parameters: Iterable[Column] = ()) -> arrow.Table:
    """Return rows as a table with the declared columns; texts that a row lacks are empty, other values are missing."""
    schema = tables()[name].schema(parameters)
    columns = []
    for field in schema:
        text = field.type == arrow.string()
        values = [row.get(field.name) for row in rows]
        columns.append(arrow.array(["" if text and value is None else value for value in values], field.type))
    return arrow.Table.from_arrays(columns, schema=schema)
