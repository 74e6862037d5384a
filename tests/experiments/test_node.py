"""What is found out about a machine, what is not told, and that one process measures it at a time."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from contract.node import NODE_SCHEMA, node_id, read_node, write_node
from contract.schema import check
from experiments import hardware, lock, probe
from experiments.cli import main
from experiments.devices import open_device


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return probe.fingerprint({"preset": "quick"})


def test_the_fingerprint_conforms_and_names_the_essentials(record: dict[str, Any]) -> None:
    check(record, NODE_SCHEMA, "fingerprint")
    cpu = record["hardware"]["cpu"]
    assert cpu["usable_cores"] >= 1
    assert record["hardware"]["memory_bytes"] > 10**8
    assert {"numpy", "torch"} <= set(record["software"]["packages"])
    assert any(pool["user_api"] == "blas" for pool in record["software"]["blas"])
    assert record["devices"][0]["id"] == "cpu"
    assert record["study"]["commit"] != ""


def test_nothing_personal_is_in_it(record: dict[str, Any]) -> None:
    text = json.dumps(record)
    assert platform.node() not in text or len(platform.node()) < 4
    assert str(Path.home()) not in text
    assert f'"{getpass.getuser()}"' not in text
    assert str(Path(__file__).parents[2]) not in text


def test_a_kind_of_device_that_is_left_out_says_why(record: dict[str, Any]) -> None:
    kinds = {device["kind"] for device in record["devices"]}
    assert "gpu" in kinds or any("CUDA" in reason for reason in record["left_out"])


def test_a_missing_gpu_is_one_clear_message(record: dict[str, Any]) -> None:
    without = {**record, "devices": record["devices"][:1], "left_out": ["torch was built without CUDA"]}
    with pytest.raises(StudyError) as caught:
        probe.require(without, "gpu")
    for words in ("no GPU found", "Looked for", "built without CUDA", "NVML: ", "Found: cpu", "snakemake --cores all"):
        assert words in str(caught.value)
    probe.require(without, "cpu")


def test_the_kind_is_stable_and_tells_hardware_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    here = hardware.kind()
    assert here == hardware.kind()
    check(here, NODE_SCHEMA["properties"]["kind"], "kind")
    monkeypatch.setattr(hardware, "gpus", lambda: [{"name": "NVIDIA H200"}] * 2)
    assert "2x-nvidia-h200" in hardware.kind()
    assert hardware.kind() != here
    monkeypatch.setattr(hardware, "gpus", lambda: [{"name": f"{'Long ' * n}Card"} for n in range(1, 9)])
    long = hardware.kind()
    monkeypatch.setattr(hardware, "gpus", lambda: [{"name": f"{'Long ' * n}Card"} for n in range(1, 10)])
    assert hardware.kind() != long, "what is cut off is told by the hash"
    check(f"{long}.a1b2c3", NODE_SCHEMA["properties"]["id"], "name")


def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *ids: str | None) -> str:
    """The instance of a host whose files say so; None for one that is not there."""
    places = [tmp_path / f"id-{place}" for place in range(len(ids))]
    for place, text in zip(places, ids, strict=True):
        place.unlink(missing_ok=True)
        if text is not None:
            place.write_text(f"{text}\n")
    monkeypatch.setattr(hardware, "_HOST_IDS", places)
    return hardware.instance()


def test_hosts_of_one_kind_are_told_apart_and_not_given_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = "0123456789abcdef" * 2, "fedcba9876543210" * 2
    here = host(tmp_path, monkeypatch, one, other)
    assert here == host(tmp_path, monkeypatch, one, None) != host(tmp_path, monkeypatch, other, None)
    check(here, NODE_SCHEMA["properties"]["instance"], "instance")
    digests = {name: hashlib.new(name, one.encode()).hexdigest() for name in ("md5", "sha1", "sha256")}
    assert not any(here in text for text in (one, *digests.values()))
    assert host(tmp_path, monkeypatch, "", one) == host(tmp_path, monkeypatch, "uninitialized", one) == here
    assert host(tmp_path, monkeypatch, None, None) == ""


@pytest.mark.parametrize("earlier", [{}, {"instance": ""}, {"instance": "0a1b2c"}])
def test_a_machine_keeps_the_name_under_which_it_began(
    earlier: dict[str, str], tmp_path: Path, record: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Records of the first edition name no instance; that of a container changes with it."""
    path, kind = tmp_path / "node.json", record["kind"]
    without = {name: value for name, value in record.items() if name not in ("kind", "instance")}
    name = node_id(kind, earlier.get("instance", ""))
    write_node(path, {**without, **({"kind": kind, **earlier} if earlier else {}), "id": name})
    assert main(["probe", "--id", "--out", str(path)]) == 0
    assert capsys.readouterr().out.strip() == name
    again = probe.fingerprint({}, path)
    assert (again["id"], again["kind"]) == (name, kind)
    assert main(["check", "--preset", "quick", "--node", str(path)]) == 0


