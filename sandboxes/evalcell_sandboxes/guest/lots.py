"""Seeds `random` for every row, but only once the row draws from it: seeding takes as long as a small evaluator does.

Until something is drawn, the generator behind `random`'s functions has a class that seeds it first. What can be seen
from outside is what seeding at once would give.
"""

import _random
import random
from hashlib import blake2b

generator = random._inst
_Seeded = random.Random
_reseed = _random.Random.seed
_key = bytes(8)
due = 0
"""What decides all that is drawn from here on: a seed, or the text of a row."""


class Unseeded(random.Random):
    def random(self):
        _seed()
        return generator.random()

    def getrandbits(self, k):
        _seed()
        return generator.getrandbits(k)

    def getstate(self):
        _seed()
        return generator.getstate()

    def setstate(self, state):
        self.__class__ = _Seeded
        _Seeded.setstate(self, state)

    def seed(self, *arguments, **named):
        self.__class__ = _Seeded
        _Seeded.seed(self, *arguments, **named)


def _seed() -> None:
    seed = due
    if type(seed) is str:
        seed = int.from_bytes(blake2b(seed.encode(), digest_size=8, key=_key).digest(), "big")
    generator.__class__ = _Seeded
    _reseed(generator, seed)


def _random_function():
    return generator.random()


def _getrandbits(k):
    return generator.getrandbits(k)


def _getstate():
    return generator.getstate()


def begin(seed: int) -> None:
    """Starts a run with its seed, by which the module draws while it is loaded."""
    global _key, due
    _key, due = seed.to_bytes(8, "big"), seed
    unseed()
    # These are bound to methods of the one class or the other; the rest of `random` asks the generator each time.
    random.random, random.getrandbits, random.getstate = _random_function, _getrandbits, _getstate
    random.seed, random.setstate = generator.seed, generator.setstate


def unseed() -> None:
    """Has what is due decide what is drawn next."""
    if generator.__class__ is not Unseeded:
        generator.__class__ = Unseeded
        generator.gauss_next = None
