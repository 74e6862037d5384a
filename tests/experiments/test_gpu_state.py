"""What a GPU's counters tell is told while it works, of the samples during which it was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from contract.flags import Flag
from experiments import counters, state
from experiments.counters import Totals, Values
from experiments.devices.base import nothing
from experiments.state import GPU_WINDOW_S, WINDOW_S, Reading, Watch
from experiments.timing import Policy, measure
from experiments.work import Work
from tests.experiments.nvml_standin import Library
from tests.experiments.second_device import SecondCpu

# What the driver averages utilisation over.
AVERAGED_S = 1.0
BOOSTED, AT_REST = 1980.0, 345.0


class Machine:
    """A host and a GPU on a clock that moves when they work, are waited for, or their counters are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.free_at = 0.0, 0.0
        self.worked: list[tuple[float, float]] = []
        self.flags: list[Flag] = []
        monkeypatch.setattr(state, "time", SimpleNamespace(perf_counter=lambda: self.at))
        monkeypatch.setattr(counters, "read_totals", lambda _: self._totals())
        seen = counters.Counters(self._values, lambda: self.flags, lambda: None)
        monkeypatch.setattr(counters, "gpu_counters", lambda device: seen)

    def launch(self, seconds: float) -> None:
        begins = max(self.at, self.free_at)
        self.free_at = begins + seconds
        self.worked.append((begins, self.free_at))

    def wait(self) -> None:
        self.at = max(self.at, self.free_at)

    def _totals(self) -> Totals:
        self.at += 0.5e-3
        return Totals(at=self.at, stalled=0.0)

    def _values(self) -> Values:
        """As NVML: eight calls take milliseconds, and utilisation is told in whole per cents."""
        since = max(self.at - AVERAGED_S, 0.0)
        busy = sum(max(min(end, self.at) - max(begun, since), 0.0) for begun, end in self.worked)
        clock = BOOSTED if self.at < self.free_at else AT_REST
        self.at += 8e-3
        return {"clock_mhz": clock, "utilisation": int(100 * busy / AVERAGED_S + 1e-6) / 100}


class Gpu(SecondCpu):
    """Times by events on that machine's clock."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine

    def between(
        self, launches: Sequence[Callable[[], object]], meanwhile: Callable[[], object] = nothing
    ) -> list[float]:
        self.machine.wait()
        self.machine.at += 50e-6  # what the host does between two samples
        ends = [self.machine.at]
        for launch in launches:
            launch()
            ends.append(self.machine.free_at)
        meanwhile()
        self.machine.wait()
        return [later - end for end, later in pairwise(ends)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize("seconds", [2.0, 30.0])
def test_a_gpu_that_works_without_a_pause_reads_as_busy_and_at_the_clock_of_its_work(
    machine: Machine, seconds: float
) -> None:
    """A load as `sustained` samples it: products of 2 ms."""
    watch = Watch("cuda:0")
    watch.begin()
    work, policy = Work(run=lambda: machine.launch(2e-3), lasting=True), Policy(0.05, seconds, 60)
    device = Gpu(machine)
    readings = measure(work, device, policy, watch.read, now=lambda: machine.at, look=watch.look).readings
    assert {reading.clock_mhz for reading in readings} == {BOOSTED}
    told = [reading.utilisation or 0.0 for reading in readings if reading.elapsed_s > AVERAGED_S + WINDOW_S]
    assert min(told) >= 0.99
    assert not any(reading.flags for reading in readings)


def sample(machine: Machine, watch: Watch, seconds: float) -> Reading:
    machine.wait()
    machine.launch(seconds)
    watch.look()
    machine.wait()
    return watch.read()


def test_a_points_first_sample_has_what_was_seen_of_the_gpu_during_it(machine: Machine) -> None:
    """Many points are shorter than a window."""
    watch = Watch("cuda:0")
    machine.at += 2.0
    watch.begin()  # at rest
    assert [sample(machine, watch, 0.02).clock_mhz for _ in range(3)] == [BOOSTED] * 3


def test_samples_have_the_state_of_the_window_that_they_lie_in(machine: Machine) -> None:
    watch = Watch("cuda:0")
    watch.begin()
    early = [sample(machine, watch, WINDOW_S / 3) for _ in range(3)]
    machine.flags = [Flag("throttled", "power limit")]
    late = [sample(machine, watch, WINDOW_S) for _ in range(2)]
    # The window was over when the first of the later ones began: it is the last in it.
    assert [reading.flags for reading in (*early, *late)] == ["throttled: power limit"] * 5
    machine.flags = []
    after = [sample(machine, watch, GPU_WINDOW_S / 2) for _ in range(3)]
    assert [reading.flags for reading in (late[0], *late[1:], *after)] == ["throttled: power limit", "", "", "", ""]


def power_field(milliwatts: int, status: int) -> Any:
    """What the driver answers of a field: whether it has it stands beside the value."""
    fields = (pynvml.c_nvmlFieldValue_t * 1)()
    fields[0].fieldId, fields[0].nvmlReturn = pynvml.NVML_FI_DEV_POWER_INSTANT, status
    fields[0].valueType, fields[0].value.uiVal = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, milliwatts
    return fields


class Old(Library):
    """A library from before there were fields."""

    def __getattr__(self, name: str) -> Any:
        if "FieldValue" in name or "_FI_" in name:
            raise AttributeError(name)
        return super().__getattr__(name)


@pytest.mark.parametrize(
    ("library", "watts"),
    [
        pytest.param(Library({"FieldValues": power_field(650_000, 0)}), 650.0, id="as it is now"),
        pytest.param(Library({"FieldValues": power_field(0, 3)}), 80.0, id="the driver has no such field"),
        pytest.param(Library({}), 80.0, id="the driver has no fields"),
        pytest.param(Old({}), 80.0, id="the library has no fields"),
    ],
)
def test_power_is_that_of_this_moment_where_the_driver_has_it_and_else_what_it_tells(
    library: Library, watts: float
) -> None:
    assert counters.gpu_counters("cuda:0", library).values()["power_w"] == watts
