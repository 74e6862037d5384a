"""Facts about machines: values, reasons for their absence, hostile texts, and privacy."""

from __future__ import annotations

import copy
import getpass
import platform
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.microarchitecture import microarchitecture
from contract.node import NODE_SCHEMA
from contract.schema import check_document
from experiments.machine_facts import FACTS, Machine, UnreadableError, add_facts, clean, read_facts
from experiments.topology import CPUS
from tests.experiments.conftest import Tree
from tests.experiments.test_node import RECORD

DMI = "sys/class/dmi/id"
TABLE = "sys/firmware/dmi/tables/DMI"
UUID, MAC, SERIAL = "4c4c4544-0051-3010-8052-b7c04f4e3732", "de:ad:be:ef:00:01", "S4N0NX0R123456"
SECRETS = {
    f"{DMI}/product_serial": SERIAL, f"{DMI}/board_serial": SERIAL, f"{DMI}/chassis_asset_tag": SERIAL,
    f"{DMI}/product_uuid": UUID, "sys/class/net/eth0/address": MAC, "etc/machine-id": UUID.replace("-", ""),
    "etc/hostname": "planted-host",
}  # fmt: skip
SERVER = {
    f"{CPUS}/online": "0-3",
    f"{CPUS}/smt/active": "1",
    **{f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor": "powersave" for cpu in range(4)},
    f"{CPUS}/cpu0/cpufreq/scaling_driver": "intel_pstate",
    f"{CPUS}/cpu0/cpufreq/base_frequency": "2000000",
    f"{CPUS}/cpu0/cpufreq/cpuinfo_min_freq": "800000",
    f"{CPUS}/cpu0/cpufreq/cpuinfo_max_freq": "3800000",
    f"{CPUS}/intel_pstate/no_turbo": "1",
    "proc/cpuinfo": "processor\t: 0\nmicrocode\t: 0x2b000603\ncpu MHz\t\t: 3800.123",
    "proc/meminfo": "MemTotal: 1 kB\nHugepagesize:       2048 kB",
    "proc/sys/vm/nr_hugepages": "512",
    "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
    "sys/devices/system/node/node0/cpulist": "0-1",
    "sys/devices/system/node/node1/cpulist": "2-3",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "sys/hypervisor/type": "xen",
    "etc/os-release": 'PRETTY_NAME="?"\nNAME="Rocky Linux"\nVERSION_ID="9.4"',
    f"{CPUS}/vulnerabilities/meltdown": "Mitigation: PTI",
    f"{DMI}/sys_vendor": "Amazon EC2",
    f"{DMI}/product_name": "m7i.large",
}
EMERALD = {"vendor": "GenuineIntel", "family": "6", "model_number": "207"}


def no_program(*_: str) -> bytes:
    return b""


def memory_table(*modules: tuple[int, int, str]) -> bytes:
    """Make an SMBIOS table from (type, speed, bank locator) for each module; each has a serial number."""
    table = bytes([0, 5, 0, 0, 1]) + b"A maker\0\0" + bytes([126, 4, 0, 0]) + b"\0\0"
    for kind, speed, bank in modules:
        body = bytearray(0x28)
        body[:2] = 17, len(body)
        struct.pack_into("<H", body, 0x0C, 32768 if speed else 0)
        body[0x10:0x13] = 1, 2, kind
        struct.pack_into("<H", body, 0x15, 5600)
        body[0x18] = 3
        struct.pack_into("<H", body, 0x20, speed)
        table += bytes(body) + f"DIMM_A1\0{bank}\0{SERIAL}\0\0".encode()
    return table


def record_with(facts: dict[str, Any], unreadable: dict[str, str]) -> dict[str, Any]:
    record = copy.deepcopy(RECORD) | {"schema": 2, "load_before": {"other_load": 0.0, "steal": 0.0}}
    record["software"]["backends"] = {}
    add_facts(record, facts)
    check_document({**record, "unreadable": unreadable}, NODE_SCHEMA, "record")
    return record


def test_facts_of_a_server(tree: Tree) -> None:
    root = tree(SERVER)
    (root / TABLE).parent.mkdir(parents=True)
    (root / TABLE).write_bytes(
        memory_table((0x22, 4800, "P0 CHANNEL A"), (0x22, 4400, "P0 CHANNEL B"), (0x22, 0, "P0 CHANNEL C"))
    )
    facts, unreadable = read_facts(Machine(EMERALD, root, no_program))
    record = record_with(facts, unreadable)
    hardware = record["hardware"]
    assert hardware["cpu"] | {
        "microarchitecture": "Emerald Rapids (Raptor Cove)", "microcode": "0x2b000603", "smt": "on",
        "governor": "powersave", "driver": "intel_pstate", "boost": False, "nominal_mhz": 2000.0, "min_mhz": 800.0,
        "max_mhz": 3800.0, "cpuinfo_mhz": 3800.123,
    } == hardware["cpu"]  # fmt: skip
    memory = {key: value for key, value in hardware["memory"].items() if key != "machine_bytes"}
    assert memory == {"type": "DDR5", "speed_mt_s": 4400, "modules": 2, "channels": 2}
    assert hardware["huge_pages"] == {"transparent": "always", "reserved": 512, "size_kb": 2048}
    assert (hardware["numa_nodes"], hardware["clock_source"], hardware["hypervisor"]) == (2, "tsc", "xen")
    assert (hardware["vendor"], hardware["instance_type"]) == ("Amazon EC2", "m7i.large")
    assert record["software"]["distribution"] == "Rocky Linux 9.4"
    assert record["software"]["mitigations"] == {"meltdown": "Mitigation: PTI"}
    assert set(unreadable) == {"hardware.limits.cpu_quota", "hardware.limits.memory_bytes"}


def test_every_fact_is_read_or_has_a_reason(tree: Tree) -> None:
    facts, unreadable = read_facts(Machine({}, tree({}), no_program))
    record_with(facts, unreadable)
    assert facts.keys() | unreadable.keys() == FACTS.keys()
    assert set(facts) == {"hardware.memory.machine_bytes", "hardware.limits.cpus"}
    assert unreadable["hardware.cpu.governor"] == f"no /{CPUS}/cpu[0-9]*/cpufreq/scaling_governor"
    assert "vendor unknown" in unreadable["hardware.cpu.microarchitecture"]


@pytest.mark.parametrize(
    ("files", "place", "reason"),
    [
        (
            {f"{DMI}/sys_vendor": "Google", f"{DMI}/product_name": "Google Compute Engine"},
            "hardware.instance_type",
            "not",
        ),
        ({f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "HVM domU"}, "hardware.instance_type", "not tell"),
        ({f"{DMI}/product_name": ""}, "hardware.product", "is empty"),
        ({f"{DMI}/product_name/folder": ""}, "hardware.product", "Is a directory"),
        ({"proc/sys/vm/nr_hugepages": "many"}, "hardware.huge_pages.reserved", "has no number"),
        ({f"{CPUS}/smt/active": "7"}, "hardware.cpu.smt", "does not tell"),
    ],
)
def test_absent_fact_has_its_reason(files: dict[str, str], place: str, reason: str, tree: Tree) -> None:
    assert reason in read_facts(Machine({}, tree(files), no_program))[1][place]


@pytest.mark.parametrize(
    "secret", [UUID, MAC, "10.1.20.3", UUID.replace("-", ""), "me@example.org", "the host's", "the user's"]
)
def test_texts_that_may_identify_a_machine_are_withheld(
    secret: str, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "node", lambda: "planted-host.example.org")
    monkeypatch.setattr(getpass, "getuser", lambda: "planted-user")
    secret = {"the host's": "planted-host", "the user's": "planted-user"}.get(secret, secret)
    root = tree(SERVER | SECRETS | {f"{DMI}/product_name": f"A model {secret}", f"{DMI}/sys_vendor": secret})
    (root / TABLE).parent.mkdir(parents=True)
    (root / TABLE).write_bytes(memory_table((0x22, 4800, f"CHANNEL A {secret}")))
    facts, unreadable = read_facts(Machine(EMERALD, root, no_program))
    written = str([facts, unreadable])
    assert not any(word in written for word in (secret, UUID, MAC, SERIAL, "planted", str(root)))
    assert "withheld" in unreadable["hardware.product"]
    assert facts["hardware.memory.channels"] == 1


def test_versions_are_not_withheld() -> None:
    for text in ("openblas 0.3.31.188.0 Haswell", "0x2b000603", "2026.10.11549", "LLVM 22.1.0", "PowerEdge R750"):
        assert clean(text, "a text") == text
    with pytest.raises(UnreadableError, match="empty"):
        clean("\0\n", "a text")


HOSTILE = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from([b"\x1b[2J[always]", b"1" * 400, b"-1", b"nan", b"1e400", b"[a] [b]", "‮x".encode(), b"a" * 5000]),
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(SERVER)), HOSTILE), st.binary(max_size=400), HOSTILE)
def test_any_content_gives_a_valid_record(files: dict[str, bytes], table: bytes, printed: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in {**files, TABLE: table}.items():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_bytes(content)
        record_with(*read_facts(Machine({}, Path(folder), lambda *_: printed)))


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 65535)), max_size=5), st.integers(0, 400))
def test_damaged_memory_table_gives_a_valid_record(modules: list[tuple[int, int]], kept: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / TABLE).parent.mkdir(parents=True)
        (Path(folder) / TABLE).write_bytes(memory_table(*((*module, "BANK 0") for module in modules))[:kept])
        record_with(*read_facts(Machine({}, Path(folder), no_program)))


