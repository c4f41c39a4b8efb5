"""Paths into a row, such as `output.tool_calls[0].arguments`.

Names, quoted names, indexes, slices and `[*]`, with or without a leading `$.`. Filters and `..` are refused: paths
are written by the author of an evaluator, who is not trusted, and run on the host, where a regular expression in a
filter or a search through the whole row would be his to abuse. A path costs its length times the size of the row.

Values are found as undecoded JSON, level by level. Numbers keep every digit and nothing is built that is not used.
"""

import re
from typing import Final

import msgspec
from msgspec import Raw

from evalcell.errors import UsageError

_MOST_CHARACTERS = 1_000
_STEP = re.compile(
    r"""
    \.?(?P<name>[^\s.\[\]'"$*?()@]+)
    | \[\s*(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*\]
    | \[\s*(?P<index>-?\d{1,9})\s*\]
    | \[\s*(?P<start>-?\d{1,9})?\s*:\s*(?P<stop>-?\d{1,9})?\s*(?::\s*(?P<step>-?\d{1,9})?\s*)?\]
    | (?P<each>\[\s*\*\s*\])
    """,
    re.VERBOSE,
)
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_items = msgspec.json.Decoder(list[Raw]).decode


class Each:
    """The step `[*]`: every element of a list, every value of an object."""


class Missing:
    """What is found where there is nothing. Not the same as null, which is a value."""


MISSING: Final = Missing()
_Step = str | int | slice | type[Each]


class Path:
    """A compiled path. Without a slice or `[*]` it finds one value, with them always a list."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps = _parse(text)
        self.field = self._steps[0] if len(self._steps) == 1 and isinstance(self._steps[0], str) else None
        """The name of the field that the path comes down to, as most do; None where it goes further."""
        self._many = next((n for n, step in enumerate(self._steps) if isinstance(step, slice) or step is Each), None)

    def __repr__(self) -> str:
        return f"Path({self.text!r})"

    def find(self, row: Raw | bytes) -> Raw | Missing:
        """The JSON text of what the path names in the row, or MISSING."""
        return self.find_in_fields(row, None)

    def find_in_fields(self, row: Raw | bytes, fields: dict[str, Raw] | None) -> Raw | Missing:
        """The same, for a row whose top level was decoded already."""
        steps = self._steps
        if fields is not None and steps and isinstance(steps[0], str):
            first = fields.get(steps[0], MISSING)
            return first if len(steps) == 1 or isinstance(first, Missing) else self._follow(first, 1)
        return self._follow(row if isinstance(row, Raw) else Raw(row), 0)

    def _follow(self, value: Raw, position: int) -> Raw | Missing:
        end = len(self._steps) if self._many is None else self._many
        found = _walk(value, self._steps[position:end])
        if self._many is None or isinstance(found, Missing):
            return found
        if not _has_elements(found, self._steps[self._many]):
            return MISSING
        return Raw(b"[" + b",".join(_spread(found, self._steps[self._many :])) + b"]")


def _walk(value: Raw, steps: "list[_Step]") -> Raw | Missing:
    """Follows steps that each lead to one value."""
    for step in steps:
        try:
            value = _fields(value)[step] if isinstance(step, str) else _items(value)[step]  # type: ignore[index]
        except (msgspec.ValidationError, KeyError, IndexError):
            return MISSING
    return value


def _has_elements(value: Raw, step: _Step) -> bool:
    text = bytes(value).lstrip()
    return text.startswith(b"[") or (step is Each and text.startswith(b"{"))


def _spread(value: Raw, steps: "list[_Step]") -> "list[bytes]":
    """Every value that the steps lead to; elements without the rest of the path are left out."""
    if not steps:
        return [bytes(value)]
    step, rest = steps[0], steps[1:]
    if isinstance(step, str | int):
        found = _walk(value, [step])
        return [] if isinstance(found, Missing) else _spread(found, rest)
    try:
        text = bytes(value).lstrip()
        elements = list(_fields(value).values()) if text.startswith(b"{") and step is Each else _items(value)
    except msgspec.ValidationError:
        return []
    chosen = elements[step] if isinstance(step, slice) else elements
    return [leaf for element in chosen for leaf in _spread(element, rest)]


def _parse(text: str) -> "list[_Step]":
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(f"A path of {len(text)} characters is too long; {_MOST_CHARACTERS} are allowed.")
    steps: list[_Step] = []
    position = 1 if text.startswith("$") else 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None or (match["name"] and position and text[position] != "."):
            raise UsageError(_refusal(text, position))
        steps.append(_step(match))
        position = match.end()
    if not steps and text != "$":
        raise UsageError("An empty path names nothing. Write a field's name, or '$' for the whole row.")
    return steps


def to_field(name: str) -> str:
    """The path to the field of a row that has this name, whatever characters are in it."""
    step = _STEP.fullmatch(name)
    if step is not None and step["name"] == name:
        return name
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"


def _step(match: "re.Match[str]") -> _Step:
    if match["name"] is not None:
        return match["name"]
    if match["quoted"] is not None:
        return re.sub(r"\\(.)", r"\1", match["quoted"][1:-1])
    if match["index"] is not None:
        return int(match["index"])
    if match["each"] is not None:
        return Each
    start, stop, step = (None if match[part] is None else int(match[part]) for part in ("start", "stop", "step"))
    if step == 0:
        raise UsageError("A slice with a step of 0 names nothing.")
    return slice(start, stop, step)


def _refusal(text: str, position: int) -> str:
    rest = text[position:]
    if rest.startswith(".."):
        return f"Path {text!r}: '..' (search at any depth) is not supported. Write the whole path."
    if rest.startswith("[?"):
        return f"Path {text!r}: filters ('[?...]') are not supported. Bind the whole list and filter it in evaluate."
    return (
        f"Path {text!r} cannot be read at {rest[:20]!r}. "
        "Write names, [0], [-1], [1:3], [*] and quoted names: output.items[0]['unit price']."
    )
