"""The hooks around the rows, inside a lane: what `fit` and `aggregate` are given comes in parts."""

from evalcell.aggregating import aggregates_of
from evalcell.datasets import Row
from evalcell.engine.protocol import NOTHING, Fitted, More
from evalcell.engine.ready import RowBinder
from evalcell.plan import Plan
from evalcell.records import Aggregates
from evalcell_sandboxes import Exceeded, Returned, Session

_LEAST_ROW_BYTES = 64
"""What a row takes up in any interpreter, however little is in it."""


class Fitting:
    """Gathers the arguments of the rows to fit on, and calls `fit`. What cannot be bound fails when its turn comes."""

    def __init__(self, plan: Plan) -> None:
        self._binder = RowBinder(plan)
        self._memory_bytes = plan.confinement.limits.memory_bytes
        self._arguments: list[bytes] = []
        self._size = 0
        self._left_out = 0

    def add(self, rows: list[Row]) -> More | Fitted:
        """Binds some rows and asks for more; gives the answer at once where they do not fit into the sandbox."""
        malformed = []
        for row in rows:
            ready = self._binder.bind(row)
            if ready.error is not None:
                self._left_out += 1
                if ready.malformed is not None:
                    malformed.append(ready.malformed)
                continue
            self._arguments.append(ready.arguments)
            self._size += max(len(ready.arguments), _LEAST_ROW_BYTES)
            if self._size > self._memory_bytes:
                message = f"the arguments of {len(self._arguments):,} rows alone have more than that"
                return Fitted(Exceeded(limit="memory_bytes", message=message), self._left_out)
        return More(malformed)

    def fit(self, session: Session) -> Fitted:
        outcome = session.fit(self._arguments)
        if isinstance(outcome, Returned):
            outcome = Returned(value=NOTHING, stdout=outcome.stdout, stderr=outcome.stderr, usage=outcome.usage)
        return Fitted(outcome, self._left_out)


class Aggregating:
    """Gathers results, and calls `aggregate`."""

    def __init__(self, plan: Plan) -> None:
        self._evaluator = plan.evaluator
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        self._parts.append(part)

    def aggregate(self, session: Session) -> Aggregates:
        results = b"[%b]" % b",".join(self._parts)
        self._parts.clear()  # the guest's own copy comes on top of what is held here
        return aggregates_of(session.aggregate(results), self._evaluator)
