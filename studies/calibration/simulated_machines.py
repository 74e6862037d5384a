"""Simulated machines: samples with known true times, disturbed as on real machines.

A sample's time is the true time multiplied by a factor for the round and a factor for the sample. Both factors are
symmetric on the log scale, except that outliers, disturbed and late rounds always take longer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contract.sample_table import SAMPLES
from report.statistics import Floats

EXPERIMENT = "synthetic"
SAMPLES_PER_ROUND = 5


@dataclass(frozen=True)
class Noise:
    """Noise parameters. A spread is a standard deviation of logarithms, so that 0.02 is about 2%.

    between: spread between a point's rounds. within: spread between a round's samples. unequal: ratio of the largest to
    the smallest `between`, which varies log-uniformly from point to point. heavy: round effects follow Student's t
    distribution with 4 degrees of freedom, scaled to the same variance. shared: fraction of the variance between rounds
    that all points on a device have in common, because a round is one process at one time. outliers: fraction of
    samples that take 1.5 to 10 times too long. disturbed: fraction of a point's rounds that are 20% too slow. drift:
    relative slowdown from the first to the last round, equal for all points. unevenness: standard deviation
    over points of log `between`, in addition to `unequal`. late_points: fraction of a point's rounds that take longer,
    by a factor whose logarithm is exponential with the mean `lateness`. late_rounds: fraction of rounds in which all
    points on a device take longer by one factor like that. session: ratio of the spread between sessions to a point's
    spread between rounds; all rounds on a machine belong to one session. name: text to use in `describe`. The true time
    is the time without disturbances, in the middle of the drift and between the sessions.
    """

    between: float = 0.02
    within: float = 0.01
    unequal: float = 1.0
    heavy: bool = False
    shared: float = 0.0
    outliers: float = 0.0
    disturbed: float = 0.0
    drift: float = 0.0
    unevenness: float = 0.0
    late_points: float = 0.0
    late_rounds: float = 0.0
    lateness: float = 0.0
    session: float = 0.0
    name: str = ""

    def describe(self) -> str:
        """Describe the noise, for example as '2% between rounds (heavy tails); 5% of samples outliers'."""
        session = [f"sessions differ by {self.session:g} of that"] if self.session else []
        return "; ".join([self.name or self._describe_parameters(), *session])

    def _describe_parameters(self) -> str:
        more = [f"unequal over a factor of {self.unequal:g}"] if self.unequal != 1 else []
        more += ["heavy tails"] if self.heavy else []
        more += [f"{self.shared:.0%} of the variance shared by all points"] if self.shared else []
        parts = [f"{100 * self.between:g}% between rounds" + (f" ({', '.join(more)})" if more else "")]
        parts += [f"{self.outliers:.0%} of samples outliers"] if self.outliers else []
        parts += [f"{self.disturbed:.0%} of rounds 20% too slow"] if self.disturbed else []
        parts += [f"drift of {self.drift:.0%}"] if self.drift else []
        return "; ".join(parts)


# Noise like that on amd-epyc-2c-789dcf and amd-epyc-2c-089962.146241. A fit to their spreads, tails and correlations
# between rounds gave the parameters. It is no part of this program; `node_rounds` compares all published nodes to them.
USUAL, QUIET, BUSY = (
    Noise(between, unevenness=unevenness, late_points=late_points, late_rounds=late_rounds, lateness=lateness,
          shared=shared, name=name)
    for name, between, unevenness, late_points, late_rounds, lateness, shared in (
        ("noise as usual on nodes", 0.06, 0.81, 0.05, 0.05, 0.2, 0.08),
        ("noise of a quiet node", 0.033, 0.43, 0.21, 0.045, 0.062, 0.5),
        ("noise of a busy virtual machine", 0.077, 0.59, 0.21, 0.18, 0.49, 0.41),
    )
)  # fmt: skip
NODE_NOISES = (USUAL, QUIET, BUSY)


@dataclass(frozen=True)
class Machines:
    """Simulated nodes, which are identical and independent.

    nodes: number in all. points: number per device. rounds: number per point.
    """

    nodes: int
    points: int
    rounds: int
    devices: tuple[str, ...] = ("cpu",)


def noise_factors(noise: Noise, machines: Machines, random: np.random.Generator) -> Floats:
    """Draw a noise factor for each sample, in an array of shape (nodes, devices, points, rounds, samples)."""
    points = (machines.nodes, len(machines.devices), machines.points)

    def effects(*shape: int) -> Floats:
        return random.standard_t(4, shape) / np.sqrt(2) if noise.heavy else random.normal(size=shape)

    between = noise.between * np.exp(
        random.uniform(-0.5, 0.5, (*points, 1)) * np.log(noise.unequal)
        + noise.unevenness * random.normal(size=(*points, 1))
    )
    own, common = effects(*points, machines.rounds), effects(*points[:2], 1, machines.rounds)
    log = between * (np.sqrt(1 - noise.shared) * own + np.sqrt(noise.shared) * common)
    log += np.where(random.random(log.shape) < noise.disturbed, np.log(1.2), 0.0)
    log += noise.session * between * random.normal(size=(*points, 1))
    late = random.random(log.shape) < noise.late_points, random.random(common.shape) < noise.late_rounds
    log += sum(np.where(hit, random.exponential(noise.lateness, hit.shape), 0.0) for hit in late)
    log += np.log1p(noise.drift) * (np.arange(machines.rounds) / max(1, machines.rounds - 1) - 0.5)
    samples: Floats = log[..., None] + noise.within * random.normal(size=(*log.shape, SAMPLES_PER_ROUND))
    hit = random.random(samples.shape) < noise.outliers
    samples[hit] += np.log(random.uniform(1.5, 10, np.count_nonzero(hit)))
    return np.exp(samples)


def share_of_time(values: Floats) -> Floats:
    """Return the ratio of the first device's time to the sum over both, with a single device in the second dimension.

    values: shape (nodes, 2, points, rounds, samples).
    """
    share: Floats = values[:, :1] / values.sum(axis=1, keepdims=True)
    return share


def point_sizes(machines: Machines) -> Floats:
    """Return each point's parameter `size`, a power of two, in an array of shape (points,)."""
    return np.exp2(np.arange(machines.points, dtype=float))


def make_samples(values: Floats, machines: Machines, metric: str = "time", unit: str = "s") -> pd.DataFrame:
    """Make a sample table (`contract.sample_table.SAMPLES`) with origin synthetic.

    values: shape (nodes, devices, points, rounds, samples), in `unit`.
    """
    node, device, point, number, sample = (index.ravel() for index in np.indices(values.shape))

    def text(words: list[str]) -> NDArray[np.object_]:
        return np.array(words, dtype=object)

    columns = {
        "node": text([f"synthetic-{i:06d}" for i in range(machines.nodes)])[node],
        "run": text([f"run{i + 1}" for i in range(machines.rounds)])[number],
        "round": number + 1,
        "attempt": 1,
        "experiment": EXPERIMENT,
        "device": text(list(machines.devices))[device],
        "backend": "none",
        "dtype": "float32",
        "threads": np.array([int(name == "cpu") for name in machines.devices])[device],
        "params": text([f'{{"size": {size}}}' for size in point_sizes(machines)])[point],
        "metric": metric,
        "sample": sample,
        "value": values.ravel(),
        "unit": unit,
        "calls": 1,
        "status": "ok",
        "reason": "",
        "stop_reason": "samples",
        "flags": "",
        "origin": "synthetic",
    }
    return pd.DataFrame({**{name: np.nan for name in SAMPLES.columns if name not in columns}, **columns})[
        [*SAMPLES.columns]
    ]
