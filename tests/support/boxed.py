"""Sessions in real containers, for tests that ask what happens inside."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from docker import DockerClient

from evalcell_sandboxes import Confinement, Isolation, Limits, Outcome, Program, Returned, Sandbox, Session
from evalcell_sandboxes.container.engine import OWNER


@contextmanager
def boxed(
    wall: Sandbox,
    source: str,
    *,
    isolation: str = "row",
    environment: dict[str, str] | None = None,
    lock: str = "",
    **limits: Any,
) -> Iterator[Session]:
    """A session that has tried to load the source."""
    confinement = Confinement(
        limits=Limits(**{"wall_seconds": 5.0, "load_seconds": 10.0, **limits}),
        isolation=Isolation(isolation),
        environment=environment or {},
        seed=7,
    )
    with wall.open(Program(source=source, filename="evaluator.py", lock=lock), confinement) as session:
        yield session


def ask(session: Session, *outputs: Any) -> list[Outcome]:
    """Runs a row for each output."""
    return list(session.run([json.dumps({"output": output}).encode() for output in outputs]))


def value(outcome: Outcome) -> Any:
    """What a call returned; whatever else came of it fails the test."""
    assert isinstance(outcome, Returned), outcome
    return json.loads(outcome.value)


def containers_of(engine: DockerClient, pids: list[int]) -> list[str]:
    """The ids of the containers that these processes have."""
    found = engine.api.containers(filters={"label": OWNER})
    return [container["Id"] for container in found if int(container["Labels"][OWNER].split()[1]) in pids]
