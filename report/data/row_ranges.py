"""Row numbers as compact text ranges."""

from __future__ import annotations

from collections.abc import Sequence


def format_ranges(numbers: Sequence[int]) -> str:
    """Format row numbers as sorted ranges, as in '3-5 9' for 3, 4, 5 and 9."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def parse_ranges(text: str) -> list[int]:
    """Parse a text from `format_ranges`; return the row numbers."""
    ends = [[int(end) for end in run.split("-")] for run in text.split()]
    return [number for run in ends for number in range(run[0], run[-1] + 1)]
