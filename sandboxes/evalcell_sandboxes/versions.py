"""What a wall rests on, and from which version on it has no known way out."""

from msgspec import Struct


class Version(Struct, frozen=True):
    """A piece of software that a wall rests on; `found` is None where it is missing."""

    name: str
    found: str | None
    floor: str

    @property
    def safe(self) -> bool:
        """Whether it is there and not older than what is known to be safe. What cannot be read counts as too old."""
        from packaging.version import InvalidVersion  # seldom needed, and every lane imports this module
        from packaging.version import Version as Parsed

        try:
            return self.found is not None and Parsed(self.found) >= Parsed(self.floor)
        except InvalidVersion:
            return False
