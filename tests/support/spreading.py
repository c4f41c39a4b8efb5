"""How tests are spread over processes: a file's tests stay together, but for those of a suite for every wall."""

import re

from xdist.scheduler import LoadFileScheduling

_OTHERS = re.compile(r"\[.*\b(podman|runsc)\b")


def other_engine(nodeid: str) -> str | None:
    """The engine that a test was given for one of its parameters, if that is not the usual one."""
    found = _OTHERS.search(nodeid)
    return found[1] if found else None


class ByFileAndEngine(LoadFileScheduling):
    """Tests of one file run in one process, one after the other; of a suite for every wall, those on another engine in
    one of their own.

    The suites that hold for every wall are long, and most of that is waiting: for limits to pass and engines to answer.
    """

    def _split_scope(self, nodeid: str) -> str:
        other = other_engine(nodeid)
        return super()._split_scope(nodeid) + (f" on {other}" if other else "")
