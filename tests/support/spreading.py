"""How tests are spread over processes: a file's tests stay together, but for those of a suite for every wall."""

import re

from xdist.scheduler import LoadFileScheduling

_WALL = re.compile(r"\[.*\bon (podman|runsc)\b")


class ByFileAndEngine(LoadFileScheduling):
    """Tests of one file run in one process, one after the other; of a suite for every wall, those on another engine in
    one of their own.

    The suites that hold for every wall are long, and most of that is waiting: for limits to pass and engines to answer.
    """

    def _split_scope(self, nodeid: str) -> str:
        elsewhere = _WALL.search(nodeid)
        return super()._split_scope(nodeid) + (f" on {elsewhere[1]}" if elsewhere else "")
