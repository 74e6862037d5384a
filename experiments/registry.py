"""The experiments there are: found by importing `experiments.suite`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import EnumType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from contract.errors import StudyError
from contract.schema import did_you_mean
from experiments import backends
from experiments.models import network_names
from experiments.workload import Dtype, Footprint, Threads, Workload

Params = Mapping[str, Any]
# From the devices of a node and a point's parameters to why the point cannot be done there.
Lacks = Callable[[Sequence[Mapping[str, Any]], Params], str]


# Parameters that are columns of the samples, and mean the same in every experiment: their types, and these in words.
OWN: dict[str, tuple[Any, str]] = {
    "threads": (Threads, "Threads"),
    "backend": (backends.Library, "Library or a Literal of names"),
    "dtype": (Dtype, "Dtype or a Literal of its names"),
}
# What else is a column of the samples, of the summary or of estimates, or is given to `extra_s`.
TAKEN = (
    "node run round experiment device params metric sample value unit calls flop bytes status reason stop_reason error "
    "tolerance elapsed_s clock_mhz memory_clock_mhz temperature_c power_w utilisation other_load steal flags origin "
    "n_rounds n_samples n_disturbed estimate low high log_se df flop_per_s bytes_per_s row se detail source_rows "
    "behind call_s point_s"
)


@dataclass(frozen=True)
class Experiment:
    """An experiment: a function from a device and a point's parameters to the work.

    smaller: from a point's parameters to those of a cheaper one of the same kind
        (None at the end); the runner predicts a point's time from it before it dares.
    memory: bytes that a point needs, from its parameters.
    flop: operations of one call, from a point's parameters, where they tell how long it takes.
    fits: kinds of device on which the question makes sense.
    environment: variables with which the process that measures a point is started,
        from the point's parameters; without it, those of its `backend`.
    call_s: seconds of one call, where no operations tell them, on the machine by which the constants were found.
    extra_s: seconds that a point takes beside its data, warm-up and samples (profiling, compiling, starting
        processes): a number, or from its point_s, the call_s that a call should take, and its parameters; a GPU's have
        no threads.
    observed: nothing is timed by the core, so that point_s is what making the observation takes.
    lasting: its points take the whole of their point_s by design, and not more.
    load_s: seconds that its first point in a process takes more: to load models, and the data they learn from.
    lacks: from the node's devices (entries of its record) and a point's parameters, why the point
        cannot be done there; '' if it can, as far as the record tells. It starts and imports nothing.
    """

    name: str
    function: Callable[..., Workload]
    parameters: dict[str, Any]
    smaller: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
    memory: Callable[..., float] | None = None
    flop: Callable[..., float] | None = None
    fits: tuple[str, ...] = ("cpu", "gpu")
    environment: Callable[[dict[str, Any]], dict[str, str]] = lambda of: backends.environment(of.get("backend", ""))
    call_s: Callable[..., float] | None = None
    extra_s: Callable[..., float] | float = 0.0
    observed: bool = False
    lasting: bool = False
    load_s: float = 0.0
    lacks: Lacks = lambda *_: ""

    @property
    def says(self) -> str:
        """The first line of the module's description."""
        return (inspect.getdoc(inspect.getmodule(self.function)) or "").split("\n", 1)[0]

    def schema(self) -> dict[str, Any]:
        """JSON Schema of each parameter, from the function's type hints."""
        return {name: _schema(hint) for name, hint in self.parameters.items()}

    def fault(self) -> str:
        """What every experiment has and this one has not, and what to do about it; '' if it has all."""
        if not re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", self.name) or self.name in _REGISTRY:
            return "give it a name of its own, of small letters and digits, with hyphens between words"
        if "threads" not in self.parameters:
            return "add the parameter `threads: Threads` (Threads is in experiments.workload); on a GPU it is given 0"
        for key, hint in self.parameters.items():
            own = next((name for name, (kind, _) in OWN.items() if hint == kind), key)
            if own != key:
                return f"parameter {key!r}: call it {own!r}"
            if key in TAKEN.split():
                return f"parameter {key!r}: a column has that name: give it another"
            if key in OWN and hint != OWN[key][0] and (key == "threads" or get_origin(hint) is not Literal):
                return f"parameter {key!r}: make its type {OWN[key][1]}"
            if not _schema(hint):
                return f"parameter {key!r}: make its type int, float, str, bool, Footprint, a Literal or an enum"
        for name in ("memory", "flop", "call_s", "extra_s"):
            given = [*self.parameters, *(("call_s", "point_s") if name == "extra_s" else ())]
            told = getattr(self, name)
            try:
                inspect.signature(told if callable(told) else lambda **_: 0).bind(**dict.fromkeys(given))
            except TypeError as mismatch:
                return f"{name} is given all parameters by name, but {mismatch}: those it needs not are `**_: Any`"
        return ""


_REGISTRY: dict[str, Experiment] = {}


def experiment(name: str, **options: Any) -> Callable[[Callable[..., Workload]], Callable[..., Workload]]:
    """Register a function `(device, **parameters) -> Work`; options: the other fields of `Experiment`, by name.

    Raises StudyError, with the place, for what every experiment has and this one has not.
    """

    def register(function: Callable[..., Workload]) -> Callable[..., Workload]:
        place = f"{inspect.getsourcefile(function)}, line {function.__code__.co_firstlineno}: experiment {name!r}"
        known = [field.name for field in fields(Experiment)][3:]
        for one in options.keys() - set(known):
            raise StudyError(f"{place}: no option {one!r}. Options: {', '.join(known)}.{did_you_mean(one, known)}")
        made = Experiment(name, function, _parameter_types(function), **options)
        if fault := made.fault():
            raise StudyError(f"{place}: {fault}")
        _REGISTRY[name] = made
        return function

    return register


def _parameter_types(function: Callable[..., Workload]) -> dict[str, Any]:
    """Names and types of what comes after the device; None for a parameter without a type."""
    hints = get_type_hints(function, include_extras=True)
    return {key: hints.get(key) for key in list(inspect.signature(function).parameters)[1:]}


def experiments() -> dict[str, Experiment]:
    """All experiments by name, in alphabetical order."""
    suite = importlib.import_module("experiments.suite")
    for module in pkgutil.iter_modules(suite.__path__):
        importlib.import_module(f"experiments.suite.{module.name}")
    return dict(sorted(_REGISTRY.items()))


def get_experiment(name: str) -> Experiment:
    """The experiment called `name`. Raises StudyError, with the nearest name, if there is none."""
    # Its own module is sooner loaded than all.
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
        return {"enum": network_names.known(hint)}
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
    """The parameters as the function expects them: number formats as `Dtype`."""
    return {key: Dtype(value) if experiment.parameters[key] is Dtype else value for key, value in params.items()}
