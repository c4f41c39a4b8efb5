"""What an evaluator says its scores mean: their range or labels, which way is better, what passes."""

import math
from typing import Literal

from msgspec import Struct

_TOLERANCE = 1e-9
"""A float this close to its range is a rounding error, and is moved onto the range."""


class Output(Struct, frozen=True):
    """The output configuration. Without one everything is accepted: `freeform`.

    `continuous` scores lie between `low` and `high`. A `categorical` label is one of `labels`, whose value is its
    score where it has one. `threshold` decides what passes, together with `direction`.
    """

    kind: Literal["continuous", "categorical", "freeform"] = "freeform"
    low: float = -math.inf
    high: float = math.inf
    labels: dict[str, float | None] = {}
    direction: Literal["maximize", "minimize"] = "maximize"
    threshold: float | None = None

    def in_range(self, score: float) -> float | None:
        """The score, moved onto the range where rounding put it just outside; None when it is really outside."""
        if self.low <= score <= self.high:
            return score
        if self.low - _TOLERANCE <= score <= self.high + _TOLERANCE:
            return min(max(score, self.low), self.high)
        return None

    def passes(self, score: float) -> bool | None:
        """Whether the score meets the threshold; None without one."""
        if self.threshold is None:
            return None
        return score <= self.threshold if self.direction == "minimize" else score >= self.threshold

    def describe(self) -> str:
        """One line for people."""
        if self.kind == "continuous":
            text = f"continuous {self.low:g}..{self.high:g}"
        elif self.kind == "categorical":
            scores = (f"{label}={score:g}" if score is not None else label for label, score in self.labels.items())
            text = f"categorical {', '.join(scores)}"
        else:
            text = "freeform"
        passing = (
            ""
            if self.threshold is None
            else f", passes {'<=' if self.direction == 'minimize' else '>='} {self.threshold:g}"
        )
        return f"{text}, {self.direction}{passing}"
