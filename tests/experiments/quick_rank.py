"""A rank that times its steps for a moment, not for seconds: `experiments.several.rank` otherwise."""

from __future__ import annotations

import sys

from experiments.several import rank, replica

if __name__ == "__main__":
    replica.SPAN_S = 0.2
    sys.exit(rank.main())
