"""Programs with assets, for tests that open walls themselves."""

import io
import json
from collections.abc import Mapping
from typing import Any

from evalcell_sandboxes import (
    Asset,
    Confinement,
    Isolation,
    Language,
    Limits,
    Outcome,
    Program,
    Returned,
    Sandbox,
    assets,
    silent,
)
from evalcell_sandboxes.stacks import start_with_plenty

MOST_BYTES = 512 * 1024**2
made: set[str] = set()
"""The digests of what was put into the store, for whoever tidies up."""


def shipped(
    source: str, files: Mapping[str, bytes], filename: str = "judge.py", language: Language = Language.PYTHON
) -> Program:
    """A program whose assets are in the store."""
    kept = [Asset(name, assets.keep(io.BytesIO(content), MOST_BYTES)[0]) for name, content in sorted(files.items())]
    made.update(asset.sha256 for asset in kept)
    return Program(source=source, filename=filename, language=language, assets=tuple(kept))


def confined(isolation: str = "row", environment: Mapping[str, str] | None = None, **limits: Any) -> Confinement:
    return Confinement(
        limits=Limits(**{"wall_seconds": 5.0, **limits}),
        isolation=Isolation(isolation),
        environment=dict(environment or {}),
        seed=7,
    )


def run(wall: Sandbox, program: Program, confinement: Confinement, *outputs: Any) -> list[Outcome]:
    """The outcomes of rows, or of loading where that failed; on a thread with the stack that lanes have."""
    wall.prepare(program, silent)
    answers: list[Any] = []

    def work() -> None:
        try:
            with wall.open(program, confinement) as session:
                rows = [json.dumps({"output": output}).encode() for output in outputs]
                loaded = isinstance(session.loaded, Returned)
                answers.append(list(session.run(rows)) if loaded else [session.loaded])
        except Exception as error:  # noqa: BLE001 - raised again where the test is
            answers.append(error)

    start_with_plenty(work, "test").join()
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


def values(outcomes: list[Outcome]) -> list[Any]:
    assert all(isinstance(outcome, Returned) for outcome in outcomes), outcomes
    return [json.loads(outcome.value) for outcome in outcomes]
