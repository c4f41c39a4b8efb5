"""Every wall, and every engine that a wall can stand on, for suites that hold for all of them."""

import pytest

from evalcell_sandboxes import Sandbox, names, sandbox

_FIXTURES = {"container": "container_wall", "container on podman": "podman_wall", "container on runsc": "runsc_wall"}
WALLS = (*(name for name in names() if name not in _FIXTURES), *_FIXTURES)


def wall_of(request: pytest.FixtureRequest) -> Sandbox:
    """The wall that a fixture with `WALLS` for its parameters is asked for."""
    name = request.param
    return request.getfixturevalue(_FIXTURES[name]) if name in _FIXTURES else sandbox(name)
