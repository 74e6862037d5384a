"""`make bench`: the measuring core against compiled loops, bare libraries and `torch.utils.benchmark`.

Not tests: `python -m studies.bench` measures for a quarter of an hour and writes docs/bench.json and docs/bench.md.
"""
