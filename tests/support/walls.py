"""Every wall, and every engine that a wall can stand on, for suites that hold for all of them."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from evalcell_sandboxes import Language, Sandbox, SandboxFault, names, sandbox

_T = TypeVar("_T")

_FIXTURES = {"container": "container_wall", "container on podman": "podman_wall", "container on runsc": "runsc_wall"}
CONTAINERS = tuple(_FIXTURES)
WALLS = (*(name for name in names() if name not in _FIXTURES), *_FIXTURES)
TYPESCRIPT_WALLS = ("deno",)
PYTHON_WALLS = tuple(name for name in WALLS if name not in TYPESCRIPT_WALLS)


def _speaking(language: Language) -> tuple[str, ...]:
    return tuple(name for name in WALLS if language in sandbox(name.partition(" ")[0]).languages)


PYTHON_WALLS = _speaking(Language.PYTHON)
TYPESCRIPT_WALLS = _speaking(Language.TYPESCRIPT)


def wall_of(request: pytest.FixtureRequest) -> Sandbox:
    """The wall that a fixture with `WALLS` or `CONTAINERS` for its parameters is asked for."""
    name = request.param
    return request.getfixturevalue(_FIXTURES[name]) if name in _FIXTURES else sandbox(name)


def on_gvisor(wall: Sandbox) -> bool:
    """Whether it is another kernel than ours that rows see."""
    return bool(wall.site.runtime)


def again_if_killed(wall: Sandbox, work: Callable[[], _T]) -> _T:
    """Does what uses up memory once more where the host has killed gVisor and the engine does not say what for.

    All of it goes when memory runs out, and now and then so fast that nobody has counted that. Lanes try again, too.
    """
    try:
        return work()
    except SandboxFault as fault:
        if not on_gvisor(wall) or "Exit code 137" not in str(fault):
            raise
        return work()
