"""Cores, quotas and memory that a process may use, from the kernel's files of machines with synthetic topologies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from contract import ending
from contract.node import NODE_SCHEMA
from contract.schema import check
from experiments import counters, hardware, memory, processor, topology
from experiments.devices.cpu import CpuDevice
from experiments.doctor import machine
from experiments.doctor.machine import kinds_of_cores
from experiments.registry import get
from experiments.topology import CPUS, cpu_list, kinds_of_core, physical_cores, written_list
from experiments.worker import Skipped, _fits_memory

Tree = Callable[[dict[str, str]], Path]
GIB = 2**30


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """Writes files of the kernel under a root of the test's own."""

    def write(files: dict[str, str]) -> Path:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{content}\n")
        return tmp_path

    yield write
    for cached in (counters.cgroups, topology.physical_cores, topology.cpuinfo, topology.online_cpus):
        cached.cache_clear()


def siblings(cores: list[str], file: str = "thread_siblings_list") -> dict[str, str]:
    """The kernel's files for cores with these logical CPUs."""
    return {f"{CPUS}/cpu{cpu}/topology/{file}": core for core in cores for cpu in cpu_list(core)}


def ids(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The kernel's files for CPUs with these numbers of their socket and core."""
    names = ("physical_package_id", "core_id")
    return {
        f"{CPUS}/cpu{cpu}/topology/{name}": number
        for cpu, pair in enumerate(pairs)
        for name, number in zip(names, pair, strict=True)
    }


def x86(pairs: list[tuple[int, int]]) -> str:
    """/proc/cpuinfo of CPUs with these numbers of their socket and core."""
    return "\n\n".join(
        f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nphysical id\t: {socket}\ncore id\t\t: {core}"
        for cpu, (socket, core) in enumerate(pairs)
    )


SMT_64 = siblings([f"{core},{core + 32}" for core in range(32)])
PARTLY = siblings(["0-1", *map(str, range(2, 17))], "core_cpus_list")
HYBRID = siblings([f"{2 * core}-{2 * core + 1}" for core in range(8)] + [str(cpu) for cpu in range(16, 20)])
NOTHING: list[tuple[str, str]] = [("-1", "-1")] * 8


@pytest.mark.parametrize(
    ("files", "allowed", "cores", "known"),
    [
        (SMT_64, "0-7", 8, True),
        (SMT_64, "0-7,32-39", 8, True),
        (SMT_64, "0-63", 32, True),
        (SMT_64, "5,37", 1, True),
        (PARTLY, "0-16", 16, True),
        (HYBRID, "0-19", 12, True),
        (HYBRID, "0-15", 8, True),
        (HYBRID, "1,3,16-19", 6, True),
        (ids([("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]), "0-3", 4, True),
        (ids([("0", "0"), ("0", "0"), ("0", "4"), ("0", "4")]), "0-3", 2, True),
        (ids([("0", "0"), ("0", "1")]) | {f"{CPUS}/cpu0/topology/core_cpus_list": "garbage"}, "0-1", 2, True),
        ({"proc/cpuinfo": x86([(0, 0), (0, 1), (0, 0), (0, 1)])}, "0-3", 2, True),
        ({"proc/cpuinfo": x86([(0, 0), (0, 1), (1, 0), (1, 1)])}, "1-3", 3, True),
        ({"proc/cpuinfo": "processor\t: 0\nCPU part\t: 0xd03\n\nprocessor\t: 1\nCPU part\t: 0xd03"}, "0-1", 2, False),
        (ids(NOTHING), "0-7", 8, False),
        ({}, "0-95", 96, False),
        (siblings(["2-3"]), "0-3", 3, False),
    ],
    ids=[
        "one thread of each core", "both threads", "all", "two threads of a core", "SMT partly offline",
        "hybrid", "performance cores", "some of each", "core numbers again in each socket", "adjacent threads",
        "an unreadable list", "/proc/cpuinfo", "/proc/cpuinfo, two sockets", "an Arm board", "numbers below 0",
        "no files", "of some CPUs",
    ],
)  # fmt: skip
def test_cores_are_counted_for_the_cpus_that_a_process_may_use(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], allowed: str, cores: int, known: bool
) -> None:
    found = physical_cores(frozenset(cpu_list(allowed)), tree(files))
    assert (len(found.groups), found.known) == (cores, known)
    assert sorted(cpu for group in found.groups for cpu in group) == sorted(cpu_list(allowed))
    monkeypatch.setattr("platform.system", lambda: "Linux")
    assert processor.usable_cores(cpu_list(allowed), None, tree({})) == cores
    record = processor.describe(cpu_list(allowed), None, tree({}), lambda *_: b"")
    assert ("CPUs that share a core" in record["unknown"]) is not known
    check(record, NODE_SCHEMA["properties"]["hardware"]["properties"]["cpu"], "cpu")


@pytest.mark.parametrize(("physical", "cores"), [(4, 4), (None, 8), (16, 8)])
def test_other_systems_say_how_many_cores_they_have(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, physical: int | None, cores: int
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Windows")
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 8 if logical else physical)
    assert processor.usable_cores(range(8), None, tree({})) == cores


@pytest.mark.parametrize(
    ("words", "cpus"),
    [("0-2,5", {0, 1, 2, 5}), ("", set()), ("7", {7}), ("3-1", set()), ("0-99999999", set()), ("a-b", set()),
     ("-1", set()), ("0,\x00", set())],
)  # fmt: skip
def test_lists_of_cpus_are_read_or_empty(words: str, cpus: set[int]) -> None:
    assert cpu_list(words) == cpus
    assert cpu_list(written_list(cpus)) == cpus


def test_intels_kinds_of_core_are_told_by_their_counters(tree: Tree) -> None:
    root = tree({**HYBRID, "sys/devices/cpu_core/cpus": "0-15", "sys/devices/cpu_atom/cpus": "16-19"})
    every = frozenset(range(20))
    assert kinds_of_core(every, root) == {"performance": frozenset(range(16)), "efficiency": frozenset(range(16, 20))}
    assert kinds_of_core(frozenset(range(16)), root) == {}
    told = kinds_of_cores(root, every)
    assert told and told.seen == "performance: CPUs 0-15; efficiency: CPUs 16-19"
    assert kinds_of_cores(root, range(16)) is None
    kinds = processor.describe(range(16), None, tree({f"{CPUS}/online": "0-19"}), lambda *_: b"")["kinds"]
    assert kinds == [
        {"name": "performance", "cores": 8, "usable_cores": 8},
        {"name": "efficiency", "cores": 4, "usable_cores": 0},
    ]


def kind_of(monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int = 4) -> str:
    """The kind of a machine of `cores` cores, four of them by default, with a quota."""
    record = processor.describe(
        range(cores), quota, Path("nowhere"), lambda *_: b'{"field":"Model name","data":"Chip"}'
    )
    check(record, NODE_SCHEMA["properties"]["hardware"]["properties"]["cpu"], "cpu")
    assert record.get("quota") == (quota if quota is not None and quota < cores else None)
    monkeypatch.setattr(hardware, "cpu", lambda: record)
    monkeypatch.setattr("experiments.gpus.list_gpus", list)
    return hardware.kind()


def test_a_quota_below_the_cores_is_part_of_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    free = kind_of(monkeypatch, None)
    limits = {quota: kind_of(monkeypatch, quota) for quota in (0.5, 1.5, 1.99, 2.0, 3.999)}
    assert len({free, *limits.values()}) == 6
    assert kind_of(monkeypatch, 4.0) == kind_of(monkeypatch, 64.0) == free
    assert limits[0.5].startswith("chip-1c-quota-0-5-")
    assert limits[2.0].startswith("chip-2c-quota-2-")
    assert limits[2.0] != kind_of(monkeypatch, None, cores=2)
    for kind in limits.values():
        check(kind, NODE_SCHEMA["properties"]["kind"], "kind")


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "50000 100000"}, 0.5),
        ({"cpu.max": "150000"}, 1.5),
        ({"cpu.max": "max 100000", "a/cpu.max": "199000 100000", "a/b/cpu.max": "max"}, 1.99),
        ({"cpu.max": "50000 100000", "a/b/cpu.max": "400000 100000"}, 0.5),
        ({"cpu.max": "nonsense", "a/cpu.max": "-1 100000"}, None),
        ({"cpu.max": "50000 0"}, None),
    ],
)
def test_the_smallest_quota_on_the_way_counts(tree: Tree, files: dict[str, str], quota: float | None) -> None:
    root = tree({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.stat": "", "sys/fs/cgroup/cpu.stat": ""})
    tree({f"sys/fs/cgroup/{name}": content for name, content in files.items()})
    assert counters.quota(root) == quota


@pytest.mark.parametrize("group", [f"0::/{'a' * 300}", "0::/a\0b", "0::/../..", "::", "x"])
def test_a_cgroup_that_cannot_be_looked_up_sets_no_limit(tree: Tree, group: str) -> None:
    root = tree({"proc/self/cgroup": group, "sys/fs/cgroup/cpu.max": "150000 100000"})
    assert counters.quota(root) in (None, 1.5)


def test_pools_are_no_larger_than_a_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    for granted, workers in ((None, 8), (0.5, 1), (1.5, 2), (64.0, 8)):
        monkeypatch.setattr("contract.cgroups.quota", lambda granted=granted: granted)
        assert ending.available_cpus() == workers


STAT_2 = f"anon 1\ninactive_file {GIB // 2}\nactive_file {GIB // 4}\nslab_reclaimable 0"
STAT_1 = f"cache 5\ninactive_file 7\nhierarchical_memory_limit {3 * GIB}\ntotal_inactive_file {GIB // 2}"
UNLIMITED = f"{2**63 - 4096}"


@pytest.mark.parametrize(
    ("cgroup", "files", "total", "available"),
    [
        ("0::/a/b", {"a/memory.max": f"{2 * GIB}", "a/b/memory.max": "max"}, 2, 2),
        ("0::/a/b", {"a/memory.max": f"{2 * GIB}", "a/b/memory.max": f"{6 * GIB}", "a/memory.current": f"{GIB}"}, 2, 1),
        ("0::/a", {"a/memory.max": f"{2 * GIB}", "a/memory.current": f"{GIB}", "a/memory.stat": STAT_2}, 2, 1.75),
        ("0::/a/b", {"a/b/memory.high": f"{GIB}", "a/b/memory.max": f"{2 * GIB}"}, 1, 1),
        ("0::/host/a", {"memory.max": f"{2 * GIB}", "memory.current": f"{3 * GIB}"}, 2, 0),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": f"{2 * GIB}", "memory/a/memory.usage_in_bytes": f"{GIB}",
                         "memory/a/memory.stat": STAT_1}, 2, 1.5),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": UNLIMITED, "memory/a/memory.stat": STAT_1}, 3, 3),
        ("4:hugetlb,memory:/docker/x/in", {"memory/in/memory.limit_in_bytes": f"{GIB}",
                                           "memory/memory.limit_in_bytes": f"{2 * GIB}"}, 1, 1),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": "(null)", "memory/a/memory.stat": "odd"}, 8, 6),
        ("0::/a", {"a/memory.max": "max"}, 8, 6),
        ("rubbish", {}, 8, 6),
    ],
    ids=[
        "of an outer one", "the smaller of two", "cache is free", "throttled from there on", "as the host sees it",
        "version 1", "version 1, an outer one unseen", "version 1, inside a container", "unreadable", "no limit",
        "no group",
    ],
)  # fmt: skip
def test_memory_is_the_smallest_of_the_machine_and_its_cgroups(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, cgroup: str, files: dict[str, str], total: float, available: float
) -> None:
    root = tree({"proc/self/cgroup": cgroup} | {f"sys/fs/cgroup/{name}": content for name, content in files.items()})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=8 * GIB, available=6 * GIB))
    assert (memory.total_bytes(root), memory.available_bytes(root)) == (total * GIB, available * GIB)


def test_points_beyond_a_cgroups_limit_are_skipped_and_doctor_says_the_limit(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/memory.max": f"{1.5 * GIB:.0f}"})
    plenty = SimpleNamespace(total=64 * GIB, available=60 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: plenty)
    available = memory.available_bytes(root)
    monkeypatch.setattr(memory, "available_bytes", lambda: available)
    triad = get("bandwidth")
    with pytest.raises(Skipped, match=r"memory: needs 2\.\d GiB, 1\.5 GiB are free"):
        _fits_memory(triad, {}, CpuDevice(), 2.4e9)
    _fits_memory(triad, {}, CpuDevice(), 0.5e9)
    told = machine.memory(available, memory.total_bytes(root), None, plenty.total)
    assert told.seen == "1.5 of 1.5 GiB available, by the limit of a cgroup (the machine has 64.0 GiB)"
