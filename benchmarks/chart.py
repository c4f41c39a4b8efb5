"""Draws rows per second as an SVG. By hand, because a plotting library would be a heavy dependency for one chart."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

_WIDTH = 760
_LEFT, _RIGHT = 24, 652
"""Where the axis begins and ends. What is left to the right is room for the labels of the longest bars."""
_TOP = 104
_TITLE_HEIGHT, _BAR_STEP, _BAR_HEIGHT, _GROUP_GAP = 22, 16, 11, 18

TIMES = "\N{MULTIPLICATION SIGN}"

_STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: var(--text) }
.title { font-size: 17px; font-weight: 600 }
.group { font-size: 13px; font-weight: 600 }
.quiet { fill: var(--quiet) }
.small { font-size: 11px }
.strong { font-weight: 600 }
.end { text-anchor: middle }
.ground { fill: var(--ground) }
.grid { stroke: var(--grid); stroke-width: 1 }
svg { --ground: #ffffff; --text: #1f2328; --quiet: #656d76; --grid: #e4e7eb;
  --series0: #9aa2ad; --series1: #6fb3e8; --series2: #0b62c4; --series3: #d9822b }
@media (prefers-color-scheme: dark) {
  svg { --ground: #0d1117; --text: #e6edf3; --quiet: #8d96a0; --grid: #272d36;
    --series0: #7d8590; --series1: #2f6f9f; --series2: #58b1ff; --series3: #e09b4a }
}
"""


@dataclass(frozen=True)
class Series:
    """The bars of one colour, by the title of their group. A bar says how many times the one it is against it is."""

    title: str
    values: Mapping[str, float]
    against: Mapping[str, float] = field(default_factory=dict)
    emphasised: bool = False


def draw(title: str, subtitle: str, caption: str, groups: Sequence[str], series: Sequence[Series]) -> str:
    """A group of bars for each title in `groups`, on a log scale; a bar that has no value is left out."""
    scale = _Scale.over([value for one in series for value in one.values.values()])
    group_height = _TITLE_HEIGHT + _BAR_STEP * len(series) + _GROUP_GAP
    bottom = _TOP + group_height * len(groups) - _GROUP_GAP + 6
    height = bottom + 56
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(_in_words(groups, series))}</desc>',
        f"<style>{escape(_STYLE)}</style>",
        f'<rect class="ground" width="{_WIDTH}" height="{height}" rx="8"/>',
        _text(_LEFT, 34, title, "title"),
        _text(_LEFT, 55, subtitle, "quiet"),
        *_legend(series),
        *_axis(scale, bottom),
    ]
    for number, group in enumerate(groups):
        parts += _group(group, _TOP + number * group_height, series, scale)
    parts += [_text(_LEFT, height - 14, caption, "quiet small"), "</svg>"]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True)
class _Scale:
    """Powers of ten between two edges."""

    first: int
    last: int

    @classmethod
    def over(cls, values: Sequence[float]) -> "_Scale":
        # A smallest value that lies on a power of ten would have a bar of no length: begin one below it.
        first = math.ceil(math.log10(min(values))) - 1
        return cls(first, max(first + 1, math.ceil(math.log10(max(values)))))

    def x(self, value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (math.log10(value) - self.first) / (self.last - self.first)


def _legend(series: Sequence[Series]) -> list[str]:
    step = (_WIDTH - 2 * _LEFT) / len(series)
    parts = []
    for number, one in enumerate(series):
        x = _LEFT + number * step
        parts.append(_bar(x, 72, 11, number))
        parts.append(_text(x + 17, 82, one.title, "strong" if one.emphasised else ""))
    return parts


def _axis(scale: _Scale, bottom: float) -> list[str]:
    parts = []
    for power in range(scale.first, scale.last + 1):
        x = scale.x(10.0**power)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom:.1f}"/>')
        parts.append(_text(x, bottom + 16, f"{10.0**power:,g}" if power < 0 else f"{10**power:,}", "quiet small end"))
    return parts


def _group(group: str, top: float, series: Sequence[Series], scale: _Scale) -> list[str]:
    parts = [f'<rect class="ground" x="{_LEFT}" y="{top}" width="{_text_width(group)}" height="18"/>']
    parts.append(_text(_LEFT, top + 14, group, "group"))
    for number, one in enumerate(series):
        if (value := one.values.get(group)) is None:
            continue
        y = top + _TITLE_HEIGHT + number * _BAR_STEP
        end = scale.x(value)
        parts.append(_bar(_LEFT, y, end - _LEFT, number))
        parts.append(_label(end + 6, y + 10, value, one.against.get(group), one))
    return parts


def _label(x: float, y: float, value: float, against: float | None, series: Series) -> str:
    """The value, and how many times the other one it is; on the ground's colour, so that no grid line runs through."""
    number = _shown(value)
    ratio = "" if against is None else f"{_shown(value / against)}{TIMES}"
    width = _text_width(f"{number} {ratio}".strip(), 7)
    ground = f'<rect class="ground" x="{x - 3:.1f}" y="{y - 10:.1f}" width="{width + 4:.1f}" height="12"/>'
    classes = "strong" if series.emphasised else ""
    tail = f'<tspan class="quiet" dx="6">{ratio}</tspan>' if ratio else ""
    return f'{ground}<text class="{classes}" x="{x:.1f}" y="{y:.1f}">{number}{tail}</text>'


def _shown(value: float) -> str:
    """With as many digits as a noisy machine deserves: three, or two below ten."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 10 else f"{value:.1f}"  # noqa: PLR2004


def _bar(x: float, y: float, width: float, number: int) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BAR_HEIGHT}"'
    return f'<rect {place} rx="2" fill="var(--series{number})"/>'


def _text(x: float, y: float, text: str, classes: str) -> str:
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _text_width(text: str, character: float = 7.5) -> float:
    """About how wide a text will be; nobody knows the reader's fonts."""
    return len(text) * character


def _in_words(groups: Sequence[str], series: Sequence[Series]) -> str:
    """The chart for those who cannot see it."""
    return " ".join(
        f"{group}: "
        + ", ".join(f"{one.title} {_shown(one.values[group])}" for one in series if group in one.values)
        + "."
        for group in groups
    )
