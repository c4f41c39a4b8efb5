"""A sandbox without a wall, for tests of code that uses one. It runs functions you trust, in your own process.

It is in no registry and is never chosen: whoever wants it must make it.

    fake = FakeSandbox(lambda source: lambda output, reference: output == reference)
"""

import contextlib
import io
import json
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from evalcell_sandboxes.description import Description, Hook, Parameter
from evalcell_sandboxes.outcome import Invalid, Outcome, Raised, Returned, Usage
from evalcell_sandboxes.program import Confinement, Isolation, Language, Limits, Program
from evalcell_sandboxes.sandbox import Progress, Raw, Sandbox, Session
from evalcell_sandboxes.site import Site

Hooks = Callable[[str], Callable[..., Any] | dict[str, Callable[..., Any]]]
"""Makes the hooks of a source: `evaluate` alone, or several by name."""

_DESCRIPTION = Description(
    hooks=(Hook("evaluate", 1, parameters=(Parameter("output"), Parameter("reference"))),), imports=()
)


class FakeSandbox(Sandbox):
    """Keeps the contract of a sandbox for honest code, and none of its limits."""

    name: ClassVar[str] = "fake"
    languages: ClassVar[frozenset[Language]] = frozenset(Language)

    def __init__(self, hooks: Hooks, description: Description = _DESCRIPTION) -> None:
        super().__init__(Site())
        self._hooks = hooks
        self._description = description

    def unavailable_reason(self) -> str | None:
        return None

    def guest_identity(self) -> str:
        return "fake"

    def prepare(self, program: Program | None, progress: Progress) -> None:
        """Does nothing: there is nothing to prepare."""

    def describe(self, source: str, limits: Limits) -> Description:  # noqa: ARG002 - told in advance
        return self._description

    @contextmanager
    def open(self, program: Program, confinement: Confinement) -> Iterator[Session]:
        yield FakeSession(self._hooks, program, confinement)


class FakeSession(Session):
    """Calls the hooks directly; under `row` isolation they are made anew for every row."""

    def __init__(self, hooks: Hooks, program: Program, confinement: Confinement) -> None:
        self._make_hooks = hooks
        self._program = program
        self._limits = confinement.limits
        self._fresh_rows = confinement.isolation is Isolation.ROW
        self._fitted_on: list[Any] | None = None
        self._hooks: dict[str, Callable[..., Any]] = {}
        self._loaded = self._renew()

    @property
    def loaded(self) -> Outcome:
        return self._loaded

    def fit(self, rows: Sequence[Raw]) -> Outcome:
        self._fitted_on = [json.loads(row) for row in rows]
        return self._renew()

    def bursts(self, rows: Sequence[Raw]) -> Iterator[list[Outcome]]:
        for row in rows:
            if self._fresh_rows:
                self._renew()
            yield [self._outcome(lambda row=row: self._hooks["evaluate"](**json.loads(row)))]  # type: ignore[misc]

    def aggregate(self, results: Raw) -> Outcome:
        self._renew()
        return self._outcome(lambda: self._hooks["aggregate"](json.loads(results)))

    def _renew(self) -> Outcome:
        return self._outcome(self._load)

    def _load(self) -> None:
        hooks = self._make_hooks(self._program.source)
        self._hooks = hooks if isinstance(hooks, dict) else {"evaluate": hooks}
        if self._fitted_on is not None:
            self._hooks["fit"](self._fitted_on)

    def _outcome(self, action: Callable[[], Any]) -> Outcome:
        stdout, stderr = io.StringIO(), io.StringIO()
        started = time.perf_counter(), time.thread_time()
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            outcome = self._try(action)
        usage = Usage(time.perf_counter() - started[0], time.thread_time() - started[1])
        changes = {
            "stdout": stdout.getvalue()[: self._limits.stdout_bytes],
            "stderr": stderr.getvalue()[: self._limits.stderr_bytes],
        }
        return type(outcome)(
            **{name: getattr(outcome, name) for name in outcome.__struct_fields__} | changes | {"usage": usage}
        )

    def _try(self, action: Callable[[], Any]) -> Outcome:
        try:
            value = action()
        except Exception as error:  # noqa: BLE001 - what evaluate raises is a value here
            return Raised(exception=type(error).__name__, message=str(error), traceback=self._user_lines(error))
        try:
            text = json.dumps(value, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return Invalid(message=f"evaluate returned a value that cannot be carried: {error}")
        if len(text) > self._limits.result_bytes:
            return Invalid(message=f"evaluate returned {len(text)} bytes of JSON (result_bytes)")
        return Returned(value=text)

    def _user_lines(self, error: Exception) -> str:
        trace = traceback.TracebackException.from_exception(error)
        trace.stack[:] = [frame for frame in trace.stack if frame.filename == self._program.filename]
        return "".join(trace.format())
