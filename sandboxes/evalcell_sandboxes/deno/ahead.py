"""A guest that is there before it is needed: started while others still import, and left over from parsing a source.

Only a worker process asks for that. It parses one source and then runs it, and whatever that has done to the guest by
being parsed, it may as well do by being run.
"""

from evalcell_sandboxes.deno.process import Guest
from evalcell_sandboxes.program import Limits

_wanted = False
_guest: Guest | None = None
_source: str | None = None
"""What that guest has parsed."""


def get_ready() -> None:
    """Starts a guest, and keeps one from now on that has parsed a source."""
    global _wanted, _guest
    _wanted, _guest = True, Guest(Limits().memory_bytes)


def take(memory_bytes: int, source: str) -> Guest:
    """A guest for a source: the one that is there if it has seen no other and may use that much, else a new one."""
    global _guest
    found, _guest = _guest, None
    if found is None:
        return Guest(memory_bytes)
    if found.alive and found.memory_bytes == memory_bytes and _source in (None, source):
        return found
    found.close()
    return Guest(memory_bytes)


def keep(guest: Guest, source: str) -> None:
    """Keeps a guest for the source that it has parsed, or ends it where nobody wants that."""
    global _guest, _source
    if _wanted:
        _guest, _source = guest, source
    else:
        guest.close()
