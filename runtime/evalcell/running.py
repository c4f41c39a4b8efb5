"""From an evaluator's path to an engine that is ready for rows: what every face of evalcell does first."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evalcell.engine.engine import Engine
from evalcell.evaluator import Evaluator, Source, read_source, understand
from evalcell.planning import Planned, make_plan
from evalcell.settings import Operator, with_limits
from evalcell_sandboxes import Language, Limits, Progress, SandboxUnavailable, sandbox, silent

# Which guest reads a language: parsing happens behind a wall too.
_PARSERS = {Language.PYTHON: "wasm", Language.TYPESCRIPT: "deno"}


@dataclass(frozen=True)
class Ready:
    """An understood evaluator, the plan for it, and an engine that has not loaded it yet."""

    evaluator: Evaluator
    planned: Planned
    engine: Engine


@contextmanager
def ready(
    path: Path,
    operator: Operator,
    *,
    started_ns: int,
    lanes: int = 1,
    seed: int = 0,
    id_path: str | None = None,
    progress: Progress = silent,
) -> Iterator[Ready]:
    """Reads, parses and plans an evaluator. Executes nothing of it.

    Raises:
        UsageError, EvaluatorError: It cannot be run, or not in this way.
        SandboxUnavailable, SandboxFault: What it needs is not here, or failed.
    """
    limits = _parsing_limits(operator)
    source = read_source(path, limits)
    parser = _prepare_parser(source, progress)
    with Engine(lanes) as engine:
        description = engine.describe(source.text, limits, parser)
        _import_what_comes_next(source)
        evaluator = understand(source, description())
        planned = make_plan(evaluator, operator, started_ns=started_ns, seed=seed, id_path=id_path)
        planned.sandbox.prepare(planned.plan.program, progress)
        yield Ready(evaluator, planned, engine)


def _import_what_comes_next(source: Source) -> None:
    """The first lane takes a while to start: a good time for slow imports, if it looks as if they were needed."""
    if "# /// script" in source.text:
        import evalcell.blocks  # noqa: F401


def _prepare_parser(source: Source, progress: Progress) -> str:
    parser = _PARSERS[source.language]
    wall = sandbox(parser)
    if reason := wall.unavailable_reason():
        raise SandboxUnavailable(parser, reason)
    wall.prepare(None, progress)
    return parser


def _parsing_limits(operator: Operator) -> Limits:
    """The operator's limits: what a file says about its own counts only once it has been parsed."""
    return with_limits(Limits(), operator.limits)
