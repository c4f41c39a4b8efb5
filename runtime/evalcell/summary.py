"""What a run came to: for people as a table, for machines as JSON."""

import math
import time
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from evalcell.choice import Choice
from evalcell.plan import Plan
from evalcell.records import Aggregates, Record
from evalcell.tally import Summary as NameSummary
from evalcell.tally import Tally


class Summary:
    """Collects tallies while a run goes on."""

    def __init__(self, plan: Plan, choice: Choice, started_ns: int) -> None:
        self.plan = plan
        self.choice = choice
        self.seed = plan.confinement.seed
        self.tally = Tally()
        self.failures: list[Record] = []
        self.aggregates = Aggregates()
        self._started_ns = started_ns
        self._rows_started: float | None = None
        self._rows_ended = 0.0

    def start(self) -> None:
        """Starts the clock, the first time."""
        if self._rows_started is None:
            self._rows_started = self._rows_ended = time.perf_counter()

    def add(self, tally: Tally, failures: list[Record]) -> None:
        self.tally.merge(tally)
        self.failures += failures
        self._rows_ended = time.perf_counter()

    @property
    def seconds(self) -> float:
        """From the first row handed out to the last one back."""
        return max(self._rows_ended - (self._rows_started or 0.0), 1e-6)

    @property
    def seconds_so_far(self) -> float:
        """From the first row handed out until now."""
        return 0.0 if self._rows_started is None else time.perf_counter() - self._rows_started

    @property
    def rows_per_second(self) -> float:
        return self.tally.rows / self.seconds

    def to_dict(self, out: str | None) -> dict[str, Any]:
        """Everything as plain values that JSON can hold."""
        return {
            "evaluator": self.plan.evaluator,
            "version": self.plan.version,
            "sandbox": self.plan.sandbox,
            "reason": self.choice.reason,
            "isolation": self.plan.confinement.isolation,
            "started": datetime.fromtimestamp(self._started_ns / 1e9, UTC).isoformat(),
            "seed": self.seed,
            "rows": self.tally.rows,
            "failed": self.tally.failed,
            "failures": self.tally.failures,
            "scores": {name: _numbers(summary) for name, summary in list(self.tally.names.items())},
            "aggregates": dict(self.aggregates.numbers),
            "aggregate_error": _aggregate_error(self.aggregates),
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows_per_second, 1),
            "out": out,
        }


def _aggregate_error(found: Aggregates) -> dict[str, Any] | None:
    if found.error is None:
        return None
    return {**structs.asdict(found.error), "stdout": found.stdout, "stderr": found.stderr}


def _numbers(summary: NameSummary) -> dict[str, Any]:
    scores = summary.scores
    return {
        "scored": summary.scored,
        "skipped": summary.skipped,
        "mean": _finite(scores.mean) if scores.count else None,
        "stderr": _finite(scores.stderr),
        "min": scores.least if scores.count else None,
        "max": scores.most if scores.count else None,
        "passed": summary.passed if summary.judged else None,
        "judged": summary.judged,
        "labels": summary.labels,
    }


def _finite(value: float | None) -> float | None:
    """Scores near the largest float can add up to more than one holds; JSON has no word for that."""
    return value if value is not None and math.isfinite(value) else None
