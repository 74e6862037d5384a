"""Battery power, modes that save power, and heat are found on each system, and flag samples."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.sample_flags import flags_known, format_flags
from experiments import counters, machine_state, power_state
from experiments.doctor import machine_checks
from experiments.doctor.finding import Level
from tests.experiments.conftest import Tree

PROFILE = "sys/firmware/acpi/platform_profile"
PREFERENCE = "sys/devices/system/cpu/cpu{}/cpufreq/energy_performance_preference"
COOLING = "sys/class/thermal/cooling_device0"
KERNEL = "proc/sys/kernel/osrelease"


@pytest.mark.parametrize(
    ("files", "profile", "saves"),
    [
        ({}, "", False),
        ({PROFILE: "balanced"}, "balanced", False),
        ({PROFILE: "low-power"}, "low-power", True),
        ({PREFERENCE.format(0): "balance_performance"}, "", False),
        ({PREFERENCE.format(0): "power"}, "power", True),
        # The last core, an efficient core on hybrid processors, saves power.
        ({PREFERENCE.format(2): "performance", PREFERENCE.format(10): "balance_power"}, "balance_power", True),
        ({PROFILE: "performance", PREFERENCE.format(0): "power"}, "power", True),
    ],
)
def test_saving_profile_is_a_warning_and_a_flag(files: dict[str, str], profile: str, saves: bool, tree: Tree) -> None:
    root = tree(files)
    assert power_state.power_profile(root) == profile
    finding = machine_checks.battery(None, profile)
    assert (finding is not None and finding.level is Level.WARNING and bool(finding.mend)) == saves
    assert [str(flag) for flag in power_state.power_flags(root)] == ["throttled: saving of power"] * saves


@pytest.mark.parametrize(
    ("system", "files", "printed", "saves"),
    [
        ("Darwin", {}, b"Currently in use:\n lowpowermode         1\n sleep  1", True),
        ("Darwin", {}, b" lowpowermode         0\n highpowermode 1", False),
        ("Darwin", {}, b"", False),
        ("Windows", {}, b"Power Scheme GUID: A1841308-3541-4fab-bc81-f71556f20b4a  (Energiesparmodus)", True),
        ("Windows", {}, b"Power Scheme GUID: 381b4222-f694-41f0-9685-ff5bb260df2e  (Balanced)", False),
        ("Linux", {KERNEL: "6.6.1-microsoft-standard-WSL2"}, b"a1841308-3541-4fab-bc81-f71556f20b4a", True),
        ("Linux", {KERNEL: "6.8.0-generic"}, b"a1841308-3541-4fab-bc81-f71556f20b4a", False),
    ],
)  # fmt: skip
def test_desktop_profile_is_read_from_the_systems_own_program(
    system: str, files: dict[str, str], printed: bytes, saves: bool, tree: Tree
) -> None:
    assert power_state.desktop_profile(tree(files), lambda *_: printed, system) == "low-power" * saves


@given(st.binary(max_size=200))
def test_any_program_output_gives_a_share_and_a_profile(printed: bytes) -> None:
    assert 0 <= power_state.speed_limit(lambda *_: printed, "Darwin") < 10
    assert power_state.desktop_profile(ask=lambda *_: printed, system="Darwin") in ("", "low-power")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(content=st.text(max_size=30))
def test_any_kernel_file_gives_known_flags(content: str, tree: Tree) -> None:
    root = tree({PROFILE: content.replace("\r", ""), f"{COOLING}/type": "Processor", f"{COOLING}/cur_state": "0"})
    assert flags_known(format_flags(power_state.power_flags(root)))


@pytest.mark.parametrize(
    ("files", "rise", "share", "seen"),
    [
        ({}, 0.0, 1.0, None),
        ({}, 2.0, 1.0, "heat lowers the clock now"),
        ({}, 0.0, power_state.speed_limit(lambda *_: b"CPU_Speed_Limit \t= 70", "Darwin"), "now to 70% of its speed"),
        ({f"{COOLING}/type": "cpufreq-cpu0", f"{COOLING}/cur_state": "3"}, 0.0, 1.0, "heat lowers the clock now"),
        ({f"{COOLING}/type": "Processor", f"{COOLING}/cur_state": "0"}, 0.0, 1.0, None),
        ({f"{COOLING}/type": "Fan", f"{COOLING}/cur_state": "3"}, 0.0, 1.0, None),
    ],
)
def test_heat_that_lowers_the_clock_now_is_a_warning(
    files: dict[str, str], rise: float, share: float, seen: str | None, tree: Tree
) -> None:
    finding = machine_checks.heat(root := tree(files), rise, share)
    assert (finding is None) == (seen is None)
    assert finding is None or (finding.level is Level.WARNING and str(seen) in finding.seen and finding.mend)
    flags = power_state.power_flags(root)
    assert bool(flags) == (bool(files) and seen is not None)


def test_heat_in_any_socket_counts_once_for_each_socket(tree: Tree) -> None:
    files = {}
    for cpu, socket in enumerate([0, 0, 1, 1]):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = str(socket)
        files[f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle/package_throttle_count"] = str(5 * socket)
    assert counters.count_heat_throttles(tree(files)) == 5


@pytest.mark.parametrize(("plugged", "flags"), [(False, "throttled: battery power"), (True, ""), (None, "")])
def test_battery_power_flags_samples(plugged: bool | None, flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(power_state, "power_profile", lambda *_: "")
    monkeypatch.setattr(psutil, "sensors_battery", lambda: SimpleNamespace(power_plugged=plugged), raising=False)
    assert format_flags(machine_state.Watch("cpu")._read_device().flags) == flags
    finding = machine_checks.battery(power_state.is_plugged_in(), "")
    assert (finding is not None and finding.level is Level.WARNING) == (plugged is False)
