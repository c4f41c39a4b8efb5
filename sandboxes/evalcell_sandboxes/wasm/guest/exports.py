"""What the guest exports, as `wit/guest.wit` says it."""

import answers
import calling
import describing
import doors
import files
import wit_world


class WitWorld(wit_world.WitWorld):
    """The exports, by their names."""

    def describe(self, source: str) -> str:
        return describing.describe(source)

    def answers_at(self, mark: str) -> str:
        return str(answers.place(mark))

    def ship(self, name: str, size: str, piece: str) -> str:
        return files.take(name, int(size), piece)

    def load(self, source: str, settings: str) -> str:
        doors.knock()
        return calling.load(source, settings)

    def settle(self, reserve: str) -> str:
        return calling.settle(int(reserve))

    def run(self, rows: str) -> str:
        return calling.run(rows)

    def hook(self, name: str, argument: str) -> str:
        return calling.hook(name, argument)
