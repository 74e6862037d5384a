"""Fingerprint, kind and name of a machine, the lock during measurements, and node records, partial and sealed."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from contract.errors import StudyError
from contract.files import write_json
from contract.node import NODE_SCHEMA, PARTIAL, missing_rounds, node_id, read_node, record_path, write_node
from contract.sample_table import write_samples
from contract.schema import check_document
from experiments import experiment_list, fingerprint, hardware, lock, nvml
from experiments.cli import main
from experiments.experiment_list import format_listing, list_experiments
from experiments.jobs import Job, Plan, Point
from experiments.node_writer import begin_node, job_paces
from experiments.registry import experiments
from tests.contract.test_tables import make_table
from tests.experiments.torch_standin import H100, P100, Torch, install

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return fingerprint.fingerprint({"preset": "quick"})


def test_fingerprint_is_valid_complete_and_free_of_personal_data(record: dict[str, Any]) -> None:
    check_document(record, NODE_SCHEMA, "fingerprint")
    assert record["hardware"]["cpu"]["usable_cores"] >= 1
    assert record["hardware"]["memory_bytes"] > 10**8
    assert {"numpy", "torch"} <= set(record["software"]["packages"])
    assert any(pool["user_api"] == "blas" for pool in record["software"]["blas"])
    assert record["devices"][0]["id"] == "cpu"
    assert record["study"]["commit"] != ""
    assert record["schema"] == 2
    assert record["load_before"].keys() >= {"other_load", "steal"}
    assert {"torch", "numpy", "llvm", "python"} <= set(record["software"]["backends"])
    kinds = {device["kind"] for device in record["devices"]}
    assert "gpu" in kinds or any("CUDA" in reason for reason in record["left_out"])
    text = json.dumps(record)
    assert platform.node() not in text or len(platform.node()) < 4
    assert not any(word in text for word in (str(Path.home()), f'"{getpass.getuser()}"', str(ROOT)))
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-|([0-9a-f]{2}:){5}[0-9a-f]{2}", text), "a UUID or MAC address"
    identities = [*Path("/sys/class/dmi/id").glob("*serial"), *Path("/sys/class/net").glob("*/address")]
    for path in [Path("/etc/machine-id"), Path("/etc/hostname"), *identities]:
        with suppress(OSError):
            identity = path.read_text().strip()
            assert len(identity) < 4 or identity not in text, path


def test_missing_required_gpu_gives_a_clear_message(record: dict[str, Any]) -> None:
    without_gpu = {**record, "devices": record["devices"][:1], "left_out": ["torch was built without CUDA"]}
    with pytest.raises(StudyError, match=r"no GPU found.*built without CUDA.*NVML: .*Found: cpu"):
        fingerprint.require_device(without_gpu, "gpu")
    fingerprint.require_device(without_gpu, "cpu")


def test_kind_is_stable_and_distinguishes_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    def kind_with_gpus(*names: str) -> str:
        monkeypatch.setattr(nvml, "nvidia_gpus", lambda: [{"name": name} for name in names])
        return hardware.machine_kind()

    assert kind_with_gpus() == kind_with_gpus() != kind_with_gpus(*["NVIDIA H200"] * 2)
    check_document(kind_with_gpus(), NODE_SCHEMA["properties"]["kind"], "kind")
    assert "2x-nvidia-h200" in kind_with_gpus(*["NVIDIA H200"] * 2)
    cards = [f"{'Long ' * n}Card" for n in range(1, 10)]
    assert kind_with_gpus(*cards) != kind_with_gpus(*cards[:-1]), "the hash covers the part that is cut off"
    check_document(f"{kind_with_gpus(*cards)}.a1b2c3", NODE_SCHEMA["properties"]["id"], "name")


def test_instances_distinguish_hosts_without_revealing_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def instance_from(*ids: str | None) -> str:
        """Return the digits that distinguish a host from others of its kind, if its id files contain `ids`.

        None stands for an absent file.
        """
        files = [tmp_path / f"id-{index}" for index in range(len(ids))]
        for file, text in zip(files, ids, strict=True):
            file.unlink(missing_ok=True)
            if text is not None:
                file.write_text(f"{text}\n")
        monkeypatch.setattr(hardware, "_HOST_IDS", files)
        return hardware.machine_instance()

    first, second = "0123456789abcdef" * 2, "fedcba9876543210" * 2
    here = instance_from(first, second)
    assert here == instance_from(first, None) == instance_from("", first) == instance_from("uninitialized", first)
    assert here != instance_from(second, None)
    check_document(here, NODE_SCHEMA["properties"]["instance"], "instance")
    digests = [hashlib.new(name, first.encode()).hexdigest() for name in ("md5", "sha1", "sha256")]
    assert not any(here in text for text in (first, *digests))
    assert instance_from(None, None) == ""


@pytest.mark.parametrize("earlier", [{}, {"instance": ""}, {"instance": "0a1b2c"}])
def test_machine_keeps_its_first_name(
    earlier: dict[str, str], tmp_path: Path, record: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The name comes from the record, even if the record's `instance` differs from the machine's present one.

    Old records have no `instance`, and a new container gets another `instance`.
    """
    path, kind = tmp_path / "node.json", record["kind"]
    unnamed = {name: value for name, value in record.items() if name not in ("kind", "instance")}
    name = node_id(kind, earlier.get("instance", ""))
    write_node(path, {**unnamed, **({"kind": kind, **earlier} if earlier else {}), "id": name})
    assert main(["probe", "--id", "--out", str(path)]) == 0
    assert capsys.readouterr().out.strip() == name
    assert hardware.identity(path) == (kind, earlier.get("instance", ""))
    assert main(["check", "--preset", "quick", "--node", str(path)]) == 0


