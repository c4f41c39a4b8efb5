"""What came of running guest code once. A guest's fault is one of these values, never an exception."""

from msgspec import Struct


class Usage(Struct, frozen=True, gc=False):
    """What one call used. `wall_seconds` includes time slept on a virtual clock.

    `memory_bytes` is the peak of the sandbox's memory; None where the platform does not tell.
    """

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int | None = None


class _Outcome(Struct, frozen=True, kw_only=True, tag=True, gc=False):
    stdout: str = ""
    stderr: str = ""
    usage: Usage = Usage()


class Returned(_Outcome, frozen=True, kw_only=True, gc=False):
    """The call came back with a value, as JSON text that nobody has looked into yet."""

    value: bytes


class Raised(_Outcome, frozen=True, kw_only=True, gc=False):
    """The guest's code raised. The traceback holds the user's own lines only."""

    exception: str
    message: str
    traceback: str = ""


class Exceeded(_Outcome, frozen=True, kw_only=True, gc=False):
    """The call used up one of its limits; `limit` is the name of a field of `Limits`, or "stack"."""

    limit: str
    message: str


class Crashed(_Outcome, frozen=True, kw_only=True, gc=False):
    """The process or instance that held the guest's code died of what the code did."""

    message: str


class Invalid(_Outcome, frozen=True, kw_only=True, gc=False):
    """The call came back with something that cannot be carried out of the sandbox."""

    message: str


Failure = Raised | Exceeded | Crashed | Invalid
Outcome = Returned | Failure
