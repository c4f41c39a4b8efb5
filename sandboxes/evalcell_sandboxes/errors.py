"""What can go wrong on the host's side of a wall.

    SandboxError
    ├── SandboxUnavailable   something that must be installed, started or configured first
    └── SandboxFault         the machinery around the guest failed; the same row may work on a second try

A fault of the guest is never an exception: it is a value, an `Outcome`.
"""


class SandboxError(Exception):
    """A wall could not do its work, through no fault of the code behind it."""


class SandboxUnavailable(SandboxError):
    """The sandbox cannot be used here; the message says what is missing and how to get it."""

    def __init__(self, sandbox: str, reason: str) -> None:
        super().__init__(f"Sandbox {sandbox!r} is unavailable: {reason}")
        self.sandbox = sandbox
        self.reason = reason


class SandboxFault(SandboxError):
    """The machinery around the guest failed. Nothing is known about the row that was in flight."""
