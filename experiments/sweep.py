"""Read presets: each experiment's points and time limits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_yaml
from contract.node import integer_schema, object_schema
from contract.schema import did_you_mean
from experiments import backends, hardware, user_models
from experiments.jobs import Point
from experiments.models import network_names
from experiments.registry import Experiment, experiments, get_experiment

PRESETS = Path(__file__).parents[1] / "workflow" / "presets"

# Maximum number of combinations in a grid. At about a second per point, more points would take longer than a day.
MOST_POINTS = 100_000

# Keys with which a block (an entry in an experiment's `sweep`) sets limits for its points.
_LIMITS = ("point_s", "rounds", "value")
# FORMATS: parameters with a number format.
# _FILE_FORMATS: names of number formats in weight files, by the format in which PyTorch then computes.
FORMATS = ("dtype", "format")
_FILE_FORMATS = {"bfloat16": "BF16", "float16": "F16"}


@dataclass(frozen=True)
class Sweep:
    """One experiment's points and limits, from a preset (`preset_schema`).

    place: the sweep's position in the preset, for error messages.
    hang_s: extra seconds before a point counts as hanging, by the device's kind.
    """

    experiment: Experiment
    target: float
    point_s: float
    round_s: float
    max_samples: int
    blocks: list[dict[str, Any]]
    place: str
    stage: int = 1
    hang_s: Mapping[str, float] = field(default_factory=dict)

    def points(
        self,
        device_kind: str,
        cache: int = 0,
        largest_cache: int = 0,
        substitutes: Mapping[str, str] | None = None,
        room: float = math.inf,
    ) -> list[Point]:
        """Return the points for a device kind, without duplicates.

        cache: the size of the device's last-level cache in bytes; 0 for the size of this machine's CPU cache.
        largest_cache: the size of the largest last-level cache among the node's devices; 0 for the value of `cache`.
        substitutes: number formats to measure in place of other formats. room: bytes for a point; a larger point is
            replaced by the first of its block's `smaller` points with enough room, if there is one.
        Raises StudyError with a block's position if the block lacks a parameter or has too many combinations.
        """
        cache = cache or hardware.last_level_cache_bytes()
        units = {"largestLLC": largest_cache or cache, "LLC": cache}
        points: dict[Point, Point] = {}
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
                    axes["model"] = [
                        model for name in axes["model"] for model in network_names.expand_model_name(hint, name)
                    ]
                for values in itertools.product(*axes.values()):
                    for original in _resolve_params(dict(zip(axes, values, strict=True)), device_kind, units):
                        resolved = self._fit(_substitute_formats(original, substitutes or {}), block, room)
                        changed = {key: value for key, value in original.items() if resolved[key] != value}
                        variables = self.experiment.environment(resolved) | user_models.model_variables(
                            resolved.get("model")
                        )
                        point = Point.from_params(
                            self.experiment.name, resolved, environment=variables, instead_of=changed, **limits
                        )
                        known = points.setdefault(point, point)
                        if changed or known.instead_of:
                            value = min(known.value, point.value)
                            points[point] = replace(known, value=value, instead_of=known.instead_of and changed)
        return list(points.values())

    def _fit(self, params: dict[str, Any], block: Mapping[str, Any], room: float) -> dict[str, Any]:
        """Return the parameters, or the block's first smaller parameters that need at most `room` bytes."""
        need, smaller = self.experiment.memory, block.get("smaller")
        # A user's model is never replaced, and only the process that measures it can count its bytes.
        if need is None or not smaller or user_models.model_variables(params.get("model")):
            return params
        candidates = [params, *({**params, **changed} for changed in smaller)]
        return next((choice for choice in candidates if need(**choice) <= room), params)


