"""The guest: CPython behind the WebAssembly wall, speaking JSON with the host.

This file and its siblings run inside the sandbox only. Hostile code shares the interpreter with them, so
nothing here is a wall: whatever this side says about a row is that row's author speaking, and the host
decodes it as such. What this side does owe is fairness to honest code: clean errors, captured prints,
results that say what they were.
"""

import heap
import stdlib  # before the rest: a module that is not imported while the image is built does not exist afterwards

heap.import_tightly(
    "answers",
    "callers",
    "capture",
    "failures",
    "files",
    "lots",
    "results",
    "waiting",
    "calling",
    "describing",
    "doors",
    "exports",
)

import calling  # noqa: E402
from exports import WitWorld  # noqa: E402, F401 - which is what componentize-py looks for

calling.rehearse()
stdlib.close_the_door()
heap.fill_gaps()
