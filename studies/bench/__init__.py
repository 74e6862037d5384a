"""`make bench`: the measuring core against compiled loops, bare libraries and other benchmark programs; many nodes.

Not tests: `python -m studies.bench` measures for twenty minutes and writes docs/bench.*, `python -m
studies.bench.scale` gathers and judges a thousand nodes and writes docs/scale.*.
"""
