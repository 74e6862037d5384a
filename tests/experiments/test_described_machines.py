"""Processors from public reports on real machines (tests/experiments/machines), and limits on cores and memory.

A report contains only the fields that the study reads, for example:

kernel: contents of files below /sys. `kernel.cores` has a list of CPUs for each core. A cache with the value `cores`
has these same lists, because each core has its own such cache.
usable: the number of physical cores for each list of allowed CPUs
caches: for each level, the KiB of all caches together and the number of caches
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract import child_processes
from contract.node import NODE_SCHEMA
from contract.schema import check_document
from experiments import counters, hardware, lscpu, memory_limit, processor
from experiments.doctor.machine_checks import kinds_of_cores
from experiments.topology import CPUS, core_kinds, format_cpu_list, parse_cpu_list, physical_cores
from tests.experiments.conftest import Tree

MACHINES = {
    path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (Path(__file__).parent / "machines").iterdir()
}
CPU = NODE_SCHEMA["properties"]["hardware"]["properties"]["cpu"]
Ask = Callable[..., bytes]


def kernel_files(machine: dict[str, Any]) -> dict[str, str]:
    kernel, files = machine.get("kernel", {}), {}
    if "online" in kernel:
        files[f"{CPUS}/online"] = kernel["online"]
    for cpus in kernel.get("cores", "").split():
        files |= {f"{CPUS}/cpu{cpu}/topology/thread_siblings_list": cpus for cpu in parse_cpu_list(cpus)}
    for package, cpus in kernel.get("packages", {}).items():
        files |= {f"{CPUS}/cpu{cpu}/topology/physical_package_id": f"{package}" for cpu in parse_cpu_list(str(cpus))}
    for index, (name, lists) in enumerate(kernel.get("caches", {}).items()):
        level, size = name.split()
        for cpus in str(kernel["cores"] if lists == "cores" else lists).split():
            for cpu in parse_cpu_list(cpus):
                folder = f"{CPUS}/cpu{cpu}/cache/index{index}"
                files[f"{folder}/level"], files[f"{folder}/size"] = level[1], size
                files[f"{folder}/type"] = {"d": "Data", "i": "Instruction"}.get(level[2:], "Unified")
                files[f"{folder}/shared_cpu_list"] = cpus
    for name, cpus in kernel.get("counters", {}).items():
        files[f"sys/devices/{name}/cpus"] = cpus
    if "cpuinfo" in machine:
        files["proc/cpuinfo"] = "\n\n".join(
            "\n".join([f"processor\t: {cpu}", *(f"{key}\t: {value}" for key, value in entry.items() if key != "cpus")])
            for entry in machine["cpuinfo"]
            for cpu in sorted(parse_cpu_list(str(entry["cpus"])))
        )
    return files


def program_answers(machine: dict[str, Any], in_json: bool) -> Ask:
    """Return a stand-in for the machine's sysctl and its lscpu, which prints JSON only if `in_json`."""
    text = machine.get("lscpu", "")
    fields = lscpu.lscpu_fields(text.encode())
    form = json.dumps({"lscpu": [{"field": f"{name}:", "data": value} for name, value in fields]})

    def ask(*command: str) -> bytes:
        if command == ("lscpu", "-J"):
            return form.encode() if in_json and fields else b""
        return str({"lscpu": text, "sysctl": machine.get("sysctl", "")}[command[0]]).encode()

    return ask


