"""Families of measurements: a page each, in this order; each is a module of this package with a `FAMILY`."""

FAMILIES = (
    "training", "time_to_train", "convergence", "inference", "serving", "tables", "matrix_products", "parallelism",
    "one_thread", "memory", "roofline", "model_steps", "transfers", "orchestration", "numerics", "without_cuda",
    "published", "checks",
)  # fmt: skip