@pytest.mark.parametrize(
    ("vendor", "family", "model", "name"),
    [
        ("AuthenticAMD", 23, 1, "Zen"), ("AuthenticAMD", 23, 49, "Zen 2"), ("AuthenticAMD", 25, 1, "Zen 3"),
        ("AuthenticAMD", 25, 17, "Zen 4"), ("AuthenticAMD", 25, 97, "Zen 4"), ("AuthenticAMD", 26, 2, "Zen 5"),
        ("AuthenticAMD", 26, 17, "Zen 5"), ("AuthenticAMD", 99, 1, ""), ("GenuineIntel", 6, 85, "Skylake"),
        ("GenuineIntel", 6, 143, "Sapphire Rapids (Golden Cove)"), ("GenuineIntel", 19, 1, ""), ("ARM", 8, 0, ""),
    ],
)  # fmt: skip
def test_microarchitecture_by_family_and_model(vendor: str, family: int, model: int, name: str) -> None:
    assert microarchitecture({"vendor": vendor, "family": str(family), "model_number": str(model)}) == name


@pytest.mark.parametrize("number", ["", "²", "0x1", None, "9" * 40])
def test_odd_model_number_has_no_microarchitecture(number: str | None) -> None:
    assert microarchitecture({"vendor": "AuthenticAMD", "family": "25", "model_number": number}) == ""


def test_arm_core_is_its_microarchitecture(tree: Tree) -> None:
    cpuinfo = "\n\n".join(f"processor : {cpu}\nCPU implementer : 0x41\nCPU part : 0xd4f" for cpu in range(2))
    facts, _ = read_facts(Machine({"vendor": "ARM"}, tree({"proc/cpuinfo": cpuinfo}), no_program))
    assert facts["hardware.cpu.microarchitecture"] == "Neoverse-V2"
