"""Measurement families: each module in this package defines a `FAMILY`, which becomes a page."""

import pkgutil

# Page order; unlisted modules come last.
ORDER = (
    "training", "time_to_train", "convergence", "inference", "runtimes", "language", "serving", "tables",
    "matrix_products", "parallelism", "one_thread", "memory", "roofline", "model_steps", "transfers", "orchestration",
    "numerics", "without_cuda", "published", "checks",
)  # fmt: skip
_FOUND = sorted(module.name for module in pkgutil.iter_modules(__path__))
FAMILIES: tuple[str, ...] = tuple(sorted(_FOUND, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)))
