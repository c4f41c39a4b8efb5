"""How tests are spread over processes: a file's tests stay together, but for those of a suite for every wall."""

import re

from xdist.scheduler import LoadFileScheduling

_WALL = re.compile(r"\[(?:.*-)?(wasm|deno|(?:container on )?(podman|runsc)|container)\b")


def other_engine(nodeid: str) -> str | None:
    """The engine that a test was given for one of its parameters, if that is not the usual one."""
    found = _WALL.search(nodeid)
    return found[2] if found else None


class ByFileAndWall(LoadFileScheduling):
    """Tests of one file run in one process, one after the other; of a suite for every wall, those on each in their own.

    The suites that hold for every wall are long, and most of that is waiting: for limits to pass and engines to answer.
    """

    def _split_scope(self, nodeid: str) -> str:
        found = _WALL.search(nodeid)
        return super()._split_scope(nodeid) + (f" on {found[1]}" if found else "")