def _resolve_params(params: dict[str, Any], device_kind: str, units: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return a combination's points, with all parameters that depend on the machine or on a file resolved.

    threads: 'all' is the number of cores; '1..all' makes points for 1, 2, 4, … threads and for all cores.
    Footprints: '4xLLC' is four times the device's last-level cache; '4xlargestLLC' is four times the largest last-level
    cache on the node, so that all devices get equal points.
    backend: the name of a group of libraries makes a point for each library.
    format: for a user's model file, the file determines this parameter.
    """
    resolved = {key: _footprint_bytes(value, units) for key, value in params.items()} | user_models.fixed_params(params)
    threads = params.get("threads", 1)
    if device_kind != "cpu":
        return [{**resolved, "threads": 0}]  # no CPU threads compute, since the host only launches kernels on the GPU
    counts = _thread_counts(threads, hardware.usable_cores())
    if "backend" not in resolved:
        return [{**resolved, "threads": count} for count in counts]
    libraries = backends.expand_group(resolved["backend"])
    return [{**resolved, "backend": name, "threads": count} for name in libraries for count in counts]


def _substitute_formats(params: dict[str, Any], substitutes: Mapping[str, str]) -> dict[str, Any]:
    """Replace number formats that the device has no units for; in weight files, only if PyTorch computes with them."""
    files = {_FILE_FORMATS[lost]: _FILE_FORMATS[new] for lost, new in substitutes.items() if lost in _FILE_FORMATS}
    computes = str(params.get("backend")).startswith("transformers")
    instead = zip(FORMATS, (substitutes, files if computes else {}), strict=True)
    return params | {key: known[params[key]] for key, known in instead if params.get(key) in known}


def _footprint_bytes(value: Any, units: Mapping[str, int]) -> Any:
    """Convert a footprint to bytes; return other values unchanged."""
    number, _, unit = str(value).partition("x")
    return int(number) * units[unit] if unit in units else value


def _thread_counts(threads: int | str, cores: int) -> list[int]:
    if threads == "all":
        return [cores]
    if threads == "1..all":
        return [*(1 << power for power in range(cores.bit_length()) if 1 << power < cores), cores]
    return [int(threads)]


def preset_path(preset: str) -> Path:
    """Return a preset's file, from its name or from the path to a user's file.

    Raises StudyError listing the known names.
    """
    known = PRESETS / f"{preset}.yaml"
    if known.is_file():
        return known
    if preset.endswith((".yaml", ".yml")) and Path(preset).is_file():
        return Path(preset)
    names = sorted(path.stem for path in PRESETS.glob("*.yaml"))
    raise StudyError(
        f"no preset {preset!r}. Presets: {', '.join(names)}, or the path of a .yaml file.{did_you_mean(preset, names)}"
    )


def read_preset(preset: str) -> dict[str, Any]:
    """Read and validate a preset. Raises StudyError naming file, line and key."""
    path = preset_path(preset)
    content: dict[str, Any] = read_yaml(path, preset_schema())
    for name in content["experiments"]:
        for kind in ("cpu", "gpu"):
            find_sweep(content, name, str(path)).points(kind)
    return content


def find_sweep(preset: dict[str, Any], name: str, source: str) -> Sweep:
    """Return one experiment's sweep. source: the preset's file, for errors.

    Raises StudyError if the preset does not measure the experiment.
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
    """Build the JSON Schema for presets from the experiments' parameters."""
    seconds = {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400}
    minutes = {"type": "number", "minimum": 1, "maximum": 10_080}
    limits = {
        # Sampling stops when the relative half-width of the point's 95% interval within a round is at most this.
        "target": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        # point_s: seconds for warm-up and samples of one point in one round.
        # round_s: seconds for one experiment on one device in one round. When they are used up, the round's remaining
        # points are skipped.
        "point_s": seconds,
        "round_s": seconds,
        # Maximum number of samples per point and round.
        "max_samples": integer_schema(100_000, least=6),
    }

    def non_empty_array(items: dict[str, Any]) -> dict[str, Any]:
        return {"type": "array", "minItems": 1, "items": items}

    def part(experiment: Experiment) -> dict[str, Any]:
        values = experiment.schema()
        block = object_schema(
            "",
            # Restrict the block to this device kind.
            on={"enum": ["cpu", "gpu"]},
            # The points' value: 1 if a comparison requires them, 2 if they add to a comparison (the default), 3 if they
            # are a detail.
            value={"enum": [1, 2, 3]},
            # Number of rounds that measure the points, from the first round on.
            rounds=integer_schema(100, least=1),
            point_s=seconds,
            # cases: explicit combinations of parameters. grid: values per parameter; the grid's combinations of values
            # are combined with every case.
            cases=non_empty_array(object_schema("", **values)),
            grid=object_schema("", **{name: non_empty_array(value) for name, value in values.items()}),
            # Parameters for a device without enough memory, the largest first; they replace those of cases and grid.
            smaller=non_empty_array(object_schema("", **values)),
        )
        return object_schema(
            "sweep",
            **limits,
            # Stage in which to measure the experiment. Each stage runs all its rounds before the next stage begins, so
            # that an interrupted run lacks only the last stages.
            stage=integer_schema(9, least=1),
            sweep=non_empty_array(block),
        )

    return object_schema(
        " ".join(["rounds", *limits, "experiments"]),
        # Number of rounds; each round measures its points in new processes.
        rounds=integer_schema(100, least=1),
        # Budget for a run in minutes, without and with a GPU.
        budget_min=object_schema("", cpu=minutes, gpu=minutes),
        # Extra seconds before a point counts as hanging (default 60).
        hang_s=object_schema("", cpu=seconds, gpu=seconds),
        **limits,
        experiments={
            **object_schema("", **{name: part(experiment) for name, experiment in experiments().items()}),
            "minProperties": 1,
        },
    )
