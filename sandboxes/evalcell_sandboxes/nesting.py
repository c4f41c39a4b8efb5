"""How deep JSON text is nested, found out without decoding it.

A guest's JSON is decoded on stacks of which nobody knows how deep they are already: in a lane, in the parent, in a
user's program. What is nested no deeper than this can be decoded on all of them.
"""

import re

MOST_LEVELS = 100
# Strings are passed over whole. Possessive, so that no input makes the search go back.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\[\s\S][^"\\]*+)*+"|[\[{]|[\]}]')


def too_deep(text: bytes) -> bool:
    """Whether the text is nested too deep to be decoded just anywhere."""
    if len(text) <= MOST_LEVELS or text.count(b"[") + text.count(b"{") <= MOST_LEVELS:
        return False
    depth = 0
    for token in _TOKENS.finditer(text):
        mark = token[0]
        if mark in (b"[", b"{"):
            depth += 1
            if depth > MOST_LEVELS:
                return True
        elif mark in (b"]", b"}"):
            depth -= 1
    return False
