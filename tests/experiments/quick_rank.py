"""A rank that times its steps for a moment, not for seconds: `experiments.models.ranks` otherwise."""

from __future__ import annotations

from experiments.models import ranks

if __name__ == "__main__":
    ranks.SPAN_S = 0.2
    ranks.main()
