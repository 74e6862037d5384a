"""Surprising results, each measured a second time by other means.

Nothing here shares code with `experiments`: other libraries, another compiler, another clock, loops written by hand.
`python -m studies.replication --verdicts results/verdicts.json --out data/second.json` writes each result beside the
first and says whether it lies on the same side of the claim's threshold. Minutes on two cores, on a machine that is
otherwise idle.
"""
