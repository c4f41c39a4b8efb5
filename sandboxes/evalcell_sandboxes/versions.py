"""What a wall rests on, and from which version on it has no known way out."""

from msgspec import Struct
from packaging.version import InvalidVersion
from packaging.version import Version as _Parsed


class Version(Struct, frozen=True):
    """A piece of software that a wall rests on; `found` is None where it is missing."""

    name: str
    found: str | None
    floor: str

    @property
    def safe(self) -> bool:
        """Whether it is there and not older than what is known to be safe. What cannot be read counts as too old."""
        try:
            return self.found is not None and _Parsed(self.found) >= _Parsed(self.floor)
        except InvalidVersion:
            return False
