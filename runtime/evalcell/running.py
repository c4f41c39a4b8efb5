"""From an evaluator to an engine that is ready for rows: what every face of evalcell does first."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Event

from evalcell import disk
from evalcell.configuration import Operator
from evalcell.datasets import Row
from evalcell.disk import Noting
from evalcell.engine.engine import Engine
from evalcell.errors import EvaluatorError
from evalcell.evaluator import Evaluator, Understood, understand
from evalcell.planning import Planned, make_plan
from evalcell.settings import operator_limits
from evalcell_sandboxes import (
    DependencyProblem,
    Language,
    Progress,
    Sandbox,
    SandboxUnavailable,
    assets,
    sandbox,
    silent,
)

# Which guest reads a language: parsing happens behind a wall too.
_PARSERS = {Language.PYTHON: "wasm", Language.TYPESCRIPT: "deno"}


@dataclass(frozen=True)
class Ready:
    """An understood evaluator, the plan for it, and an engine that has not loaded it yet."""

    understood: Understood
    planned: Planned
    engine: Engine


@contextmanager
def parsed(
    evaluator: Evaluator,
    operator: Operator,
    *,
    lanes: int = 1,
    stop: Event | None = None,
    progress: Progress = silent,
    meanwhile: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Understood, Engine]]:
    """Has an evaluator parsed behind a wall; gives what it declares, and the engine whose first lane has done it.

    Raises:
        UsageError, EvaluatorError: It cannot be run.
        SandboxUnavailable, SandboxFault: What parses it is not here, or failed.
    """
    parser = _parser(evaluator)
    with parser.holding(None), Engine(lanes, stop) as engine:
        parser.prepare(None, progress)
        description = engine.describe(evaluator.text, operator_limits(operator), parser.name)
        meanwhile()
        _import_what_comes_next(evaluator)
        yield understand(evaluator, description()), engine


@contextmanager
def ready(
    evaluator: Evaluator,
    operator: Operator,
    *,
    started_ns: int,
    lanes: int = 1,
    id_path: str | None = None,
    stop: Event | None = None,
    progress: Progress = silent,
    meanwhile: Callable[[], None] = lambda: None,
) -> Iterator[Ready]:
    """Parses and plans an evaluator. Executes nothing of it. The first lane takes a while to start: `meanwhile` is
    called then, for slow things that have to be done anyway. `stop` may be set at any time to cancel it all.

    Raises:
        UsageError, EvaluatorError: It cannot be run, or not in this way.
        SandboxUnavailable, SandboxFault: What it needs is not here, or failed.
    """
    noting = Noting(progress)
    with ExitStack() as stack:
        understood, engine = stack.enter_context(
            parsed(evaluator, operator, lanes=lanes, stop=stop, progress=noting, meanwhile=meanwhile)
        )
        with assets.copying() if understood.manifest.assets else nullcontext():
            planned = make_plan(understood, operator, started_ns=started_ns, id_path=id_path, progress=noting)
            stack.enter_context(assets.holding(planned.plan.program.assets))
        stack.enter_context(planned.sandbox.holding(planned.plan.program))
        prepare(planned, noting)
        if noting.worked or planned.plan.program.assets:
            walls = {wall.name: wall for wall in (_parser(evaluator), planned.sandbox)}
            disk.prune(walls.values(), planned.settings.disk_bytes)
        yield Ready(understood, planned, engine)


def prepare(planned: Planned, progress: Progress) -> None:
    """Does the slow work for a plan that can be done once: its layer of packages.

    Raises:
        EvaluatorError: A package cannot be had.
        SandboxUnavailable, SandboxFault: What it needs is not here, or failed.
    """
    try:
        planned.sandbox.prepare(planned.plan.program, progress)
    except DependencyProblem as error:
        raise EvaluatorError("dependencies", str(error)) from None


@contextmanager
def loaded(
    prepared: Ready, rows: Iterator[Row | None], *, strict: bool = False, progress: Progress = silent
) -> Iterator[Iterator[Row | None]]:
    """Loads the program, and fits it on the first rows if it has a `fit`. Gives the rows, all of them, to run it on.

    How many of them will be scored makes no difference to what it is fitted on, so it makes none to the scores.

    Raises:
        EvaluatorError: The module's own code failed, or its `fit`.
        DatasetError: The rows to fit on cannot be read; or with `strict`, one of them is malformed.
        SandboxUnavailable, SandboxFault: What it needs is not here, or failed.
    """
    plan = prepared.planned.plan
    if plan.fit_rows is None:
        prepared.engine.open(plan)
        yield rows
        return
    from evalcell.fitting import FirstRows

    most = plan.fit_rows
    with FirstRows() as first:
        rows = first.take(
            rows,
            most,
            waiting=lambda count: progress(f"Reading {most:,} rows to fit on", count / most),
            cancelled=lambda: prepared.engine.cancelled,
        )
        progress(f"Fitting on the first {first.count:,} rows" if first.count != 1 else "Fitting on the first row")
        prepared.engine.open(plan, first, strict=strict)
        yield rows


def _import_what_comes_next(evaluator: Evaluator) -> None:
    """A good time for slow imports, if it looks as if they were needed."""
    if evaluator.spelling.block in evaluator.text:
        import evalcell.blocks  # noqa: F401


def _parser(evaluator: Evaluator) -> Sandbox:
    wall = sandbox(_PARSERS[evaluator.language])
    if reason := wall.unavailable_reason():
        raise SandboxUnavailable(wall.name, reason)
    return wall


def cores() -> int:
    """The cores that this process may use, which in a container are fewer than the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
