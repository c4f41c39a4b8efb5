"""The guest: CPython behind the WebAssembly wall, speaking JSON with the host.

This file and its siblings run inside the sandbox only. Hostile code shares the interpreter with them, so
nothing here is a wall: whatever this side says about a row is that row's author speaking, and the host
decodes it as such. What this side does owe is fairness to honest code: clean errors, captured prints,
results that say what they were.
"""

import stdlib  # first: a module that is not imported while the image is built does not exist afterwards
import wit_world

import heap

heap.fill_holes()

import answers
import calling
import describing
import doors


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
heap.fill_holes()
