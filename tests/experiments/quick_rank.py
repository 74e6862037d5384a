"""Rank as in `experiments.models.ranks`, but with a timing span far below a second."""

from __future__ import annotations

from experiments.models import ranks

if __name__ == "__main__":
    ranks.SPAN_S = 0.2
    ranks.main()
