"""The Deno wall: TypeScript in contexts of its own, in a process that may do nothing."""

import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from typing import ClassVar

from evalcell_sandboxes.deno import prereqs
from evalcell_sandboxes.description import Description, SyntaxProblem, TypeProblem
from evalcell_sandboxes.errors import SandboxUnavailable
from evalcell_sandboxes.outcome import Crashed, Exceeded
from evalcell_sandboxes.program import Confinement, Language, Limits, Program
from evalcell_sandboxes.reports import described, unparsable
from evalcell_sandboxes.sandbox import Progress, Sandbox, Session
from evalcell_sandboxes.versions import Version


class DenoSandbox(Sandbox):
    """Runs TypeScript. What starts its processes is imported only when one is."""

    name: ClassVar[str] = "deno"
    languages: ClassVar[frozenset[Language]] = frozenset({Language.TYPESCRIPT})
    takes_batches: ClassVar[bool] = True

    @property
    def interpreter(self) -> str:
        return f"Deno {prereqs.deno().found}"

    def unavailable_reason(self) -> str | None:
        return prereqs.unavailable_reason()

    def versions(self) -> tuple[Version, ...]:
        return (prereqs.deno(),)

    def remark(self) -> str | None:
        from evalcell_sandboxes.deno import jail

        missing = jail.lacking()
        return f"this machine lacks {', '.join(missing)}, which would stand behind Deno's own wall" if missing else None

    def guest_identity(self) -> str:
        return f"deno {prereqs.deno().found} {_sources()}"

    def prepare(self, program: Program | None, progress: Progress) -> None:  # noqa: ARG002 - there is nothing slow
        if reason := prereqs.unavailable_reason():
            raise SandboxUnavailable(self.name, reason)

    def clear_away(self, *, unopened: int) -> None:  # noqa: ARG002 - what was being opened leaves no more than the rest
        from evalcell_sandboxes.deno import jail

        jail.sweep()

    def warm_up(self) -> None:
        from evalcell_sandboxes.deno import ahead, session  # noqa: F401

        ahead.get_ready()

    def describe(self, source: str, limits: Limits) -> Description | SyntaxProblem | Exceeded | Crashed:
        from evalcell_sandboxes.deno.session import parsed

        if problem := unparsable(source, limits):
            return problem
        answer = parsed(source, limits)
        return described(answer, limits) if isinstance(answer, bytes) else answer

    def check_types(self, source: str, limits: Limits) -> tuple[TypeProblem, ...]:
        from evalcell_sandboxes.deno import type_checking

        return type_checking.check(source, limits)

    @contextmanager
    def open(self, program: Program, confinement: Confinement) -> Iterator[Session]:
        from evalcell_sandboxes.deno.session import DenoSession

        with closing(DenoSession(program, confinement)) as session:
            yield session


@cache
def _sources() -> str:
    """A digest of the guest: of what decides, with the version of Deno, what a program does."""
    from evalcell_sandboxes.deno.process import GUEST

    digest = hashlib.sha256()
    for file in sorted(GUEST.rglob("*.*js")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:32]
