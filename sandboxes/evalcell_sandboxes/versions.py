"""What a wall rests on, and from which version on it has no known way out."""

import re
import sys
from pathlib import Path

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


def installed(package: str) -> str | None:
    """The version of an installed package; None where it is missing.

    It is read from the name of the directory PACKAGE-VERSION.dist-info, because `importlib.metadata` needs a mail
    parser, archives and temporary files, and a lane would spend more time on importing them than on its first row.
    """
    for place in sys.path:
        for found in Path(place).glob(f"{package}-*.dist-info"):
            return found.name.removeprefix(f"{package}-").removesuffix(".dist-info")
    return _recorded(package)


def _recorded(package: str) -> str | None:
    """For what was installed in another way."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...] | None:
    """A release as numbers, without what a distribution added; None for what is none, such as a release candidate."""
    plain = re.fullmatch(r"(\d+(?:\.\d+)*)(?:\+.*)?", version)
    return tuple(map(int, plain[1].split("."))) if plain else None
