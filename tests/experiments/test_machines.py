"""Processors of real machines as public reports have them (tests/experiments/machines), and answers that are garbled.

Reports are shortened to the fields that are read. kernel: files below /sys; `cores` in place of a list of CPUs stands
for the lists of `kernel.cores`. usable: physical cores by the CPUs that a process may use. caches: KiB in all, and how
many there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.node import NODE_SCHEMA
from contract.schema import check
from experiments import hardware, lscpu, processor, topology
from experiments.topology import CPUS, cpu_list

MACHINES = {
    path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (Path(__file__).parent / "machines").iterdir()
}
CPU = NODE_SCHEMA["properties"]["hardware"]["properties"]["cpu"]
Ask = Callable[..., bytes]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Forget what was read of other machines."""
    yield
    for cached in (topology.physical_cores, topology.cpuinfo, topology.online_cpus):
        cached.cache_clear()


def write_kernel(machine: dict[str, Any], root: Path) -> None:
    """Write the files of the kernel that a report tells of."""
    kernel, files = machine.get("kernel", {}), {}
    if "online" in kernel:
        files[f"{CPUS}/online"] = kernel["online"]
    for cpus in kernel.get("cores", "").split():
        files |= {f"{CPUS}/cpu{cpu}/topology/thread_siblings_list": cpus for cpu in cpu_list(cpus)}
    for package, cpus in kernel.get("packages", {}).items():
        files |= {f"{CPUS}/cpu{cpu}/topology/physical_package_id": f"{package}" for cpu in cpu_list(str(cpus))}
    for index, (name, lists) in enumerate(kernel.get("caches", {}).items()):
        level, size = name.split()
        for cpus in str(kernel["cores"] if lists == "cores" else lists).split():
            for cpu in cpu_list(cpus):
                folder = f"{CPUS}/cpu{cpu}/cache/index{index}"
                files[f"{folder}/level"], files[f"{folder}/size"] = level[1], size
                files[f"{folder}/type"] = {"d": "Data", "i": "Instruction"}.get(level[2:], "Unified")
                files[f"{folder}/shared_cpu_list"] = cpus
    for counters, cpus in kernel.get("counters", {}).items():
        files[f"sys/devices/{counters}/cpus"] = cpus
    if "cpuinfo" in machine:
        files["proc/cpuinfo"] = "\n\n".join(
            "\n".join([f"processor\t: {cpu}", *(f"{key}\t: {value}" for key, value in one.items() if key != "cpus")])
            for one in machine["cpuinfo"]
            for cpu in sorted(cpu_list(str(one["cpus"])))
        )
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")


def answers(machine: dict[str, Any], in_json: bool) -> Ask:
    """The machine's lscpu, new enough for JSON or not, and its sysctl."""
    text = machine.get("lscpu", "")
    fields = lscpu.lscpu_fields(text.encode())
    form = json.dumps({"lscpu": [{"field": f"{name}:", "data": value} for name, value in fields]})

    def ask(*command: str) -> bytes:
        if command == ("lscpu", "-J"):
            return form.encode() if in_json and fields else b""
        return str({"lscpu": text, "sysctl": machine.get("sysctl", "")}[command[0]]).encode()

    return ask


def test_there_are_many_machines_of_all_sorts() -> None:
    assert len(MACHINES) >= 50
    assert all("/" in machine["source"] for machine in MACHINES.values())


