"""The machines page: machines grouped by kind, with details from each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contract.node import read_node, write_node
from report.data.dataset import Dataset
from report.data.node_reader import read_nodes
from report.data.reference_figures import REFERENCE, read_reference
from report.judging.judge import judge
from report.pages.fingerprint_table import nodes_by_kind
from report.pages.site_sources import template_environment
from report.wanted_machines import default_preset
from tests.report.conftest import Factory


def judge_nodes(synthetic: Factory, out: Path, *names: str, **record: Any) -> list[dict[str, Any]]:
    """Judge synthetic nodes with these names, and return the nodes as the verdicts list them.

    record: values to replace in the first node's record.
    """
    synthetic.write(synthetic(name, seed=seed).gemm(9).clock() for seed, name in enumerate(names))
    path = synthetic.root / names[0] / "node.json"
    write_node(path, {**read_node(path), **record})
    judged: list[dict[str, Any]] = judge(
        Dataset(read_nodes([synthetic.root], True), read_reference(REFERENCE)), out, allow_synthetic=True
    )["nodes"]
    return judged


def render_page(nodes: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Group nodes by kind; return the groups and the page's source."""
    kinds = nodes_by_kind(nodes, [node["id"] for node in nodes])
    return kinds, template_environment().get_template("machines.qmd").render(
        {"kinds": kinds, "refused": [], "choice": "", "wanted": [], "preset": default_preset()}
    )


def test_machines_are_grouped_by_kind(synthetic: Factory, tmp_path: Path) -> None:
    kinds = [{"name": "Cortex-X925", "cores": 10, "usable_cores": 1}, {"name": "Cortex-A725"}]
    cpu = {"model": "Chip", "usable_cores": 1, "quota": 1.5, "kinds": kinds, "unknown": ["sockets", "caches"]}
    record = {"hardware": {"cpu": cpu, "memory_bytes": 2**30, "gpus": []}}
    groups, text = render_page(
        judge_nodes(synthetic, tmp_path / "verdicts.json", "kind.aaaaaa", "other", "kind.bbbbbb", **record)
    )
    assert [[node["id"] for node in kind["nodes"]] for kind in groups] == [["kind.aaaaaa", "kind.bbbbbb"], ["other"]]
    known = (r"by a cgroup | 1\.5", "kinds of core | 10 Cortex-X925, some Cortex-A725", "known | sockets, caches")
    assert all(f"{row} |" in text for row in known)
    titles = [line for line in text.splitlines() if line.startswith("#")]
    assert "2 machines of one kind" in titles[0]
    assert [line.partition("{#")[2] for line in titles[1:4]] == ["machine-1}", "machine-2}", "machine-3}"]
    assert [line.partition(" ")[0] for line in titles[:4]] == ["##", "###", "###", "##"]
    assert [text.count(f"(#machine-{number})") for number in (1, 2, 3)] == [1, 1, 1]


def test_run_continued_on_another_machine_is_noted(
    synthetic: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = ["aaaaaa", "bbbbbb"]
    groups, _ = render_page(
        judge_nodes(synthetic, tmp_path / "verdicts.json", "kind.aaaaaa", "kind.bbbbbb", hosts=hosts)
    )
    first, second = groups[0]["nodes"]
    assert "on 2 machines of this kind one after another" in first["when"]
    assert "machines" not in second["when"]
    assert "note: kind.aaaaaa was measured on 2 machines of its kind one after another" in capsys.readouterr().err


def test_unknown_gpu_facts_are_listed(synthetic: Factory, tmp_path: Path) -> None:
    gpu_slice = {"id": "cuda:0", "kind": "gpu", "name": "NVIDIA A100 MIG 1g.5gb", "unwatched": "a slice of a GPU",
                 "substitutes": {"bfloat16": "float16", "tf32": "float32"}}  # fmt: skip
    record = read_node(Path("data/nodes/amd-epyc-2c-789dcf/node.json"))
    card = {"name": "NVIDIA A100", "mig": True, "unanswered": {"power_limit_w": "Not Supported"}}
    more = {"devices": [record["devices"][0], gpu_slice], "hardware": {**record["hardware"], "gpus": [card]}}
    groups, text = render_page(judge_nodes(synthetic, tmp_path / "verdicts.json", "kind.aaaaaa", **more))
    formats = "no units for bfloat16 and tf32: measured in float16 and float32"
    assert f"its clock, power and use are not fully recorded: a slice of a GPU; {formats} |" in text
    rows = {row["name"]: row["value"] for row in groups[0]["nodes"][0]["hardware"]}
    assert rows["GPUs"] == "name NVIDIA A100, cut into slices (MIG) yes, not reported: power limit Not Supported"


def test_facts_of_new_records_are_listed(synthetic: Factory, tmp_path: Path) -> None:
    cpu = {"model": "Chip", "usable_cores": 1, "microarchitecture": "Zen 4", "smt": "on", "governor": "performance"}
    memory = {"machine_bytes": 2**31, "type": "DDR5", "speed_mt_s": 4800}
    limits = {"cpu_quota": None, "cpus": "0-1", "memory_bytes": 2**30}
    hardware = {"cpu": cpu, "memory_bytes": 2**30, "gpus": [], "memory": memory, "numa_nodes": 2, "limits": limits}
    backends = {"llvm": {"package": "llvmlite", "version": "0.50.0", "build": "LLVM 22.1.0"}}
    software = {"os": "Linux 6", "python": "3.11", "packages": {}, "blas": [], "backends": backends}
    software["mitigations"] = {"meltdown": "Not affected", "mds": "Vulnerable"}
    record = {"schema": 2, "hardware": hardware, "software": software, "unreadable": {"hardware.product": "no file"},
              "load_before": {"other_load": 0.0, "steal": 0.0}}  # fmt: skip
    (kind,), _ = render_page(judge_nodes(synthetic, tmp_path / "verdicts.json", "kind.aaaaaa", **record))
    (node,) = kind["nodes"]
    rows = {row["name"]: row["value"] for row in [*node["hardware"], *node["software"]]}
    expected = {
        "CPU, SMT": "on", "Memory, speed": "4,800 MT/s", "NUMA nodes": "2", "Limits, memory": "1 GiB",
        "Backends": "llvm: llvmlite 0.50.0 LLVM 22.1.0", "Mitigations": "meltdown: Not affected; mds: Vulnerable",
    }  # fmt: skip
    assert rows | expected == rows
