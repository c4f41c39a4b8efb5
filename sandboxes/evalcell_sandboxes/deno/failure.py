"""What can end a conversation with the guest, and what it means."""

import signal
from typing import TYPE_CHECKING

from evalcell_sandboxes.outcome import Crashed, Exceeded, Usage
from evalcell_sandboxes.program import Limits

if TYPE_CHECKING:
    from evalcell_sandboxes.deno.process import Guest


class Deadline(Exception):
    """The guest has not answered in time."""

    def __str__(self) -> str:
        return "it did not answer in time"


class Died(Exception):
    """The guest's process is gone."""

    def __str__(self) -> str:
        return "its process died"


class Flooded(Died):
    """The guest has said more in a line than it ever has to say, and was killed."""

    def __str__(self) -> str:
        return "it said more than it may"


def ended(guest: "Guest", end: Died | Deadline, limit: str, limits: Limits, usage: Usage) -> Exceeded | Crashed:
    """What the end of a conversation means for the call that it was about, under that limit. The guest is closed."""
    if isinstance(end, Deadline):
        guest.close()
        return _exceeded(limit, limits, usage)
    ran_into, code = guest.ending()
    return _exceeded(ran_into, limits, usage) if ran_into else _crashed(code, usage)


def _exceeded(limit: str, limits: Limits, usage: Usage) -> Exceeded:
    if limit == "stack":
        return Exceeded(limit=limit, message="the stack is used up: something is nested too deeply", usage=usage)
    most = getattr(limits, limit)
    amount = f"{most:g} s" if limit.endswith("_seconds") else f"{most:,} bytes"
    return Exceeded(limit=limit, message=f"the call ran into its limit of {amount}", usage=usage)


def _crashed(code: int, usage: Usage) -> Crashed:
    """The process that held the code has died of what that did."""
    if code >= 0:
        return Crashed(message=f"the process ended with exit code {code}", usage=usage)
    name = next((known.name for known in signal.Signals if known.value == -code), "unknown")
    return Crashed(message=f"the process died of signal {-code} ({name})", usage=usage)
