"""A round that stands still loses no point: signals and a frozen cgroup, on stand-ins of the measuring process."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from contract.flags import Flag
from experiments import state
from experiments.state import Reading
from experiments.timing import MOST_REPEATS, Measurement, Policy, measure
from experiments.work import Work
from tests.experiments.test_readings import Unsteady

ROOT = Path(__file__).parents[2]
# Seconds of one point, of the round, of a hang, and of the pause.
POINT_S, ROUND_S, HANG_S, PAUSE_S = 0.25, 2.0, 1.5, 2.5
WORKER = """
import os, pathlib, sys, time
for number, line in enumerate(sys.stdin):
    if number == 1:
        pathlib.Path({place!r}).write_text(str(os.getpid()))
    time.sleep({point_s} if number else 0.0)
    print('{{"status": "unsupported", "reason": "was asked"}}' if number else '{{"ready": true}}', flush=True)
"""
ROUND = """
import json, sys
from experiments import rounds
from experiments.jobs import Job, Point
points = tuple(Point.of("stand-in", {{"index": index}}) for index in range(4))
job = Job("stand-in", "cpu", "cpu", 0.1, {round_s}, 6, points, hang_s={hang_s})
measured = rounds.Round(job, 1, 1, command=[sys.executable, "-c", {worker!r}])
measured.run()
print(json.dumps([[row["reason"] for row in measured.rows], measured.stood_s]))
"""
FREEZERS = Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")


@dataclass
class Paused:
    """A round in a process of its own."""

    process: subprocess.Popen[str]
    place: Path

    def worker(self) -> int:
        """The measuring process, once it is at its first point."""
        end = time.monotonic() + 60
        while not (self.place.exists() and self.place.read_text()):
            assert time.monotonic() < end and self.process.poll() is None
            time.sleep(0.02)
        return int(self.place.read_text())


@contextlib.contextmanager
def frozen(processes: list[int]) -> Iterator[bool]:
    """Freeze processes in a cgroup of their own; False where this machine does not allow it."""
    for root in FREEZERS:
        folder = root / f"pauses-{os.getpid()}"
        state_file, held, loose = ("freezer.state", "FROZEN", "THAWED") if root.name == "freezer" else (
            "cgroup.freeze", "1", "0"
        )  # fmt: skip
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if (folder / state_file).exists():
                for one in processes:
                    (folder / "cgroup.procs").write_text(str(one))
                (folder / state_file).write_text(held)
                yield True
                return
        except OSError:
            continue
        finally:
            with contextlib.suppress(OSError):
                (folder / state_file).write_text(loose)
                for one in processes:
                    with contextlib.suppress(OSError):
                        (root / "cgroup.procs").write_text(str(one))
                time.sleep(0.1)
            with contextlib.suppress(OSError):
                folder.rmdir()
    yield False


def signals(stop: int, *which: str) -> Callable[[Paused], bool]:
    """Stops these processes of a round and has them go on after the pause."""

    def pause(round_: Paused) -> bool:
        pids = {"round": round_.process.pid, "worker": round_.worker()}
        for name in which:
            os.kill(pids[name], stop)
        time.sleep(PAUSE_S)
        for name in which:
            os.kill(pids[name], signal.SIGCONT)
        return True

    return pause


def freezer(round_: Paused) -> bool:
    with frozen([round_.process.pid, round_.worker()]) as done:
        time.sleep(PAUSE_S if done else 0.0)
    return done


PAUSES = {
    "the round": signals(signal.SIGSTOP, "round"),
    "the measuring process": signals(signal.SIGSTOP, "worker"),
    "both, by the terminal's signal": signals(signal.SIGTSTP, "round", "worker"),
    "a freezer": freezer,
}


@pytest.mark.parametrize("who", PAUSES)
def test_a_round_that_stood_still_measures_every_point(who: str, tmp_path: Path) -> None:
    place = tmp_path / "worker"
    worker = WORKER.format(place=str(place), point_s=POINT_S)
    program = ROUND.format(worker=worker, hang_s=HANG_S, round_s=ROUND_S)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            if not PAUSES[who](Paused(process, place)):
                pytest.skip("no cgroup can be frozen here")
            told, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    reasons, stood_s = json.loads(told)
    assert reasons == ["was asked"] * 4
    assert PAUSE_S - 1.5 < stood_s < PAUSE_S + 1.0


class Pausing(Unsteady):
    """Its process stands still in some of the samples: a long one, which its host's clock holds."""

    def __init__(self, pauses: Iterator[bool], call_s: float) -> None:
        super().__init__(iter(()), call_s=call_s, launch_s=0.0)
        self.pauses, self.stood = pauses, 0.0

    def time(self, work: Work, calls: int, meanwhile: Callable[[], object] = lambda: None) -> list[float]:
        self.clock += calls * self.call_s
        pause = 15.0 if next(self.pauses) else 0.0
        self.stood += pause
        return [self.call_s + pause / calls]


def paused(pauses: Iterator[bool], call_s: float) -> tuple[Measurement, Pausing]:
    device = Pausing(pauses, call_s)
    policy = Policy(target=0.02, budget_s=1.0, max_samples=50)
    made = measure(
        Work(run=lambda: None), device, policy, lambda *_: Reading(0.0), now=device.now, stood_s=lambda: device.stood
    )
    return made, device


@pytest.mark.parametrize("call_s", [0.001, 0.3, 1.2])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 7, 9])
def test_a_pause_ends_no_point_early_and_decides_no_number(place: int, call_s: float) -> None:
    calm, _ = paused(itertools.repeat(False), call_s)
    made, device = paused((at == place for at in itertools.count()), call_s)
    assert max(made.samples[""]) == pytest.approx(call_s)
    assert len(made.samples[""]) >= len(calm.samples[""]) - 2
    assert made.stood_s == device.stood
    assert made.timed_s + made.warmup_s < 4.0


def test_a_machine_that_always_stands_still_ends_its_points_and_their_times_add_up() -> None:
    made, _ = paused(itertools.repeat(True), 1.2)
    assert len(made.samples[""]) == 1 and made.made == 1 + MOST_REPEATS
    assert sum(made.samples[""]) * made.calls <= made.timed_s


def test_a_window_in_which_the_process_stood_still_says_for_how_long() -> None:
    before = state.counters.Totals(at=0.0)
    now = state.counters.Totals(at=16.0, stood=15.04, stops=1.0)
    assert [str(flag) for flag in state.between(before, now, 4)[1]] == ["stopped: stood still for 15.0 s"]
    assert Flag("stopped", "stood still for 15.0 s").figure == 15.0
