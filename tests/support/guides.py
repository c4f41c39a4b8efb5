"""Reads guides: which files they have one write, and which commands they show with which output."""

import re
from collections.abc import Iterator
from pathlib import Path

GUIDES = Path(__file__).parent.parent.parent / "docs" / "guides"
_STEP = re.compile(r"(?:<!-- (?P<file>[\w.]+) -->\n)?```(?P<language>\w+)\n(?P<content>.*?)```", re.DOTALL)


def steps(guide: str) -> list[re.Match[str]]:
    """The blocks of a guide, in order: a file to write, commands to run, or something only to read."""
    return list(_STEP.finditer((GUIDES / guide).read_text(encoding="utf-8")))


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, with the output that is shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output
