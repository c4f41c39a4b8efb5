"""Text from evaluators and datasets, made safe to print on a terminal."""

import json
from typing import Any

_SHOWN_CHARACTERS = 400


def printable(text: str, *, lines: bool = False) -> str:
    """The text with control characters spelled out: an evaluator's message must not move the cursor or set a title."""
    return "".join(
        c if c.isprintable() or (lines and c == "\n") else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )


def shown(value: Any) -> str:
    """A value in one line, cut when it is long."""
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} ... ({len(text):,} characters)"
