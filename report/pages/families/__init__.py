"""Families of measurements, a page each: each module of this package has a `FAMILY`."""

import pkgutil

# The order of their pages; what is not listed comes after.
_ORDER = (
    "training", "time_to_train", "convergence", "inference", "runtimes", "language", "serving", "tables",
    "matrix_products", "parallelism", "one_thread", "memory", "roofline", "model_steps", "transfers", "orchestration",
    "numerics", "without_cuda", "published", "checks",
)  # fmt: skip
_FOUND = sorted(module.name for module in pkgutil.iter_modules(__path__))
FAMILIES: tuple[str, ...] = tuple(
    sorted(_FOUND, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
)