@pytest.mark.parametrize("name", MACHINES)
def test_real_machines_are_described_as_they_are(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, expected = MACHINES[name], MACHINES[name]["expect"]
    write_kernel(machine, tmp_path)
    if "sysctl" in machine:
        monkeypatch.setattr("platform.system", lambda: "Darwin")
        monkeypatch.setattr(psutil, "cpu_count", lambda logical: max(expected["usable"].values()))
    for place, (allowed, usable) in enumerate(expected["usable"].items()):
        cpus = cpu_list(str(allowed))
        record = processor.describe(cpus, None, tmp_path, answers(machine, in_json=True))
        assert record == processor.describe(cpus, None, tmp_path, answers(machine, in_json=False)), "an older lscpu"
        check(record, CPU, name)
        assert record["usable_cores"] == usable
        if place == 0:
            whole = record
    assert (whole.get("sockets"), whole.get("cores")) == (expected["sockets"], expected["cores"])
    assert whole.get("threads_per_core") == expected["threads"]
    assert {kind["name"]: kind["cores"] for kind in whole.get("kinds", [])} == expected.get("kinds", {})
    caches = {level: [cache["bytes"] / 1024, cache["instances"]] for level, cache in whole.get("caches", {}).items()}
    assert caches == expected.get("caches", {})
    assert set(whole.get("unknown", [])) >= set(expected.get("unknown", []))
    assert not whole.keys() & set(whole.get("unknown", [])) - {"model"}
    monkeypatch.setattr(hardware, "cpu", lambda: whole)
    monkeypatch.setattr("experiments.gpus.list_gpus", list)
    kind = hardware.kind()
    check(kind, NODE_SCHEMA["properties"]["kind"], "kind")
    assert kind.startswith(expected["kind"] or "")
    assert kind.isascii()


@pytest.mark.parametrize(
    ("told", "cores", "sockets", "threads"),
    [
        ({}, 4, 2, 2),
        ({"CPU(s)": "64"}, 4, 2, 2),
        ({"CPU(s)": "8", "Core(s) per socket": "99", "Socket(s)": "0", "Thread(s) per core": "7"}, 4, 2, 2),
        ({"CPU(s)": "64", "Core(s) per socket": "1", "Socket(s)": "1", "Thread(s) per core": "(null)"}, 4, 1, 2),
        ({"CPU(s)": "64", "Core(s) per socket": "16", "Socket(s)": "2", "Thread(s) per core": "2"}, 32, 2, 2),
    ],
    ids=[
        "nothing",
        "CPUs alone",
        "more cores than CPUs",
        "fewer cores than the kernel",
        "a machine that is partly hidden",
    ],
)
def test_lscpu_is_believed_where_it_sees_more_than_the_kernel_and_fits_it(
    told: dict[str, str], cores: int, sockets: int, threads: int, tmp_path: Path
) -> None:
    kernel = {"online": "0-7", "cores": "0,4 1,5 2,6 3,7", "packages": {0: "0-1,4-5", 1: "2-3,6-7"}}
    text = "\n".join(f"{name}: {value}" for name, value in told.items())
    write_kernel({"kernel": kernel}, tmp_path)
    record = processor.describe(range(8), None, tmp_path, answers({"lscpu": text}, in_json=True))
    assert (record["cores"], record["sockets"], record["threads_per_core"]) == (cores, sockets, threads)


NAMES = [
    "Architecture", "CPU(s)", "On-line CPU(s) list", "Vendor ID", "Model name", "CPU family", "Model", "Flags",
    "Thread(s) per core", "Core(s) per socket", "Core(s) per cluster", "Socket(s)", "Cluster(s)", "Socket(s) per book",
    "Book(s) per drawer", "Drawer(s)", "Hypervisor vendor", "L1d cache", "L1i cache", "L2 cache", "L3 cache", "L3",
]  # fmt: skip
ODD = st.one_of(
    st.sampled_from(["-", "(null)", "", "0", "-1", "1", "2", "99999999999", "0x10", "1e9", "4,5", "0-99999999", "½",
                     "256K", "2 MiB (2 instances)", "0 KiB (0 instances)", "9 PiB (1 instance)", "1.2.3 MiB", "nan",
                     "sse2 avx512_" + "x" * 60, "\ud800", "A\x1b[31m\x00B", "unknown"]),
    st.text(max_size=300),
    st.none(), st.booleans(), st.integers(), st.floats(), st.lists(st.text(), max_size=2),
)  # fmt: skip
FIELD = st.fixed_dictionaries(
    {"field": st.sampled_from(NAMES).map(lambda name: f"{name}:") | st.text(max_size=20), "data": ODD}
)
NESTED = st.recursive(
    FIELD,
    lambda inner: st.builds(lambda one, several: {**one, "children": several}, FIELD, st.lists(inner)),
    max_leaves=20,
)
OTHERS = [
    "processor", "vendor_id", "cpu family", "model", "model name", "physical id", "core id", "flags", "Features",
    "CPU implementer", "CPU part", "uarch", "machdep.cpu.brand_string", "machdep.cpu.features", "hw.packages",
    "hw.physicalcpu", "hw.logicalcpu", "hw.perflevel0.physicalcpu", "hw.perflevel1.physicalcpu", "hw.perflevel1.name",
    "hw.perflevel0.l2cachesize", "hw.perflevel0.cpusperl2", "hw.optional.arm.FEAT_BF16",
]  # fmt: skip


def lines(names: list[str]) -> st.SearchStrategy[bytes]:
    """Lines `name: value` of these names and odd values."""
    pairs = st.lists(st.tuples(st.sampled_from(names), ODD), max_size=30)
    return pairs.map(lambda told: "\n".join(f"{name}: {value}" for name, value in told).encode("utf-8", "replace"))


OTHER = st.one_of(st.just(b""), lines(OTHERS), st.binary(max_size=100))
PRINTED = st.one_of(
    st.just(b""),
    st.lists(NESTED, max_size=30).map(lambda fields: json.dumps({"lscpu": fields}).encode()),
    lines(NAMES),
    ODD.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=200),
    st.just(b'{"lscpu":' * 100_000),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(printed=PRINTED, info=OTHER, mac=OTHER)
def test_no_answer_of_another_program_ends_the_record(
    printed: bytes, info: bytes, mac: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_bytes(info)
    told = {"lscpu": printed, "sysctl": mac}
    with pytest.MonkeyPatch.context() as patch:
        record = processor.describe({0, 1}, None, root, lambda command, *_: told[command])
        check(record, CPU, "cpu")
        json.dumps(record, ensure_ascii=False).encode("utf-8")
        assert record["usable_cores"] == 2
        patch.setattr(hardware, "cpu", lambda: record)
        patch.setattr("experiments.gpus.list_gpus", list)
        check(hardware.kind(), NODE_SCHEMA["properties"]["kind"], "kind")


@pytest.mark.parametrize(
    "printed", ["yes lscpu", "printf '\\377\\376 Model name: x'", "exit 3", "printf '{\"lscpu\": 1}'"]
)
def test_the_program_itself_may_do_what_it_likes(printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "lscpu"
    program.write_text(f"#!/bin/sh\n{printed}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(lscpu, "_LONGEST_S", 0.5)
    record = processor.describe({0}, None, tmp_path)
    check(record, CPU, "cpu")
    assert "sockets" in record["unknown"]
