"""Advice for a reader's own job: whether it fits on a machine, how long it takes, and what it costs."""
