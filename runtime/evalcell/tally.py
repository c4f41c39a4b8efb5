"""Running statistics of a run: made in the lanes, merged in the parent, the same up to rounding however it is cut."""

import math

from msgspec import Struct, field


class Moments(Struct):
    """Count, mean and spread of scores without keeping them."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        apart = value - self.mean
        self.mean += apart / self.count
        self.squares += apart * (value - self.mean)
        self.least = min(self.least, value)
        self.most = max(self.most, value)

    @classmethod
    def of(cls, values: list[float]) -> "Moments":
        """Those of many values at a time, which takes a fraction of adding them one by one."""
        mean = sum(values) / len(values)
        if not math.isfinite(mean):  # they add up to more than a float holds
            moments = cls()
            for value in values:
                moments.add(value)
            return moments
        return cls(
            len(values), mean, sum([(value - mean) * (value - mean) for value in values]), min(values), max(values)
        )

    def merge(self, other: "Moments") -> None:
        if not other.count:
            return
        total = self.count + other.count
        if not self.count:  # being nothing apart, however far that is from zero
            self.mean = other.mean
        apart = other.mean - self.mean
        self.mean += apart * other.count / total
        self.squares += other.squares + apart * apart * self.count * other.count / total
        self.count = total
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)

    @property
    def stderr(self) -> float | None:
        """The standard error of the mean; None for fewer than two scores."""
        if self.count < 2:  # noqa: PLR2004
            return None
        return math.sqrt(self.squares / (self.count - 1) / self.count)


class Summary(Struct):
    """What happened to the scores of one name."""

    scored: int = 0
    skipped: int = 0
    passed: int = 0
    judged: int = 0
    scores: Moments = field(default_factory=Moments)
    labels: dict[str, int] = {}

    def merge(self, other: "Summary") -> None:
        self.scored += other.scored
        self.skipped += other.skipped
        self.passed += other.passed
        self.judged += other.judged
        self.scores.merge(other.scores)
        for label, count in other.labels.items():
            count_label(self.labels, label, count)


class Tally(Struct):
    """What happened to all rows so far. A row fails as a whole: it has no names then."""

    rows: int = 0
    failures: dict[str, int] = {}
    names: dict[str, Summary] = {}

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    def merge(self, other: "Tally") -> None:
        self.rows += other.rows
        for kind, count in other.failures.items():
            self.failures[kind] = self.failures.get(kind, 0) + count
        for name, summary in other.names.items():
            self.summary(name).merge(summary)

    def summary(self, name: str) -> Summary:
        """The summary for that name. Names come from the guest: past a hundred they are counted together."""
        known = self.names.get(name)
        if known is not None:
            return known
        name = name[:_MOST_CHARACTERS]
        if name not in self.names and len(self.names) >= _MOST_NAMES:
            name = OTHER_NAMES
        return self.names.setdefault(name, Summary())


_MOST_NAMES = 100
_MOST_LABELS = 50
_MOST_CHARACTERS = 200
OTHER_NAMES = "(other names)"
OTHER_LABELS = "(other labels)"


def count_label(labels: dict[str, int], label: str, count: int = 1) -> None:
    """Counts a label. Free text would make every row its own label, so past fifty they are counted together."""
    label = label[:_MOST_CHARACTERS]
    if label not in labels and len(labels) >= _MOST_LABELS:
        label = OTHER_LABELS
    labels[label] = labels.get(label, 0) + count