def test_another_kinds_name_is_not_taken_over(tmp_path: Path, record: dict[str, Any]) -> None:
    write_node(tmp_path / "node.json", {**record, "id": "other-cpu-2c-abcdef.0a1b2c", "kind": "other-cpu-2c-abcdef",
                                        "instance": "0a1b2c"})  # fmt: skip
    assert probe.fingerprint({}, tmp_path / "node.json")["id"] == record["id"]
    with pytest.raises(StudyError, match=r"describes other-cpu-2c-abcdef, this machine is"):
        main(["run", "gemm", "--node", str(tmp_path / "node.json"), "--out", str(tmp_path / "x.parquet")])


def test_a_name_that_is_not_that_of_its_kind_is_refused(tmp_path: Path, record: dict[str, Any]) -> None:
    write_node(tmp_path / "node.json", {**record, "kind": "other-cpu-2c-abcdef"})
    with pytest.raises(StudyError, match=r"node\.json: id .* is not that of kind 'other-cpu-2c-abcdef'"):
        read_node(tmp_path / "node.json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("96 KiB (2 instances)", {"bytes": 98304, "instances": 2}),
        ("32 MiB (1 instance)", {"bytes": 33554432, "instances": 1}),
        ("1.5 MiB", {"bytes": 1572864, "instances": 1}),
    ],
)
def test_caches_are_read_as_lscpu_writes_them(text: str, expected: dict[str, int]) -> None:
    assert hardware._caches({"L2 cache": text}) == {"L2": expected}


def test_an_unknown_device_names_those_there_are() -> None:
    with pytest.raises(StudyError, match=r"no device 'gpu:7'.*Devices: cpu"):
        open_device("gpu:7")


def test_a_second_process_is_refused_while_one_measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("whatever")
    monkeypatch.setattr(lock, "lock_path", lambda: path)
    script = (
        "import sys, pathlib; from experiments import lock; "
        f"lock.lock_path = lambda: pathlib.Path({str(path)!r})\n"
        "with lock.node_lock(0):\n    print('held', flush=True); sys.stdin.read()"
    )
    root = str(Path(__file__).parents[2])
    holder = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StudyError, match="being measured by another process of yours"), lock.node_lock(0.1):
        pass
    holder.kill()
    holder.wait()
    # The lock died with its holder: no file has to be removed by hand.
    with lock.node_lock(5):
        assert path.read_text() == "whatever"


def test_the_lock_follows_no_link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    precious, path = tmp_path / "precious", tmp_path / "lock"
    precious.write_text("whatever")
    path.symlink_to(precious)
    monkeypatch.setattr(lock, "lock_path", lambda: path)
    with pytest.raises(OSError, match="symbolic links"), lock.node_lock(0):
        pass
    assert precious.read_text() == "whatever"


@pytest.mark.parametrize("instead", ["a link", "a file", "open to others"])
def test_a_lock_lies_in_a_folder_that_only_its_user_writes_to(
    instead: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lock, "PLACE", tmp_path)
    assert lock.lock_path().parent.stat().st_mode & 0o777 == 0o700
    folder = lock.lock_path().parent
    folder.rmdir()
    if instead == "a link":
        folder.symlink_to(tmp_path)
    elif instead == "a file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(StudyError, match="remove it"):
        lock.lock_path()


def test_run_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    out = str(tmp_path / "x.parquet")
    with pytest.raises(StudyError, match=r"no experiment 'gem'.*Did you mean 'gemm'\?"):
        main(["run", "gem", "--out", out])
    with pytest.raises(StudyError, match="argument --round: '0' is not a whole number from 1"):
        main(["run", "gemm", "--round", "0", "--out", out])
    with pytest.raises(StudyError, match=r"name a \.parquet file"):
        main(["run", "gemm", "--out", str(tmp_path / "x.csv")])
    with pytest.raises(StudyError, match="no device 'cuda:9'"):
        main(["run", "gemm", "--device", "cuda:9", "--out", out])
    assert list(tmp_path.iterdir()) == []


def test_the_record_shows_the_kernels_that_libraries_choose_themselves() -> None:
    words = [sys.executable, "-m", "experiments", "probe"]
    root = Path(__file__).parents[2]

    def architectures(extra: dict[str, str]) -> list[str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OPENBLAS")} | extra
        seen = subprocess.run(words, capture_output=True, text=True, check=True, cwd=root, env=environment)
        return sorted(pool.get("architecture", "") for pool in json.loads(seen.stdout)["software"]["blas"])

    assert architectures({"OPENBLAS_CORETYPE": "Prescott"}) == architectures({})
