"""`make bench`: compare the measuring core with compiled loops, bare libraries and `torch.utils.benchmark`.

The measuring core is the code in `experiments` that runs and times a point.
`python -m studies.bench` measures for 15 minutes and writes docs/bench.json and docs/bench.md.
"""
