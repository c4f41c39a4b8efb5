"""What comes of an attack in a container, where that is something else than in WebAssembly.

A container has an operating system of its own: it has processes, threads, signals, sockets that lead nowhere, a small
disk, and it shares the kernel and the clock with the host. So what WebAssembly lacks is there, and does no harm. That
is asserted in any case: no canary moves, the outcome comes in time, and the row after the attack is right.
"""

from dataclasses import replace

from catalogue.attack import Attack, returned_true
from evalcell_sandboxes import Crashed, Exceeded, Invalid, Raised, Returned

_SHOWN = frozenset(
    f"learn-{what}"
    for what in (
        "own-maps", "kernel", "devices", "root", "link", "user", "user-id", "processes", "kernel-release", "clock",
        "boot-time", "load", "interfaces", "descriptors", "name-lookup",
    )
)  # fmt: skip
"""What a container shows of itself, and of the kernel that it shares. None of it is a secret of the host."""

_OWN = frozenset({"signal-handler", "raise-limits", "threads-many"})
"""What a process may do to itself."""

_OUTCOMES = {
    # There is nobody on the other end: of a loopback of its own, of no network at all.
    "connect-": (Raised, Returned),
    # What is started has nowhere to write to, and may speak with two voices.
    "start-": (Raised, Returned, Invalid, Crashed),
    "fork-many": (Raised, Returned, Invalid, Crashed),
    "kill": (Raised,),
    "learn-": (Raised, Returned, Invalid),
    "signal-handler": (Returned,),
    "raise-limits": (Returned, Raised),
    "threads-many": (Returned,),
    # A process has a stack that ends, and dies there; CPython 3.12 looks before it does.
    "dig-": (Raised, Exceeded, Crashed, Returned),
    "grow-recursion": (Exceeded, Crashed, Raised),
    "wait-future": (Exceeded,),
    "flood-": (Returned, Exceeded, Raised),
    "bend-locale": (Returned, Raised),
    "bend-len": (Returned, Crashed, Raised, Invalid),
    # Of its own row an author may say what he likes, but only once, and then the process must be gone.
    "forge-own-voice": (Invalid, Returned, Exceeded),
    "forge-": (Returned, Invalid, Raised, Exceeded),
}


_IN_GVISOR = {
    # It shows what environment a process was started with, whoever asks; which is the same for all, and nobody's.
    "read-own-environ": (Returned,),
    "read-other-environs": (Returned,),
    # A terminal there does not end with the process that it was made for, so who listens to it listens on.
    "start-pty": (Exceeded,),
}


def in_container(attack: Attack, *, gvisor: bool = False) -> Attack:
    """The same attack, with what must come of it there."""
    if gvisor and attack.name in _IN_GVISOR:
        return replace(attack, outcomes=_IN_GVISOR[attack.name], names=())
    outcomes = next((found for prefix, found in _OUTCOMES.items() if attack.name.startswith(prefix)), None)
    if outcomes is None:
        return attack
    return replace(attack, outcomes=outcomes, names=())


def shows(attack: Attack) -> bool:
    """Whether what it learns is nobody's secret there."""
    return attack.succeeded is returned_true and attack.name in _SHOWN | _OWN
