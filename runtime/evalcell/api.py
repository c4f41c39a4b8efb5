"""evalcell from Python: start a run, take its records, or cancel it. `evalcell run` does the same things."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import wraps
from threading import Event
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

import msgspec

from evalcell.configuration import MOST_SEEDS
from evalcell.configurations import operator
from evalcell.datasets import Format
from evalcell.errors import UsageError
from evalcell.evaluator import Evaluator
from evalcell.records import Record
from evalcell.runs import Order, Run, RunProgress, start, stop
from evalcell.settings import operator_limits
from evalcell_sandboxes import Isolation, Network

_Path = str | os.PathLike[str]


class ArrowStream(Protocol):
    """A table or data frame of pyarrow, polars or pandas."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


_P = ParamSpec("_P")
_T = TypeVar("_T")


def run(
    evaluator: Evaluator | _Path,
    data: _Path | Iterable[Mapping[str, Any]] | ArrowStream,
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
    fit_rows: int | None = None,
    dependencies: Iterable[str] = (),
    env: Iterable[str] = (),
    network: str | None = None,
    base: str | None = None,
    runtime: str | None = None,
    engine: str | None = None,
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
        sandbox: A sandbox of your own, as `evalcell sandboxes add` keeps them, or a wall instead of the one that is
            chosen.
        workers: Worker processes. Default: one a core.
        seed: What all randomness in the sandbox starts from.
        format: `"jsonl"`, `"json"`, `"csv"`, `"tsv"` or `"parquet"`, where it should not be recognised.
        rows: Scores only the first so many rows.
        fit_rows: Fits an evaluator that defines `fit` on the first so many rows, however many are scored. Default: what
            its file says, else 10,000.
        dependencies: Packages that the evaluator needs besides those that its file names, such as
            `["scikit-learn>=1.5"]`. Packages run in a container.
        env: Names of variables of your environment to grant to the code. Their values are never kept, and hidden in
            what the code prints, raises or returns.
        network: `"none"`, the default, or `"full"`: all that the engine's own network reaches, in a container.
        base: The image that containers stand on.
        runtime: The engine's OCI runtime that runs containers, such as `"runsc"`.
        engine: The container engine: an address, or the name of a Docker context.
        out: A file to write the records to, as JSON lines. It has its name only when it is whole.
        strict: Stops at the first malformed row instead of counting it as failed.

    Raises:
        UsageError: An argument, the dataset or `out` makes no sense.
        EvaluatorError: The evaluator cannot be run, whatever the rows are.
        SandboxUnavailable: The sandbox it needs is not to be had here.
    """
    said = operator(
        limits=_mapping(limits, "limits", int | float),
        isolation=None if isolation is None else _one_of(Isolation, isolation, "isolation"),
        network=None if network is None else _one_of(Network, network, "network"),
        env=_names(env, "env", "names of variables"),
        base=_text(base, "base"),
        runtime=_text(runtime, "runtime"),
        engine=_text(engine, "engine"),
        sandbox=_text(sandbox, "sandbox"),
        bind=_mapping(bind, "bind", str),
        set=_values(set),
        fit_rows=_positive(fit_rows, "fit_rows"),
        workers=_positive(workers, "workers"),
        seed=_seed(seed),
        dependencies=_names(dependencies, "dependencies", "requirements"),
    )
    if not isinstance(evaluator, Evaluator):
        evaluator = Evaluator.from_file(evaluator, operator_limits(said))
    return start(
        Order(
            evaluator,
            os.fspath(data) if isinstance(data, str | os.PathLike) else data,
            said,
            form=None if format is None else _one_of(Format, format, "format"),
            rows=_positive(rows, "rows"),
            out=None if out is None else os.fspath(out),
            strict=strict,
            id_path=_text(id, "id"),
        )
    )


def _one_of(kind: Any, value: str, name: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        listed = ", ".join(repr(str(known)) for known in kind)
        raise UsageError(f"{name} is one of {listed}, not {value!r}.") from None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _positive(value: int | None, name: str) -> int | None:
    if value is not None and (not _is_whole(value) or value < 1):
        raise UsageError(f"{name} is a whole number from 1 on, not {value!r}.")
    return value


def _seed(value: int) -> int:
    if not _is_whole(value) or not 0 <= value < MOST_SEEDS:
        raise UsageError(f"seed is a whole number from 0 to {MOST_SEEDS - 1}, not {value!r}.")
    return value


def _text(value: str | None, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{name} is text, not {value!r}.")
    return value


def _names(values: Iterable[str], name: str, what: str) -> tuple[str, ...]:
    if isinstance(values, str | Mapping):  # which is not repeated: it may be what should not be shown
        raise UsageError(f"{name} is a list of {what}, not a {type(values).__name__}.")
    return tuple(values)


def _mapping(values: Mapping[str, _T] | None, name: str, kind: Any) -> dict[str, _T]:
    """A copy of the mapping, whose keys are text and whose values are of that kind."""
    if values is not None and not isinstance(values, Mapping):
        raise UsageError(f"{name} is a dict, not {values!r}.")
    for key, value in (values or {}).items():
        if not isinstance(key, str) or not isinstance(value, kind):
            raise UsageError(f"{name} holds {key!r}: {value!r}, which makes no sense there.")
    return dict(values or {})


def _values(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Literals as a row could hold them."""
    checked = _mapping(values, "set", object)
    try:
        msgspec.msgpack.encode(checked)
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(checked))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"set holds a value that JSON cannot: {error}.") from None
    return plain


class AsyncRun(AbstractAsyncContextManager["AsyncRun"]):
    """A run for asyncio: the same as `Run`, taken step by step on a thread so that the event loop goes on."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self._run.__exit__, kind, error, trace))

    async def results(self) -> AsyncIterator[Record]:
        """The records that have not been taken yet; see `Run.results`. Cancelling the task cancels the run."""
        while some := await self._step(self._run.next_results):
            for record in some:
                yield record
                if self._run.progress().state == "cancelled":
                    return

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


def _cancel_what_started(starting: "asyncio.Future[Run]") -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().cancel()


def _on_a_thread(run: Callable[_P, Run]) -> Callable[_P, Coroutine[Any, Any, AsyncRun]]:
    @wraps(run)
    async def arun(*args: _P.args, **kwargs: _P.kwargs) -> AsyncRun:
        stopping = Event()
        token = stop.set(stopping)
        starting = asyncio.ensure_future(asyncio.to_thread(run, *args, **kwargs))
        stop.reset(token)
        try:
            return AsyncRun(await asyncio.shield(starting))
        except asyncio.CancelledError:
            # The thread goes on until the engine finds out; what it then gives is closed.
            stopping.set()
            starting.add_done_callback(_cancel_what_started)
            raise

    arun.__name__ = arun.__qualname__ = "arun"
    arun.__doc__ = f"The same as `run`, for asyncio: gives an `AsyncRun`.\n\n    {run.__doc__}"
    return arun


arun = _on_a_thread(run)