@pytest.mark.parametrize(
    ("instances", "instance"),
    [(["0a1b2c"], "0a1b2c"), ([""], ""), ([], None), (["0a1b2c", "fedcba"], None), (["own", "0a1b2c"], None)],
)
def test_lost_record_gets_its_name_from_the_rounds_next_to_it(
    instances: list[str], instance: str | None, tmp_path: Path, record: dict[str, Any]
) -> None:
    for name in instances:
        folder = tmp_path / "nodes" / node_id(record["kind"], record["instance"] if name == "own" else name)
        folder.mkdir(parents=True)
        (folder / "gemm.cpu.1.parquet").touch()
    (tmp_path / "nodes" / "other-cpu-2c-abcdef.aaaaaa").mkdir(parents=True)
    (tmp_path / "nodes" / "other-cpu-2c-abcdef.aaaaaa" / "gemm.cpu.1.parquet").touch()
    expected = record["instance"] if instance is None else instance
    for content in (None, "", "{"):
        if content is not None:
            (tmp_path / "node.json").write_text(content)
        assert hardware.identity(tmp_path / "node.json") == (record["kind"], expected)


def test_name_from_another_kind_is_not_reused(tmp_path: Path, record: dict[str, Any]) -> None:
    path, other = tmp_path / "node.json", "other-cpu-2c-abcdef"
    write_node(path, {**record, "id": f"{other}.0a1b2c", "kind": other, "instance": "0a1b2c"})
    assert hardware.identity(path) == (record["kind"], record["instance"])
    for words in (["run", "gemm", "--out", str(tmp_path / "x.parquet")], ["check", "--preset", "quick"]):
        with pytest.raises(StudyError, match=rf"describes {other}.*, this machine is"):
            main([*words, "--node", str(path)])
    write_node(path, {**record, "kind": other})
    with pytest.raises(StudyError, match=rf"node\.json: id .* does not match kind '{other}'"):
        read_node(path)


