"""`make bench`: compare the measuring core with compiled loops, bare libraries and `torch.utils.benchmark`.

`python -m studies.bench` measures for 15 minutes and writes docs/bench.json and docs/bench.md.
"""
