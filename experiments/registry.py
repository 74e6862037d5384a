"""Registry for experiments, filled by importing `experiments.suite`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import EnumType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from contract.errors import StudyError
from contract.schema import did_you_mean
from experiments import backends
from experiments.models import network_names
from experiments.workload import Dtype, Footprint, Threads, Workload

Params = Mapping[str, Any]
# Function from a node's devices, the measured device first, and a point's parameters to the reason why the point cannot
# run there; '' if it can.
Lacks = Callable[[Sequence[Mapping[str, Any]], Params], str]


# Parameters that have a column in the samples table and the same meaning in every experiment, each with its type, and
# with the type's name for error messages.
OWN: dict[str, tuple[Any, str]] = {
    "threads": (Threads, "Threads"),
    "backend": (backends.Library, "Library or a Literal of names"),
    "dtype": (Dtype, "Dtype or a Literal of its names"),
}
# Names that parameters cannot have: other columns in samples, summary or estimates, and arguments for `extra_s`.
TAKEN = (
    "node run round experiment device params metric sample value unit calls flop bytes status reason stop_reason error "
    "tolerance elapsed_s clock_mhz memory_clock_mhz temperature_c power_w utilisation other_load steal flags origin "
    "n_rounds n_samples n_disturbed estimate low high scale log_se df flop_per_s bytes_per_s row se detail source_rows "
    "behind call_s point_s variance prior_df prior_variance protocol point_id run_id result_id machine_id item "
    "items_per_s sample_no attempt counts session n_sessions session_variance "
    "session_df"
)


@dataclass(frozen=True)
class Experiment:
    """An experiment: a function that makes a workload from a device and a point's parameters.

    smaller: function from a point's parameters to a cheaper point's parameters (None if there is no cheaper point).
        Cheaper points are timed first, to predict a point's time.
    memory: function from a point's parameters to the bytes the point needs.
    flop: function from a point's parameters to the operations per call, if these determine the call's time.
    fits: device kinds to measure.
    environment: function from a point's parameters to environment variables for its measuring process; by default
        the variables for its `backend`.
    call_s: seconds per call on the calibration machine, for workloads without `flop`.
    extra_s: seconds per point beyond data, warm-up and samples (profiling, compiling, starting processes): a number, or
        a function of point_s, the predicted call_s and the parameters, among which `threads` is 0 on a GPU.
    observed: True if the measuring core times nothing; point_s is then the time for the observation.
    lasting: True if points use exactly their point_s by design.
    load_s: extra seconds that a process needs before its first point, to load models and training data.
    protocol: version of the measurement. Raise it if the same parameters measure something else than before: other
        inputs, another network, another timed region or another meaning of a metric. Rounds with different protocols
        are never mixed.
    metric_protocols: protocols of single metrics that changed although the others did not.
    lacks: function from the node's devices (record entries, the measured device first) and a point's parameters to the
        reason why the point cannot run there; '' if it can, according to the record. The function must not start or
        import anything.
    """

    name: str
    function: Callable[..., Workload]
    parameters: dict[str, Any]
    smaller: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
    memory: Callable[..., float] | None = None
    flop: Callable[..., float] | None = None
    fits: tuple[str, ...] = ("cpu", "gpu")
    environment: Callable[[dict[str, Any]], dict[str, str]] = lambda params: backends.environment(
        params.get("backend", "")
    )
    call_s: Callable[..., float] | None = None
    extra_s: Callable[..., float] | float = 0.0
    observed: bool = False
    lasting: bool = False
    load_s: float = 0.0
    protocol: int = 1
    metric_protocols: Mapping[str, int] = field(default_factory=dict)
    lacks: Lacks = lambda *_: ""

    @property
    def description(self) -> str:
        """The first line of the docstring of the module that defines the experiment."""
        return (inspect.getdoc(inspect.getmodule(self.function)) or "").split("\n", 1)[0]

    def schema(self) -> dict[str, Any]:
        """Return a JSON Schema per parameter, from the function's type hints."""
        return {name: _schema(hint) for name, hint in self.parameters.items()}

    def fault(self) -> str:
        """Return an instruction to fix the definition; '' if it is valid."""
        if not re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", self.name) or self.name in _REGISTRY:
            return "choose a unique name: lowercase letters and digits, with hyphens between words"
        if "threads" not in self.parameters:
            return "add the parameter `threads: Threads` (Threads is in experiments.workload); on a GPU its value is 0"
        for key, hint in self.parameters.items():
            expected = next((name for name, (kind, _) in OWN.items() if hint == kind), key)
            if expected != key:
                return f"parameter {key!r}: rename it to {expected!r}"
            if key in TAKEN.split():
                return f"parameter {key!r}: a column has that name: choose another"
            if key in OWN and hint != OWN[key][0] and (key == "threads" or get_origin(hint) is not Literal):
                return f"parameter {key!r}: make its type {OWN[key][1]}"
            if not _schema(hint):
                return f"parameter {key!r}: make its type int, float, str, bool, Footprint, a Literal or an enum"
        for number in (self.protocol, *self.metric_protocols.values()):
            if type(number) is not int or number < 1:
                return "protocol: make it a whole number, 1 or more"
        for name in ("memory", "flop", "call_s", "extra_s"):
            arguments = [*self.parameters, *(("call_s", "point_s") if name == "extra_s" else ())]
            value = getattr(self, name)
            try:
                inspect.signature(value if callable(value) else lambda **_: 0).bind(**dict.fromkeys(arguments))
            except TypeError as mismatch:
                return f"{name} is called with all parameters by name, but {mismatch}: accept unused ones by `**_: Any`"
        return ""


