"""`make bench`: the measuring core against compiled loops, bare libraries and other benchmark programs.

Not tests: `python -m tests.bench` measures for twenty minutes and writes docs/bench.{json,md,svg,png}.
"""
