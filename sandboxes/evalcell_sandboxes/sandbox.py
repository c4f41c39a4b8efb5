"""The contract of a wall: a program and rows in, outcomes out."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import ClassVar, Protocol

from evalcell_sandboxes.description import Description, SyntaxProblem, TypeProblem
from evalcell_sandboxes.disk import Kept
from evalcell_sandboxes.errors import SandboxUnavailable
from evalcell_sandboxes.outcome import Crashed, Exceeded, Outcome
from evalcell_sandboxes.program import Confinement, Language, Limits, Program
from evalcell_sandboxes.site import Site
from evalcell_sandboxes.versions import Version

Raw = bytes
"""One row's bound arguments: the UTF-8 text of a JSON object."""


class Progress(Protocol):
    """Told what slow work is under way. `fraction` is None while it cannot be known."""

    def __call__(self, step: str, fraction: float | None = None) -> None: ...


def silent(step: str, fraction: float | None = None) -> None:
    """A `Progress` that says nothing."""


class Session(ABC):
    """An opened sandbox with the program loaded. Synchronous, used by one thread; to cancel it, kill its process."""

    @property
    @abstractmethod
    def loaded(self) -> Outcome:
        """What came of executing the module: `Returned`, or the failure that makes every row pointless."""

    @abstractmethod
    def fit(self, rows: Sequence[Raw]) -> Outcome:
        """Calls `fit` with the rows' arguments as a list. Every later row starts from the state after it."""

    @abstractmethod
    def bursts(self, rows: Sequence[Raw]) -> Iterator[list[Outcome]]:
        """Runs `evaluate` on each row: one outcome a row, in order, each as soon as it is known.

        Those that became known together come together: one at least, and no more than weigh a few megabytes.

        Raises:
            SandboxFault: The machinery failed. Outcomes already yielded stand; the row in flight has none.
        """

    def run(self, rows: Sequence[Raw]) -> Iterator[Outcome]:
        """The same, one by one."""
        return chain.from_iterable(self.bursts(rows))

    @abstractmethod
    def aggregate(self, results: Raw) -> Outcome:
        """Calls `aggregate` with the decoded JSON list, from the same state that a row starts from."""

    def check(self) -> None:
        """Sees whether what holds the program is still there. Quick, and called while there is nothing else to do.

        Raises:
            SandboxFault: It is gone.
        """
        return


class Sandbox(ABC):
    """One kind of wall. Made from the operator's settings; cheap to make, and making one starts nothing."""

    name: ClassVar[str]
    languages: ClassVar[frozenset[Language]]
    slow_to_open: ClassVar[bool] = False
    """Whether opening takes so long that a spare is worth its memory."""
    takes_batches: ClassVar[bool] = False
    """Whether `evaluate_batch` is called, where rows share state."""

    def __init__(self, site: Site) -> None:
        self._site = site

    @property
    def site(self) -> Site:
        """What another process makes the same sandbox from, wherever it is."""
        return self._site

    @property
    def python(self) -> str | None:
        """The version of the Python behind the wall, for `requires-python`; None where it speaks none."""
        return None

    @property
    def interpreter(self) -> str:
        """What runs the code, with its version, as one says it."""
        return f"Python {self.python}"

    @abstractmethod
    def unavailable_reason(self) -> str | None:
        """None when the sandbox can be used here, else what is missing and how to get it."""

    def versions(self) -> tuple[Version, ...]:
        """The software that this wall is as strong as. Below a floor, `unavailable_reason` refuses to use it."""
        return ()

    def slower_because(self) -> str | None:
        """What this machine lacks that would make it faster; None where nothing. It promises the same without."""
        return None

    def remark(self) -> str | None:
        """What one should know about how it was set up here, as the end of a sentence; None where nothing."""
        return None

    def lock(self, requirements: Sequence[str], progress: Progress, *, anew: bool = False) -> str:  # noqa: ARG002
        """Resolves requirements to exact versions, as text to be kept; `anew` even if that was done before.

        Raises:
            DependencyProblem: They cannot be had.
            SandboxUnavailable: What resolves them is not here.
        """
        raise SandboxUnavailable(self.name, f"packages cannot be installed in it: {', '.join(requirements)}.")

    @abstractmethod
    def guest_identity(self) -> str:
        """Names what the program runs on, by its inputs: two sandboxes of one identity give the same results."""

    @abstractmethod
    def prepare(self, program: Program | None, progress: Progress) -> None:
        """Does the slow work once and caches it. Idempotent, and safe to run in two processes at a time.

        Without a program it prepares what every program needs.

        Raises:
            SandboxUnavailable: Something is missing; the message says what, and how to get it.
        """

    def holding(self, program: Program | None) -> AbstractContextManager[None]:  # noqa: ARG002 - most keep nothing
        """Sees to it that nobody removes what `prepare` makes for the program, or for any without one."""
        return nullcontext()

    def kept(self) -> list[Kept]:
        """What this wall keeps on disk, and could make again."""
        return []

    def discard(self, item: Kept) -> bool:  # noqa: ARG002
        """Removes something that is kept. False where it is in use or something stands on it, and it stays."""
        return False

    def clear_away(self, *, unopened: int) -> None:  # noqa: ARG002 - most walls leave nothing
        """Removes what sessions have left behind whose processes were killed. Does what it can, and never fails.

        So many of them were killed while they were being opened.
        """
        return

    def warm_up(self) -> None:
        """Imports what every program needs into this process, ahead of the first."""
        return

    @abstractmethod
    def describe(self, source: str, limits: Limits) -> Description | SyntaxProblem | Exceeded | Crashed:
        """Parses the source behind the wall and says what it declares. Never executes it.

        Raises:
            SandboxFault: The machinery failed.
        """

    def check_types(self, source: str, limits: Limits) -> tuple[TypeProblem, ...]:  # noqa: ARG002 - most have none
        """What a checker of types says of a source that parses. Nothing of it is executed.

        Raises:
            SandboxFault: It could not be asked.
        """
        return ()

    @abstractmethod
    def open(self, program: Program, confinement: Confinement) -> AbstractContextManager[Session]:
        """Opens the wall around the program and loads it.

        Raises:
            SandboxUnavailable: The sandbox was not prepared, or lost what `prepare` made.
            SandboxFault: The machinery failed.
        """
