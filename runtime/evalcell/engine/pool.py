"""The lanes of a run as its parent has them: started, made ready, listened to, and gone.

A lane is ready when it has loaded the program, and was fitted where the program has a `fit`: all on the same rows.
"""

import selectors
import time
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from evalcell.engine import failures
from evalcell.engine.batches import Span
from evalcell.engine.process import LaneProcess
from evalcell.engine.protocol import Fit, Fitted, FromLane, More, Open, Opened, RowsToFit, ToLane
from evalcell.errors import EvaluatorError, malformed
from evalcell.plan import Plan
from evalcell_sandboxes import Returned, SandboxFault, Site, sandbox

if TYPE_CHECKING:
    from evalcell.fitting import FirstRows

GRACE_SECONDS = 30.0
"""How much longer than its limits allow a lane may stay silent before it counts as dead."""
MOST_FAILED_STARTS = 3
_LOADS = 3
"""How often a sandbox may use up a program's limits before its first row: to compile it, to load it, to settle it."""


class PooledLane:
    """A lane process with what it holds."""

    def __init__(self, process: LaneProcess) -> None:
        self.process = process
        self.ready = False
        self.spans: deque[Span] = deque()
        self.sent_at = 0.0
        self.parts: Iterator[ToLane] = iter(())
        """What it will ask for, part by part."""
        self.fitting = False
        self.aggregating = False
        self.fault: str | None = None
        self.spare = False
        """Whether it only waits to take the place of one that is lost."""

    @property
    def busy(self) -> bool:
        """Whether something is to be heard of it."""
        return bool(self.spans) or self.aggregating or not self.ready

    def send_part(self) -> bool:
        """Sends what comes next; False when there was nothing to ask for."""
        part = next(self.parts, None)
        if part is not None:
            self.process.send(part)
        return part is not None


