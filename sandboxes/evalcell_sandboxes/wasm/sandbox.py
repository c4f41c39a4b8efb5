"""The WebAssembly wall: CPython compiled to WebAssembly, behind a host that denies by default."""

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec

from evalcell_sandboxes.description import Description, SyntaxProblem
from evalcell_sandboxes.errors import SandboxFault, SandboxUnavailable
from evalcell_sandboxes.nesting import too_deep
from evalcell_sandboxes.outcome import Crashed, Exceeded
from evalcell_sandboxes.program import Confinement, Language, Limits, Program
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
    python: ClassVar[str | None] = image.PYTHON

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

    def warm_up(self) -> None:
        from evalcell_sandboxes.wasm import engine, session  # noqa: F401

    def describe(self, source: str, limits: Limits) -> Description | SyntaxProblem | Exceeded | Crashed:
        try:
            text = source.encode()
        except UnicodeEncodeError:
            return SyntaxProblem("the source holds a lone surrogate, which no encoding can hold")
        if len(text) > limits.source_bytes:
            return Exceeded(
                limit="source_bytes", message=f"the source has {len(text)} bytes of {limits.source_bytes} allowed"
            )
        with _guest(limits) as guest:
            guest.renew()
            answer = guest.call("describe", text, limit="load_seconds")
        if isinstance(answer, Exceeded | Crashed):
            return answer
        return _read_within_bounds(answer.text, guest.most_report_bytes)

    @contextmanager
    def open(self, program: Program, confinement: Confinement) -> Iterator[Session]:
        from evalcell_sandboxes.wasm.session import WasmSession

        with _guest(confinement.limits, confinement.clock_start_ns) as guest:
            yield WasmSession(guest, program, confinement)


class _Described(msgspec.Struct):
    syntax_error: SyntaxProblem


def _read_within_bounds(answer: bytes, most_bytes: int) -> Description | SyntaxProblem | Exceeded | Crashed:
    if len(answer) > most_bytes:
        return Exceeded(limit="source_bytes", message="the source declares more than can be described")
    if too_deep(answer):
        return Exceeded(limit="stack", message="the metadata of the source is nested too deeply")
    try:
        return _read_description(answer)
    except (msgspec.DecodeError, RecursionError) as error:
        return Crashed(message=f"the guest's description cannot be read: {error}"[:500])


def _read_description(answer: bytes) -> Description | SyntaxProblem:
    if answer.startswith(b'{"syntax_error"'):
        return msgspec.json.decode(answer, type=_Described).syntax_error
    return msgspec.json.decode(answer, type=Description)


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
