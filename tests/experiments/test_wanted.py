"""Comparison between this machine and the machines that would decide open claims."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from contract.files import write_json
from contract.machine_needs import WANTED, read_wanted
from experiments import counters, gpus, hardware
from experiments.cli import main
from experiments.processor import describe
from experiments.topology import parse_cpu_list
from tests.experiments.conftest import Tree
from tests.experiments.test_described_machines import MACHINES, kernel_files, program_answers

RTX = {"name": "NVIDIA GeForce RTX 4060 Laptop GPU", "memory_bytes": 8 << 30}
APPLE = {"name": "Apple M1 Pro GPU", "maker": "Apple", "known_by": "torch"}
PRESET = {"name": "quick", "cpu": 9, "gpu": 22}
# A claim for each property that a machine may need.
MACHINES_NEEDED: dict[str, dict[str, Any]] = {
    "L01": {"kind": "laptop"}, "D01": {"kind": "desktop"}, "M01": {"kind": "many-core"},
    "S01": {"kind": "server", "devices": ["gpu"]}, "G01": {"devices": ["gpu"]},
    "E01": {"devices": ["gpu"], "energy": ["gpu"]}, "E02": {"devices": ["gpu"], "energy": ["cpu", "gpu"]},
    "R01": {"like": ["other-machine-0a1b2c", "Other machine"], "rounds": 5}, "A01": {},
}  # fmt: skip


@pytest.fixture
def wanted_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs = [
        {"claim": claim, "is_open": True, "machine": machine, "experiments": ["training"], "preset": PRESET}
        for claim, machine in MACHINES_NEEDED.items()
    ]
    path = tmp_path_factory.mktemp("wanted") / "wanted.json"
    write_json(path, {"nodes": [], "needs": needs})
    return path


@pytest.mark.parametrize(
    ("name", "cards", "files", "claims"),
    [
        ("ryzen-9-7940hs", [RTX], {}, "L01 G01 E01 A01"),
        ("wsl2-ryzen-4600h", [RTX], {}, "L01 G01 E01 A01"),
        ("wsl2-ryzen-4600h", [], {}, "L01 A01"),
        ("apple-m1-pro", [APPLE], {}, "L01 G01 A01"),
        ("core-ultra-9-285k", [], {}, "D01 A01"),
        ("core-ultra-9-285k", [RTX], {"name": "package-0", "energy_uj": "5000000"}, "D01 G01 E01 E02 A01"),
        ("altra-q80", [], {}, "M01 A01"),
        ("altra-q80", [RTX], {}, "M01 S01 G01 E01 A01"),
    ],
)
def test_machine_decides_the_claims_that_it_can_measure(
    wanted_file: Path, monkeypatch: pytest.MonkeyPatch, tree: Tree, capsys: pytest.CaptureFixture[str],
    name: str, cards: list[gpus.Card], files: dict[str, str], claims: str,
) -> None:  # fmt: skip
    machine = MACHINES[name]
    energy_files = {f"sys/class/powercap/intel-rapl:0/{key}": text for key, text in files.items()}
    root = tree({**kernel_files(machine), **energy_files})
    if "sysctl" in machine:
        monkeypatch.setattr("platform.system", lambda: "Darwin")
    cpus = parse_cpu_list(str(next(iter(machine["expect"]["usable"]))))
    described = describe(cpus, None, root, program_answers(machine, in_json=True))
    real_counters = counters.cpu_counters
    monkeypatch.setattr(hardware, "cpu", lambda: described)
    monkeypatch.setattr(gpus, "list_gpus", lambda: cards)
    monkeypatch.setattr(counters, "cpu_counters", lambda process: real_counters(process, root))
    assert main(["wanted", "--json", "--file", str(wanted_file)]) == 0
    entries = json.loads(capsys.readouterr().out)["wanted"]
    assert sorted(claim for entry in entries if entry["here"] for claim in entry["open"]) == sorted(claims.split())
    assert main(["wanted", "--file", str(wanted_file)]) == 0
    text = capsys.readouterr().out
    assert f"would decide {', '.join(sorted(claims.split()))} or a part" in " ".join(text.split())
    assert f"about {22 if cards else 9} minutes" in text


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ({}, "CONFIG='preset=quick'"),
        ({"like": [hardware.machine_kind(), "This machine"], "rounds": 5}, "CONFIG='preset=quick until_decided="),
        ({"kind": "server", "devices": ["gpu"], "energy": ["cpu"]}, "decides no open claim"),
        (None, "No open claim waits for a machine"),
    ],
)
def test_last_line_tells_how_to_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    machine: dict[str, Any] | None, words: str,
) -> None:  # fmt: skip
    need = {"claim": "W01", "is_open": False, "machine": machine, "experiments": ["gemm"], "preset": PRESET}
    write_json(tmp_path / "wanted.json", {"nodes": [], "needs": [need] if machine is not None else []})
    kind = hardware.machine_kind()
    monkeypatch.setattr(gpus, "list_gpus", list)
    monkeypatch.setattr(hardware, "machine_kind", lambda: kind)
    assert main(["wanted", "--file", str(tmp_path / "wanted.json")]) == 0
    assert words in capsys.readouterr().out.splitlines()[-1]


def test_published_list_prints_without_torch() -> None:
    program = "import sys; from experiments.cli import main; main(['wanted']); sys.exit('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if not gpus._torch_may_see_more(bool(gpus.nvml.nvidia_gpus())):
        assert run.returncode == 0, run.stderr
    assert {need.claim for need in read_wanted(WANTED).needs} <= set(run.stdout.replace(",", " ").split())


@pytest.mark.parametrize("content", ["{}", "[]", '{"nodes": [], "needs": [{"claim": 1}]}', "{", None])
def test_damaged_list_is_refused_in_one_line(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "wanted.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(StudyError, match=r"^[^\n]*wanted\.json[^\n]*$"):
        read_wanted(path)
