"""evalcell from Python: start a run, take its records, or cancel it. The command line does the same things."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from evalcell.datasets import Format
from evalcell.errors import UsageError
from evalcell.evaluator import Evaluator
from evalcell.records import Record
from evalcell.running import cores, parsing_limits
from evalcell.runs import Order, Run, RunProgress, start
from evalcell.settings import Operator
from evalcell_sandboxes import Isolation

_Path = str | os.PathLike[str]
_P = ParamSpec("_P")
_T = TypeVar("_T")


def run(
    evaluator: Evaluator | _Path,
    data: _Path | Iterable[Mapping[str, Any]] | object,
    *,
    bind: Mapping[str, str] | None = None,
    set: Mapping[str, Any] | None = None,  # noqa: A002 - the flag's own name
    id: str | None = None,  # noqa: A002
    isolation: str | None = None,
    limits: Mapping[str, float] | None = None,
    sandbox: str | None = None,
    workers: int | None = None,
    seed: int = 0,
    format: str | None = None,  # noqa: A002
    rows: int | None = None,
    out: _Path | None = None,
    strict: bool = False,
) -> Run:
    """Starts scoring every row of a dataset with an evaluator, behind a wall, and gives the run.

    The program is loaded when this returns. Rows are scored as `Run.results()` is iterated.

    Args:
        evaluator: An `Evaluator`, or the path of its file.
        data: A path (JSONL, JSON, CSV, Parquet, compressed or not), an iterable of dicts, or a table or data frame
            (pyarrow, polars, pandas).
        bind: For parameters of `evaluate`, paths into the row; others take the field of their name.
        set: For parameters of `evaluate`, fixed values.
        id: The path of a row's id. Default: its field `id`, else its index.
        isolation: `"row"`, the default, starts every row fresh; `"evaluator"` lets rows share state.
        limits: Limits by name, such as `{"wall_seconds": 2, "memory_bytes": 256 * 2**20}`.
        sandbox: Demands a sandbox instead of the one that is chosen.
        workers: Worker processes. Default: one a core.
        seed: What all randomness in the sandbox starts from.
        format: `"jsonl"`, `"json"`, `"csv"`, `"tsv"` or `"parquet"`, where it should not be recognised.
        rows: Scores only the first so many rows.
        out: A file to write the records to, as JSON lines. It has its name only when it is whole.
        strict: Stops at the first malformed row instead of counting it as failed.

    Raises:
        UsageError: An argument, the dataset or `out` makes no sense.
        EvaluatorError: The evaluator cannot be run, whatever the rows are.
        SandboxUnavailable: The sandbox it needs is not to be had here.
    """
    operator = Operator(
        limits=dict(limits or {}),
        isolation=None if isolation is None else _one_of(Isolation, isolation, "isolation"),
        sandbox=sandbox,
        bind=dict(bind or {}),
        set=dict(set or {}),
    )
    if not isinstance(evaluator, Evaluator):
        evaluator = Evaluator.from_file(evaluator, parsing_limits(operator))
    return start(
        Order(
            evaluator,
            os.fspath(data) if isinstance(data, str | os.PathLike) else data,
            operator,
            form=None if format is None else _one_of(Format, format, "format"),
            rows=_positive(rows, "rows"),
            out=None if out is None else os.fspath(out),
            strict=strict,
            lanes=_positive(workers, "workers") or cores(),
            seed=seed,
            id_path=id,
        )
    )


def _one_of(kind: Any, value: str, name: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        listed = ", ".join(repr(str(known)) for known in kind)
        raise UsageError(f"{name} is one of {listed}, not {value!r}.") from None


def _positive(value: int | None, name: str) -> int | None:
    if value is not None and value < 1:
        raise UsageError(f"{name} must be at least 1, not {value!r}.")
    return value


class AsyncRun(AbstractAsyncContextManager["AsyncRun"]):
    """A run for asyncio: the same as `Run`, taken step by step on a thread so that the event loop goes on."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run.cancel()
        await asyncio.to_thread(self._run.__exit__, kind, error, trace)

    async def results(self) -> AsyncIterator[Record]:
        """The records that have not been taken yet; see `Run.results`. Cancelling the task cancels the run."""
        while some := await self._step(self._run.next_results):
            for record in some:
                yield record

    async def wait(self) -> dict[str, Any]:
        """Runs to the end, keeping no record, and gives the summary."""
        return await self._step(self._run.wait)

    def cancel(self) -> None:
        """Stops the run; `results` ends within a moment."""
        self._run.cancel()

    def progress(self) -> RunProgress:
        """How far the run has come."""
        return self._run.progress()

    def summary(self) -> dict[str, Any]:
        """What the run has come to so far."""
        return self._run.summary()

    async def to_arrow(self) -> Any:
        """The records that have not been taken yet as a `pyarrow.Table`."""
        return await self._step(self._run.to_arrow)

    async def to_pandas(self) -> Any:
        """The records that have not been taken yet as a `pandas.DataFrame`."""
        return await self._step(self._run.to_pandas)

    async def to_polars(self) -> Any:
        """The records that have not been taken yet as a `polars.DataFrame`."""
        return await self._step(self._run.to_polars)

    async def _step(self, action: Callable[[], _T]) -> _T:
        try:
            return await asyncio.to_thread(action)
        except asyncio.CancelledError:
            self._run.cancel()
            raise


def _on_a_thread(run: Callable[_P, Run]) -> Callable[_P, Coroutine[Any, Any, AsyncRun]]:
    @wraps(run)
    async def arun(*args: _P.args, **kwargs: _P.kwargs) -> AsyncRun:
        starting = asyncio.ensure_future(asyncio.to_thread(run, *args, **kwargs))
        try:
            return AsyncRun(await asyncio.shield(starting))
        except asyncio.CancelledError:
            # The thread cannot be stopped while the sandbox starts: the run is cancelled as soon as there is one.
            starting.add_done_callback(lambda done: None if done.exception() else done.result().cancel())
            raise

    arun.__name__ = arun.__qualname__ = "arun"
    arun.__doc__ = f"The same as `run`, for asyncio: gives an `AsyncRun`.\n\n    {run.__doc__}"
    return arun


arun = _on_a_thread(run)
