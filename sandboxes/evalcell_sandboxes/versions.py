"""What a wall rests on, and from which version on it has no known way out."""

import re

from msgspec import Struct


class Version(Struct, frozen=True):
    """A piece of software that a wall rests on; `found` is None where it is missing."""

    name: str
    found: str | None
    floor: str

    @property
    def safe(self) -> bool:
        """Whether it is there and not older than what is known to be safe. What cannot be read counts as too old."""
        found, floor = _numbers(self.found or ""), _numbers(self.floor)
        return found is not None and floor is not None and found >= floor


def _numbers(version: str) -> tuple[int, ...] | None:
    """A release as numbers, without what a distribution added; None for what is none, such as a release candidate."""
    plain = re.fullmatch(r"(\d+(?:\.\d+)*)(?:\+.*)?", version)
    return tuple(map(int, plain[1].split("."))) if plain else None
