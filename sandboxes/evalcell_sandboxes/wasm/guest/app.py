"""The guest: CPython behind the WebAssembly wall, speaking JSON with the host.

This file and its siblings run inside the sandbox only. Hostile code shares the interpreter with them, so
nothing here is a wall: whatever this side says about a row is that row's author speaking, and the host
decodes it as such. What this side does owe is fairness to honest code: clean errors, captured prints,
results that say what they were.
"""

import heap
import stdlib  # before the rest: a module that is not imported while the image is built does not exist afterwards
import wit_world

heap.import_tightly("answers", "capture", "failures", "lots", "results", "waiting", "calling", "describing", "doors")

import answers  # noqa: E402
import calling  # noqa: E402
import describing  # noqa: E402
import doors  # noqa: E402


class WitWorld(wit_world.WitWorld):
    """The exports of `wit/guest.wit`."""

    def describe(self, source: str) -> str:
        return describing.describe(source)

    def answers_at(self, mark: str) -> str:
        return str(answers.place(mark))

    def load(self, source: str, settings: str) -> str:
        doors.knock()
        return calling.load(source, settings)

    def run(self, rows: str) -> str:
        return calling.run(rows)

    def hook(self, name: str, argument: str) -> str:
        return calling.hook(name, argument)


calling.rehearse()
stdlib.close_the_door()
heap.fill_gaps()
