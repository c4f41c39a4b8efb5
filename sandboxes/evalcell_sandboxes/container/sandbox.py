"""The container wall: CPython with packages from PyPI, in a container that can reach nothing."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import ClassVar

from evalcell_sandboxes import assets
from evalcell_sandboxes.caching import cache_dir, private_dir, replacing
from evalcell_sandboxes.container import bases, layers, prereqs, shipping, stock
from evalcell_sandboxes.container.addresses import settled
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.description import Description, SyntaxProblem
from evalcell_sandboxes.disk import Kept
from evalcell_sandboxes.errors import SandboxError, SandboxUnavailable
from evalcell_sandboxes.outcome import Crashed, Exceeded, Invalid
from evalcell_sandboxes.program import Confinement, Language, Limits, Program
from evalcell_sandboxes.reports import described, unparsable
from evalcell_sandboxes.sandbox import Progress, Sandbox, Session
from evalcell_sandboxes.site import Site
from evalcell_sandboxes.versions import Version

_OLDEST_PYTHON = "3.11"


class ContainerSandbox(Sandbox):
    """Runs Python with packages. The engine's client is imported only when it is needed."""

    name: ClassVar[str] = "container"
    languages: ClassVar[frozenset[Language]] = frozenset({Language.PYTHON})
    slow_to_open: ClassVar[bool] = True
    takes_batches: ClassVar[bool] = True

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._engine = Engine(site)

    @property
    def site(self) -> Site:
        return settled(self._site)

    @property
    def python(self) -> str | None:
        return bases.current(self._engine).python

    def unavailable_reason(self) -> str | None:
        return prereqs.unavailable_reason(self._engine)

    def versions(self) -> tuple[Version, ...]:
        return (prereqs.version_of(self._engine),)

    def remark(self) -> str | None:
        base = bases.current(self._engine)
        if not base.packed:
            return f"on {base.name}"
        return f"on {base.name}, because {bases.DEFAULT} is not on the engine and no registry can be reached"

    def guest_identity(self) -> str:
        from evalcell_sandboxes.container.box import modules

        digest = hashlib.sha256("\0".join(modules().values()).encode()).hexdigest()[:32]
        return f"container {digest} {bases.current(self._engine).digest}"

    def lock(self, requirements: Sequence[str], progress: Progress, *, anew: bool = False) -> str:
        from evalcell_sandboxes.container import locking

        python = _OLDEST_PYTHON
        with contextlib.suppress(SandboxUnavailable):  # then there is no base yet, nor need for one
            python = min(python, str(self.python), key=lambda text: tuple(map(int, text.split(".")[:2])))
        key = hashlib.sha256("\n".join((python, *requirements)).encode()).hexdigest()[:32]
        kept = private_dir(private_dir(cache_dir() / "container") / "locks") / f"{key}.txt"
        if kept.exists() and not anew:
            return kept.read_text(encoding="utf-8")
        made = locking.lock(requirements, python, progress, withheld=self._site.withheld)
        with replacing(kept) as file:
            file.write_text(made, encoding="utf-8")
        return made

    def prepare(self, program: Program | None, progress: Progress) -> None:
        self._engine.sweep()
        base = bases.find(self._engine, progress)
        if program is not None:
            shipping.ensure(self._engine, base, program, progress)

    @contextmanager
    def holding(self, program: Program | None) -> Iterator[None]:
        if program is None:
            yield
            return
        with stock.holding(bases.current(self._engine), program):
            yield

    def kept(self) -> list[Kept]:
        return stock.kept(self._engine)

    def discard(self, item: Kept) -> bool:
        return stock.discard(self._engine, item)

    def clear_away(self, *, unopened: int) -> None:
        with contextlib.suppress(SandboxError):  # the next run will see to it
            self._engine.sweep_out(unopened)

    def warm_up(self) -> None:
        import docker  # noqa: F401

        from evalcell_sandboxes.container import session  # noqa: F401

    def describe(self, source: str, limits: Limits) -> Description | SyntaxProblem | Exceeded | Crashed:
        from evalcell_sandboxes.container.box import Box
        from evalcell_sandboxes.container.guest import wire
        from evalcell_sandboxes.container.session import failure_of, settings_of

        if problem := unparsable(source, limits):
            return problem
        base = bases.current(self._engine)
        settings = settings_of("evaluator.py", Confinement(limits=limits), [])
        with closing(Box(self._engine, base, base.image, settings)) as box:
            box.send(wire.DESCRIBE, source.encode() or b"\n")
            (record,) = box.receive(limits.load_seconds)
        if record.kind == wire.REPORTED:
            return described(record.report, limits)
        failure = failure_of(record, limits)
        return Crashed(message=failure.message) if isinstance(failure, Invalid) else failure

    @contextmanager
    def open(self, program: Program, confinement: Confinement) -> Iterator[Session]:
        from evalcell_sandboxes.container.box import Box
        from evalcell_sandboxes.container.session import ContainerSession, settings_of

        engine = self._engine
        base = bases.current(engine)
        path = [layers.PACKAGES] if program.lock else []
        settings = settings_of(program.filename, confinement, path, assets.DIRECTORY if program.assets else "")
        image = shipping.image_of(base, program)
        make_box = partial(engine.patiently, lambda: Box(engine, base, image, settings, confinement.network))
        with closing(ContainerSession(make_box, program, confinement)) as session:
            session.load()
            yield session
