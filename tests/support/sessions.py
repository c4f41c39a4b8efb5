"""Sessions of a wall, for suites that hold for every one of them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from forms import Forms, program
from walls import again_if_killed

from evalcell_sandboxes import Confinement, Isolation, Limits, Outcome, Returned, Sandbox, Session
from evalcell_sandboxes.stacks import start_with_plenty

_T = TypeVar("_T")


def with_plenty_of_stack(function: Callable[[], _T]) -> _T:
    """As a lane does it: what is asserted about recursion holds where there is room for it."""
    answers: list[_T] = []
    start_with_plenty(lambda: answers.append(function()), "test").join()
    return answers[0]


@contextmanager
def opened(
    wall: Sandbox, source: Forms[str] | str, *, isolation: str = "row", seed: int = 7, **limits: Any
) -> Iterator[Session]:
    """A session of a source, whatever came of loading it."""
    confinement = Confinement(
        limits=Limits(**{"wall_seconds": 5.0, **limits}), isolation=Isolation(isolation), seed=seed
    )
    with wall.open(program(wall, source), confinement) as session:
        yield session


def lines(*outputs: Any) -> list[bytes]:
    """A row for each output."""
    return [json.dumps({"output": output}).encode() for output in outputs]


def run(wall: Sandbox, source: Forms[str] | str, *outputs: Any, isolation: str = "row", **limits: Any) -> list[Outcome]:
    """The outcomes of a row for each output."""

    def outcomes() -> list[Outcome]:
        with opened(wall, source, isolation=isolation, **limits) as session:
            assert isinstance(session.loaded, Returned), session.loaded
            return list(session.run(lines(*outputs)))

    return with_plenty_of_stack(lambda: again_if_killed(wall, outcomes) if "memory_bytes" in limits else outcomes())


def values(outcomes: list[Outcome]) -> list[Any]:
    """What they have returned, which all of them must have."""
    assert all(isinstance(outcome, Returned) for outcome in outcomes), outcomes
    return [json.loads(outcome.value) for outcome in outcomes]
