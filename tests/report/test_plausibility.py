"""Plausibility checks refuse impossible rounds, with the figure and its limit as the reason, and keep possible ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from contract.errors import StudyError
from report.data.gather import gather
from report.data.node_reader import Nodes, read_nodes
from tests.report.lying_nodes import WITH_GPU, Rows, copy_node, speed_up

SOME = ("clock.cpu.1", "peak.cpu.1", "gemm.cpu.4", "bandwidth.cpu.4", "tabular.cpu.4", "models.cpu.1")


@pytest.mark.parametrize("thorough", [False, True], ids=["values", "and every clock"])
def test_node_a_thousand_times_too_fast_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], thorough: bool
) -> None:
    copy_node(tmp_path / "nodes" / "honest", SOME)
    gather([tmp_path / "nodes"], tmp_path / "alone")
    copy_node(tmp_path / "nodes" / "liar", SOME, speed_up(1000, thorough), 1e-3 if thorough else 1.0)
    capsys.readouterr()
    gather([tmp_path / "nodes"], tmp_path / "both")
    for name in ("samples.parquet", "results.parquet"):
        expected, actual = (pd.read_parquet(tmp_path / folder / name) for folder in ("alone", "both"))
        pd.testing.assert_frame_equal(expected, actual)
    (refusal,) = json.loads((tmp_path / "both" / "refused.json").read_text())
    assert refusal["file"] == str(tmp_path / "nodes" / "liar")
    assert "experiments hold what cannot be true, the first bandwidth" in refusal["reason"]
    assert "times the most that can be" in refusal["reason"]
    assert f"left out: {tmp_path / 'nodes' / 'liar'}" in capsys.readouterr().err


def read_pair(folder: Path) -> Nodes:
    """Read a node together with an honest node, which must always be read."""
    copy_node(folder.parent / "honest", ("models.cpu.1",))
    nodes = read_nodes([folder.parent])
    assert "honest" in [node.id for node in nodes.nodes]
    return nodes


def liar_experiments(nodes: Nodes) -> set[str]:
    """Return the experiments that are read from the node `liar`."""
    return {name for node in nodes.nodes if node.id == "liar" for name in node.samples["experiment"].unique()}


def add_round(node: Path, name: str, change: Rows | None = None) -> Path:
    """Copy the round `name` from the published node to `node`. change: function that edits this round's rows."""
    (copy_node(node.parents[1] / "of" / node.name, [name], change) / f"{name}.parquet").rename(node / f"{name}.parquet")
    return node


def fill(**columns: Any) -> Rows:
    return lambda rows: [rows.__setitem__(name, value) for name, value in columns.items()]


def scale(column: str, factor: float, where: str = "value > 0") -> Rows:
    def change(rows: pd.DataFrame) -> None:
        rows.loc[rows.query(where).index, column] *= factor

    return change


@pytest.mark.parametrize(
    ("rounds", "change", "words"),
    [
        # In the first two cases, times are divided by 2 and by 5 at an unchanged clock, so rates exceed the peak of the
        # widest vector units.
        (["peak.cpu.1"], speed_up(2, True), ["FLOP/s is 1.4", "times the most that can", "avx512.fp32_flop_per_cycle"]),
        (["content.cpu.4"], speed_up(5, True),
         ["FLOP/s is", "times the most that can be", "GHz, 30% above the highest clock measured here"]),
        (["bandwidth.cpu.4"], speed_up(40, True), ["B/s is", "times the most that can be", "zen5.l1_bytes_per_cycle"]),
        (["clock.cpu.1"], scale("value", 3.0), ["a clock of 11.", "none above 9.13 GHz", "cpu.highest_clock_hz"]),
        (["peak.cpu.1"], fill(clock_mhz=1e5), ["a clock of 100 GHz"]),
        (["tabular.cpu.4"], speed_up(1e4), ["no call from Python is over in 1e-08 s"]),
        (["content.cpu.4"], scale("value", 4.0), ["its samples come to", "the round's timed_s is"]),
        (["tabular.cpu.4"], scale("value", 0.01, "calls > 1"), ["times the time that passed between them"]),
        (["content.cpu.4"], scale("elapsed_s", 10.0), ["its last sample's elapsed_s come to", "the round's wall_s is"]),
        (["content.cpu.4"], scale("flop", 0.1), ["FLOP a call, and", "are declared"]),
        (["content.cpu.4"], fill(device="cuda:0"), ["node.json lists no device 'cuda:0', only cpu"]),
        (["content.cpu.4"], fill(error=0.5), ["column 'error', row 0: 0.5 exceeds the tolerance"]),
        (["content.cpu.4"], fill(value=float("inf")), ["column 'value', row 0: inf is not finite"]),
        (["content.cpu.1"], scale("value", 3.0, "unit == '1'"), ["is more than the whole, for a share"]),
        (["content.cpu.4"], fill(backend="../../x\x1b[2J"), ["column 'backend', row 0:", "is not such a name"]),
    ],
)  # fmt: skip
def test_implausible_rounds_are_refused_with_figure_and_limit(
    tmp_path: Path, rounds: list[str], change: Rows, words: list[str]
) -> None:
    node = copy_node(tmp_path / "nodes" / "liar", rounds, change)
    nodes = read_pair(node if rounds == ["clock.cpu.1"] else add_round(node, "clock.cpu.2"))
    (refusal,) = nodes.refused
    assert Path(refusal["file"]).name == f"{rounds[0]}.parquet"
    for word in words:
        assert word in refusal["reason"]
    # Only the refused experiment is dropped: `clock` still counts, unless it is the refused experiment.
    assert liar_experiments(nodes) == (set() if rounds == ["clock.cpu.1"] else {"clock"})


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"timed_s": 1e-3}, "its samples come to"),
        ({"wall_s": 1.0}, "warming up and timing come to"),
        ({"ended_utc": "2970-01-01T00:00:00Z"}, "ended_utc 2970-01-01T00:00:00Z lies in the future"),
        ({"started_utc": "1970-01-01T00:00:00Z"}, "lies before the study's first version"),
        ({"wall_s": -1.0}, "wall_s: -1.0 is less than the minimum of 0"),
        ({"seed": "x" * 10_000}, "seed: 'xxx"),
        ({"more": 1}, "more: unknown key"),
    ],
)
def test_implausible_round_metadata_is_refused(tmp_path: Path, about: dict[str, Any], words: str) -> None:
    (refusal,) = read_pair(copy_node(tmp_path / "nodes" / "liar", ["content.cpu.4"], **about)).refused
    assert words in refusal["reason"] and len(refusal["reason"]) < 1000