def test_second_process_is_refused_while_another_measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("whatever")
    monkeypatch.setattr(lock, "lock_path", lambda: path)
    script = (
        f"import sys, pathlib; from experiments import lock; lock.lock_path = lambda: pathlib.Path({str(path)!r})\n"
        "with lock.node_lock(0):\n    print('held', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StudyError, match="another process of yours is measuring"), lock.node_lock(0.1):
            pass
        holder.kill()
    # The lock ends with the process that holds it, so nobody has to remove a file.
    with lock.node_lock(5):
        assert path.read_text() == "whatever"
    path.rename(tmp_path / "precious")
    path.symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"), lock.node_lock(0):
        pass


@pytest.mark.parametrize(
    "replace_folder",
    [
        pytest.param(lambda folder: folder.symlink_to(folder.parent), id="a link"),
        pytest.param(lambda folder: folder.touch(), id="a file"),
        pytest.param(lambda folder: folder.mkdir() or folder.chmod(0o777), id="open to others"),
    ],
)
def test_lock_folder_is_writable_only_by_its_user(
    replace_folder: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lock, "PLACE", tmp_path)
    folder = lock.lock_path().parent
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    replace_folder(folder)
    with pytest.raises(StudyError, match="remove it"):
        lock.lock_path()


@pytest.mark.parametrize(
    ("words", "out", "why"),
    [
        (["gem"], "x.parquet", "no experiment 'gem'.*Did you mean 'gemm'"),
        (["gemm"], "x.csv", r"choose a file name that ends in \.parquet"),
        (["gemm", "--device", "cuda:9"], "x.parquet", "no device 'cuda:9'.*Devices: cpu"),
    ],
)
def test_run_refuses_invalid_arguments(words: list[str], out: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=why):
        main(["run", *words, "--out", str(tmp_path / out)])
    assert list(tmp_path.iterdir()) == []


def test_records_of_both_versions_are_read(record: dict[str, Any], tmp_path: Path) -> None:
    for readable in (RECORD, record):
        write_node(tmp_path / "node.json", readable)
        assert read_node(tmp_path / "node.json")["schema"] == readable["schema"]
    lacking = {**record, "software": {key: value for key, value in record["software"].items() if key != "backends"}}
    refused = [
        ({**RECORD, "schema": 2}, "unreadable, load_before"),
        (lacking, "backends"),
        ({**RECORD, "schema": 3}, "3"),
    ]
    for unreadable, fault in refused:
        with pytest.raises(StudyError, match=fault):
            write_node(tmp_path / "node.json", unreadable)


RECORD: dict[str, Any] = {
    "schema": 1,
    "id": "some-cpu-2c-abc123",
    "origin": "synthetic",
    "hardware": {"cpu": {"model": "Some CPU", "usable_cores": 2}, "memory_bytes": 1, "gpus": []},
    "software": {"os": "Linux 6", "python": "3.11", "packages": {}, "blas": []},
    "devices": [{"id": "cpu", "kind": "cpu", "name": "Some CPU"}],
    "left_out": [],
    "study": {"version": "0", "commit": "unknown"},
    "started_utc": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_node(tmp_path / "probe.json", RECORD)
    return tmp_path / "nodes" / RECORD["id"]


def write_round(folder: Path, name: str, hour: int, node: str = RECORD["id"], **metadata: Any) -> str:
    times = {"started_utc": f"2026-01-02T{hour:02}:00:00Z", "ended_utc": f"2026-01-02T{hour:02}:30:00Z"}
    write_samples(folder / name, make_table({"node": node}), times | {"protocol": 1} | metadata)
    return str(folder / name)


def seal(folder: Path, *rounds: str) -> int:
    probe = str(folder.parents[1] / "probe.json")
    return main(["seal", "--probe", probe, "--rounds", *rounds, "--out", str(folder / "node.json")])


def test_record_spans_its_rounds_and_earlier_rounds_are_set_aside(folder: Path) -> None:
    first, last = write_round(folder, "gemm.cpu.1.parquet", 7), write_round(folder, "gemm.cpu.2.parquet", 9)
    content = Path(write_round(folder, "gemm.cpu.5.parquet", 3)).read_bytes()
    assert seal(folder, last, first) == 0
    sealed = read_node(folder / "node.json")
    assert (sealed["started_utc"], sealed["ended_utc"]) == ("2026-01-02T07:00:00Z", "2026-01-02T09:30:00Z")
    assert sealed["id"] == RECORD["id"]
    assert sorted(map(str, folder.glob("*.parquet"))) == [first, last]
    assert (folder / "superseded" / "gemm.cpu.5.parquet").read_bytes() == content


def test_rounds_from_another_machine_are_refused(folder: Path) -> None:
    foreign = write_round(folder, "gemm.cpu.1.parquet", 7, node="another-cpu-8c-fff000")
    with pytest.raises(StudyError, match=r"describes some-cpu-2c-abc123, but rounds of another-cpu-8c-fff000"):
        seal(folder, foreign)
    assert not (folder / "node.json").exists()


@pytest.fixture
def plan(folder: Path) -> Plan:
    """Write a plan beside the probe's record: two rounds of two jobs, with the second job's only point left out."""
    point = Point.from_params("gemm", {"m": 8}, point_s=1.0, predicted_s=90.0)
    job = Job("gemm", "cpu", "cpu", 0.1, 60.0, 9, (point,), start_s=10.0)
    other = Job("training", "cuda:0", "gpu", 0.1, 60.0, 9, (replace(point, left_out="plan: left out to fit 1 min"),))
    plan = Plan((job, other), 2)
    write_json(folder.parents[1] / "plan.json", plan.as_json)
    return plan


def test_partial_record_from_the_first_round_on_lists_missing_rounds(folder: Path, plan: Plan) -> None:
    probe, name = folder.parents[1] / "probe.json", "gemm.cpu.{}.parquet"
    first = write_round(folder, name.format(1), 7, host="aaaaaa", wall_s=150.0)
    begin_node(folder, probe, plan)
    assert record_path(folder) == folder / PARTIAL
    record = read_node(record_path(folder))
    assert record["jobs"]["gemm.cpu"]["predicted_s"] == [100.0, 100.0]
    assert record["jobs"]["training.cuda-0"] == {"predicted_s": [], "left_out": {"plan: left out to fit 1 min": 1}}
    assert missing_rounds(record, [path.name for path in folder.glob("*.parquet")]) == ["gemm.cpu.2"]
    assert job_paces(record) == {}

    second = write_round(folder, name.format(2), 8, host="bbbbbb", wall_s=770.0, stood_s=600.0)
    assert seal(folder, first, second, "--plan", str(folder.parents[1] / "plan.json")) == 0
    record = read_node(record_path(folder))
    assert record["hosts"] == ["aaaaaa", "bbbbbb"]
    assert record["jobs"]["gemm.cpu"]["wall_s"] == [150.0, 770.0]
    assert record["jobs"]["gemm.cpu"]["stood_s"] == [0.0, 600.0], "pauses do not affect the pace"
    assert job_paces(record) == {"gemm.cpu": pytest.approx(1.6)}
    names = sorted(path.name for path in folder.iterdir())
    assert names == [name.format(1), name.format(2), "node.json"]
    assert missing_rounds(record, names) == []

    for damaged in ("", "[]", '{"jobs": 1}'):
        (folder / PARTIAL).write_text(damaged)
        begin_node(folder, probe, plan)
        assert read_node(folder / PARTIAL)["jobs"]["gemm.cpu"]["predicted_s"] == [100.0, 100.0]
    assert record_path(folder) == folder / PARTIAL, "a repeated round breaks the seal"
    begin_node(folder, probe, replace(plan, rounds=1))
    assert read_node(folder / PARTIAL)["jobs"]["gemm.cpu"]["predicted_s"] == [100.0], "the plan has changed"
    input_file = Path(shutil.copy(probe, folder / "node.json"))
    begin_node(folder, input_file, plan)
    assert read_node(input_file) == read_node(probe), "an input file is not removed"


def test_outcomes_lists_failed_points_by_reason(folder: Path, plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    node, failure = {"node": RECORD["id"]}, {"status": "unsupported", "value": float("nan"), "stop_reason": ""}
    for number in (1, 2):
        refused = {**failure, "dtype": "float8_e4m3fn", "reason": f"no FP8 here, {number}.5 s on"}
        profile = {**failure, "metric": "kernel_time", "status": "failed", "reason": "the profiler lost kernels"}
        rows = [{}, refused, profile]
        both = pd.concat([make_table({**node, "round": number, **row}) for row in rows])
        write_samples(folder / f"gemm.cpu.{number}.parquet", both.reset_index(drop=True), {})
    (folder / "gemm.cpu.3.parquet").write_bytes(b"not a table")
    begin_node(folder, folder.parents[1] / "probe.json", plan)
    assert main(["outcomes", str(folder.parent)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{RECORD['id']}: 3 rounds of jobs, 2 points ok, 2 not"
    assert "2  gemm on cpu: unsupported: no FP8 here, 1.5 s on" in lines[1]
    assert "2  gemm on cpu: in part failed: the profiler lost kernels" in lines[2]
    assert "gemm.cpu.3.parquet" in lines[3]
    assert len(lines) == 4
    with pytest.raises(StudyError, match=r"no node in .*results/nodes"):
        main(["outcomes", str(folder.parents[1] / "elsewhere")])


def test_every_experiment_is_listed_with_its_devices_and_libraries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nvml, "nvidia_gpus", list)
    install(monkeypatch, Torch())
    assert main(["list", "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert listing["left_out"]
    assert set(listing["experiments"]) == set(experiments())
    devices = listing["experiments"]["tabular"]["devices"]
    assert devices["(Apple)"] == {"asked": True, "libraries": ["torch"], "all": False}
    assert set(devices["(NVIDIA)"]["libraries"]) == {"torch", "cupy"}
    assert "threads" in listing["experiments"]["gemm"]["parameters"]
    rows = {
        line.split()[0]: line.split()[1:] for line in format_listing(list_experiments()).splitlines() if line.split()
    }
    assert rows["clock"] == ["yes", "–", "–", "–", "–"]
    assert rows["sequential"] == ["yes", "yes", "yes", "–", "–"]  # on GPUs, it needs CUDA C


def test_listing_has_a_column_per_gpu_and_a_reason_per_omitted_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "nvidia_gpus", list)
    torch = install(monkeypatch, Torch(H100, H100, P100, cuda="13.0", architectures=["sm_90"]))
    monkeypatch.setattr(experiment_list.importlib.util, "find_spec", lambda _: None)
    listing = format_listing(list_experiments())
    assert torch.opened == []
    assert all(words in listing for words in ("cuda:0 … cuda:1", "left out: cuda:2: ", "CuPy is not installed"))
    assert "(NVIDIA)" not in listing


def test_record_shows_the_kernels_that_libraries_choose_by_default(record: dict[str, Any]) -> None:
    words = [sys.executable, "-m", "experiments", "probe"]
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Prescott"}
    result = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    pools = json.loads(result.stdout)["software"]["blas"]
    assert "Prescott" not in [pool.get("architecture") for pool in pools]


@pytest.mark.parametrize(
    ("memory_bytes", "size"), [(4.25e9, "4.2 GB"), (9.96e9, "10.0 GB"), (10e9, "10 GB"), (31.6e9, "32 GB")]
)
def test_machine_is_summarized_in_one_line(memory_bytes: float, size: str) -> None:
    cpu = {"model": "A CPU", "usable_cores": 1, "unknown": ["sockets", "caches"]}
    devices = [{"kind": "cpu", "name": "A CPU"}, {"kind": "gpu", "name": "A GPU"}]
    record = {"hardware": {"cpu": cpu, "memory_bytes": memory_bytes}, "devices": devices}
    assert fingerprint.summarize_node(record) == f"A CPU, 1 core, {size}; A GPU; unknown: sockets, caches"
    record["hardware"]["cpu"] = {"model": "A CPU", "usable_cores": 4, "quota": 1.5}
    assert (
        fingerprint.summarize_node({**record, "devices": []}) == f"A CPU, 1.5 cores by a cgroup's quota, {size}; no GPU"
    )
