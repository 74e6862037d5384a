"""Places for labels beside marks: where each covers neither a mark nor another label, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Box = tuple[float, float, float, float]  # left, bottom, right, top, in inches


@dataclass
class Places:
    """What is taken of a panel of so many inches; marks are squares of the side `mark`."""

    wide: float
    high: float
    character: float
    line: float
    mark: float = 0.09
    taken: list[Box] = field(default_factory=list)

    def keep_off(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Marks at these places, in inches from the lower left."""
        half = self.mark / 2
        self.taken += [(x - half, y - half, x + half, y + half) for x, y in zip(xs, ys, strict=True)]

    def keep_off_line(self, x: float, low: float, high: float) -> None:
        """An upright line."""
        self.taken.append((x - 0.02, low, x + 0.02, high))

    def free(self, box: Box) -> bool:
        """Whether nothing lies there."""
        return self._inside(box) and not any(_overlap(box, other) for other in self.taken)

    def beside(self, x: float, y: float, text: str) -> tuple[float, float, str] | None:
        """A free place for `text` beside (x, y): anchor, in the middle of its height, and alignment; None if none is.

        Tried in turn: right, left, and both and the middle a line higher and lower.
        """
        long, gap = self.character * len(text), self.mark
        for rise in (0.0, self.line, -self.line):
            for left, align in ((x + gap, "left"), (x - gap - long, "right"), (x - long / 2, "center")):
                if align == "center" and not rise:
                    continue
                box = (left, y + rise - self.line / 2, left + long, y + rise + self.line / 2)
                if self.free(box):
                    self.taken.append(box)
                    return {"left": left, "right": left + long, "center": x}[align], y + rise, align
        return None

    def _inside(self, box: Box) -> bool:
        return box[0] >= 0 and box[1] >= 0 and box[2] <= self.wide and box[3] <= self.high


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
