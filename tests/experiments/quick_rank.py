"""Process of a rank, as in `experiments.models.ranks`, but with timings that span only 0.2 s."""

from __future__ import annotations

from experiments.models import ranks

if __name__ == "__main__":
    ranks.SPAN_S = 0.2
    ranks.main()
