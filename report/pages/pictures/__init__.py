"""Pictures to pass on: each module defines a `FAMILY` with one figure, whose page has the figure as its preview."""

PICTURES = ("verdict_squares", "time_ladder", "hours_dollars", "tokens_bandwidth", "memory_fit")