def one_core(rows: pd.DataFrame) -> None:
    """Keep only the rows with one thread, and double their speed."""
    rows.drop(rows.index[rows["threads"] != 1], inplace=True)
    speed_up(2, True)(rows)


def all_cores(rows: pd.DataFrame) -> None:
    one_core(rows)
    rows["threads"] = 2


@pytest.mark.parametrize(("change", "faults"), [(one_core, 1), (all_cores, 0)])
def test_rates_are_bounded_by_the_cores_in_use(tmp_path: Path, change: Rows, faults: int) -> None:
    node = add_round(copy_node(tmp_path / "nodes" / "liar", ["peak.cpu.1"], change), "clock.cpu.2")
    assert [Path(refusal["file"]).name for refusal in read_pair(node).refused] == ["peak.cpu.1.parquet"] * faults


@pytest.mark.parametrize(
    ("name", "factor", "fault"),
    [
        # The published H100 reaches 3/4 of its TF32 rating and 9/10 of its memory rating. The factors raise these rates
        # to just below and just above the limits.
        ("gemm.cuda-0.1", 5.0, ""),
        ("gemm.cuda-0.1", 5.3, "(4 times h100-sxm.bf16_flops, by the size of a number)"),
        ("bandwidth.cuda-0.1", 21.5, ""),
        ("bandwidth.cuda-0.1", 22.5, "(20 times h100-sxm.memory_bytes_per_s)"),
    ],
)
def test_gpu_rates_are_bounded_by_the_rating(tmp_path: Path, name: str, factor: float, fault: str) -> None:
    nodes = read_pair(copy_node(tmp_path / "nodes" / "liar", [name], speed_up(factor, True), node=WITH_GPU))
    assert [refusal["reason"].endswith(fault) for refusal in nodes.refused] == [True] * bool(fault), nodes.refused


@pytest.mark.parametrize(
    ("untrue", "out"), [(["tabular"], "liar/tabular.cpu.4.parquet"), (["tabular", "gemm"], "nodes/liar")]
)
def test_two_implausible_experiments_exclude_the_whole_node(tmp_path: Path, untrue: list[str], out: str) -> None:
    def change(rows: pd.DataFrame) -> None:
        if rows["experiment"].iloc[0] in untrue:
            speed_up(1e4)(rows)

    nodes = read_pair(copy_node(tmp_path / "nodes" / "liar", ["clock.cpu.1", "gemm.cpu.4", "tabular.cpu.4"], change))
    assert ["/".join(Path(refusal["file"]).parts[-2:]) for refusal in nodes.refused] == [out]
    assert liar_experiments(nodes) == ({"clock", "gemm"} if len(untrue) == 1 else set())


def test_operation_counts_must_agree_between_rounds(tmp_path: Path) -> None:
    node = copy_node(tmp_path / "nodes" / "liar", ["training.cpu.1"])
    (refusal,) = read_pair(add_round(node, "training.cpu.2", scale("flop", 0.5))).refused
    assert refusal["file"] == str(node / "training.cpu.2.parquet") and "in another round" in refusal["reason"]


def test_gather_without_a_plausible_node_fails(tmp_path: Path) -> None:
    copy_node(tmp_path / "liar", SOME, speed_up(1000))
    with pytest.raises(StudyError, match=r"no usable node under .*: .*/liar: .* hold what cannot be true"):
        gather([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out" / "results.parquet").exists()
