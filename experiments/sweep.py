"""Presets: which points each experiment measures, and how long it may take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_yaml
from contract.node import count, fields
from contract.schema import did_you_mean
from experiments import backends, hardware, user_models
from experiments.jobs import Point
from experiments.models import network_names
from experiments.registry import Experiment, experiments, get_experiment

PRESETS = Path(__file__).parents[1] / "workflow" / "presets"

# A point takes a second at least: nobody waits for more.
MOST_POINTS = 100_000

# What a block of a preset may say of its points.
_LIMITS = ("point_s", "rounds", "value")


@dataclass(frozen=True)
class Sweep:
    """One experiment's part of a preset."""

    experiment: Experiment
    target: float
    point_s: float
    round_s: float
    max_samples: int
    blocks: list[dict[str, Any]]
    place: str
    stage: int = 1
    hang_s: Mapping[str, float] = field(default_factory=dict)

    def points(self, device_kind: str, cache: int = 0, largest_cache: int = 0) -> list[Point]:
        """The points for a kind of device, without repetition.

        cache: bytes of the device's last-level cache. largest_cache: of the largest one of the node's devices. 0: those
        of this machine's CPU. Raises StudyError naming the block that lacks a parameter, or has too many values.
        """
        cache = cache or hardware.last_level_cache_bytes()
        units = {"largestLLC": largest_cache or cache, "LLC": cache}
        found: dict[Point, Point] = {}
        for number, block in enumerate(self.blocks):
            if block.get("on", device_kind) != device_kind:
                continue
            limits = {"point_s": self.point_s} | {key: block[key] for key in _LIMITS if key in block}
            grid = block.get("grid", {})
            for case in block.get("cases", [{}]):
                missing = self.experiment.parameters.keys() - {*case, *grid, "threads"}
                if missing:
                    name = f"parameter {min(missing)!r} of {self.experiment.name}"
                    raise StudyError(f"{self.place}[{number}]: {name} is missing")
                if math.prod(map(len, grid.values())) > MOST_POINTS:
                    raise StudyError(f"{self.place}[{number}]: grid: more than {MOST_POINTS:,} combinations")
                axes = {**{key: [value] for key, value in case.items()}, **grid}
                if "model" in axes:
                    hint = self.experiment.parameters["model"]
                    axes["model"] = [model for name in axes["model"] for model in network_names.expand(hint, name)]
                for values in itertools.product(*axes.values()):
                    for resolved in _resolve_params(dict(zip(axes, values, strict=True)), device_kind, units):
                        variables = self.experiment.environment(resolved) | user_models.model_variables(
                            resolved.get("model")
                        )
                        point = Point.from_params(self.experiment.name, resolved, environment=variables, **limits)
                        found.setdefault(point, point)
        return list(found.values())


def _resolve_params(params: dict[str, Any], device_kind: str, units: Mapping[str, int]) -> list[dict[str, Any]]:
    """The parameters in numbers.

    format: of a file of the user's own, that of the file.
    threads: 'all', and '1..all' for 1, 2, 4, … all. Footprints: '4xLLC' is four times the device's own last-level
    cache, '4xlargestLLC' four times the largest of the node, so that a point is the same on all its devices.
    """
    resolved = {key: _footprint_bytes(one, units) for key, one in params.items()} | user_models.fixed_params(params)
    asked = params.get("threads", 1)
    if device_kind != "cpu":
        return [{**resolved, "threads": 0}]  # a GPU's host only launches
    counts = _thread_counts(asked, hardware.usable_cores())
    if "backend" not in resolved:
        return [{**resolved, "threads": threads} for threads in counts]
    libraries = backends.expand(resolved["backend"])
    return [{**resolved, "backend": name, "threads": threads} for name in libraries for threads in counts]


def _footprint_bytes(value: Any, units: Mapping[str, int]) -> Any:
    """A footprint in bytes; every other value as it is."""
    number, _, unit = str(value).partition("x")
    return int(number) * units[unit] if unit in units else value


