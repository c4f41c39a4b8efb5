"""What can go wrong on the host's side of a wall.

    SandboxError
    ├── SandboxUnavailable   something that must be installed, started or configured first
    └── SandboxFault         the machinery around the guest failed; the same row may work on a second try
    DependencyProblem        packages that an evaluator asks for and cannot have, whichever machine it runs on

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


class DependencyProblem(Exception):
    """The packages cannot be had as they are asked for; the message says which, why, and what to change.

    No `SandboxError`: the wall is well, and the evaluator's author or the operator has something to change.
    """
