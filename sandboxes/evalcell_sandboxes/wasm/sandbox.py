"""The WebAssembly wall: CPython compiled to WebAssembly, behind a host that denies by default."""

import atexit
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from evalcell_sandboxes.description import Description, SyntaxProblem
from evalcell_sandboxes.disk import Kept
from evalcell_sandboxes.errors import SandboxFault, SandboxUnavailable
from evalcell_sandboxes.outcome import Crashed, Exceeded
from evalcell_sandboxes.program import Confinement, Language, Limits, Program
from evalcell_sandboxes.reports import described, unparsable
from evalcell_sandboxes.sandbox import Progress, Sandbox, Session
from evalcell_sandboxes.versions import Version
from evalcell_sandboxes.wasm import image, module, prereqs

if TYPE_CHECKING:
    from wasmtime import Engine
    from wasmtime.component import Component

    from evalcell_sandboxes.wasm.guests import Guest


class WasmSandbox(Sandbox):
    """Runs Python that needs nothing but the standard library. wasmtime is imported only when a guest is started."""

    name: ClassVar[str] = "wasm"
    languages: ClassVar[frozenset[Language]] = frozenset({Language.PYTHON})

    @property
    def python(self) -> str | None:
        return image.PYTHON

    def unavailable_reason(self) -> str | None:
        return prereqs.unavailable_reason()

    def versions(self) -> tuple[Version, ...]:
        return (prereqs.wasmtime(),)

    def slower_because(self) -> str | None:
        from evalcell_sandboxes.wasm import snapshot

        if snapshot.works_here():
            return None
        return (
            "memory cannot be put back between rows here, so every row gets an instance of its own, at about 2 ms each"
        )

    def guest_identity(self) -> str:
        return f"wasm {image.identity()}"

    def prepare(self, program: Program | None, progress: Progress) -> None:  # noqa: ARG002 - every program needs the same
        module.prepare(progress)

    def holding(self, program: Program | None) -> AbstractContextManager[None]:  # noqa: ARG002
        return module.holding()

    def kept(self) -> list[Kept]:
        return module.kept()

    def discard(self, item: Kept) -> bool:
        return module.discard(item)

    def warm_up(self) -> None:
        from evalcell_sandboxes.wasm import engine, session  # noqa: F401

    def describe(self, source: str, limits: Limits) -> Description | SyntaxProblem | Exceeded | Crashed:
        if problem := unparsable(source, limits):
            return problem
        with _guest(limits) as guest:
            guest.renew()
            answer = guest.call("describe", source.encode(), limit="load_seconds")
        if isinstance(answer, Exceeded | Crashed):
            return answer
        return described(answer.text, limits)

    @contextmanager
    def open(self, program: Program, confinement: Confinement) -> Iterator[Session]:
        from evalcell_sandboxes.wasm.session import WasmSession

        with _guest(confinement.limits, confinement.clock_start_ns) as guest:
            yield WasmSession(guest, program, confinement)


@contextmanager
def _guest(limits: Limits, clock_start_ns: int = 0) -> Iterator["Guest"]:
    from evalcell_sandboxes.wasm.engine import running_engine, wasm_stack_bytes
    from evalcell_sandboxes.wasm.guests import Guest

    engine = running_engine(wasm_stack_bytes())
    guest = Guest(engine, _component(engine, str(module.path())), clock_start_ns, limits)
    try:
        yield guest
    finally:
        guest.close()


@cache
def _component(engine: "Engine", path: str) -> "Component":
    """The compiled guest, mapped into this process once."""
    from wasmtime import WasmtimeError
    from wasmtime.component import Component

    if not Path(path).exists():
        raise SandboxUnavailable("wasm", "its compiled module is not in the cache. Run the command again to make it.")
    try:
        component = Component.deserialize_file(engine, path)
    except WasmtimeError as error:
        raise SandboxFault(f"The compiled guest {path!r} cannot be used: {error}. Delete it and try again.") from error
    atexit.register(component.close)  # while wasmtime's module is still whole, which at the very end it is not
    return component