class Pool:
    """The lanes there are, the first one started first; `most` is how many there may be."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.lanes: list[PooledLane] = []
        self._selector = selectors.DefaultSelector()
        self._plan: Plan | None = None
        self._fit_rows: FirstRows | None = None
        self._strict = False
        self._failed_starts = 0
        self._slow_to_open = self._keeps_spare = False
        self.walls: dict[str, Site] = {}
        """The sandboxes that lanes were told to use, and where they are."""

    @property
    def working(self) -> list[PooledLane]:
        """Those that rows are given to, once they are ready."""
        return [lane for lane in self.lanes if not lane.spare]

    def close(self) -> None:
        """Kills them all, and clears away what they leave."""
        unopened = sum(not lane.ready for lane in self.lanes)
        for lane in self.lanes:
            lane.process.kill()
        self.lanes.clear()
        self._selector.close()
        for wall, site in self.walls.items():
            sandbox(wall, site).clear_away(unopened=unopened)

    # -- starting -------------------------------------------------------------------------------------------------
    @property
    def starts_together(self) -> bool:
        """Whether lanes had better start at the same time: one after the other, they would take too long."""
        return self._slow_to_open

    def start(self) -> PooledLane:
        """Starts a lane, with nothing loaded in it."""
        lane = PooledLane(LaneProcess())
        self.lanes.append(lane)
        self.hear(lane)
        return lane

    def open(self, plan: Plan, fit_rows: "FirstRows | None", *, strict: bool) -> None:
        """Has the lane that there is load the plan's program, as all later ones will."""
        self._plan, self._fit_rows, self._strict = plan, fit_rows, strict
        self.walls[plan.sandbox] = plan.site
        self._slow_to_open = self._keeps_spare = sandbox(plan.sandbox, plan.site).slow_to_open
        self.lanes[0].process.send(Open(plan))

    def add(self) -> None:
        """Starts a further lane, to be made ready."""
        assert self._plan is not None
        self.start().process.send(Open(self._plan))

    def keep_spare(self) -> None:
        """Starts one lane more than work, where starting one takes long; when all that are to work do."""
        working = self.working
        if self._keeps_spare and len(self.lanes) == len(working) == self.most and all(lane.ready for lane in working):
            self.add()
            self.lanes[-1].spare = True

    def ready(self) -> PooledLane | None:
        """The first lane that is ready."""
        return next((lane for lane in self.lanes if lane.ready), None)

    def prepare(self, lane: PooledLane, message: FromLane) -> bool:
        """Makes a lane ready, step by step. False for a message that is no such step.

        Raises:
            EvaluatorError: The program failed, and there is no other lane.
            DatasetError: A row to fit on is malformed, where none may be.
        """
        match message:
            case Opened():
                self._loaded(lane, message)
            case More(problems) if problems and self._strict:
                raise malformed(problems[0])
            case More():
                return lane.send_part()
            case Fitted() if not lane.ready and self._fit_rows is not None:
                self._fitted(lane, message)
            case _:
                return False
        return True

    def _loaded(self, lane: PooledLane, opened: Opened) -> None:
        if not isinstance(opened.loaded, Returned):
            self._refuse(lane, failures.load_error(opened.loaded))
        elif self._fit_rows is None:
            self._welcome(lane)
        else:
            lane.fitting = True
            lane.parts = chain(map(RowsToFit, self._fit_rows.chunks()), [Fit()])
            lane.send_part()

    def _fitted(self, lane: PooledLane, fitted: Fitted) -> None:
        assert self._fit_rows is not None
        if isinstance(fitted.outcome, Returned):
            self._welcome(lane)
        else:
            self._refuse(lane, failures.fit_error(fitted, self._fit_rows.count))

    def _welcome(self, lane: PooledLane) -> None:
        lane.ready, lane.fitting = True, False
        self._failed_starts = 0

    def _refuse(self, lane: PooledLane, error: EvaluatorError) -> None:
        """The program failed in a lane that should have become ready. If others are, the run goes on with those."""
        if self.ready() is None:
            raise error
        self.drop(lane)
        self._make_do()

    def _make_do(self) -> None:
        """No more lanes are started than there are; only one that is lost will be replaced."""
        self.most = max(1, len(self.working))
        self._keeps_spare = False
        self._failed_starts = 0

    # -- listening ------------------------------------------------------------------------------------------------
    def listen(self, seconds: float) -> Iterator[tuple[PooledLane, FromLane | None]]:
        """What lanes say, as soon as any says something; None for one that is gone."""
        for key, _ in self._selector.select(timeout=seconds):
            lane: PooledLane = key.data
            messages = lane.process.receive()
            for message in messages if messages is not None else [None]:
                if lane in self.lanes:  # it may be dropped for what it said before
                    yield lane, message

    def hear(self, lane: PooledLane, *, wanted: bool = True) -> None:
        """Listens to a lane, or does not for now: then what it says waits in its pipe, and it with it."""
        hears = self._hears(lane)
        if wanted and not hears:
            self._selector.register(lane.process.connection, selectors.EVENT_READ, lane)
            lane.process.heard = time.monotonic()
        elif not wanted and hears:
            self._selector.unregister(lane.process.connection)

    def _hears(self, lane: PooledLane) -> bool:
        return lane.process.connection in self._selector.get_map()

    def silent(self) -> list[PooledLane]:
        """The lanes of which something should have been heard by now."""
        now = time.monotonic()
        return [
            lane
            for lane in self.lanes
            if lane.busy and self._hears(lane) and now - lane.process.heard > self._patience(lane)
        ]

    def _patience(self, lane: PooledLane) -> float:
        """How long a lane may be silent: for the longest call, in an instance that has to be made for it first."""
        assert self._plan is not None
        limits = self._plan.confinement.limits
        fresh = limits.load_seconds + (0.0 if self._fit_rows is None else limits.fit_seconds)
        call = limits.aggregate_seconds if lane.aggregating else limits.wall_seconds
        return call + _LOADS * fresh + GRACE_SECONDS

    # -- ending ---------------------------------------------------------------------------------------------------
    def drop(self, lane: PooledLane) -> str:
        """Kills a lane. Says how it ended."""
        self.hear(lane, wanted=False)
        self.lanes.remove(lane)
        spare = next((other for other in self.lanes if other.spare), None)
        if spare is not None and not lane.spare:
            spare.spare = False
        return lane.process.kill()

    def bury(self, lane: PooledLane) -> None:
        """Drops a lane that has died, and counts those that died before they could do anything.

        Raises:
            SandboxFault: They do so one after the other, and there is no other lane.
        """
        how = self.drop(lane)
        if lane.ready:
            return
        self._failed_starts += 1
        if self._failed_starts < MOST_FAILED_STARTS:
            return
        if self.ready() is not None:
            self._make_do()
            return
        if lane.fault is not None:
            raise SandboxFault(lane.fault)
        when, hint = "before they are ready", ""
        if lane.fitting:
            when = "while they are fitted"
            hint = " Fit on fewer rows with --fit-rows N, or in one process with --workers 1."
        raise SandboxFault(f"Worker processes die {when}, {self._failed_starts} times in a row.{hint}{how}")
