"""What a run leaves behind: numbers for machines, a table for people."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DIGITS = 4


@dataclass(frozen=True)
class Measurement:
    """One number, and the name of the number of the same run that it is to be read against."""

    name: str
    value: float
    unit: str
    baseline: str | None = None


@dataclass(frozen=True)
class Bar:
    """What a measurement is to reach: rows/s at least, anything else at most."""

    name: str
    value: float

    def met(self, found: Measurement) -> bool:
        return found.value >= self.value if self._is_floor(found) else found.value <= self.value

    def shown(self, found: Measurement) -> str:
        """The bar as it stands beside the measurement."""
        most = "at least" if self._is_floor(found) else "at most"
        return f"{most} {_shown(self.value)}: {'met' if self.met(found) else 'missed'}"

    def _is_floor(self, found: Measurement) -> bool:
        return found.unit == "rows/s"


def entries(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """The measurements as README.md documents them: a ratio is the value divided by the baseline's value.

    It is null where there is no baseline, or the baseline could not be measured.
    """
    values = {measurement.name: measurement.value for measurement in measurements}
    return [
        {
            "name": found.name,
            "value": _rounded(found.value),
            "unit": found.unit,
            "baseline": found.baseline,
            "ratio": _rounded(found.value / values[found.baseline]) if found.baseline in values else None,
        }
        for found in measurements
    ]


def write(path: Path, measurements: Sequence[Measurement]) -> None:
    """Leaves the entries at `path`, one a line, so that two runs can be compared line by line."""
    lines = ",\n".join(json.dumps(entry, allow_nan=False) for entry in entries(measurements))
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def table(measurements: Sequence[Measurement], bars: Sequence[Bar] = ()) -> str:
    """The entries for people, with a blank line between groups, and beside each the bar that it is held to."""
    lines, group, beside = [], None, {bar.name: bar for bar in bars}
    for found, entry in zip(measurements, entries(measurements), strict=True):
        if group != (group := entry["name"].rpartition("/")[0]):
            lines.append("")
        line = f"{entry['name']:<58} {_shown(entry['value']):>9} {entry['unit']:<6}"
        if entry["ratio"] is not None:
            line += f" {_shown(entry['ratio']):>8} x {entry['baseline'].rpartition('/')[2]}"
        if (bar := beside.get(found.name)) is not None:
            line = f"{line:<107} {bar.shown(found)}"
        lines.append(line.rstrip())
    return "\n".join(lines[1:])


def out_of_reach(measurements: Sequence[Measurement], bars: Sequence[Bar]) -> list[str]:
    """A sentence for each bar that this machine cannot reach, because what it is read against misses it too."""
    by_name = {found.name: found for found in measurements}
    held = [(bar, by_name[bar.name].baseline) for bar in bars if bar.name in by_name]
    best = [(bar, by_name[name]) for bar, name in held if name in by_name]
    return [
        f"{found.name} itself is {_shown(found.value)} {found.unit}, with no wall at all: on this machine, as it is "
        f"now, the bar of {_shown(bar.value)} {found.unit} for {bar.name} is out of reach. Read the ratio."
        for bar, found in best
        if not bar.met(found)
    ]


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 ** (_DIGITS - 1) else f"{value:.{_DIGITS - 1}g}"


def _rounded(value: float) -> float:
    """To the digits that mean something on a machine that does other things too."""
    return float(f"{value:.{_DIGITS}g}")
