"""A lane: the process that takes batches of raw rows to records, with the sandbox inside it.

It is started with an environment of a few fixed names and talks over one inherited socket. The main thread does nothing
but read, so that the lane dies with its parent even while guest code is running; a thread with plenty of stack works,
and one sends what is done while a slow row keeps the other busy.
"""

import contextlib
import gc
import os
import queue
import resource
import signal
import socket
import threading
import time
import traceback
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

from evalcell.datasets import Row
from evalcell.engine import protocol
from evalcell.engine.protocol import (
    Aggregate,
    Aggregated,
    Begin,
    Describe,
    Described,
    Faulted,
    Fit,
    More,
    NotDescribed,
    Open,
    Opened,
    ResultsToAggregate,
    RowsToFit,
    SyntaxFailed,
    ToLane,
    Work,
)
from evalcell.engine.rows import RowWork
from evalcell.plan import Plan
from evalcell_sandboxes import (
    Description,
    Returned,
    SandboxError,
    SandboxUnavailable,
    Session,
    SyntaxProblem,
    sandbox,
)
from evalcell_sandboxes.stacks import start_with_plenty

if TYPE_CHECKING:
    from evalcell.engine.hooks import Aggregating, Fitting

_FLUSH_SECONDS = 0.2
_CHECK_SECONDS = 1.0
"""How often a lane with nothing to do looks whether its sandbox is still there."""


class Lane:
    """Serves one parent."""

    def __init__(self, connection: socket.socket, stack: ExitStack) -> None:
        self._connection = connection
        self._stack = stack
        self._session: Session | None = None
        self._work: RowWork | None = None
        self._fitting: Fitting | None = None
        self._aggregating: Aggregating | None = None
        self._sending = threading.Lock()

    def serve(self, message: ToLane) -> None:
        """Answers one message."""
        match message:
            case Begin():
                os.environ.update(message.configuration)
            case Describe():
                self._describe(message)
            case Open():
                self._open(message)
            case RowsToFit(rows):
                self._gather(rows)
            case Fit():
                self._fit()
            case Work():
                self._run(message)
            case ResultsToAggregate(part):
                self._keep(part)
            case Aggregate():
                self._aggregate()

    def _describe(self, message: Describe) -> None:
        described = sandbox(message.sandbox).describe(message.source, message.limits)
        if isinstance(described, Description):
            self._send(Described(described))
        elif isinstance(described, SyntaxProblem):
            self._send(SyntaxFailed(described))
        else:
            self._send(NotDescribed(described))

    def _open(self, message: Open) -> None:
        plan = message.plan
        wall = sandbox(plan.sandbox, plan.site)
        self._session = self._stack.enter_context(wall.open(plan.program, plan.confinement))
        self._work = RowWork(plan)
        if plan.fit_rows is not None or plan.aggregates:
            self._get_ready_for_hooks(plan)
        loaded = self._session.loaded
        if isinstance(loaded, Returned):
            loaded = Returned(value=protocol.NOTHING, stdout=loaded.stdout, stderr=loaded.stderr, usage=loaded.usage)
        self._send(Opened(loaded))

    def _get_ready_for_hooks(self, plan: Plan) -> None:
        from evalcell.engine.hooks import Aggregating, Fitting  # most files have none, and lanes start faster without

        self._fitting = Fitting(plan)
        self._aggregating = Aggregating(plan)

    def _gather(self, rows: list[Row]) -> None:
        assert self._fitting is not None
        self._send(self._fitting.add(rows))

    def _fit(self) -> None:
        assert self._session is not None
        assert self._fitting is not None
        self._send(self._fitting.fit(self._session))
        self._fitting = None

    def _keep(self, part: bytes) -> None:
        assert self._aggregating is not None
        self._aggregating.add(part)
        self._send(More())

    def _aggregate(self) -> None:
        assert self._session is not None
        assert self._aggregating is not None
        self._send(Aggregated(self._aggregating.aggregate(self._session)))

    def _run(self, message: Work) -> None:
        assert self._session is not None
        assert self._work is not None
        for _ in self._work.run(self._session, message.rows):
            self.flush()
        self.flush()

    def check(self) -> None:
        """Sees whether the sandbox is still there, if one is open."""
        if self._session is not None:
            self._session.check()

    def flush(self) -> None:
        """Sends what is done so far. May be called from any thread."""
        with self._sending:
            done = self._work.take() if self._work is not None else None
            if done is not None:
                protocol.send(self._connection, done)

    def flush_forever(self) -> None:
        """Sends what is done every fifth of a second, however long a row takes: little is lost, and all is seen."""
        try:
            while True:
                time.sleep(_FLUSH_SECONDS)
                self.flush()
        except OSError:  # nobody is there to hear it, and the process ends
            return
        except Exception:  # noqa: BLE001 - a bug of ours must reach the parent with its traceback
            self.end(Faulted(traceback.format_exc()))

    def end(self, fault: Faulted) -> NoReturn:
        """Sends what is done, says what failed, and is gone."""
        with contextlib.suppress(Exception):  # which may be what failed
            self.flush()
        with contextlib.suppress(OSError):  # nobody may be there to hear it
            self._send(fault)
        os._exit(1)

    def _send(self, message: protocol.FromLane) -> None:
        with self._sending:
            protocol.send(self._connection, message)


def _warm_up(name: str) -> None:
    """What fails here will fail again when it is needed, and then be heard of."""
    if name:
        with contextlib.suppress(Exception):
            sandbox(name).warm_up()


def _serve_forever(connection: socket.socket, inbox: "queue.SimpleQueue[ToLane]", sandbox_to_come: str) -> None:
    """Answers messages until the machinery fails: then it says so once and is gone."""
    _warm_up(sandbox_to_come)
    gc.freeze()  # rows make no cycles to speak of: collect seldom, and never walk what was imported
    gc.set_threshold(100_000)
    gc.enable()
    with ExitStack() as stack:
        lane = Lane(connection, stack)
        threading.Thread(target=lane.flush_forever, name="evalcell-flush", daemon=True).start()
        try:
            while True:
                lane.serve(_next(inbox, lane))
        except SandboxUnavailable as error:
            fault = Faulted(error.reason, unavailable=error.sandbox)
        except SandboxError as error:
            fault = Faulted(str(error))
        except Exception:  # noqa: BLE001 - a bug of ours must reach the parent with its traceback
            fault = Faulted(traceback.format_exc())
        lane.end(fault)


def _next(inbox: "queue.SimpleQueue[ToLane]", lane: Lane) -> ToLane:
    """The next message. While there is none, what is lost is noticed: better now than when a row is given to it."""
    while True:
        try:
            return inbox.get(timeout=_CHECK_SECONDS)
        except queue.Empty:
            lane.check()


def main(descriptor: int, sandbox_to_come: str) -> None:
    """Serves until the parent closes the connection. If the parent has named a sandbox, it is made warm first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to act on
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold the rows
    connection = socket.socket(fileno=descriptor)
    inbox: queue.SimpleQueue[ToLane] = queue.SimpleQueue()
    start_with_plenty(lambda: _serve_forever(connection, inbox, sandbox_to_come), "evalcell-lane")
    frames = protocol.Frames(connection)
    while (bodies := frames.receive()) is not None:
        for body in bodies:
            inbox.put(protocol.decode_to_lane(body))
    os._exit(0)  # the parent is gone, and nobody else is waiting for this work