def _thread_counts(asked: int | str, cores: int) -> list[int]:
    if asked == "all":
        return [cores]
    if asked == "1..all":
        return [*(1 << power for power in range(cores.bit_length()) if 1 << power < cores), cores]
    return [int(asked)]


def preset_path(preset: str) -> Path:
    """The file of a preset: one of ours by name, or a path to somebody's own.

    Raises StudyError listing the names there are.
    """
    named = PRESETS / f"{preset}.yaml"
    if named.is_file():
        return named
    if preset.endswith((".yaml", ".yml")) and Path(preset).is_file():
        return Path(preset)
    names = sorted(path.stem for path in PRESETS.glob("*.yaml"))
    raise StudyError(
        f"no preset {preset!r}. Presets: {', '.join(names)}, or the path of a .yaml file.{did_you_mean(preset, names)}"
    )


def read_preset(preset: str) -> dict[str, Any]:
    """The preset, checked key by key. Raises StudyError naming file, line and key of a mistake."""
    path = preset_path(preset)
    content: dict[str, Any] = read_yaml(path, preset_schema())
    for name in content["experiments"]:
        for kind in ("cpu", "gpu"):
            find_sweep(content, name, str(path)).points(kind)
    return content


def find_sweep(preset: dict[str, Any], name: str, source: str) -> Sweep:
    """One experiment's part of a preset that was read from `source`.

    Raises StudyError if the preset does not measure it.
    """
    if name not in preset["experiments"]:
        get_experiment(name)
        raise StudyError(f"{source}: experiments: {name!r} is not part of this preset")
    part = preset["experiments"][name]
    return Sweep(
        experiment=get_experiment(name),
        **{limit: part.get(limit, preset[limit]) for limit in ("target", "point_s", "round_s", "max_samples")},
        stage=part.get("stage", 1),
        blocks=part["sweep"],
        place=f"{source}: experiments.{name}.sweep",
        hang_s=preset.get("hang_s", {}),
    )


def preset_schema() -> dict[str, Any]:
    """JSON Schema of a preset, from the parameters of the experiments that there are."""
    seconds = {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400}
    minutes = {"type": "number", "minimum": 1, "maximum": 10_080}
    limits = {
        # Relative half-width of a point's 95% interval within a round at which sampling stops.
        "target": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        # Running time for warm-up and samples of one point in one round; of one experiment's round, past which points
        # are skipped.
        "point_s": seconds,
        "round_s": seconds,
        # Kept of a point in one round.
        "max_samples": count(100_000, least=6),
    }

    def several(items: dict[str, Any]) -> dict[str, Any]:
        return {"type": "array", "minItems": 1, "items": items}

    def part(experiment: Experiment) -> dict[str, Any]:
        values = experiment.schema()
        block = fields(
            "",
            # Only on this kind of device.
            on={"enum": ["cpu", "gpu"]},
            # 1: a comparison needs it; 2: adds to one (also without this key); 3: a detail.
            value={"enum": [1, 2, 3]},
            # Measured in so many of the first rounds.
            rounds=count(100, least=1),
            point_s=seconds,
            # Combinations as they stand; values of which every combination is measured, for every case.
            cases=several(fields("", **values)),
            grid=fields("", **{name: several(value) for name, value in values.items()}),
        )
        return fields(
            "sweep",
            **limits,
            # Measured in all rounds once those of lower stages have been: a run that is cut off lacks the last first.
            stage=count(9, least=1),
            sweep=several(block),
        )

    return fields(
        " ".join(["rounds", *limits, "experiments"]),
        # Processes in which each point is measured.
        rounds=count(100, least=1),
        # That a run may take, on a machine without and with a GPU.
        budget_min=fields("", cpu=minutes, gpu=minutes),
        # That a point on a CPU or a GPU may take besides its own seconds before it counts as hanging; 60 without this.
        hang_s=fields("", cpu=seconds, gpu=seconds),
        **limits,
        experiments={**fields("", **{name: part(one) for name, one in experiments().items()}), "minProperties": 1},
    )