@pytest.mark.parametrize("name", MACHINES)
def test_reports_on_real_machines_give_the_expected_record(
    name: str, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, expected = MACHINES[name], MACHINES[name]["expect"]
    root = tree(kernel_files(machine))
    if "sysctl" in machine:
        monkeypatch.setattr("platform.system", lambda: "Darwin")
        monkeypatch.setattr(psutil, "cpu_count", lambda logical: max(expected["usable"].values()))
    for index, (allowed, usable) in enumerate(expected["usable"].items()):
        cpus = parse_cpu_list(str(allowed))
        record = processor.describe(cpus, None, root, program_answers(machine, in_json=True))
        assert record == processor.describe(cpus, None, root, program_answers(machine, in_json=False)), "an older lscpu"
        check_document(record, CPU, name)
        assert record["usable_cores"] == usable
        if index == 0:
            whole = record
    assert (whole.get("sockets"), whole.get("cores")) == (expected["sockets"], expected["cores"])
    assert whole.get("threads_per_core") == expected["threads"]
    assert {kind["name"]: kind["cores"] for kind in whole.get("kinds", [])} == expected.get("kinds", {})
    assert whole.get("virtual", False) == expected.get("virtual", False)
    caches = {level: [cache["bytes"] / 1024, cache["instances"]] for level, cache in whole.get("caches", {}).items()}
    assert caches == expected.get("caches", {})
    assert set(whole.get("unknown", [])) >= set(expected.get("unknown", []))
    assert not whole.keys() & set(whole.get("unknown", [])) - {"model"}
    monkeypatch.setattr(hardware, "cpu", lambda: whole)
    monkeypatch.setattr("experiments.gpus.list_gpus", list)
    kind = hardware.machine_kind()
    check_document(kind, NODE_SCHEMA["properties"]["kind"], "kind")
    assert kind.startswith(expected["kind"] or "")
    assert kind.isascii()


@pytest.mark.parametrize(
    ("flags", "vendor", "virtual"),
    [("fpu hypervisor", "", True), ("fpu", "Microsoft", True), ("fpu", "", False), ("", "", False)],
)
def test_virtual_machine_is_known_by_its_flag_or_its_hypervisor(
    tree: Tree, flags: str, vendor: str, virtual: bool
) -> None:
    machine = {
        "cpuinfo": [{"cpus": "0-1", "flags": flags}],
        "lscpu": "Architecture: x86_64\n" + f"Hypervisor vendor: {vendor}\n" * bool(vendor),
    }
    record = processor.describe(range(2), None, tree(kernel_files(machine)), program_answers(machine, in_json=False))
    assert record["virtual"] is virtual


def test_simd_extensions_on_a_mac_come_from_sysctl(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    arm = {"hw.optional.arm.FEAT_BF16": 1, "hw.optional.arm.FEAT_SME": 0, "hw.optional.AdvSIMD": 1}
    intel = {"machdep.cpu.features": "SSE4.2 AVX1.0", "machdep.cpu.leaf7_features": "AVX2"}
    for values, expected in ((arm, ["asimd", "bf16"]), (intel, ["avx", "avx2", "sse4_2"])):
        printed = {"sysctl": "".join(f"{name}: {value}\n" for name, value in values.items())}
        assert processor.describe([0], None, tree({}), program_answers(printed, in_json=False))["simd"] == expected


@pytest.mark.parametrize(
    ("lscpu_values", "cores", "sockets", "threads"),
    [
        ({}, 4, 2, 2),
        ({"CPU(s)": "64"}, 4, 2, 2),
        ({"CPU(s)": "8", "Core(s) per socket": "99", "Socket(s)": "0", "Thread(s) per core": "7"}, 4, 2, 2),
        ({"CPU(s)": "64", "Core(s) per socket": "1", "Socket(s)": "1", "Thread(s) per core": "(null)"}, 4, 1, 2),
        ({"CPU(s)": "64", "Core(s) per socket": "16", "Socket(s)": "2", "Thread(s) per core": "2"}, 32, 2, 2),
    ],
    ids=["nothing", "CPUs alone", "more cores than CPUs", "fewer than the kernel", "a machine that is partly hidden"],
)
def test_lscpu_wins_if_it_reports_more_than_the_kernel_and_is_consistent(
    lscpu_values: dict[str, str], cores: int, sockets: int, threads: int, tree: Tree
) -> None:
    kernel = {"online": "0-7", "cores": "0,4 1,5 2,6 3,7", "packages": {0: "0-1,4-5", 1: "2-3,6-7"}}
    text = "\n".join(f"{name}: {value}" for name, value in lscpu_values.items())
    record = processor.describe(
        range(8), None, tree(kernel_files({"kernel": kernel})), program_answers({"lscpu": text}, in_json=True)
    )
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
    lambda inner: st.builds(lambda field, children: {**field, "children": children}, FIELD, st.lists(inner)),
    max_leaves=20,
)
OTHERS = [
    "processor", "vendor_id", "cpu family", "model", "model name", "physical id", "core id", "flags", "Features",
    "CPU implementer", "CPU part", "uarch", "machdep.cpu.brand_string", "machdep.cpu.features", "hw.packages",
    "hw.physicalcpu", "hw.logicalcpu", "hw.perflevel0.physicalcpu", "hw.perflevel1.physicalcpu", "hw.perflevel1.name",
    "hw.perflevel0.l2cachesize", "hw.perflevel0.cpusperl2", "hw.optional.arm.FEAT_BF16",
]  # fmt: skip


def draw_lines(names: list[str]) -> st.SearchStrategy[bytes]:
    """Draw lines `name: value` with unusual or invalid values."""
    pairs = st.lists(st.tuples(st.sampled_from(names), ODD), max_size=30)
    return pairs.map(lambda drawn: "\n".join(f"{name}: {value}" for name, value in drawn).encode("utf-8", "replace"))


OTHER = st.one_of(st.just(b""), draw_lines(OTHERS), st.binary(max_size=100))
PRINTED = st.one_of(
    st.just(b""),
    st.lists(NESTED, max_size=30).map(lambda fields: json.dumps({"lscpu": fields}).encode()),
    draw_lines(NAMES),
    ODD.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=200),
    st.just(b'{"lscpu":' * 100_000),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(printed=PRINTED, info=OTHER, mac=OTHER)
def test_any_program_output_gives_a_valid_record(
    printed: bytes, info: bytes, mac: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_bytes(info)
    outputs = {"lscpu": printed, "sysctl": mac}
    with pytest.MonkeyPatch.context() as patch:
        record = processor.describe({0, 1}, None, root, lambda command, *_: outputs[command])
        check_document(record, CPU, "cpu")
        json.dumps(record, ensure_ascii=False).encode("utf-8")
        assert record["usable_cores"] == 2
        patch.setattr(hardware, "cpu", lambda: record)
        patch.setattr("experiments.gpus.list_gpus", list)
        check_document(hardware.machine_kind(), NODE_SCHEMA["properties"]["kind"], "kind")


@pytest.mark.parametrize(
    "printed", ["yes lscpu", "printf '\\377\\376 Model name: x'", "exit 3", "printf '{\"lscpu\": 1}'"]
)
def test_misbehaving_lscpu_gives_a_valid_record(printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "lscpu"
    program.write_text(f"#!/bin/sh\n{printed}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(lscpu, "_LONGEST_S", 0.5)
    record = processor.describe({0}, None, tmp_path)
    check_document(record, CPU, "cpu")
    assert "sockets" in record["unknown"]


GIB = 2**30


def sibling_files(cores: list[str]) -> dict[str, str]:
    """Return kernel files for cores, given as lists of logical CPUs."""
    return {f"{CPUS}/cpu{cpu}/topology/thread_siblings_list": core for core in cores for cpu in parse_cpu_list(core)}


def core_id_files(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return kernel files for CPUs with these pairs of socket and core number."""
    names = ("physical_package_id", "core_id")
    return {
        f"{CPUS}/cpu{cpu}/topology/{name}": number
        for cpu, pair in enumerate(pairs)
        for name, number in zip(names, pair, strict=True)
    }


def x86_cpuinfo(pairs: list[tuple[int, int]]) -> str:
    """Format /proc/cpuinfo for CPUs with these pairs of socket and core number."""
    return "\n\n".join(
        f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nphysical id\t: {socket}\ncore id\t\t: {core}"
        for cpu, (socket, core) in enumerate(pairs)
    )


SMT_64 = sibling_files([f"{core},{core + 32}" for core in range(32)])
HYBRID = sibling_files([f"{2 * core}-{2 * core + 1}" for core in range(8)] + [str(cpu) for cpu in range(16, 20)])
NOTHING: list[tuple[str, str]] = [("-1", "-1")] * 8


@pytest.mark.parametrize(
    ("files", "allowed", "cores", "known"),
    [
        (SMT_64, "0-7,32-39", 8, True),
        (SMT_64, "5,37", 1, True),
        (HYBRID, "1,3,16-19", 6, True),
        (core_id_files([("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]), "0-3", 4, True),
        (core_id_files([("0", "0"), ("0", "1")]) | {f"{CPUS}/cpu0/topology/core_cpus_list": "garbage"}, "0-1", 2, True),
        ({"proc/cpuinfo": x86_cpuinfo([(0, 0), (0, 1), (1, 0), (1, 1)])}, "1-3", 3, True),
        ({"proc/cpuinfo": "processor\t: 0\nCPU part\t: 0xd03\n\nprocessor\t: 1\nCPU part\t: 0xd03"}, "0-1", 2, False),
        (core_id_files(NOTHING), "0-7", 8, False),
        ({}, "0-95", 96, False),
        (sibling_files(["2-3"]), "0-3", 3, False),
    ],
    ids=[
        "both threads", "two threads of a core", "some of each kind", "core numbers again in each socket",
        "an unreadable list", "/proc/cpuinfo", "an Arm board", "numbers below 0", "no files", "of some CPUs",
    ],
)  # fmt: skip
def test_cores_are_counted_within_the_allowed_cpus(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], allowed: str, cores: int, known: bool
) -> None:
    result = physical_cores(frozenset(parse_cpu_list(allowed)), tree(files))
    assert (len(result.groups), result.known) == (cores, known)
    assert sorted(cpu for group in result.groups for cpu in group) == sorted(parse_cpu_list(allowed))
    monkeypatch.setattr("platform.system", lambda: "Linux")
    assert processor.usable_cores(parse_cpu_list(allowed), None, tree({})) == cores
    record = processor.describe(parse_cpu_list(allowed), None, tree({}), lambda *_: b"")
    assert ("CPUs that share a core" in record["unknown"]) is not known
    check_document(record, NODE_SCHEMA["properties"]["hardware"]["properties"]["cpu"], "cpu")


@pytest.mark.parametrize(("physical", "cores"), [(4, 4), (None, 8), (16, 8)])
def test_other_systems_report_their_core_count(
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
def test_invalid_cpu_lists_are_empty(words: str, cpus: set[int]) -> None:
    assert parse_cpu_list(words) == cpus
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus


def test_intels_kinds_of_core_have_separate_counters(tree: Tree) -> None:
    root = tree({**HYBRID, "sys/devices/cpu_core/cpus": "0-15", "sys/devices/cpu_atom/cpus": "16-19"})
    every = frozenset(range(20))
    assert core_kinds(every, root) == {"performance": frozenset(range(16)), "efficiency": frozenset(range(16, 20))}
    assert core_kinds(frozenset(range(16)), root) == {}
    finding = kinds_of_cores(root, every)
    assert finding and finding.seen == "performance: CPUs 0-15; efficiency: CPUs 16-19"
    assert kinds_of_cores(root, range(16)) is None
    kinds = processor.describe(range(16), None, tree({f"{CPUS}/online": "0-19"}), lambda *_: b"")["kinds"]
    assert kinds == [
        {"name": "performance", "cores": 8, "usable_cores": 8},
        {"name": "efficiency", "cores": 4, "usable_cores": 0},
    ]


def kind_with_quota(monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int = 4) -> str:
    """Return the kind of a machine with this CPU quota and, by default, four cores."""
    record = processor.describe(
        range(cores), quota, Path("nowhere"), lambda *_: b'{"field":"Model name","data":"Chip"}'
    )
    check_document(record, NODE_SCHEMA["properties"]["hardware"]["properties"]["cpu"], "cpu")
    assert record.get("quota") == (quota if quota is not None and quota < cores else None)
    monkeypatch.setattr(hardware, "cpu", lambda: record)
    monkeypatch.setattr("experiments.gpus.list_gpus", list)
    return hardware.machine_kind()


def test_quota_below_the_core_count_is_part_of_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    free = kind_with_quota(monkeypatch, None)
    limits = {quota: kind_with_quota(monkeypatch, quota) for quota in (0.5, 1.5, 1.99, 2.0, 3.999)}
    assert len({free, *limits.values()}) == 6
    assert kind_with_quota(monkeypatch, 4.0) == kind_with_quota(monkeypatch, 64.0) == free
    assert limits[0.5].startswith("chip-1c-quota-0-5-")
    assert limits[2.0].startswith("chip-2c-quota-2-")
    assert limits[2.0] != kind_with_quota(monkeypatch, None, cores=2)
    for kind in limits.values():
        check_document(kind, NODE_SCHEMA["properties"]["kind"], "kind")


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
def test_smallest_quota_among_parent_cgroups_counts(tree: Tree, files: dict[str, str], quota: float | None) -> None:
    root = tree({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.stat": "", "sys/fs/cgroup/cpu.stat": ""})
    tree({f"sys/fs/cgroup/{name}": content for name, content in files.items()})
    assert counters.cpu_quota(root) == quota


@pytest.mark.parametrize("group", [f"0::/{'a' * 300}", "0::/a\0b", "0::/../..", "::", "x"])
def test_unreadable_cgroup_sets_no_limit(tree: Tree, group: str) -> None:
    root = tree({"proc/self/cgroup": group, "sys/fs/cgroup/cpu.max": "150000 100000"})
    assert counters.cpu_quota(root) in (None, 1.5)


def test_worker_pools_are_no_larger_than_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    for granted, workers in ((None, 8), (0.5, 1), (1.5, 2), (64.0, 8)):
        monkeypatch.setattr("contract.cgroups.cpu_quota", lambda granted=granted: granted)
        assert child_processes.available_cpus() == workers


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
def test_memory_is_the_smallest_limit_from_machine_and_cgroups(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, cgroup: str, files: dict[str, str], total: float, available: float
) -> None:
    root = tree({"proc/self/cgroup": cgroup} | {f"sys/fs/cgroup/{name}": content for name, content in files.items()})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=8 * GIB, available=6 * GIB))
    assert (memory_limit.total_bytes(root), memory_limit.available_bytes(root)) == (total * GIB, available * GIB)
