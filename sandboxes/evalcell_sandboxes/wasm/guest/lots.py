"""Seeds `random` for every row, but only once the row draws from it: seeding takes as long as a small evaluator does.

Until something is drawn, the generator behind `random`'s functions has a class that seeds it first. What can be seen
from outside is what seeding at once would give.
"""

import _random
import random
from hashlib import blake2b

_generator = random._inst
_Seeded = random.Random
_reseed = _random.Random.seed
_key = bytes(8)
_due = 0


class _Unseeded(random.Random):
    def random(self):
        _seed()
        return _generator.random()

    def getrandbits(self, k):
        _seed()
        return _generator.getrandbits(k)

    def getstate(self):
        _seed()
        return _generator.getstate()

    def setstate(self, state):
        self.__class__ = _Seeded
        _Seeded.setstate(self, state)

    def seed(self, *arguments, **named):
        self.__class__ = _Seeded
        _Seeded.seed(self, *arguments, **named)


def _seed() -> None:
    seed = _due
    if type(seed) is str:
        seed = int.from_bytes(blake2b(seed.encode(), digest_size=8, key=_key).digest(), "big")
    _generator.__class__ = _Seeded
    _reseed(_generator, seed)


def _random_function():
    return _generator.random()


def _getrandbits(k):
    return _generator.getrandbits(k)


def _getstate():
    return _generator.getstate()


def begin(seed: int) -> None:
    """Starts a run with its seed, by which the module draws while it is loaded."""
    global _key
    _key = seed.to_bytes(8, "big")
    decide_by(seed)
    # These are bound to methods of the one class or the other; the rest of `random` asks the generator each time.
    random.random, random.getrandbits, random.getstate = _random_function, _getrandbits, _getstate
    random.seed, random.setstate = _generator.seed, _generator.setstate


def decide_by(due) -> None:
    """Has all that is drawn from here on be decided by this: a seed, or the text of a row."""
    global _due
    _due = due
    if _generator.__class__ is not _Unseeded:
        _generator.__class__ = _Unseeded
        _generator.gauss_next = None