_REGISTRY: dict[str, Experiment] = {}


def experiment(name: str, **options: Any) -> Callable[[Callable[..., Workload]], Callable[..., Workload]]:
    """Register a function `(device, **parameters) -> Workload`. options: the other `Experiment` fields.

    Raises StudyError with file and line if the definition is invalid.
    """

    def register(function: Callable[..., Workload]) -> Callable[..., Workload]:
        place = f"{inspect.getsourcefile(function)}, line {function.__code__.co_firstlineno}: experiment {name!r}"
        known = [option.name for option in fields(Experiment)][3:]
        for option in options.keys() - set(known):
            raise StudyError(
                f"{place}: no option {option!r}. Options: {', '.join(known)}.{did_you_mean(option, known)}"
            )
        registered = Experiment(name, function, _parameter_types(function), **options)
        if fault := registered.fault():
            raise StudyError(f"{place}: {fault}")
        _REGISTRY[name] = registered
        return function

    return register


def _parameter_types(function: Callable[..., Workload]) -> dict[str, Any]:
    """Return the types of the parameters that follow the device, by name; None for a missing type."""
    hints = get_type_hints(function, include_extras=True)
    return {key: hints.get(key) for key in list(inspect.signature(function).parameters)[1:]}


def experiments() -> dict[str, Experiment]:
    """Import and return all experiments by name, sorted."""
    suite = importlib.import_module("experiments.suite")
    for module in pkgutil.iter_modules(suite.__path__):
        importlib.import_module(f"experiments.suite.{module.name}")
    return dict(sorted(_REGISTRY.items()))


def get_experiment(name: str) -> Experiment:
    """Return the experiment `name`. Raises StudyError with the nearest name if there is none."""
    # Try to load only the experiment's own module, which is faster than loading all.
    module = name.replace("-", "_")
    if name not in _REGISTRY and module.isidentifier() and importlib.util.find_spec(f"experiments.suite.{module}"):
        importlib.import_module(f"experiments.suite.{module}")
    if name not in _REGISTRY and name not in (known := experiments()):
        raise StudyError(f"no experiment {name!r}. Experiments: {', '.join(known)}.{did_you_mean(name, list(known))}")
    return _REGISTRY[name]


def _schema(hint: Any) -> dict[str, Any]:
    if hint == Threads:
        return {"type": ["integer", "string"], "minimum": 0, "pattern": "^(1[.][.])?all$"}
    if hint == backends.Library:
        return {"enum": [*backends.NAMES, *backends.GROUPS]}
    if hint in network_names.KINDS:
        return {"enum": network_names.model_names(hint)}
    if hint == Footprint:
        return {"type": ["integer", "string"], "minimum": 1, "pattern": "^[1-9][0-9]{0,3}x(largest)?LLC$"}
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if isinstance(hint, EnumType):
        return {"enum": [str(member) for member in typing.cast(Any, hint)]}
    plain: dict[Any, dict[str, Any]] = {
        int: {"type": "integer", "minimum": 0, "maximum": 10**12},
        float: {"type": "number", "minimum": 0, "maximum": 1e12},
        str: {"type": "string"},
        bool: {"type": "boolean"},
    }
    return dict(plain.get(hint, {}))


def convert_params(experiment: Experiment, params: Params) -> dict[str, Any]:
    """Convert a point's parameters for the experiment's function, which expects number formats as `Dtype`."""
    return {key: Dtype(value) if experiment.parameters[key] is Dtype else value for key, value in params.items()}
